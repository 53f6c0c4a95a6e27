"""One model behind one address: completions, embeddings, scores and variants by HTTP.

What the endpoints take and return: docs/serving.md.
"""

from carbon.serve.app import ServeOptions, make_app

__all__ = ["ServeOptions", "make_app"]

"""HTTP server for one model: completions, embeddings, scores and variants.

Requests and replies of the endpoints: docs/serving.md.
"""

from carbon.serve.app import ServeOptions, make_app

__all__ = ["ServeOptions", "make_app"]

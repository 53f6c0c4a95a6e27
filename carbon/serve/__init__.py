"""HTTP server of a model: completions, embeddings, scores, variants and predictions.

Requests and replies of the endpoints: docs/serving.md.
"""

from carbon.serve.app import make_app
from carbon.serve.options import ServeOptions
from carbon.serve.server import ConnectionLimits, make_server

__all__ = ["ConnectionLimits", "ServeOptions", "make_app", "make_server"]

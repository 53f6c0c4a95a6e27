"""HTTP server for one model: completions, embeddings, scores and variants.

Requests and replies of the endpoints: docs/serving.md.
"""

from carbon.serve.app import ServeOptions, make_app
from carbon.serve.server import ConnectionLimits, make_server

__all__ = ["ConnectionLimits", "ServeOptions", "make_app", "make_server"]

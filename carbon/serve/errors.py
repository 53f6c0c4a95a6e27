"""Errors in the form of OpenAI's API."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

INTERNAL_ERROR = "internal error; see the log of the server"
_MOST_SHOWN = 300  # characters of a message


def error_body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return an error as JSON, with at most 300 characters of its message.

    Args:
        status: HTTP status.
        message: one line.
        param: invalid field of the request, or None.
        code: name of the error that OpenAI's clients know, or None.
    """
    error_type = "invalid_request_error" if status < 500 else "server_error"
    shown = short(message, _MOST_SHOWN)
    return {"error": {"message": shown, "type": error_type, "param": param, "code": code}}


def error(
    status: int,
    message: str,
    param: str | None = None,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a reply with `error_body`."""
    return JSONResponse(error_body(status, message, param, code), status, headers)


async def http_error(request: Request, wrong: Exception) -> JSONResponse:
    """Answer 404, 405 and others, and list the endpoints."""
    assert isinstance(wrong, HTTPException)
    posts = [
        each.path
        for each in request.app.routes
        if isinstance(each, Route) and "POST" in (each.methods or ())
    ]
    requested = f"{request.method} {short(request.url.path, 60)}"
    reasons = {
        404: f"invalid URL ({requested}); POST to one of {', '.join(posts)}",
        405: f"not allowed ({requested}); use {(wrong.headers or {}).get('Allow', 'POST')}",
    }
    reason = reasons.get(wrong.status_code, str(wrong.detail))
    return error(wrong.status_code, reason, headers=wrong.headers)


async def server_error(request: Request, wrong: Exception) -> JSONResponse:
    """Answer 500."""
    return error(500, INTERNAL_ERROR)


def short(text: str | None, most: int) -> str:
    """Return a text of at most `most` characters, cut with dots."""
    shown = text or ""
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."

"""What the browser is told about this server, and what this server takes from outside."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from carbon.errors import UserError
from demo.fields import MOST_FILES
from demo.limits import Limits

# Gradio's own scripts need inline code and `eval`; nothing may come from, or go to, elsewhere.
_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "connect-src 'self' data: blob:; form-action 'self'; object-src 'none'; base-uri 'self'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_QUESTION_BYTES = 2**20
_FORM_BYTES = 2**16  # around the files of an upload


class SecurityHeaders:
    """Adds the headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, with_headers)


class BodyLimits:
    """Refuses what is longer than any question or upload, and uploads that come too fast.

    Gradio reads a question whole, and keeps it as long as the session.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        """Wrap an application."""
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        refusal = self._refusal(scope) if posted else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        is_upload = scope["path"].endswith("/upload")
        most = MOST_FILES * self.limits.upload_bytes + _FORM_BYTES if is_upload else _QUESTION_BYTES
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not length.isdecimal() or int(length) > most:
            return JSONResponse({"detail": f"give its length, and {most:,} bytes at most"}, 413)
        try:
            if is_upload:
                self.limits.admit(scope["client"][0] if scope["client"] else "unknown")
        except UserError as error:
            return JSONResponse({"detail": str(error)}, 429)
        return None

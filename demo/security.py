"""Response headers for the browser, and limits on what the server accepts from outside."""

import re
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from carbon.errors import UserError
from demo.fields import MOST_FILES
from demo.limits import Limits
from demo.markup import part
from demo.preview import Previews

# Gradio's own scripts need inline code and `eval`; all content must come from this server.
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
_FORM_BYTES = 2**16  # allowance for the form around the files of an upload


_CARD = re.compile(rb'<meta\s+(?:property|name)="(?:og|twitter):[^>]*>|<title>[^<]*</title>')


class OwnPages:
    """Adds the headers to every response, and title and preview of the state to each page."""

    def __init__(self, app: ASGIApp, previews: Previews) -> None:
        self.app, self.previews = app, previews

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request and rewrite the response."""
        starts: list[Message] = []  # the start of a page, whose length will change

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                is_page = scope["path"] in self.previews.pages
                if is_page and "text/html" in headers.get("content-type", ""):
                    starts.append(message)
                    return
            elif starts:
                body = _CARD.sub(b"", message["body"])
                body = body.replace(b"<head>", b"<head>" + self._card(scope).encode(), 1)
                start, message = starts.pop(), {**message, "body": body}
                MutableHeaders(scope=start)["content-length"] = str(len(body))
                await send(start)
            await send(message)

        await self.app(scope, receive, with_headers)

    def _card(self, scope: Scope) -> str:
        query = scope["query_string"].decode("latin-1")
        state = f"{scope['path']}?{query}" if query else scope["path"]
        card = self.previews.card_of(state)
        assert card is not None
        host = f"{scope['scheme']}://{Headers(scope=scope).get('host', '')}"
        return part("head", {
            "title": f"{card.title} · Carbon",
            "description": card.sentence,
            "type": "website",
            "image": f"{host}/carbon/card.png?{urlencode({'state': state})}",
            "url": host + state,
        })  # fmt: skip


_DRAINED_BYTES = 2**28


class BodyLimits:
    """Rejects bodies larger than any valid question or upload, and uploads that arrive too fast.

    Gradio reads a whole question into memory, and keeps it for the session.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or reject it."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        refusal = self._refusal(scope) if posted else None
        if refusal and scope["path"].endswith("/upload"):
            await _drain(receive)
        await (refusal or self.app)(scope, receive, send)

    def _too_long(self, num_bytes: int) -> str:
        most_mb = self.limits.upload_bytes / 2**20
        return (
            f"the upload has {num_bytes / 2**20:,.1f} MB, and a file has at most {most_mb:.3g} MB; "
            "upload the part of the genome that you want to read"
        )

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        is_upload = scope["path"].endswith("/upload")
        most = MOST_FILES * self.limits.upload_bytes + _FORM_BYTES if is_upload else _QUESTION_BYTES
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not length.isdecimal() or int(length) > most:
            if is_upload and length.isdecimal():
                return JSONResponse({"detail": self._too_long(int(length))}, 413)
            return JSONResponse({"detail": f"give its length, and {most:,} bytes at most"}, 413)
        try:
            if is_upload:
                self.limits.admit(scope["client"][0] if scope["client"] else "unknown", "uploads")
        except UserError as error:
            return JSONResponse({"detail": str(error)}, 429)
        return None


async def _drain(receive: Receive) -> None:
    """Read and drop a body, so that the client receives the answer instead of a reset connection.

    A body of more than `_DRAINED_BYTES` is not read to its end.
    """
    num_bytes, more = 0, True
    while more and num_bytes < _DRAINED_BYTES:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        more = message.get("more_body", False)

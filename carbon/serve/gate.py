"""What a request must have before its body is read: an allowed host, the token, a length."""

import re
from ipaddress import ip_address
from secrets import compare_digest

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from carbon.serve.errors import error, short
from carbon.serve.options import ServeOptions
from carbon.tokenizer import K

OPEN_PATHS = ("/health", "/ready")
"""Paths that need no token: an orchestrator asks them, and they reveal nothing but the state."""
_BYTES_PER_TOKEN = 2 * K  # maximum, in the body of a request
_OTHER_BYTES = 65_536


class RequestGate:
    """Refuses foreign Host headers, which DNS rebinding has, wrong tokens, and long bodies."""

    def __init__(self, app: ASGIApp, options: ServeOptions) -> None:
        """Wrap an application."""
        self._app, self._hosts = app, frozenset(map(str.lower, options.allowed_hosts))
        self._most_bytes = _BYTES_PER_TOKEN * options.most_tokens + _OTHER_BYTES
        self._authorization = f"Bearer {options.token}".encode() if options.token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host = re.sub(r":\d*$", "", headers.get("host", "")).lower()
        if not self._is_allowed(host):
            shown = short(host, 60)
            return error(
                400, f"Host '{shown}' is not allowed; `carbon serve --allowed-hosts` allows names"
            )
        if scope["path"] not in OPEN_PATHS and not self._has_token(headers):
            return error(
                401,
                "send the header `Authorization: Bearer TOKEN` with the token of this server; in "
                "OpenAI's client it is the api_key",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return self._refused_length(headers) if scope["method"] == "POST" else None

    def _has_token(self, headers: Headers) -> bool:
        """Compare in a time that does not depend on how many letters agree."""
        if self._authorization is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        sent = f"{kind.capitalize()} {token.strip()}".encode()
        return compare_digest(sent, self._authorization)

    def _refused_length(self, headers: Headers) -> JSONResponse | None:
        most = f"{self._most_bytes:,} bytes (it follows from --most-tokens)"
        length = headers.get("content-length", "")
        is_number = length.isascii() and length.isdecimal() and len(length) < 20
        if "transfer-encoding" in headers or not is_number:
            return error(411, f"give the length of the body as Content-Length, at most {most}")
        if int(length) > self._most_bytes:
            return error(413, f"the body has {int(length):,} bytes; this server reads {most}")
        return None

    def _is_allowed(self, host: str) -> bool:
        """Return whether a host is allowed; an IP address is, because it cannot be rebound."""
        try:
            ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:
            return host in self._hosts or "*" in self._hosts
        return True

"""The web application: limits, errors in OpenAI's form, and the endpoints."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from carbon.__version__ import __version__
from carbon.errors import UserError
from carbon.genome import Reference
from carbon.inference import Model
from carbon.inference.variants.calibration import Calibration
from carbon.io.structured import JSON_OBJECT, parse_json
from carbon.serve.endpoints import ENDPOINTS, Endpoint
from carbon.serve.schemas import ModelRequest
from carbon.serve.worker import Busy, ModelJob, ModelThread
from carbon.tokenizer import K

_BYTES_PER_TOKEN = 2 * K  # maximum, in the body of a request
_OTHER_BYTES = 65_536
_MOST_SHOWN = 300  # characters of a message
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """Options of a server.

    Attributes:
        name: of the model, for clients.
        reference: for variants.
        calibration: for calibrated deltas of variants.
        most_tokens: maximum tokens that the model computes for one request.
        most_items: maximum results of one request.
        most_waiting: maximum waiting requests; more are refused with 503.
        allowed_hosts: names of this server that a request may have in its Host header, besides IP
            addresses; `*` for any.
        allowed_origins: origins whose web pages may send requests (CORS).
    """

    name: str
    reference: Reference | None = None
    calibration: Calibration | None = None
    most_tokens: int = 500_000
    most_items: int = 10_000
    most_waiting: int = 256
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
    allowed_origins: Sequence[str] = ()


def make_app(model: Model, options: ServeOptions) -> FastAPI:
    """Return the application that serves a model."""
    thread = ModelThread(options.most_waiting)
    served = Model(model.model)  # a separate runner, which pauses
    served.runner.after_batch = thread.pause

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(thread.close)

    # The interactive pages of FastAPI load scripts from other hosts.
    app = FastAPI(
        title="Carbon", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    most_bytes = _BYTES_PER_TOKEN * options.most_tokens + _OTHER_BYTES
    app.add_middleware(_RequestLimits, most_bytes=most_bytes, hosts=options.allowed_hosts)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=options.allowed_origins, allow_headers=["*"]
        )
    app.exception_handler(HTTPException)(_http_error)
    app.exception_handler(Exception)(_server_error)

    for endpoint_class in ENDPOINTS:
        endpoint = endpoint_class(
            served, options.name, options.reference, thread.pause, options.calibration
        )
        answer = _answerer(endpoint, thread, options)
        schema = {"application/json": {"schema": endpoint.request.model_json_schema()}}
        body = {"requestBody": {"required": True, "content": schema}}
        app.post(endpoint.path, summary=endpoint_class.__doc__, openapi_extra=body)(answer)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        served = {"id": options.name, "object": "model", "created": 0, "owned_by": "carbon"}
        return {"object": "list", "data": [served]}

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _answerer(
    endpoint: Endpoint[Any], thread: ModelThread, options: ServeOptions
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            asked = _parsed(endpoint.request, await request.body(), request.headers)
            _check_items(asked, options)
            job = endpoint.job(asked)
            _check_tokens(job, asked, options)
            results = await _results(thread, job, request)
            # In a separate thread, because a long answer takes seconds to write.
            text = await asyncio.to_thread(_as_json, endpoint, asked, results)
        except UserError as error:
            return _error(400, str(error), _param(str(error), endpoint.request))
        except Busy as error:
            return _error(503, str(error), headers={"Retry-After": "1"})
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        return Response(text, media_type="application/json")

    return answer


async def _results(thread: ModelThread, job: ModelJob, request: Request) -> list[Any]:
    """Return the results of a job; drop it as soon as its client is gone."""
    future = asyncio.wrap_future(thread.submit(job))
    gone: asyncio.Future[Any] = asyncio.ensure_future(
        request.receive()
    )  # after the body, this is the disconnection
    try:
        await asyncio.wait({future, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise ClientDisconnect
        return future.result()
    finally:
        gone.cancel()
        if not future.done():
            thread.drop(job)


def _as_json(endpoint: Endpoint[Any], request: ModelRequest, results: list[Any]) -> str:
    """Return the body of the reply; other threads run meanwhile, unlike within `json.dumps`."""
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return "".join(encoder.iterencode(endpoint.reply(request, results)))


def _parsed(kind: type[ModelRequest], body: bytes, headers: Headers) -> ModelRequest:
    """Return a request.

    Raises:
        UserError: the body is not JSON, or a field is unknown or invalid; the message begins with
            the field.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise UserError("body: send JSON with Content-Type: application/json")
    fields = parse_json(body, "body", JSON_OBJECT, remedy="send a JSON object")
    for name in fields:
        if name not in kind.model_fields:
            near = "".join(
                f"; did you mean {each}?" for each in get_close_matches(name, kind.model_fields, 1)
            )
            raise UserError(f"{_short(name, 40)}: Extra inputs are not permitted{near}")
    try:
        return kind.model_validate(fields)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
    problem = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    raise UserError(f"{'.'.join(map(str, first['loc']))}: {problem}")


def _check_items(request: ModelRequest, options: ServeOptions) -> None:
    if request.model not in (None, options.name):
        shown = _short(request.model, 40)
        raise UserError(f"model: there is no '{shown}'; this is '{options.name}'")
    if request.num_items > options.most_items:
        raise UserError(
            f"{request.items_field}: {request.num_items:,} results exceed the "
            f"{options.most_items:,} of one request; send several"
        )


def _check_tokens(job: ModelJob, request: ModelRequest, options: ServeOptions) -> None:
    if job.num_tokens > options.most_tokens:
        raise UserError(
            f"{request.items_field}: up to {job.num_tokens:,} tokens to compute exceed the "
            f"{options.most_tokens:,} of one request; send several"
        )


def _param(message: str, kind: type[ModelRequest]) -> str | None:
    """Return the field that the first words of a message name, or None."""
    field = message.partition(":")[0]
    if field.partition(".")[0] in kind.model_fields or "Extra inputs" in message:
        return field
    forms = {
        form: name
        for name in kind.model_fields
        for form in (name, name.removesuffix("s"), name.removesuffix("_bp"))
    }
    words = re.findall("[a-z_]+", message)[:3]
    return next((forms[word] for word in words if word in forms), None)


class _RequestLimits:
    """Refuses foreign Host headers, which DNS rebinding has, and bodies that are too long."""

    def __init__(self, app: ASGIApp, most_bytes: int, hosts: Sequence[str]) -> None:
        """Wrap an application."""
        self._app, self._most_bytes, self._hosts = app, most_bytes, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host = re.sub(r":\d*$", "", headers.get("host", "")).lower()
        if not self._is_allowed(host):
            shown = _short(host, 60)
            return _error(
                400, f"Host '{shown}' is not allowed; `carbon serve --allowed-hosts` allows names"
            )
        length = headers.get("content-length", "")
        if scope["method"] == "POST" and (
            "transfer-encoding" in headers
            or not (length.isascii() and length.isdecimal() and len(length) < 20)
            or int(length) > self._most_bytes
        ):
            most = f"{self._most_bytes:,} bytes"
            return _error(413, f"give the length of the body, at most {most}")
        return None

    def _is_allowed(self, host: str) -> bool:
        """Return whether a host is allowed; an IP address is, because it cannot be rebound."""
        try:
            ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:
            return host in self._hosts or "*" in self._hosts
        return True


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer 404, 405 and others in OpenAI's form, and list the endpoints."""
    assert isinstance(error, HTTPException)
    paths = ", ".join(endpoint.path for endpoint in ENDPOINTS)
    requested = f"{request.method} {_short(request.url.path, 60)}"
    reasons = {
        404: f"invalid URL ({requested}); POST to one of {paths}",
        405: f"not allowed ({requested}); use {(error.headers or {}).get('Allow', 'POST')}",
    }
    reason = reasons.get(error.status_code, str(error.detail))
    return _error(error.status_code, reason, headers=error.headers)


async def _server_error(request: Request, error: Exception) -> JSONResponse:
    return _error(500, "internal error; see the log of the server")


def _error(
    status: int,
    message: str,
    param: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return an error in OpenAI's form; `param` is the invalid field of the request."""
    return JSONResponse(error_body(status, message, param), status, headers)


def error_body(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """Return an error as JSON in OpenAI's form, with at most 300 characters of a message."""
    error_type = "invalid_request_error" if status < 500 else "server_error"
    shown = _short(message, _MOST_SHOWN)
    return {"error": {"message": shown, "type": error_type, "param": param, "code": None}}


def _short(text: str | None, most: int) -> str:
    shown = text or ""
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."

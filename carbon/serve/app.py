"""The web application: limits, errors in OpenAI's form, and the endpoints."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from carbon.__version__ import __version__
from carbon.errors import UserError
from carbon.genome import Reference
from carbon.inference import Model
from carbon.serve.endpoints import ENDPOINTS, Endpoint
from carbon.serve.schemas import ModelRequest
from carbon.serve.worker import Busy, ModelThread

_BYTES_PER_BASE = 2  # maximum, in the body of a request
_OTHER_BYTES = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """Options of a server.

    Attributes:
        name: of the model, for clients.
        reference: for variants.
        most_bp: maximum bases of one request, given and requested.
        most_waiting: maximum waiting requests; more are refused with 503.
    """

    name: str
    reference: Reference | None = None
    most_bp: int = 1_000_000
    most_waiting: int = 256


def make_app(model: Model, options: ServeOptions) -> FastAPI:
    """Return the application that serves a model."""
    thread = ModelThread(options.most_waiting)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(thread.close)

    # The interactive pages of FastAPI load scripts from other hosts.
    app = FastAPI(
        title="Carbon", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.middleware("http")(_body_limit(_BYTES_PER_BASE * options.most_bp + _OTHER_BYTES))
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_no_endpoint)
    app.exception_handler(Busy)(_busy)
    app.exception_handler(Exception)(_server_error)

    for endpoint_class in ENDPOINTS:
        endpoint = endpoint_class(model, options.name, options.reference)
        answer = _answerer(endpoint, thread, options)
        app.post(endpoint.path, summary=endpoint_class.__doc__)(answer)

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
) -> Callable[..., Awaitable[Any]]:
    async def answer(request: endpoint.request) -> Any:  # type: ignore[name-defined]
        try:
            _check_request(request, options)
            future = thread.submit(endpoint.job(request))
            return endpoint.reply(request, await asyncio.wrap_future(future))
        except UserError as error:
            return _error(400, str(error), _param(str(error), request))

    return answer


def _check_request(request: ModelRequest, options: ServeOptions) -> None:
    if request.model not in (None, options.name):
        raise UserError(f"model: there is no '{request.model}'; this is '{options.name}'")
    if request.size_bp > options.most_bp:
        raise UserError(
            f"{request.items_field}: {request.size_bp:,} bases, given and requested, exceed "
            f"the {options.most_bp:,} of one request; send several"
        )


def _param(message: str, request: ModelRequest) -> str | None:
    """Return the field that the first words of a message name, or None."""
    forms = {
        form: name
        for name in type(request).model_fields
        for form in (name, name.removesuffix("s"), name.removesuffix("_bp"))
    }
    words = re.findall("[a-z_]+", message)[:3]
    return next((forms[word] for word in words if word in forms), None)


def _body_limit(
    most_bytes: int,
) -> Callable[[Request, Callable[[Request], Awaitable[Any]]], Awaitable[Any]]:
    async def limited(request: Request, handle: Callable[[Request], Awaitable[Any]]) -> Any:
        length = request.headers.get("content-length", "")
        if request.method == "POST" and (
            "transfer-encoding" in request.headers
            or not length.isdecimal()
            or int(length) > most_bytes
        ):
            return _error(413, f"give the length of the body, at most {most_bytes:,} bytes")
        return await handle(request)

    return limited


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Report the first invalid field."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _error(400, f"the body is not JSON: {first['ctx']['error']}")
    field = ".".join(map(str, first["loc"][1:]))
    problem = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    if not field:
        return _error(400, f"body: {problem}; send JSON with Content-Type: application/json")
    return _error(400, f"{field}: {problem}", field)


async def _no_endpoint(request: Request, error: Exception) -> JSONResponse:
    """Answer 404 and 405 in OpenAI's form, and list the endpoints."""
    assert isinstance(error, HTTPException)
    paths = ", ".join(endpoint.path for endpoint in ENDPOINTS)
    requested = f"{request.method} {request.url.path}"
    reasons = {
        404: f"invalid URL ({requested}); POST to one of {paths}",
        405: f"not allowed ({requested}); use {(error.headers or {}).get('Allow', 'POST')}",
    }
    reason = reasons.get(error.status_code, str(error.detail))
    return _error(error.status_code, reason, headers=error.headers)


async def _busy(request: Request, error: Exception) -> JSONResponse:
    return _error(503, str(error), headers={"Retry-After": "1"})


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
    error_type = "invalid_request_error" if status < 500 else "server_error"
    content = {"message": message, "type": error_type, "param": param, "code": None}
    return JSONResponse({"error": content}, status, headers)

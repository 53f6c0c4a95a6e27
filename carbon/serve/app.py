"""The web application: limits, errors as OpenAI's clients read them, and the endpoints."""

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
from carbon.serve.schemas import Question
from carbon.serve.worker import Busy, Worker

_BYTES_OF_BASE = 2  # of a request, at most, beside what follows
_OTHER_BYTES = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """What is served, and how much at once.

    Attributes:
        name: of the model, as clients give it.
        reference: of which variants are scored.
        most_bp: of one request, given and asked for.
        most_waiting: requests; one more is refused with 503.
    """

    name: str
    reference: Reference | None = None
    most_bp: int = 1_000_000
    most_waiting: int = 256


def make_app(model: Model, options: ServeOptions) -> FastAPI:
    """Return the application that answers with a model."""
    worker = Worker(options.most_waiting)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(worker.close)

    # The pages that FastAPI makes of openapi.json load their scripts from elsewhere.
    app = FastAPI(
        title="Carbon", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.middleware("http")(_body_limit(_BYTES_OF_BASE * options.most_bp + _OTHER_BYTES))
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_no_endpoint)
    app.exception_handler(Busy)(_busy)
    app.exception_handler(Exception)(_our_fault)

    for kind in ENDPOINTS:
        endpoint = kind(model, options.name, options.reference)
        app.post(kind.path, summary=kind.__doc__)(_answerer(endpoint, worker, options))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        served = {"id": options.name, "object": "model", "created": 0, "owned_by": "carbon"}
        return {"object": "list", "data": [served]}

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _answerer(
    endpoint: Endpoint[Any], worker: Worker, options: ServeOptions
) -> Callable[..., Awaitable[Any]]:
    async def answer(question: endpoint.question) -> Any:  # type: ignore[name-defined]
        try:
            _check_request(question, options)
            future = worker.submit(endpoint.job(question))
            return endpoint.reply(question, await asyncio.wrap_future(future))
        except UserError as error:
            return _error(400, str(error), _param(str(error), question))

    return answer


def _check_request(question: Question, options: ServeOptions) -> None:
    if question.model not in (None, options.name):
        raise UserError(f"model: there is no '{question.model}'; this is '{options.name}'")
    if question.size_bp > options.most_bp:
        raise UserError(
            f"{question.items_field}: {question.size_bp:,} bases, given and asked for, are more "
            f"than the {options.most_bp:,} of one request; send several"
        )


def _param(message: str, question: Question) -> str | None:
    """Return the field that a message is about: it stands among the first words, if any does."""
    forms = {
        form: name
        for name in type(question).model_fields
        for form in (name, name.removesuffix("s"), name.removesuffix("_bp"))
    }
    words = re.findall("[a-z_]+", message)[:3]
    return next((forms[word] for word in words if word in forms), None)


def _body_limit(
    most_bytes: int,
) -> Callable[[Request, Callable[[Request], Awaitable[Any]]], Awaitable[Any]]:
    async def limited(request: Request, go_on: Callable[[Request], Awaitable[Any]]) -> Any:
        length = request.headers.get("content-length", "")
        if request.method == "POST" and (
            "transfer-encoding" in request.headers
            or not length.isdecimal()
            or int(length) > most_bytes
        ):
            return _error(413, f"give the length of the body, {most_bytes:,} bytes at most")
        return await go_on(request)

    return limited


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Name the first field that is wrong."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _error(400, f"the body is not JSON: {first['ctx']['error']}")
    place = ".".join(map(str, first["loc"][1:]))
    what = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    if not place:
        return _error(400, f"body: {what}; send JSON with Content-Type: application/json")
    return _error(400, f"{place}: {what}", place)


async def _no_endpoint(request: Request, error: Exception) -> JSONResponse:
    """Answer 404 and 405 as OpenAI does, with the endpoints that there are."""
    assert isinstance(error, HTTPException)
    paths = ", ".join(kind.path for kind in ENDPOINTS)
    asked = f"{request.method} {request.url.path}"
    reasons = {
        404: f"invalid URL ({asked}); POST to one of {paths}",
        405: f"not allowed ({asked}); use {(error.headers or {}).get('Allow', 'POST')}",
    }
    reason = reasons.get(error.status_code, str(error.detail))
    return _error(error.status_code, reason, headers=error.headers)


async def _busy(request: Request, error: Exception) -> JSONResponse:
    return _error(503, str(error), headers={"Retry-After": "1"})


async def _our_fault(request: Request, error: Exception) -> JSONResponse:
    return _error(500, "the server has failed; its log says how")


def _error(
    status: int,
    message: str,
    param: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return an error in OpenAI's form; `param` is the field of the request that is wrong."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    content = {"message": message, "type": kind, "param": param, "code": None}
    return JSONResponse({"error": content}, status, headers)

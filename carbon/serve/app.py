"""The web application: limits, errors as OpenAI's clients read them, and the endpoints."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from carbon.__version__ import __version__
from carbon.errors import UserError
from carbon.genome import Reference
from carbon.inference import Carbon
from carbon.serve.endpoints import ENDPOINTS, Endpoint
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


def make_app(model: Carbon, options: ServeOptions) -> FastAPI:
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
    app.exception_handler(UserError)(_user_error)
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
) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def answer(question: endpoint.question) -> dict[str, Any]:  # type: ignore[name-defined]
        if question.model not in (None, options.name):
            raise UserError(f"model: there is no '{question.model}'; this is '{options.name}'")
        if question.size_bp > options.most_bp:
            raise UserError(
                f"{question.size_bp:,} bases, given and asked for, are more than the "
                f"{options.most_bp:,} of one request; send several"
            )
        future = worker.submit(endpoint.job(question))
        return endpoint.reply(question, await asyncio.wrap_future(future))

    return answer


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
    place = ".".join(map(str, first["loc"][1:]))
    what = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    return _error(400, f"{place}: {what}" if place else what)


async def _user_error(request: Request, error: Exception) -> JSONResponse:
    return _error(400, str(error))


async def _busy(request: Request, error: Exception) -> JSONResponse:
    return _error(503, str(error), {"Retry-After": "1"})


async def _our_fault(request: Request, error: Exception) -> JSONResponse:
    return _error(500, "the server has failed; its log says how")


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    told = {"message": message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": told}, status, headers)

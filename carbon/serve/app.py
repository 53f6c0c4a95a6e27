"""The web application: its endpoints, and the way of a request to the model and back."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from carbon.__version__ import __version__
from carbon.errors import UserError, did_you_mean
from carbon.genome import Consequences
from carbon.inference import Model
from carbon.inference.variants.annotate import other_genome
from carbon.io.structured import JSON_OBJECT, parse_json
from carbon.serve.endpoints import Completions, Embeddings, Endpoint, Scores
from carbon.serve.errors import error, http_error, server_error, short
from carbon.serve.gate import RequestGate
from carbon.serve.metrics import CONTENT_TYPE, Measured, Metrics
from carbon.serve.options import ServeOptions
from carbon.serve.reference_page import operation, reference_page
from carbon.serve.schemas import ModelRequest
from carbon.serve.streams import Events, as_json, stream
from carbon.serve.variants import Variants
from carbon.serve.worker import Busy, ModelJob, ModelThread
from carbon.tokenizer import six_mers

if TYPE_CHECKING:
    from carbon.finetune.predict import FinetunedModel


def make_app(model: Model, options: ServeOptions) -> FastAPI:
    """Return the application that serves a model.

    Raises:
        UserError: the model is not Carbon's own, the background or the calibration is of another
            model, or a fine-tuned model has the name of another, or reads pairs of alleles.
    """
    served = Model(model.model)  # a runner of its own, which pauses
    _check_options(served, options)
    thread = ModelThread(options.most_waiting)
    served.runner.after_batch = thread.pause
    options = replace(options, finetuned=_pausing(options.finetuned, thread))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(thread.close)

    # The interactive pages of FastAPI load scripts from other hosts.
    app = FastAPI(
        title="Carbon", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    metrics = Metrics(lambda: thread.num_waiting)
    for endpoint in _endpoints(served, options, thread):
        answer = _answerer(endpoint, thread, options, metrics)
        app.post(endpoint.path, **operation(endpoint))(answer)
    _add_pages(app, options, thread, metrics)
    paths = [route.path for route in app.routes]  # type: ignore[attr-defined]
    app.add_middleware(RequestGate, options=options)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
    app.add_middleware(Measured, metrics=metrics, paths=paths)
    app.exception_handler(HTTPException)(http_error)
    app.exception_handler(Exception)(server_error)
    return app


def _pausing(
    models: Mapping[str, "FinetunedModel"], thread: ModelThread
) -> dict[str, "FinetunedModel"]:
    """Return fine-tuned models with runners of their own, which pause."""
    own = {
        name: type(each)(each.network, each.vocabulary, each.manifest)
        for name, each in models.items()
    }
    for each in own.values():
        each.averager.batcher.after_batch = thread.pause
    return own


def _check_options(model: Model, options: ServeOptions) -> None:
    """Check what belongs to a model; the hash of the weights would take long within a request."""
    six_mers(model.runner.vocabulary, options.name)  # completions need them
    if options.background:
        options.background.check_model(model.runner, "background")
    if options.calibration:
        options.calibration.check_model(model.runner, "calibration")
    for name, finetuned in options.finetuned.items():
        if name == options.name:
            raise UserError(f"the fine-tuned model '{name}' has the model's name; give another")
        if finetuned.reads_pairs:
            raise UserError(
                f"the fine-tuned model '{name}' reads both alleles of variants, which /predict "
                "does not take; use `carbon predict` with a VCF"
            )


def _endpoints(model: Model, options: ServeOptions, thread: ModelThread) -> list[Endpoint[Any]]:
    common = model, options, thread.pause
    endpoints: list[Endpoint[Any]] = [
        Completions(*common),
        Embeddings(*common),
        Scores(*common),
        Variants(*common, _consequences(options), _other_genomes(options)),
    ]
    if options.finetuned:
        from carbon.serve.predictions import Predictions

        endpoints.append(Predictions(*common))
    return endpoints


def _consequences(options: ServeOptions) -> Consequences | None:
    if options.reference is None or options.annotation is None:
        return None
    return Consequences(options.reference, options.annotation)


def _other_genomes(options: ServeOptions) -> dict[str, str]:
    """Return which percentiles and calibrated deltas are of another genome, and warn of it."""
    notes: dict[str, str] = {}
    if options.reference:
        for name in ("background", "calibration"):
            drawn = getattr(options, name)
            notes |= other_genome(name, drawn, options.reference, options.genetic_code)
    return notes


def _add_pages(app: FastAPI, options: ServeOptions, thread: ModelThread, metrics: Metrics) -> None:
    """Add what answers without the model."""

    @app.get("/v1/models", summary="List the models.")
    async def models() -> dict[str, Any]:
        names = [options.name, *options.finetuned]
        about = {"object": "model", "created": 0, "owned_by": "carbon"}
        return {"object": "list", "data": [{"id": name, **about} for name in names]}

    @app.get("/health", summary="Answer 200 while the process runs.")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", summary="Answer 200 if a request would be accepted, otherwise 503.")
    async def ready() -> JSONResponse:
        if why := thread.why_not_ready:
            return error(503, why, headers={"Retry-After": "1"})
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", summary="Report counters in the text format of Prometheus.")
    async def counters() -> Response:
        return Response(metrics.to_text(), media_type=CONTENT_TYPE)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        address, has_token = str(request.base_url), options.token is not None
        return HTMLResponse(reference_page(app.openapi(), address, has_token=has_token))


def _answerer(
    endpoint: Endpoint[Any], thread: ModelThread, options: ServeOptions, metrics: Metrics
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            parsed = _parsed(endpoint.request, await request.body(), request.headers)
            _check_request(endpoint, parsed, options)
            if parsed.stream:
                return _streamed(endpoint, thread, parsed, options, metrics, request)
            job = endpoint.job(parsed)
            _check_tokens(job, parsed, options)
            thread.submit(job)
            metrics.tokens[endpoint.path] += job.num_tokens
            results = await _results(thread, job, request)
            # In a thread of its own, as a long answer takes seconds to write.
            text = await asyncio.to_thread(lambda: as_json(endpoint.reply(parsed, results)))
        except UserError as wrong:
            return error(400, str(wrong), _param(str(wrong), endpoint.request))
        except Busy as wrong:
            return error(503, str(wrong), headers={"Retry-After": "1"})
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        return Response(text, media_type="application/json")

    return answer


async def _results(thread: ModelThread, job: ModelJob, request: Request) -> list[Any]:
    """Return the results of a submitted job; drop it as soon as its client is gone."""
    future = asyncio.wrap_future(job.future)
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
            future.cancel()  # asyncio would print the error of a future that nobody awaits


def _streamed(
    endpoint: Endpoint[Any],
    thread: ModelThread,
    parsed: ModelRequest,
    options: ServeOptions,
    metrics: Metrics,
    request: Request,
) -> Response:
    """Submit a job, and return a reply that sends its results as events."""
    events = Events()
    head: dict[str, Any] = {}

    def emit(index: int, part: dict[str, Any]) -> None:
        events.put(lambda: endpoint.event(head, index, part))

    def emit_result(index: int, result: Any) -> None:
        events.put(lambda: endpoint.event(head, index, endpoint.last_part(parsed, index, result)))

    def emit_total(future: Future[list[Any]]) -> None:
        if not future.exception() and (total := endpoint.total(head, parsed, future.result())):
            events.put(lambda: total)

    job = endpoint.job(parsed, emit)
    _check_tokens(job, parsed, options)
    job.on_result = emit_result
    job.future.add_done_callback(emit_total)
    head |= endpoint.head(parsed)
    thread.submit(job)
    metrics.tokens[endpoint.path] += job.num_tokens
    return stream(thread, job, events, request.state)


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
            near = did_you_mean(name, kind.model_fields)
            raise UserError(f"{short(name, 40)}: Extra inputs are not permitted{near}")
    try:
        return kind.model_validate(fields)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
    problem = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    if first["loc"][0] in kind.refused_fields:
        problem = "is not supported; leave it out"
    raise UserError(f"{'.'.join(map(str, first['loc']))}: {problem}")


def _check_request(endpoint: Endpoint[Any], request: ModelRequest, options: ServeOptions) -> None:
    names = endpoint.model_names
    if request.model is not None and request.model not in names:
        shown = short(request.model, 40)
        raise UserError(f"model: {endpoint.path} has no '{shown}'; it has {', '.join(names)}")
    if request.num_items > options.most_items:
        raise UserError(
            f"{request.items_field}: {request.num_items:,} results exceed the "
            f"{options.most_items:,} of one request (--most-items); send several"
        )


def _check_tokens(job: ModelJob, request: ModelRequest, options: ServeOptions) -> None:
    if job.num_tokens > options.most_tokens:
        raise UserError(
            f"{request.items_field}: up to {job.num_tokens:,} tokens to compute exceed the "
            f"{options.most_tokens:,} of one request (--most-tokens); send several"
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

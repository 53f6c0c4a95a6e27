"""Replies that arrive in parts: server-sent events, as OpenAI's API sends them.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.datastructures import State
from starlette.responses import StreamingResponse

from carbon.errors import UserError
from carbon.serve.errors import INTERNAL_ERROR, error_body
from carbon.serve.worker import ModelJob, ModelThread

DONE = "data: [DONE]\n\n"
WAITING = ": waiting\n\n"
"""A comment, which clients skip; proxies close a connection on which nothing is sent.

A write is also what reveals that a client has gone: a closed connection looks like one whose client
only stops sending.
"""
WAITING_SECONDS = 1.0
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # a proxy must not buffer
MakeEvent = Callable[[], dict[str, Any]]


class Events:
    """A queue from the model's thread to the event loop, in which the events are written."""

    def __init__(self) -> None:
        """Open a queue for the running loop."""
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[MakeEvent | None] = asyncio.Queue()

    def put(self, make: MakeEvent | None) -> None:
        """Append an event, or None for the end; any thread may call this."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, make)

    async def get(self) -> MakeEvent | None:
        """Return the next event."""
        return await self._queue.get()


def stream(thread: ModelThread, job: ModelJob, events: Events, state: State) -> StreamingResponse:
    """Return a reply that sends the events of a submitted job until its last result.

    If it ends with an error, `status` in the state of the request is the status of the error.
    """
    job.future.add_done_callback(lambda _: events.put(None))
    parts = _parts(thread, job, events, state)
    return StreamingResponse(parts, media_type="text/event-stream", headers=_HEADERS)


async def _parts(
    thread: ModelThread, job: ModelJob, events: Events, state: State
) -> AsyncIterator[str]:
    """Yield the text of each event; starlette closes this as soon as the client is gone."""
    try:
        try:
            while text := await _next_text(events):
                yield text
            wrong = job.future.exception()
        except Exception as fault:  # an event that cannot be written
            wrong = fault
        if wrong is None:
            yield DONE
            return
        state.status, message = _status(wrong)
        yield _text(lambda: error_body(state.status, message))  # OpenAI's client raises it
        if not isinstance(wrong, UserError):
            raise wrong  # into the log of the server
    finally:
        if not job.future.done():
            thread.drop(job)


async def _next_text(events: Events) -> str | None:
    """Return the next event, a comment if there is none for a while, or None at the end."""
    try:
        make = await asyncio.wait_for(events.get(), WAITING_SECONDS)
    except TimeoutError:
        return WAITING
    # In a thread of its own, as a long event takes seconds to write.
    return await asyncio.to_thread(_text, make) if make else None


def _status(wrong: BaseException) -> tuple[int, str]:
    """Return the status of an error, and its message for clients."""
    return (400, str(wrong)) if isinstance(wrong, UserError) else (500, INTERNAL_ERROR)


def _text(make: MakeEvent) -> str:
    return f"data: {as_json(make())}\n\n"


def as_json(body: dict[str, Any]) -> str:
    """Return JSON in one line; other threads run meanwhile, unlike within `json.dumps`."""
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return "".join(encoder.iterencode(body))

"""Replies that arrive in parts: server-sent events, as OpenAI's API sends them.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import StreamingResponse

from carbon.errors import UserError
from carbon.serve.errors import INTERNAL_ERROR, error_body
from carbon.serve.worker import ModelJob, ModelThread

DONE = "data: [DONE]\n\n"
WAITING = ": waiting\n\n"
"""A comment, which clients skip; proxies close a connection on which nothing is sent."""
WAITING_SECONDS = 10.0
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


def stream(thread: ModelThread, job: ModelJob, events: Events) -> StreamingResponse:
    """Return a reply that sends the events of a submitted job until its last result."""
    job.future.add_done_callback(lambda _: events.put(None))
    parts = _parts(thread, job, events)
    return StreamingResponse(parts, media_type="text/event-stream", headers=_HEADERS)


async def _parts(thread: ModelThread, job: ModelJob, events: Events) -> AsyncIterator[str]:
    """Yield the text of each event; starlette closes this as soon as the client is gone."""
    try:
        while True:
            try:
                make = await asyncio.wait_for(events.get(), WAITING_SECONDS)
            except TimeoutError:
                yield WAITING
                continue
            if make is None:
                break
            # In a thread of its own, as a long event takes seconds to write.
            yield await asyncio.to_thread(_text, make)
        wrong = job.future.exception()
        yield _end(wrong)
        if wrong and not isinstance(wrong, UserError):
            raise wrong  # into the log of the server
    finally:
        if not job.future.done():
            thread.drop(job)


def _end(wrong: BaseException | None) -> str:
    """Return the end of a stream: `[DONE]`, or an error, which OpenAI's client raises."""
    if wrong is None:
        return DONE
    if isinstance(wrong, UserError):
        return _text(lambda: error_body(400, str(wrong)))
    return _text(lambda: error_body(500, INTERNAL_ERROR))


def _text(make: MakeEvent) -> str:
    return f"data: {as_json(make())}\n\n"


def as_json(body: dict[str, Any]) -> str:
    """Return JSON in one line; other threads run meanwhile, unlike within `json.dumps`."""
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return "".join(encoder.iterencode(body))

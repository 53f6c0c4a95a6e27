"""The demo as a server of its own, for tests that come to it from outside."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests

from demo.app import build
from demo.lab import Lab
from demo.limits import Limits


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def served(lab: Lab, limits: Limits | None = None) -> Iterator[str]:
    """Yield the address of a server that is closed afterwards."""
    limits = limits or Limits(calls_per_minute=10_000)
    app, options = build(lab, limits)
    try:
        _, address, _ = app.launch(
            server_name="127.0.0.1",
            server_port=free_port(),
            prevent_thread_lock=True,
            **options,
        )
        yield address.rstrip("/")
    finally:
        app.close()


def asked(address: str, name: str, data: list[Any]) -> tuple[str, Any]:
    """Return how a question ends, and with what, as a program without Gradio's client gets it."""
    calls = f"{address}/gradio_api/call/{name}"
    event = requests.post(calls, json={"data": data}).json()
    *_, last = requests.get(f"{calls}/{event['event_id']}").text.strip().split("\n\n")
    kind, answer = last.splitlines()
    return kind.removeprefix("event: "), json.loads(answer.removeprefix("data: "))

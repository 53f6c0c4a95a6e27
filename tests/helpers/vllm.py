"""A vLLM server in an environment of its own, started as a page tells."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from carbon.cli import main
from tests.helpers.server import free_port

ROOMS = os.environ.get("CARBON_SERVERS")
_DOCS = Path(__file__).parents[2] / "docs"
_SECONDS = 360  # to start


def python_of(room: str) -> str:
    if ROOMS is None or not (Path(ROOMS) / room).exists():
        pytest.skip(f"scripts/test_servers makes an environment for {room}")
    return f"{ROOMS}/{room}/bin/python"


@contextmanager
def served_by_vllm(page: str, folder: Path) -> Iterator[str]:
    """Serve the bundled model by the command of a page; yield the address."""
    python, port = python_of("vllm"), free_port()
    assert main(["convert", "yeast", str(folder / "DST"), "--dtype", "float32"]) == 0
    text = (_DOCS / page).read_text(encoding="utf-8")
    (line,) = re.findall(r"^((?:[A-Z_]+=\S+ )*python -m vllm(?:.*\\\n)*.*)", text, re.MULTILINE)
    words = shlex.split(line.replace("\\\n", " "))
    start = words.index("python")
    given = dict(word.split("=", 1) for word in words[:start])
    log = (folder / "log").open("w")
    server = subprocess.Popen(
        [python, *words[start + 1 :], "--port", str(port)], cwd=folder, stdout=log, stderr=log,
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", **given},
    )  # fmt: skip
    try:
        end = time.monotonic() + _SECONDS
        while not _is_up(port):
            assert time.monotonic() < end and server.poll() is None, (folder / "log").read_text()
            time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False

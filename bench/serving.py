"""Many clients of one `carbon serve` at once: how long they wait, what is lost, and memory.

    python bench/serving.py --model yeast --clients 50 --seconds 60

Each client asks again as soon as it has its answer: half of them for scores of 600 bases, half for
60 sampled bases behind 60. Every answer is checked against the one that was given first to the same
question. Prints a table, and how many were refused (503) and tried again.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from carbon.console import natural, run_command

_QUESTIONS = 200  # different ones, of each kind


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="yeast")
    parser.add_argument("--clients", type=natural, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    return run_command(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "carbon", "serve", "--model", arguments.model, "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    found = re.search(r"http://\S+:\d+", server.stderr.readline())
    assert found, "the server did not start"
    clients = Clients(found[0], arguments.seconds)
    before = _resident_mb(server.pid)
    try:
        threads = [
            threading.Thread(target=clients.ask, args=(n,)) for n in range(arguments.clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = _resident_mb(server.pid)
    finally:
        server.terminate()
        server.wait()
    print("asked", "answers", "a_second", "median_s", "p95_s", "longest_s", sep="\t")
    for path, seconds in clients.seconds.items():
        shown = [np.median(seconds), np.quantile(seconds, 0.95), max(seconds)]
        a_second = len(seconds) / arguments.seconds
        print(path, len(seconds), f"{a_second:.1f}", *(f"{x:.3f}" for x in shown), sep="\t")
    print(json.dumps({**clients.counts, "resident_mb": [before, after]}))
    return int(bool(clients.counts["lost"] or clients.counts["differ"]))


class Clients:
    """What many threads ask, and what they are told."""

    def __init__(self, address: str, seconds: float) -> None:
        """Draw the questions."""
        draw = random.Random(0)
        self._address, self._end = address, time.monotonic() + seconds
        self._questions: list[tuple[str, dict[str, Any]]] = []
        for n in range(_QUESTIONS):
            score = {"sequences": ["".join(draw.choices("ACGT", k=600))]}
            prompt = "".join(draw.choices("ACGT", k=60))
            complete = {"prompt": prompt, "length_bp": 60, "seed": n % 4}
            self._questions += [("/score", score), ("/v1/completions", complete)]
        self._first: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.counts: Counter[str] = Counter({"refused": 0, "lost": 0, "differ": 0})

    def ask(self, client: int) -> None:
        """Ask, one question after another, until time is up."""
        draw = random.Random(client)
        with httpx.Client(base_url=self._address, timeout=120) as http:
            while time.monotonic() < self._end:
                number = 2 * draw.randrange(_QUESTIONS) + client % 2
                self._one(http, number)

    def _one(self, http: httpx.Client, number: int) -> None:
        path, question = self._questions[number]
        began = time.monotonic()
        try:
            answer = http.post(path, json=question)
        except httpx.HTTPError:
            self.counts["lost"] += 1
            return
        seconds = time.monotonic() - began
        with self._lock:
            if answer.status_code == 503:
                self.counts["refused"] += 1
                return
            if answer.status_code != 200:
                self.counts["lost"] += 1
                return
            self.seconds[path].append(seconds)
            told = _essence(answer.json())
            if not _alike(self._first.setdefault(number, told), told):
                self.counts["differ"] += 1


def _essence(answer: dict[str, Any]) -> Any:
    if "choices" in answer:
        return answer["choices"][0]["text"]
    return answer["scores"][0]["log_likelihood"]


def _alike(one: Any, other: Any) -> bool:
    """Return whether answers are the same; likelihoods to the last digits of float32."""
    return bool(one == other if isinstance(one, str) else abs(one - other) < 1e-3)


def _resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) // 1000


if __name__ == "__main__":
    sys.exit(main())

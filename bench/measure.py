"""A measured number; seconds of work, and its memory in a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measured number; `target` is None if there is no target."""

    name: str
    value: float
    unit: str
    target: float | None = None
    holds: bool | None = None


def at_most(name: str, value: float, unit: str, target: float) -> Measure:
    """Return a number with the largest allowed value."""
    return Measure(name, value, unit, target, value <= target)


def at_least(name: str, value: float, unit: str, target: float) -> Measure:
    """Return a number with the smallest allowed value."""
    return Measure(name, value, unit, target, value >= target)


def timed(
    work: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """Return a function that does the work and returns its seconds."""

    def seconds_of_work() -> float:
        start = clock()
        work()
        return clock() - start

    return seconds_of_work


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest of several times, after one that is not counted."""
    work()
    return min(timed(work)() for _ in range(repeats))


def in_turns(repeats: int, *works: Callable[[], float]) -> list[float]:
    """Return the least seconds of each work; they alternate, because a machine's speed varies."""
    rounds = [[work() for work in works] for _ in range(repeats)]
    return [min(of_work) for of_work in zip(*rounds, strict=True)]


def peak_bytes() -> int:
    """Return this program's peak resident memory: that of getrusage includes the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(next(line for line in status.splitlines() if "VmHWM" in line).split()[1])


class Cost(NamedTuple):
    """The result of a call in a separate process, its seconds, and the memory of the process."""

    result: Any
    seconds: float
    peak_bytes: int


def in_own_process(module: str, call: str) -> Cost:
    """Return the cost of a call of a function of a module, with one thread."""
    code = (
        "import json, os, sys, time; sys.path[:0] = ['bench', '.']\n"
        f"import measure; from {module} import *; sys.stderr = open(os.devnull, 'w')\n"
        "start = time.perf_counter()\n"
        f"result = {call}\n"
        "print(json.dumps([result, time.perf_counter() - start, measure.peak_bytes()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def cpu_seconds(words: list[str]) -> float:
    """Return the CPU seconds of Python with these arguments, including its start and imports.

    Raises:
        ChildProcessError: the process fails.
    """
    # Keep bytecode, as users have it; otherwise each process compiles its imports again.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    nowhere = subprocess.DEVNULL
    command = [sys.executable, *words]
    child = subprocess.Popen(command, cwd=ROOT, env=kept, stdout=nowhere, stderr=nowhere)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise ChildProcessError(f"{words}: ended with {child.returncode}")
    return used.ru_utime + used.ru_stime

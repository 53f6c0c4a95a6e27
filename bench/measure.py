"""A measured number, and measurements in a separate process."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measured number; `target` is None if there is no target."""

    name: str
    value: float
    unit: str
    target: float | None = None
    holds: bool | None = None


def ratio(name: str, value: float, target: float | None) -> Measure:
    """Return a ratio; `target` is the largest allowed value."""
    return Measure(name, value, "times", target, None if target is None else value <= target)


# Peak memory of this program alone: the peak in getrusage includes the parent's memory.
PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if "VmHWM" in line).split()[1])
"""


def cpu_seconds(words: list[str]) -> float:
    """Return the CPU seconds of Python with these arguments, including its start and imports.

    Raises:
        ChildProcessError: the process fails.
    """
    # Keep bytecode, as users have it; otherwise each process compiles its imports again.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=kept,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise ChildProcessError(f"{words}: ended with {child.returncode}")
    return used.ru_utime + used.ru_stime


def in_own_process(work: str, module: str = "curation") -> tuple[float, int]:
    """Return the seconds and the peak resident memory of a call of one of these scripts."""
    code = (
        f"{PEAK}import os, sys, time; from pathlib import Path; sys.path[:0] = ['bench', '.']\n"
        f"from {module} import *; sys.stderr = open(os.devnull, 'w'); start = time.perf_counter()\n"
        f"{work}\nprint(time.perf_counter() - start, peak())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    took, peak = done.stdout.splitlines()[-1].split()
    return float(took), int(peak)

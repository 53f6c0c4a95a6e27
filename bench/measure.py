"""A measured number, and measuring in a process of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number; `target` None where there is none to reach."""

    name: str
    value: float
    unit: str
    target: float | None = None
    holds: bool | None = None


def ratio(name: str, value: float, target: float | None) -> Measure:
    """Return how many times as much it is; `target` is the most it may be."""
    return Measure(name, value, "times", target, None if target is None else value <= target)


# The peak of this program's own memory: that of getrusage counts what its parent had as well.
PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if "VmHWM" in line).split()[1])
"""


def cpu_seconds(words: list[str]) -> float:
    """Return what Python called with these words takes of a core, its start and imports included.

    Raises:
        ChildProcessError: it fails.
    """
    # Bytecode that is kept, as users have it: else each process compiles what it imports anew.
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
    """Return the seconds and the peak of resident memory of a call of one of these scripts."""
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

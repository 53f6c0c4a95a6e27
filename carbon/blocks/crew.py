"""The processes that share a job: those of this machine, and those that a launcher has started.

A command starts one more of itself for every device but the first, and is the one that writes.
Under a launcher all are alike, and whoever is first to see that every block is done writes.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from carbon.blocks.launches import Launch, launch_of
from carbon.console import progress, say
from carbon.errors import UserError
from carbon.files import MACHINE

_PARENT = "CARBON_PARENT"  # number of the process that started this one
_SECONDS = 0.2  # between two looks


class Crew:
    """This process, and those that it has started to share its job.

    Attributes:
        launch: name of all that were started together.
        is_child: whether a process of this machine has started this one, and writes the output.
        is_launched: whether a launcher has started others as well, of which any may write.
        shows: whether this process shows how far all are.
    """

    def __init__(self, launch: Launch | None = None, parent: int | None = None) -> None:
        """Begin with nobody beside this process."""
        self.launch = launch.name if launch else f"{MACHINE} {os.getpid()} {time.time_ns()}"
        self.is_launched = launch is not None and parent is None
        self.is_child = parent is not None
        self.shows = not self.is_child and (launch is None or launch.is_first)
        self._parent = parent
        self._children: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def start(self, command: Sequence[str], **environment: str) -> None:
        """Start another process of this machine with the same command: a module and its words."""
        said = tempfile.TemporaryFile()  # noqa: SIM115
        child = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            process_group=0,  # Ctrl-C is for the parent, which ends its children
            env={
                **os.environ, **environment, _PARENT: f"{os.getpid()} {self.launch}",
            },
        )  # fmt: skip
        self._children.append((child, said))

    def check(self) -> None:
        """Tell of children that have died, and end if the parent has."""
        if self._parent is not None and os.getppid() != self._parent:
            raise SystemExit(1)
        for child, said in list(self._children):
            if child.poll() is None:
                continue
            self._children.remove((child, said))
            if child.returncode:
                say(f"a process has ended ({_why(child, said)}); the others do its part")

    def wait(self) -> None:
        """Let a little time pass."""
        self.check()
        time.sleep(_SECONDS)

    def dismiss(self) -> None:
        """End the children."""
        for child, _ in self._children:
            child.terminate()
        for child, said in self._children:
            child.wait()
            said.close()
        self._children.clear()

    def progress(
        self, what: str, total: int, done: int
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Show how far all are, if that is for this process to do."""
        return progress(what, total, done) if self.shows else nullcontext(lambda number: None)


def _why(child: subprocess.Popen[bytes], said: IO[bytes]) -> str:
    if child.returncode < 0:
        return signal.Signals(-child.returncode).name
    said.seek(0)
    last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
    return last or f"exit code {child.returncode}"


@contextmanager
def crew_of(arguments: argparse.Namespace, why_alone: str | None = None) -> Iterator[Crew | None]:
    """Yield who shares the job that a command line asks for; None if that is this process alone.

    The others are started here, to load what they need while this process does. A device of its own
    is all that each of them sees.

    Args:
        arguments: with what `add_crew` and `add_model` add, and the `command` that was given: a
            module and its words.
        why_alone: why several processes cannot share this job, if they cannot.

    Raises:
        UserError: there are no such devices, or several were asked for in vain.
    """
    if why_alone:
        if len(arguments.devices or []) > 1 or (arguments.processes or 1) > 1:
            raise UserError(why_alone)
        yield None
        return
    parent, _, name = os.environ.get(_PARENT, "").partition(" ")
    if parent:
        yield Crew(Launch(name), int(parent))
        return
    launch = launch_of(os.environ)
    places = _environments(arguments, launch)
    if launch is None and len(places) == 1:
        os.environ.update(places[0])
        yield None
        return
    crew = Crew(launch)
    try:
        for place in places[1:]:
            crew.start(arguments.command, **place)
        os.environ.update(places[0])
        yield crew
    finally:
        crew.dismiss()


def _environments(arguments: argparse.Namespace, launch: Launch | None) -> list[dict[str, str]]:
    """Return what the environment of every process of this machine has more."""
    gpus = _gpus(arguments)
    if launch and launch.local_rank is not None and gpus:
        gpus = [gpus[launch.local_rank % len(gpus)]]
    number = max(1, len(gpus)) if arguments.processes is None else arguments.processes
    if number < 1:
        raise UserError("--processes 0: give 1 or more")
    threads = {} if number == 1 else _threads(number)
    if not gpus or (number == len(gpus) == 1 and arguments.devices is None and not launch):
        return [threads] * number
    return [{"CUDA_VISIBLE_DEVICES": gpus[n % len(gpus)], **threads} for n in range(number)]


def _threads(number: int) -> dict[str, str]:
    """Return how many threads each of some processes is to have, unless the user has said so."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    has_affinity = hasattr(os, "sched_getaffinity")  # macOS has none
    num_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, num_cores // number))}


def _gpus(arguments: argparse.Namespace) -> list[str]:
    """Return the GPUs to compute on, as `CUDA_VISIBLE_DEVICES` names them; none for the CPU."""
    if arguments.device not in ("auto", "cuda"):
        if arguments.devices:
            raise UserError(f"--devices are GPUs: take --device {arguments.device} out")
        return []
    there = _visible_gpus()
    if arguments.devices is None:
        return there
    if wrong := [number for number in arguments.devices if number >= len(there)]:
        raise UserError(f"--devices: there is no GPU {wrong[0]}; {len(there)} can be seen")
    return [there[number] for number in arguments.devices]


def _visible_gpus() -> list[str]:
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return []  # without torch, whose import takes seconds
    import torch

    # Before CUDA begins, it counts by the driver, and the process may still choose.
    names = [str(number) for number in range(torch.cuda.device_count())]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[: len(names)] if chosen else names


def add_crew(verb: argparse.ArgumentParser) -> None:
    """Add what a verb takes that many processes can share."""
    verb.add_argument(
        "--devices", type=_numbers, metavar="N,N", help="GPUs to share the work; default: all"
    )
    verb.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="to share the work; default: one a GPU, and one without",
    )


def add_resume(verb: argparse.ArgumentParser) -> None:
    """Add going on with blocks, of a verb of which one process keeps nothing."""
    verb.add_argument(
        "--resume", action="store_true", help="go on where a run of several processes was stopped"
    )


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of GPUs such as 0,2")
    return [int(part) for part in parts]


def tell(summary: Any) -> None:
    """Print what was done, as JSON, if it was this process that wrote the output."""
    import json

    if summary is not None:
        print(json.dumps(summary))

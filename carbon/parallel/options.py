"""Command-line options that select where blocks are computed."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from carbon.console import natural, option_help
from carbon.errors import UserError
from carbon.parallel.engines import MOST_IN_FLIGHT, Engine, InProcess, MakeWorker
from carbon.progress import say

if TYPE_CHECKING:  # the help of a command needs neither
    from carbon.parallel.driver import Workers
    from carbon.parallel.local import StartMethod

_ADDRESS = "RAY_ADDRESS"
_CUDA, _AUTO = "cuda", "auto"
_MOST_PROCESSES = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """Where blocks are computed.

    Attributes:
        device: cpu, mps, cuda, a list such as cuda:0,cuda:1, or auto.
        processes: worker processes on this machine; 0 computes in the command's own process;
            default: one for each GPU if there are several, else 0.
        ray: HOST:PORT of the head node of the Ray cluster to compute on; default: RAY_ADDRESS, if
            it is set.
        resume: continue a run that was stopped.
    """

    device: str = _AUTO
    processes: int | None = None
    ray: str | None = None
    resume: bool = False


def add_workers(command: argparse.ArgumentParser) -> None:
    """Add `WorkerOptions` to a command of `argparse` that has `--device` already."""
    texts = option_help(WorkerOptions)
    command.add_argument("--processes", type=natural, metavar="N", help=texts["processes"])
    command.add_argument("--ray", metavar="HOST:PORT", help=texts["ray"])


def add_resume(command: argparse.ArgumentParser) -> None:
    """Add the option that continues an earlier run."""
    text = option_help(WorkerOptions)["resume"]
    command.add_argument("--resume", action="store_true", help=text)


def worker_options(arguments: argparse.Namespace) -> WorkerOptions:
    """Return the worker options of an `argparse` command line; some commands lack some of them."""
    names = WorkerOptions.__annotations__
    return WorkerOptions(**{k: v for k, v in vars(arguments).items() if k in names})


def start_early(options: WorkerOptions) -> None:
    """Start the imports of worker processes while the driver imports."""
    number, device = options.processes or 0, options.device
    is_on_cpu = device == "cpu" or (device == _AUTO and not _has_gpu_files())
    if 0 < number <= _MOST_PROCESSES and is_on_cpu and sys.platform == "linux":
        from carbon.parallel.local import start_fork_server

        start_fork_server()


def loaded_device(options: WorkerOptions) -> str:
    """Return the device that a worker loads its model on; its environment selects the GPU.

    >>> loaded_device(WorkerOptions(device="cuda:0,cuda:1"))
    'cuda'
    """
    return _CUDA if options.device.startswith(_CUDA) else options.device


def is_streamed(options: WorkerOptions, reason: str | None) -> bool:
    """Return whether one process must compute; report the reason if options have no effect."""
    if reason and (options.ray or options.processes):
        say(f"{reason}; --processes and --ray have no effect")
    return bool(reason)


@contextmanager
def workers_of(
    options: WorkerOptions, make: MakeWorker, most_in_flight: int = MOST_IN_FLIGHT
) -> Iterator["Workers"]:
    """Yield the workers that the options select, and end them.

    Args:
        options: worker options.
        make: creates a worker; pickled unless this process computes alone.
        most_in_flight: maximum number of blocks sent to a worker.

    Raises:
        UserError: the options are contradictory, or a device or cluster is not available.
    """
    from carbon.parallel.driver import Workers

    engine = engine_of(options, make)
    with (
        _terminated_by_exit(),
        Workers(engine, most_in_flight, resume=options.resume) as workers,
    ):
        yield workers


def engine_of(options: WorkerOptions, make: MakeWorker) -> Engine:
    """Return the engine that the options select; `--processes` overrides RAY_ADDRESS."""
    if options.ray and options.processes is not None:
        raise UserError("--ray and --processes: give one of them")
    address = options.ray or (os.environ.get(_ADDRESS) if options.processes is None else None)
    if address:
        from carbon.parallel.ray import RayActors, threads_wanted

        use_gpus = options.device == _AUTO or options.device.startswith(_CUDA)
        return RayActors(make, address, threads=threads_wanted(), use_gpus=use_gpus)
    gpus = _gpus(options.device)
    environments = _environments(gpus, options.processes)
    if environments is None:
        if len(gpus) == 1 and options.device != _AUTO:
            os.environ.update(CUDA_VISIBLE_DEVICES=gpus[0])
        return InProcess(make)
    from carbon.parallel.local import LocalProcesses

    return LocalProcesses(make, environments, _method(options.device, gpus))


def _method(device: str, gpus: list[str]) -> "StartMethod":
    """Return the start method of processes: nothing that is forked may have used a GPU."""
    is_on_cpu = device == "cpu" or (device == _AUTO and not gpus and sys.platform == "linux")
    return "forkserver" if is_on_cpu else "spawn"


def _environments(gpus: list[str], processes: int | None) -> list[dict[str, str]] | None:
    """Return the additional environment of each process; None for no processes."""
    number = processes if processes is not None else (len(gpus) if len(gpus) > 1 else 0)
    if number == 0:
        return None
    if not 0 <= number <= _MOST_PROCESSES:
        raise UserError(f"--processes {number}: give 0 to {_MOST_PROCESSES}")
    threads = _threads(number)
    if not gpus:
        return [threads] * number
    return [threads | {"CUDA_VISIBLE_DEVICES": gpus[n % len(gpus)]} for n in range(number)]


def _threads(number: int) -> dict[str, str]:
    """Return the threads of each process, unless the user has set them."""
    if number == 1 or "OMP_NUM_THREADS" in os.environ:
        return {}
    has_affinity = hasattr(os, "sched_getaffinity")  # macOS has none
    num_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, num_cores // number))}


def _gpus(device: str) -> list[str]:
    """Return the GPUs to compute on, as `CUDA_VISIBLE_DEVICES` names them; none for the CPU.

    Raises:
        UserError: a named GPU does not exist, or a list names other devices than GPUs.
    """
    if device != _AUTO and not device.startswith(_CUDA):
        if "," in device:
            raise UserError(f"--device {device}: a list names GPUs, such as cuda:0,cuda:1")
        return []
    visible = _visible_gpus()
    if device in (_AUTO, _CUDA):
        return visible
    chosen = []
    for name in device.split(","):
        number = name.removeprefix(f"{_CUDA}:")
        if name == number or not number.isdigit():
            raise UserError(f"--device {device}: a list names GPUs, such as cuda:0,cuda:1")
        if int(number) >= len(visible):
            raise UserError(
                f"--device {device}: {name} does not exist; {len(visible)} GPUs are visible"
            )
        chosen.append(visible[int(number)])
    return chosen


def _has_gpu_files() -> bool:
    """Return whether NVIDIA's driver shows a GPU."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, counted by a short-lived child."""
    if not _has_gpu_files():
        return []  # without torch, whose import takes seconds
    import subprocess  # not needed on most machines

    count = "import torch; print(torch.cuda.device_count())"
    output = subprocess.run(
        [sys.executable, "-c", count], stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    number = int(output) if output.isdigit() else 0
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[:number] if chosen else [str(n) for n in range(number)]


@contextmanager
def _terminated_by_exit() -> Iterator[None]:
    """Convert SIGTERM into SystemExit, so that workers end and the journal is closed."""

    def end(number: int, frame: Any) -> NoReturn:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

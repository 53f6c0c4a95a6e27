"""Options that select where blocks are computed, and the engine that they select."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from carbon.errors import UserError
from carbon.gpus import AUTO, CUDA, chosen_gpus, has_gpus, may_use_gpus
from carbon.parallel.engines import MOST_IN_FLIGHT, Engine, InProcess, MakeWorker

if TYPE_CHECKING:  # the help of a command does not need it
    from carbon.parallel.driver import Workers

_ADDRESS, _THREADS = "RAY_ADDRESS", "OMP_NUM_THREADS"
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

    device: str = AUTO
    processes: int | None = None
    ray: str | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        """Raise UserError for options that contradict each other, and too many processes."""
        if self.ray and self.processes is not None:
            raise UserError("--ray and --processes: give one of them")
        if not 0 <= (self.processes or 0) <= _MOST_PROCESSES:
            raise UserError(f"--processes {self.processes}: give 0 to {_MOST_PROCESSES}")

    @property
    def address(self) -> str | None:
        """Address of the Ray cluster, if there is one; `--processes` overrides RAY_ADDRESS."""
        return self.ray or (os.environ.get(_ADDRESS) if self.processes is None else None)


def start_early(options: WorkerOptions) -> None:
    """Start the imports of worker processes while the driver imports."""
    is_on_cpu = options.device == "cpu" or (options.device == AUTO and not has_gpus())
    if options.processes and is_on_cpu and sys.platform == "linux":
        from carbon.parallel.local import start_fork_server

        start_fork_server()


def loaded_device(options: WorkerOptions) -> str:
    """Return the device that a worker loads its model on; its environment selects the GPU.

    >>> loaded_device(WorkerOptions(device="cuda:0,cuda:1"))
    'cuda'
    """
    return CUDA if options.device.startswith(CUDA) else options.device


def device_here(options: WorkerOptions) -> str:
    """Return the device of a model in this process, which then sees only the first GPU named.

    Raises:
        UserError: a named GPU does not exist.
    """
    if options.device not in (AUTO, CUDA) and (gpus := chosen_gpus(options.device)):
        os.environ.update(CUDA_VISIBLE_DEVICES=gpus[0])
    return loaded_device(options)


@contextmanager
def workers_of(
    options: WorkerOptions, make: MakeWorker, most_in_flight: int = MOST_IN_FLIGHT
) -> Iterator["Workers"]:
    """Yield the workers that the options select, and end them, also at SIGTERM.

    Args:
        options: worker options.
        make: creates a worker; pickled unless this process computes alone.
        most_in_flight: maximum number of blocks sent to a worker.

    Raises:
        UserError: the options are contradictory, or a device or cluster is not available.
    """
    from carbon.parallel.driver import Workers

    engine = engine_of(options, make)
    with ExitStack() as stack:
        with suppress(ValueError):  # not the main thread
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _exit))
        yield stack.enter_context(Workers(engine, most_in_flight, resume=options.resume))


def _exit(number: int, frame: Any) -> NoReturn:
    """Exit instead of dying at a signal, so that workers end and the journal is closed."""
    raise SystemExit(128 + number)


def engine_of(options: WorkerOptions, make: MakeWorker) -> Engine:
    """Return the engine that the options select."""
    device, number = options.device, options.processes
    if address := options.address:
        from carbon.parallel.ray import RayActors

        return RayActors(make, address, threads=_threads_set(), use_gpus=may_use_gpus(device))
    gpus = chosen_gpus(device)
    if number is None:
        number = len(gpus) if len(gpus) > 1 else 0
    if number == 0:
        device_here(options)
        return InProcess(make)
    from carbon.parallel.local import LocalProcesses

    is_on_cpu = device == "cpu" or (device == AUTO and not gpus and sys.platform == "linux")
    environments = _environments(gpus, number)
    # Nothing that is forked may have used a GPU.
    return LocalProcesses(make, environments, "forkserver" if is_on_cpu else "spawn")


def _environments(gpus: list[str], number: int) -> list[dict[str, str]]:
    """Return the additional environment of each process: its GPU, and its share of the cores."""
    threads = {}
    if number > 1 and _THREADS not in os.environ:
        threads = {_THREADS: str(max(1, num_cores() // number))}
    if not gpus:
        return [threads] * number
    return [threads | {"CUDA_VISIBLE_DEVICES": gpus[n % len(gpus)]} for n in range(number)]


def num_cores() -> int:
    """Return the CPU cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # macOS has none
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def _threads_set() -> int:
    """Return the threads that the user has set, else 1."""
    number = os.environ.get(_THREADS, "")
    return max(1, int(number)) if number.isdigit() else 1

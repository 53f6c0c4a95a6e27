"""Workers as processes of this machine, each connected to the driver by a pipe of its own.

`concurrent.futures` and `multiprocessing.Pool` lose or never return the work of other processes
when one is killed. Here a dead process loses its own blocks only, and the driver replaces it.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver, get_context
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Literal, NamedTuple, NoReturn

from carbon.parallel.engines import Answer, Death, MakeWorker, Seat

StartMethod = Literal["forkserver", "spawn"]

_PRELOADED = ["carbon.inference.model"]
"""Imported once, before the forks: a worker is up in 0.2 s instead of 5 s, and shares memory."""
_SECONDS_TO_END, _SECONDS_TO_CLOSE = 5.0, 1.0


class _Running(NamedTuple):
    process: Any
    pipe: connection.Connection


class LocalProcesses:
    """The engine whose workers are processes of this machine."""

    def __init__(
        self,
        make: MakeWorker,
        environments: Sequence[Mapping[str, str]],
        method: StartMethod = "forkserver",
    ) -> None:
        """Keep how workers are started.

        Args:
            make: makes a worker in its process.
            environments: what the environment of each process has in addition; as many processes.
            method: `spawn` for GPUs, because CUDA must not be touched before a fork.
        """
        self._make = make
        self._environments = environments
        self._context: Any = get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload(_PRELOADED)
        self._running: dict[int, _Running] = {}
        atexit.register(self.close)  # before `multiprocessing` would wait for all children

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self._environments)

    def submit(self, worker: int, number: int | None, payload: Any) -> None:
        """Send a block to a worker, whose process is started if it is not running."""
        if worker not in self._running:
            self._running[worker] = self._started(self._environments[worker])
        with suppress(OSError):  # it has just died, which `results` reports
            self._running[worker].pipe.send((number, payload))

    def results(self, seconds: float) -> Iterator[Answer | Death]:
        """Wait at most that long, and yield answers and deaths."""
        workers = {running.pipe: worker for worker, running in self._running.items()}
        for pipe in connection.wait(list(workers), seconds):
            worker = workers[pipe]  # type: ignore[index]
            try:
                number, value = self._running[worker].pipe.recv()
            except (EOFError, OSError):
                yield Death(worker, self._ended(worker))
            else:
                yield Answer(worker, number, value)

    def close(self) -> None:
        """End all processes: a worker that does not when its pipe is closed is killed."""
        for running in self._running.values():
            running.pipe.close()
        end = time.monotonic() + _SECONDS_TO_CLOSE
        for running in self._running.values():
            running.process.join(max(0.0, end - time.monotonic()))
            _kill(running.process)
        self._running.clear()
        atexit.unregister(self.close)

    def pids(self) -> list[int]:
        """Return the numbers of the processes that run."""
        return [running.process.pid for running in self._running.values()]

    def _started(self, environment: Mapping[str, str]) -> _Running:
        ours, theirs = self._context.Pipe()
        arguments = theirs, self._make, {**os.environ, **environment}
        process = self._context.Process(target=_serve, args=arguments)
        with _started_apart():
            process.start()
        theirs.close()
        return _Running(process, ours)

    def _ended(self, worker: int) -> str:
        """Remove a process that has ended, and return why it did."""
        process, pipe = self._running.pop(worker)
        pipe.close()
        process.join(_SECONDS_TO_END)
        code = process.exitcode
        if code is None:  # it has closed its pipe and goes on
            _kill(process)
            return "it no longer answers"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def start_fork_server() -> None:
    """Start the process that workers are forked from, which imports while this one does."""
    forkserver.set_forkserver_preload(_PRELOADED)
    with _started_apart():
        forkserver.ensure_running()


@contextmanager
def _started_apart() -> Iterator[None]:
    """Start processes that receive no Ctrl-C and do not run the user's script again.

    SIGINT is blocked and not ignored: if it comes meanwhile, the driver receives it a little later.
    `multiprocessing` imports the file of `__main__` in each child, which would start the work of a
    script without `if __name__ == "__main__"` once more.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _kill(process: Any) -> None:
    """Kill a worker and all that it has started, which is in its process group."""
    if process.exitcode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # it may not have its group yet
    process.join()


def _serve(pipe: connection.Connection, make: MakeWorker, environment: Mapping[str, str]) -> None:
    """Compute blocks until the driver ends, however it ends."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(sys.stderr.fileno() if sys.stderr else os.open(os.devnull, os.O_WRONLY), 1)
    _limit_threads()
    inbox: SimpleQueue[tuple[int | None, Any]] = SimpleQueue()
    seat = Seat(make)
    threading.Thread(target=_receive, args=(pipe, inbox, seat), daemon=True).start()
    while True:
        number, payload = inbox.get()
        answer = number, seat.answer(number, payload)
        try:
            pipe.send(answer)
        except OSError:
            _end()


def _end() -> NoReturn:
    """End this process and all that it has started."""
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _receive(
    pipe: connection.Connection, inbox: "SimpleQueue[tuple[int | None, Any]]", seat: Seat
) -> None:
    """Take blocks from the pipe at once, so that the driver never waits to send one."""
    while True:
        try:
            inbox.put(pipe.recv())
        except (EOFError, OSError):
            seat.close()
            _end()


def _limit_threads() -> None:
    """Set the threads of torch, if it was imported before this process had its environment."""
    torch, number = sys.modules.get("torch"), os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and number.isdigit():
        torch.set_num_threads(max(1, int(number)))

"""Workers as processes of this machine, each connected to the driver by its own pipe.

`concurrent.futures` and `multiprocessing.Pool` lose or never return the work of other processes
when one is killed. Here a dead process loses only its own blocks, and the driver replaces it.
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
"""Imported once before forking: a worker starts in 0.2 s instead of 5 s, and shares memory."""
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
        """Store how workers are started.

        Args:
            make: creates a worker in its process.
            environments: additional environment variables of each process; their number is the
                number of processes.
            method: `spawn` for GPUs, because CUDA must not be used before a fork.
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
        """Send a block to a worker; start its process if it is not running."""
        if worker not in self._running:
            self._running[worker] = self._started(self._environments[worker])
        with suppress(OSError):  # it has just died; `results` reports it
            self._running[worker].pipe.send((number, payload))

    def results(self, seconds: float) -> Iterator[Answer | Death]:
        """Wait at most this long, and yield answers and deaths."""
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
        """End all processes; kill workers that do not exit when their pipe is closed."""
        for running in self._running.values():
            running.pipe.close()
        end = time.monotonic() + _SECONDS_TO_CLOSE
        for running in self._running.values():
            running.process.join(max(0.0, end - time.monotonic()))
            _kill(running.process)
        self._running.clear()
        atexit.unregister(self.close)

    def _started(self, environment: Mapping[str, str]) -> _Running:
        ours, theirs = self._context.Pipe()
        arguments = theirs, self._make, {**os.environ, **environment}
        process = self._context.Process(target=_serve, args=arguments)
        with _started_apart():
            process.start()
        theirs.close()
        return _Running(process, ours)

    def _ended(self, worker: int) -> str:
        """Remove a process that has ended, and return the reason."""
        process, pipe = self._running.pop(worker)
        pipe.close()
        process.join(_SECONDS_TO_END)
        code = process.exitcode
        if code is None:  # it has closed its pipe and still runs
            _kill(process)
            return "it no longer answers"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def start_fork_server() -> None:
    """Start the process that workers are forked from, so that it imports in parallel."""
    forkserver.set_forkserver_preload(_PRELOADED)
    with _started_apart():
        forkserver.ensure_running()


@contextmanager
def _started_apart() -> Iterator[None]:
    """Start processes that receive no Ctrl-C and do not run the user's script again.

    SIGINT is blocked, not ignored: the driver receives a SIGINT during the start slightly later.
    `multiprocessing` imports the file of `__main__` in each child, which would run a script without
    `if __name__ == "__main__"` again.
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
    """Kill a worker and its process group, which includes everything it has started."""
    if process.exitcode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # it may not have its process group yet
    process.join()


def _serve(pipe: connection.Connection, make: MakeWorker, environment: Mapping[str, str]) -> None:
    """Compute blocks until the driver ends, even if it is killed."""
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
    """End this process and everything it has started."""
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _receive(
    pipe: connection.Connection, inbox: "SimpleQueue[tuple[int | None, Any]]", seat: Seat
) -> None:
    """Receive blocks immediately, so that the driver never waits to send one."""
    while True:
        try:
            inbox.put(pipe.recv())
        except (EOFError, OSError):
            seat.close()
            _end()


def _limit_threads() -> None:
    """Set the threads of torch if it was imported before this process got its environment."""
    torch, number = sys.modules.get("torch"), os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and number.isdigit():
        torch.set_num_threads(max(1, int(number)))

"""Workers as Ray actors on a running cluster.

Ray places the actors, monitors their nodes, and transports blocks and results. It does not restart
actors: the driver tracks lost blocks, and starts another actor wherever there is room.
"""

import logging
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from carbon.errors import UserError, reason_of
from carbon.parallel.engines import Answer, Death, MakeWorker, Seat

_SECONDS_TO_CONNECT = 10.0
_SECONDS_BETWEEN_COUNTS = 5.0  # nodes may join and leave


class RayActors:
    """The engine whose workers are Ray actors."""

    def __init__(self, make: MakeWorker, address: str, *, threads: int, use_gpus: bool) -> None:
        """Connect to a cluster.

        Args:
            make: creates a worker in its actor.
            address: HOST:PORT of the head node.
            threads: threads of each actor, which reserves as many CPUs.
            use_gpus: give each actor its own GPU if the cluster has GPUs.

        Raises:
            UserError: Ray is not installed, or the address does not answer.
        """
        self._ray = _connected(address)
        self._make, self._threads = make, threads
        self._on_gpus = use_gpus and self._resources().get("GPU", 0) > 0
        self._actors: dict[int, Any] = {}
        self._pending: dict[Any, tuple[int, int | None]] = {}
        self._size, self._counted = 0, -_SECONDS_BETWEEN_COUNTS

    @property
    def size(self) -> int:
        """Number of actors that currently fit on the nodes, at least 1."""
        if time.monotonic() - self._counted >= _SECONDS_BETWEEN_COUNTS:
            total = self._resources()
            room = total.get("GPU", 0) if self._on_gpus else total.get("CPU", 0) // self._threads
            self._size, self._counted = max(1, int(room)), time.monotonic()
        return self._size

    def submit(self, worker: int, number: int | None, payload: Any) -> None:
        """Send a block to an actor; create it if it does not exist."""
        if worker not in self._actors:
            self._actors[worker] = self._created()
        answer = self._actors[worker].answer.remote(number, payload)
        self._pending[answer] = worker, number

    def results(self, seconds: float) -> Iterator[Answer | Death]:
        """Wait at most this long, and yield answers and deaths."""
        pending = list(self._pending)
        ready, _ = self._ray.wait(pending, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0)
        for answer in ready:
            if answer not in self._pending:
                continue  # its actor has died, as another answer showed
            worker, number = self._pending[answer]
            try:
                value = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError as error:
                raise RuntimeError(f"in a worker: {error}") from None
            except self._ray.exceptions.RayError as error:
                self._removed(worker)
                yield Death(worker, type(error).__name__)
            else:
                del self._pending[answer]
                yield Answer(worker, number, value)

    def close(self) -> None:
        """Kill all actors."""
        for worker in list(self._actors):
            self._removed(worker)

    def _resources(self) -> dict[str, float]:
        return self._ray.cluster_resources()  # type: ignore[no-any-return]

    def _created(self) -> Any:
        options = {
            "num_gpus": int(self._on_gpus),
            "num_cpus": self._threads,
            # By default Ray gives an actor one thread for each reserved CPU, and BLAS more.
            "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(self._threads)}},
        }
        return self._ray.remote(**options)(_Actor).remote(self._make, os.getcwd())

    def _removed(self, worker: int) -> None:
        """Remove an actor and its pending blocks, and kill it if it is alive."""
        actor = self._actors.pop(worker)
        self._pending = {a: sent for a, sent in self._pending.items() if sent[0] != worker}
        self._ray.kill(actor)


class _Actor(Seat):
    """A worker's side of Ray, in the driver's working folder."""

    def __init__(self, make: MakeWorker, folder: str) -> None:
        super().__init__(make)
        os.chdir(folder)


def _connected(address: str) -> Any:
    """Return Ray, connected to the cluster at an address."""
    try:
        import ray
    except ImportError:
        raise UserError(
            "--ray: needs Ray; install carbon-dna[ray] on every node of the cluster"
        ) from None
    if not ray.is_initialized():
        _check_answers(address)
        try:
            ray.init(
                address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False
            )
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise UserError(f"--ray {address}: {reason_of(error)}") from None
    return ray


def _check_answers(address: str) -> None:
    """Raise UserError if nothing listens at an address; Ray itself would wait for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(
            f"--ray {address}: is not an address; give HOST:PORT of the head node, where `ray "
            "start --head` runs"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--ray {address}: nobody answers ({error}); start a cluster there by `ray start "
            "--head`, or compute on this machine with --processes"
        ) from None

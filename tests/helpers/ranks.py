"""Run a function on several processes over gloo and bring back what each returns."""

import atexit
import gc
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from train.config import ParallelConfig

LIMIT_SECONDS = 300  # of a machine with other work
_IMPORTED_ONCE = [
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.utils.flop_counter",
    "transformers.models.llama.modeling_llama",
    "pyarrow.parquet",
    "train.__main__",
    "train.trainer",
]
_pools: dict[int, "_Pool"] = {}


def run_ranks(
    world_size: int,
    function: Callable[..., Any],
    *arguments: Any,
    parallel: ParallelConfig | None = None,
    apart: bool = False,
    limit_seconds: float = LIMIT_SECONDS,
) -> list[Any]:
    """Call `function(ranks, *arguments)` on every rank; raise the first rank's traceback.

    A single process is this one. Several are kept for the next call, so the function must leave
    their modules as they were.

    Args:
        apart: for a function that may spoil the group: its processes end with it. Also for one that
            gathers by DTensor's own operations, whose caches take an earlier mesh for an equal one.
    """
    parallel = parallel or ParallelConfig()
    if world_size == 1 and not apart:
        return [_call_here(function, arguments, parallel)]
    if apart:
        pool = _Pool(world_size)
    else:
        pool = _pools[world_size] = _pools.get(world_size) or _Pool(world_size)
    try:
        results = pool.call((function, arguments, parallel), limit_seconds)
    except BaseException:
        pool.end()
        _pools.pop(world_size, None)
        raise
    if apart:
        pool.end()
    return results


def start_command(main: Callable[[list[str]], int], words: list[str], said: Path) -> BaseProcess:
    """Start a command as `python -m` would, without the imports; what it says is in a file."""
    process = _processes().Process(target=_command, args=(main, words, said, dict(os.environ)))
    process.start()
    return process


class _Pool:
    """Processes of one group, which call one function after the other."""

    def __init__(self, world_size: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for rank in range(world_size):
            ours, theirs = multiprocessing.Pipe()
            given = (rank, world_size, f"{self._folder.name}/store", theirs)
            process = _processes().Process(target=_serve, args=given)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def call(self, task: tuple[Any, ...], limit_seconds: float) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((dict(os.environ), task))
        results: dict[int, Any] = {}
        end = time.monotonic() + limit_seconds
        while len(results) < len(self._pipes):
            left = [pipe for n, pipe in enumerate(self._pipes) if n not in results]
            ready = wait(left, end - time.monotonic())
            assert ready, f"no answer within {limit_seconds} seconds"
            for pipe in ready:
                rank = self._pipes.index(pipe)
                results[rank], error = pipe.recv()
                assert error is None, f"rank {rank} of {len(self._pipes)}:\n{error}"
        for pipe in self._pipes:
            pipe.send(None)
        return [results[rank] for rank in range(len(self._pipes))]

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()


@atexit.register
def _end_pools() -> None:
    for pool in _pools.values():
        pool.end()


@cache
def _processes() -> ForkServerContext:
    """Return what starts processes that have imported the large modules already.

    A process that does nothing else imports them once, and every rank begins as a copy of that.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED_ONCE)
    return context


def _command(
    main: Callable[[list[str]], int], words: list[str], said: Path, environment: dict[str, str]
) -> None:
    with said.open("w") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    _become(environment)
    sys.exit(main(words))


def _serve(rank: int, world_size: int, path: str, pipe: Connection) -> None:
    """Be a rank: answer each task with a result or a traceback, until nobody asks any more."""
    torch.set_num_threads(1)
    gc.freeze()  # the modules, which no collection need look through
    gc.set_threshold(50_000, 10, 10)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world_size)
    while True:
        try:
            given = pipe.recv()
            if given is None:  # all processes have left the task
                _forget_groups()
                continue
            environment, task = given
            _become(environment)
            answer = _called(*task), None
        except EOFError:
            return
        except BaseException:
            answer = None, traceback.format_exc()
        pipe.send(answer)


def _called(
    function: Callable[..., Any], arguments: tuple[Any, ...], parallel: ParallelConfig
) -> Any:
    from train.distributed.mesh import ranks_of_group

    return function(ranks_of_group(torch.device("cpu"), parallel), *arguments)


def _call_here(
    function: Callable[..., Any], arguments: tuple[Any, ...], parallel: ParallelConfig
) -> Any:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return _called(function, arguments, parallel)
    finally:
        dist.destroy_process_group()


def _forget_groups() -> None:
    """Destroy all groups but the first; a thread of each wakes a hundred times a second."""
    gc.collect()
    for group in list(dist.distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


def _become(environment: dict[str, str]) -> None:
    torch.set_num_threads(1)
    os.environ.clear()
    os.environ.update(environment)

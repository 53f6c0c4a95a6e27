"""Run a function on several processes over gloo and bring back what each returns."""

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.helpers.warm.libraries import OF_TRAINING
from train.config import ParallelConfig

LIMIT_SECONDS = 300  # of a machine with other work


def run_ranks(
    world_size: int,
    function: Callable[..., Any],
    *arguments: Any,
    parallel: ParallelConfig | None = None,
    limit_seconds: float = LIMIT_SECONDS,
) -> list[Any]:
    """Call `function(ranks, *arguments)` on every rank; raise the first rank's traceback."""
    parallel = parallel or ParallelConfig()
    context = warm_processes()
    with tempfile.TemporaryDirectory() as folder:
        queue = context.Queue()
        processes = [
            context.Process(
                target=_child,
                args=(rank, world_size, f"{folder}/s", queue, function, arguments, parallel),
            )
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        results: dict[int, Any] = {}
        try:
            # What a child has put is read before the child is waited for, or both would wait.
            while len(results) < world_size:
                rank, value, error = queue.get(timeout=limit_seconds)
                assert error is None, f"rank {rank} of {world_size}:\n{error}"
                results[rank] = value
        finally:
            for process in processes:
                process.join(5 if len(results) == world_size else 0)
                process.kill()
    return [results[rank] for rank in range(world_size)]


def start_command(main: Callable[[list[str]], int], words: list[str], said: Path) -> BaseProcess:
    """Start a command as `python -m` would, without the imports; what it says is in a file."""
    process = warm_processes().Process(target=_command, args=(main, words, said))
    process.start()
    return process


def _command(main: Callable[[list[str]], int], words: list[str], said: Path) -> None:
    with said.open("w") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    torch.set_num_threads(1)
    sys.exit(main(words))


def warm_processes() -> ForkServerContext:
    """Return what starts processes that have imported the large libraries already.

    A process that does nothing else imports them once, and every rank begins as a copy of that.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(OF_TRAINING)
    return context


def _child(rank, world_size, path, queue, function, arguments, parallel):
    from train.network.ranks import ranks_of_group

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{path}", rank=rank, world_size=world_size
        )
        value = function(ranks_of_group(torch.device("cpu"), parallel), *arguments)
        dist.destroy_process_group()
        queue.put((rank, value, None))
    except BaseException:
        queue.put((rank, None, traceback.format_exc()))
        raise

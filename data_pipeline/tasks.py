"""A step as datatrove's executors call it.

They are imported here alone, by whoever hands them a step and by every task of one: they take
longer to import than a bacterium to read, and a build in one process needs none.
"""

import os
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NoReturn

import multiprocess  # type: ignore[import-untyped]  # of datatrove
from datatrove.executor import (
    LocalPipelineExecutor,
    RayPipelineExecutor,
    SlurmPipelineExecutor,
)
from datatrove.utils.logging import logger

__all__ = ["LocalPipelineExecutor", "RayPipelineExecutor", "SlurmPipelineExecutor", "run_share"]

# Its own log tells of ranks and pipelines; what users want to know the steps say themselves.
logger.disable("datatrove")


def run_share(
    run: Callable[[int], None], num_ranks: int, data: Any, task: int, num_tasks: int
) -> Iterable[Any]:
    """Be a step of datatrove's: documents in, documents out, of which there are none here.

    Task `task` of `num_tasks` runs the ranks task, task + num_tasks, task + 2 num_tasks, ...
    """
    del data
    _end_with_driver()
    for rank in range(task, num_ranks, num_tasks):
        run(rank)
    return ()


@cache
def _end_with_driver() -> None:
    """Watch, once a process, for the end of the driver that started this one on its machine.

    A task that outlived its driver would put its results among those of the next build.
    """
    if driver := multiprocess.parent_process():

        def watch() -> NoReturn:
            driver.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()

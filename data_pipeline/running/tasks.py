"""A step as datatrove's executors call it.

They are imported here alone, by whoever hands them a step and by every task of one: they take
longer to import than a bacterium to read, and a build in one process needs none.
"""

from collections.abc import Callable, Iterable
from typing import Any

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
    for rank in range(task, num_ranks, num_tasks):
        run(rank)
    return ()

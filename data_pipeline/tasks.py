"""A step as datatrove's executors call it.

Only this module imports them, because a build on one machine needs none and they load slowly.
"""

from collections.abc import Callable, Iterable
from typing import Any

from datatrove.executor import RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.utils.logging import logger

__all__ = ["RayPipelineExecutor", "SlurmPipelineExecutor", "run_share"]

# Its log lists ranks and pipelines; the steps report what users need.
logger.disable("datatrove")


def run_share(
    run: Callable[[int], None], num_ranks: int, data: Any, task: int, num_tasks: int
) -> Iterable[Any]:
    """Run the ranks task, task + num_tasks, task + 2 num_tasks, ... of a step.

    The signature is the one of datatrove's pipelines, which pass documents on; steps have none.
    """
    del data
    for rank in range(task, num_ranks, num_tasks):
        run(rank)
    return ()

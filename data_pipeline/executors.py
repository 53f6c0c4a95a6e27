"""Where steps run: datatrove's executors, on this machine, under Slurm or under Ray."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from datatrove.executor import (
    LocalPipelineExecutor,
    RayPipelineExecutor,
    SlurmPipelineExecutor,
)
from datatrove.utils.logging import logger

from data_pipeline.recipe import ExecutorConfig

# Its own log tells of ranks and pipelines; what users want to know the steps say themselves.
logger.disable("datatrove")


class Step(NamedTuple):
    """A function of the rank, called once for each task; it must do nothing when it was done."""

    name: str
    run: Callable[[int], None]
    num_tasks: int


def run_steps(config: ExecutorConfig, steps: list[Step], logs: Path) -> bool:
    """Run steps one after another, the tasks of each in any order.

    Returns:
        False if they were submitted and are not done yet.
    """
    if config.kind == "slurm":
        _submit(config, steps, logs)
        return False
    for step in steps:
        common: dict[str, Any] = {
            "pipeline": [partial(_call, step.run)],
            "tasks": step.num_tasks,
            "workers": min(config.workers, step.num_tasks),
            "logging_dir": str(logs / step.name),
            "skip_completed": False,  # the step itself knows, from what lies on disk
        }
        if config.kind == "ray":
            RayPipelineExecutor(
                **common,
                cpus_per_task=config.cpus_per_task,
                mem_per_cpu_gb=config.memory_gb_per_cpu,
            ).run()
        else:
            LocalPipelineExecutor(**common).run()
    return True


def _submit(config: ExecutorConfig, steps: list[Step], logs: Path) -> None:
    """Hand all steps to Slurm as arrays, each waiting for the one before."""
    last = None
    for step in steps:
        last = SlurmPipelineExecutor(
            pipeline=[partial(_call, step.run)],
            tasks=step.num_tasks,
            workers=config.workers,
            time=config.time,
            partition=config.partition,
            qos=config.qos,
            cpus_per_task=config.cpus_per_task,
            mem_per_cpu_gb=config.memory_gb_per_cpu,
            env_command=config.environment or None,
            job_name=f"carbon-{step.name}",
            logging_dir=str(logs / step.name),
            skip_completed=False,
            depends=last,
        )
    if last:
        last.run()


def _call(run: Callable[[int], None], data: Any, rank: int, world_size: int) -> Iterable[Any]:
    """Be a step of datatrove's: documents in, documents out, of which there are none here."""
    del data, world_size
    run(rank)
    return ()

"""Where steps run: in processes of this machine, or by datatrove under Slurm or Ray."""

import errno
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from pydantic import Field

from carbon.io.config import Recipe

ExecutorName = Literal["local", "slurm", "ray"]

# Each task of datatrove's is sent the whole recipe. With a task for each of ten thousand inputs,
# the time for that would grow with the square of their number.
_TASKS_A_WORKER = 16


class Step(NamedTuple):
    """A function of the rank, called once for each; it must do nothing when it was done."""

    name: str
    run: Callable[[int], None]
    num_ranks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Executor:
    """A way to run steps.

    Attributes:
        run: takes the settings, steps that wait for one another, and the folder of logs.
        waits: whether the steps are done when it returns; else they were submitted.
        needs: settings that it cannot do without.
    """

    run: Callable[["ExecutorConfig", list[Step], Path], None]
    waits: bool = True
    needs: tuple[str, ...] = ()


def _run_local(config: "ExecutorConfig", steps: list[Step], logs: Path) -> None:
    """Run the ranks of each step in worker processes, or in this one if one is enough.

    datatrove's local executor waits forever for the rank of a worker that was killed; a pool of the
    standard library reports it.
    """
    del logs  # steps report by themselves
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(config.workers, spawn, _end_with_driver) as pool:
        for step in steps:
            if min(config.workers, step.num_ranks) == 1:
                for rank in range(step.num_ranks):
                    step.run(rank)
            else:
                _run_ranks(pool, step)


def _run_ranks(pool: ProcessPoolExecutor, step: Step) -> None:
    """Run the ranks of a step in a pool; the first error ends it.

    Raises:
        ChildProcessError: a worker was killed.
    """
    ranks: list[Future[None]] = []
    try:
        for number in range(step.num_ranks):  # fails too if an idle worker was killed
            ranks.append(pool.submit(step.run, number))
        for rank in as_completed(ranks):
            rank.result()
    except BrokenProcessPool:
        reason = "a worker process was killed, perhaps for lack of memory; the same command goes on"
        raise ChildProcessError(errno.ECHILD, reason, f"step {step.name}") from None
    finally:
        for rank in ranks:
            rank.cancel()


def _end_with_driver() -> None:
    """End this worker when its driver ends, however it ended.

    A task that outlived its driver would mix its results with the next build's.
    """
    driver = multiprocessing.parent_process()
    assert driver

    def watch() -> NoReturn:
        driver.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_ray(config: "ExecutorConfig", steps: list[Step], logs: Path) -> None:
    from data_pipeline.tasks import RayPipelineExecutor

    for step in steps:
        RayPipelineExecutor(**_common(config, step, logs)).run()


def _submit(config: "ExecutorConfig", steps: list[Step], logs: Path) -> None:
    """Hand all steps to Slurm as arrays, each waiting for the one before."""
    from data_pipeline.tasks import SlurmPipelineExecutor

    last = None
    for step in steps:
        last = SlurmPipelineExecutor(
            **_common(config, step, logs) | {"workers": config.workers},
            time=config.time,
            partition=config.partition,
            qos=config.qos,
            env_command=config.environment or None,
            job_name=f"carbon-{step.name}",
            depends=last,
        )
    if last:
        last.run()


EXECUTORS = {
    "local": Executor(run=_run_local),
    "slurm": Executor(run=_submit, waits=False, needs=("partition",)),
    "ray": Executor(run=_run_ray),
}


class ExecutorConfig(Recipe):
    """Where the steps run: worker processes, or datatrove's executors."""

    kind: ExecutorName = "local"
    """Processes of this machine, Slurm jobs, or Ray."""
    workers: int = Field(default=1, ge=1)
    """Tasks at the same time."""
    cpus_per_task: int = Field(default=1, ge=1)
    """Slurm: CPUs of a task."""
    memory_gb_per_cpu: int = Field(default=4, ge=1)
    """Slurm: GB of memory for each CPU."""
    partition: str = ""
    """Slurm: partition, required."""
    time: str = "24:00:00"
    """Slurm: time limit of a job."""
    environment: str = ""
    """Slurm: a shell command before each task, such as the activation of a virtual environment. It
    is not in the manifest."""
    qos: str = "normal"
    """Slurm: quality of service."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield settings that the kind cannot do without."""
        for name in EXECUTORS[self.kind].needs:
            if not getattr(self, name):
                yield name, f"is missing; kind = '{self.kind}' needs it"


def run_steps(config: ExecutorConfig, steps: list[Step], logs: Path) -> bool:
    """Run steps one after another, the ranks of each in any order.

    Returns:
        False if they were submitted and are not done yet.
    """
    executor = EXECUTORS[config.kind]
    executor.run(config, steps, logs)
    return executor.waits


def _common(config: ExecutorConfig, step: Step, logs: Path) -> dict[str, Any]:
    """Return the arguments that all executors take for a step."""
    from data_pipeline.tasks import run_share

    return {
        "pipeline": [partial(run_share, step.run, step.num_ranks)],
        "tasks": min(step.num_ranks, _TASKS_A_WORKER * config.workers),
        "workers": min(config.workers, step.num_ranks),
        "cpus_per_task": config.cpus_per_task,
        "mem_per_cpu_gb": config.memory_gb_per_cpu,
        "logging_dir": str(logs / step.name),
        "skip_completed": False,  # the step itself checks the results on disk
    }

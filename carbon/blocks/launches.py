"""What a launcher has put into the environment of the processes that it started together."""

import re
from collections.abc import Mapping
from typing import NamedTuple

NAME = "CARBON_LAUNCH"
"""A name that all have who were started together, by whatever is not known here."""


class Launch(NamedTuple):
    """Processes that were started together, and which of them this one is.

    Attributes:
        name: of them all; the same when the launcher starts one of them again.
        is_first: the one that shows how far all are.
        local_rank: which it is on its machine, if each is to take one device of it; None if it is
            to take all.
    """

    name: str
    is_first: bool = True
    local_rank: int | None = None


def launch_of(environ: Mapping[str, str]) -> Launch | None:
    """Return what started this process beside others; None if nothing is known to have."""
    if NAME in environ:
        return Launch(environ[NAME])
    return _by_torchrun(environ) or _by_slurm(environ)


def _by_torchrun(environ: Mapping[str, str]) -> Launch | None:
    """https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables."""
    if "TORCHELASTIC_RUN_ID" not in environ or environ.get("WORLD_SIZE") == "1":
        return None
    local_rank = int(environ["LOCAL_RANK"])
    is_alone = environ.get("LOCAL_WORLD_SIZE") == "1"
    name = f"torchrun {environ['TORCHELASTIC_RUN_ID']}"
    return Launch(name, environ["RANK"] == "0", None if is_alone else local_rank)


def _by_slurm(environ: Mapping[str, str]) -> Launch | None:
    """Output environment variables of https://slurm.schedmd.com/srun.html and sbatch.html.

    The script of a job is one process, however many tasks the job has; those of a step are many.
    """
    job = environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID")
    num_tasks = int(environ.get("SLURM_STEP_NUM_TASKS", "1"))
    if job is None or (num_tasks == 1 and "SLURM_ARRAY_TASK_ID" not in environ):
        return None
    per_node = re.sub(r"\(x\d+\)", "", environ.get("SLURM_STEP_TASKS_PER_NODE", "1")).split(",")
    local_rank = int(environ.get("SLURM_LOCALID", "0")) if set(per_node) != {"1"} else None
    return Launch(f"slurm {job}", environ.get("SLURM_PROCID", "0") == "0", local_rank)

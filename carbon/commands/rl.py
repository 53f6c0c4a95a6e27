"""`carbon rl`: RL fine-tuning of a model on scoring functions."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from carbon.commands.design import Oracles
from carbon.commands.shared import (
    WORK,
    check_inputs,
    group,
)
from carbon.parallel.options import WorkerOptions
from carbon.rl.config import TuneJob, TuneTask

_LEARNING = group("Learning")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawerOptions(WorkerOptions):
    """Which processes draw.

    Attributes:
        device: auto: a GPU if there is one.
        processes: worker processes on this machine that draw.
        ray: HOST:PORT of the head node of the Ray cluster that draws.
        resume: continue from the last checkpoint of a run that was stopped.
        vllm: URL of a vLLM server of this machine that draws.
    """

    device: Literal["auto", "cpu"] = "auto"
    vllm: str = ""


_DRAWERS = DrawerOptions()


def rl(
    *,
    model: str,
    oracles: Oracles,
    output: Annotated[Path, Parameter(metavar="FOLDER")],
    task: Annotated[TuneTask, Parameter(name="*", group=_LEARNING)],
    drawers: Annotated[DrawerOptions, Parameter(name="*", group=WORK)] = _DRAWERS,
) -> None:
    """Train a model by RL so that it draws sequences that scoring functions prefer.

    Draws groups of sequences, scores them, and trains low-rank adapters so that sequences better
    than the rest of their group become likelier (GRPO by trl), close to the starting model. Writes
    curves, samples, the adapter and the merged model.

    Args:
        model: model folder, or the name of a bundled or Hub model.
        output: to write.
    """
    check_inputs(model)
    from carbon.rl.grpo import rank
    from carbon.rl.train import check_tuning, run_tuning, started_by

    job = TuneJob(
        model,
        oracles,
        task,
        output,
        on_cpu=drawers.device == "cpu",
        resume=drawers.resume,
        has_workers=bool(drawers.processes or drawers.ray),
        vllm=drawers.vllm,
    )
    check_tuning(job)
    summary = run_tuning(job, started_by(drawers) if job.has_workers else None)
    if rank() == 0:
        print(json.dumps(summary))

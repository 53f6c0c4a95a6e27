"""`carbon rl`: RL fine-tuning of a model on scoring functions."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from carbon.commands.design import Functions
from carbon.commands.shared import (
    WORK,
    check_inputs,
    group,
)
from carbon.parallel.options import WorkerOptions
from carbon.rl.config import RLConfig, RLJob

_TRAINING = group("Training")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerOptions(WorkerOptions):
    """Processes that draw samples.

    Attributes:
        device: auto (a GPU if there is one) or cpu.
        processes: worker processes on this machine that draw.
        ray: HOST:PORT of the head node of the Ray cluster that draws.
        resume: continue from the last checkpoint of an interrupted run.
        vllm: URL of a vLLM server of this machine that draws.
    """

    device: Literal["auto", "cpu"] = "auto"
    vllm: str = ""


_SAMPLERS = SamplerOptions()


def rl(
    *,
    model: str,
    functions: Functions,
    output: Annotated[Path, Parameter(metavar="FOLDER")],
    config: Annotated[RLConfig, Parameter(name="*", group=_TRAINING)],
    samplers: Annotated[SamplerOptions, Parameter(name="*", group=WORK)] = _SAMPLERS,
) -> None:
    """Train a model by RL so that it draws sequences that scoring functions prefer.

    Draws groups of sequences, scores them, and trains low-rank adapters so that sequences with
    above-average rewards in their group become likelier (GRPO by trl), close to the starting model.
    Writes curves, samples, the adapter and the merged model.

    Args:
        model: model folder, or the name of a bundled or Hub model.
        output: run folder to write.
    """
    check_inputs(model)
    from carbon.rl.grpo import rank
    from carbon.rl.train import check_rl, run_rl, worker_starter

    job = RLJob(
        model,
        functions,
        config,
        output,
        on_cpu=samplers.device == "cpu",
        resume=samplers.resume,
        has_workers=bool(samplers.processes or samplers.ray),
        vllm=samplers.vllm,
    )
    check_rl(job)
    summary = run_rl(job, worker_starter(samplers) if job.has_workers else None)
    if rank() == 0:
        print(json.dumps(summary))

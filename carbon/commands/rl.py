"""`carbon rl`: RL fine-tuning of a model on scoring functions."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from carbon.commands.design import Functions, Goals
from carbon.commands.shared import WORK, check_inputs, flattened, group
from carbon.console import print_summary
from carbon.rl.config import RLConfig, RLJob, SamplerOptions, check_rl, rank

_SAMPLERS = SamplerOptions()

if TYPE_CHECKING:
    Training = RLConfig
else:
    Training = Annotated[
        flattened(RLConfig, without="goals"), Parameter(name="*", group=group("Training"))
    ]


def rl(
    *,
    model: str,
    functions: Functions,
    goals: Goals = (),
    output: Annotated[Path, Parameter(metavar="FOLDER")],
    config: Training,
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
    check_inputs(model, carbon_only=True)
    job = RLJob(model, functions, replace(config, goals=goals), output, samplers)
    check_rl(job)
    from carbon.rl.train import run_rl

    summary = run_rl(job)
    if rank() == 0:
        print_summary(summary)

"""RL fine-tuning, `carbon.rl.run(model, ...)`: draw sequences that scoring functions prefer (GRPO).

- `config`: the options of a run.
- `train`, `grpo`: the run, and trl's GRPO trainer on 6-mers (arXiv 2402.03300).
- `rollouts`: samples from this process, from workers or from a vLLM server.
- `rewards`: the values of scoring functions as rewards.
- `folder`, `report`: the run folder and its page.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

if TYPE_CHECKING:
    from carbon.design.functions import Function
    from carbon.inference import Model
    from carbon.rl.config import RLOptions

__all__ = ["run"]


def run(
    model: "Model | str | Path",
    functions: "Sequence[str | Function]",
    output: str | Path,
    *,
    device: Literal["auto", "cpu"] = "auto",
    resume: bool = False,
    processes: int = 0,
    **options: "Unpack[RLOptions]",
) -> "Model":
    """Train a model by RL on scoring functions, write the run folder, and return the model.

    Args:
        model: a model, its folder, or a name for `carbon.load`; the model is not changed.
        functions: scoring functions, as for `carbon.design.run`.
        output: run folder to write.
        device: `auto` (a GPU if there is one) or `cpu`.
        resume: continue from the last checkpoint of an interrupted run.
        processes: worker processes that draw samples; 0 to draw in this process.
        **options: fields of `carbon.rl.config.RLConfig`; `length_bp` is required.

    Raises:
        UserError: an option does not fit the model, or a scoring function fails; the files
            written so far remain.
    """
    from carbon.inference import load
    from carbon.inference.checks import check_several
    from carbon.inference.options import source_of
    from carbon.rl.config import RLConfig, RLJob, SamplerOptions, check_rl

    check_several("functions", functions, '["python:MODULE:FUNCTION"]')
    samplers = SamplerOptions(device=device, processes=processes, resume=resume)
    job = RLJob(source_of(model), functions, RLConfig(**options), Path(output), samplers)
    check_rl(job)
    from carbon.rl.folder import MODEL
    from carbon.rl.train import run_rl

    run_rl(job)
    return load(job.output / MODEL, device=device)

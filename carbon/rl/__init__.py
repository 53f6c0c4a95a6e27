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
    """Train a model by RL on scoring functions, write the run folder, and return the new model.

    Args:
        model: a folder, a name for `carbon.load`, or a model loaded from one of them. Training
            loads the folder again in float32, and leaves a loaded model as it is.
        functions: scoring functions, as for `carbon.design.run`; without callables if worker
            processes draw.
        output: run folder to write.
        device: `auto` (a GPU if there is one) or `cpu`, of training and of the returned model.
        resume: continue from the last checkpoint of an interrupted run.
        processes: worker processes that draw samples; 0 to draw in this process.
        **options: fields of `carbon.rl.config.RLConfig`; `length_bp` is required.

    Raises:
        TypeError: there is no such option, or `functions` is a single string.
        UserError: an option does not fit the model, the output exists, or a scoring function fails;
            the files written so far remain.
    """
    from carbon.devices import random_numbers_kept
    from carbon.inference import load
    from carbon.inference.checks import check_several
    from carbon.inference.options import source_of
    from carbon.progress import bars_only
    from carbon.rl.config import RLConfig, RLJob, SamplerOptions, check_rl

    check_several("functions", functions, '["python:MODULE:FUNCTION"]')
    samplers = SamplerOptions(device=device, processes=processes, resume=resume)
    job = RLJob(source_of(model), functions, RLConfig(**options), Path(output), samplers)
    check_rl(job)
    from carbon.rl.folder import MODEL
    from carbon.rl.train import run_rl

    with random_numbers_kept(), bars_only():
        run_rl(job)
    return load(job.output / MODEL, device=device)

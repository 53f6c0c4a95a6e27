"""RL fine-tuning: a model learns to draw sequences that scoring functions prefer (GRPO).

- `config`: the options of a run.
- `train`, `grpo`: the run, and trl's GRPO trainer on 6-mers (arXiv 2402.03300).
- `rollouts`: samples to learn from, by this process, by workers or by a vLLM server.
- `rewards`: the values of scoring functions as rewards.
- `folder`, `report`: the run folder and its page.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from carbon.design.functions import Function
    from carbon.inference import Model
    from carbon.rl.config import TuneOptions


class _Callable(ModuleType):
    """A package that can be called: `carbon.rl(model, ...)`."""

    def __call__(
        self,
        model: str | Path,
        oracles: "Sequence[str | Function]",
        output: str | Path,
        *,
        device: str = "auto",
        resume: bool = False,
        processes: int = 0,
        **options: "Unpack[TuneOptions]",
    ) -> "Model":
        """Train a model by RL on scoring functions, write the run folder, and return the model.

        Args:
            model: model folder, or a name as `carbon.load` takes it.
            oracles: scoring functions, as of `carbon.design`.
            output: run folder to write.
            device: `auto`, a GPU if there is one; or `cpu`.
            resume: continue from the last checkpoint of a run that was stopped.
            processes: worker processes that draw; 0 to draw in this process.
            **options: fields of `carbon.rl.config.TuneTask`; `length_bp` must be given.

        Raises:
            UserError: an option does not fit the model, or a scoring function fails; what was
                written until then stays.
        """
        from carbon.inference import load
        from carbon.inference.checks import check_several
        from carbon.parallel.options import WorkerOptions
        from carbon.rl.config import TuneJob, TuneTask
        from carbon.rl.folder import MODEL
        from carbon.rl.train import check_tuning, run_tuning, started_by

        check_several("oracles", oracles, '["python:MODULE:FUNCTION"]')
        task, on_cpu = TuneTask(**options), device == "cpu"
        job = TuneJob(str(model), oracles, task, Path(output), on_cpu, resume, processes > 0)
        check_tuning(job)
        workers = WorkerOptions(device=device, processes=processes)
        run_tuning(job, started_by(workers) if processes else None)
        return load(job.output / MODEL, device=device)


sys.modules[__name__].__class__ = _Callable

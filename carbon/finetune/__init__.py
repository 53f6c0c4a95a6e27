"""Fine-tune DNA language models on labelled sequences, and predict labels of new ones.

`config` is the recipe; `readers`, `data`, `split` and `prepare` turn files into examples; `tasks`
defines what is predicted and how it is scored; `probe`, `train` and `baselines` fit; `job` runs all
of it and writes the folder that `load` and `predict` read.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carbon.finetune.config import FinetuneConfig


class _FinetunePackage(ModuleType):
    """A package that can be called: `carbon.finetune(...)`."""

    def __call__(
        self,
        config: "FinetuneConfig | Mapping[str, Any] | str | Path",
        *,
        overrides: tuple[str, ...] = (),
        resume: bool = False,
        processes: int | None = None,
        ray: str | None = None,
    ) -> dict[str, Any]:
        """Fine-tune a model, write the folder that the configuration names, and return the results.

        Args:
            config: a configuration, its plain values, a TOML file, or the name of a published
                recipe.
            overrides: such as `method.name=probe`; not allowed with a `FinetuneConfig`.
            resume: continue a run that was stopped.
            processes: worker processes for the trials of a search; 0 or None trains them here.
            ray: HOST:PORT of the head node of the Ray cluster for the trials of a search.

        Raises:
            UserError: configuration, data or model are invalid.
        """
        from carbon.finetune.job import as_config, run_finetune
        from carbon.parallel.options import WorkerOptions

        workers = WorkerOptions(processes=processes, ray=ray)
        return run_finetune(as_config(config, overrides), resume=resume, workers=workers)


sys.modules[__name__].__class__ = _FinetunePackage

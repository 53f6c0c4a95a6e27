"""Fine-tune DNA language models on labelled sequences: `carbon.finetune.run(model, ...)`.

`config` is the recipe; `readers`, `data`, `split` and `prepare` turn files into examples; `tasks`
defines what is predicted and how it is scored; `probe`, `train` and `baselines` fit; `job` runs all
of it and writes the folder that `load` and `predict` read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carbon.finetune.config import FinetuneConfig
    from carbon.inference import Model

__all__ = ["run"]


def run(
    model: "Model | str | Path | None",
    config: "FinetuneConfig | Mapping[str, Any] | str | Path",
    *,
    overrides: tuple[str, ...] = (),
    dry_run: bool = False,
    resume: bool = False,
    processes: int | None = None,
    ray: str | None = None,
) -> dict[str, Any]:
    """Fine-tune a model, write the folder that the configuration names, and return the results.

    `carbon.load_finetuned` loads the folder.

    Args:
        model: a model, its folder, or a name for `carbon.load`; it is not changed. None for the
            model that the configuration names.
        config: a configuration, its plain values, a TOML file, or the name of a published recipe.
        overrides: such as `method.name=probe`; not allowed with a `FinetuneConfig`.
        dry_run: read and check, without training, and return a summary.
        resume: continue a run that was stopped.
        processes: worker processes for the trials of a search; 0 or None trains them here.
        ray: HOST:PORT of the head node of the Ray cluster for the trials of a search.

    Raises:
        UserError: configuration, data or model are invalid.
    """
    from carbon.devices import random_numbers_kept
    from carbon.finetune.config import FinetuneConfig
    from carbon.finetune.job import as_config, plan_finetune, run_finetune
    from carbon.inference.options import source_of
    from carbon.parallel.options import WorkerOptions
    from carbon.progress import bars_only

    if model is not None and isinstance(config, FinetuneConfig):
        config = config.replace(model=source_of(model))
    elif model is not None:
        overrides = (*overrides, f"model={json.dumps(source_of(model))}")
    settings = as_config(config, overrides)
    workers = WorkerOptions(processes=processes, ray=ray)
    if dry_run:
        return plan_finetune(settings, workers)
    with random_numbers_kept(), bars_only():
        return run_finetune(settings, resume=resume, workers=workers)

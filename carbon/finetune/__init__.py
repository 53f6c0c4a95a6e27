"""Labels of sequences learned on top of a DNA model, and predicted.

`data` reads files into `examples`, `split` and `leaks` part them, `question` says what is asked and
how an answer is measured, `baselines` answer without a model.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carbon.finetune.config import FinetuneConfig


class _Callable(ModuleType):
    """A package that can be called: `carbon.finetune(...)`."""

    def __call__(
        self,
        config: "FinetuneConfig | Mapping[str, Any] | str | Path",
        *,
        overrides: tuple[str, ...] = (),
        resume: bool = False,
    ) -> dict[str, Any]:
        """Learn labels, write the folder that the configuration names, and return the results.

        Args:
            config: a configuration, its plain values, a TOML file, or the name of a recipe.
            overrides: such as `way.name=probe`; not of a configuration.
            resume: go on where a run was stopped.

        Raises:
            UserError: anything is wrong with configuration, data or model.
        """
        from carbon.finetune.job import as_config, run_finetune

        return run_finetune(as_config(config, overrides), resume=resume)


sys.modules[__name__].__class__ = _Callable

"""Optimise sequences against scoring functions: `carbon.design(model, ...)`.

- `functions`: scoring functions: Python functions, fine-tuned models, commands, callables.
- `goals`: a goal for each score, and Pareto fronts.
- `rules`: constraints on every design, restriction sites included.
- `proposals`: sequences and windows that the model draws.
- `strategies`, `search`: which candidates to score next, and the loop over rounds.
- `designs`: a design with its likelihood and its edit distances.
- `config`, `job`: the options, and the run of `carbon design`.
- `benchmark_functions`: scoring functions with a known maximum.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from carbon.design.config import DesignOptions
    from carbon.design.designs import Design
    from carbon.design.functions import Function
    from carbon.inference import Model


class _DesignPackage(ModuleType):
    """A package that can be called: `carbon.design(model, ...)`."""

    def __call__(
        self,
        model: "Model",
        functions: "Sequence[str | Function]",
        *,
        output: str | Path | None = None,
        resume: bool = False,
        **options: "Unpack[DesignOptions]",
    ) -> "list[Design]":
        """Optimise sequences against scoring functions; return the designs, best first.

        Args:
            model: proposes sequences.
            functions: scoring functions, each `python:MODULE:FUNCTION`, `finetuned:FOLDER[:LABEL]`
                or `command:COMMAND`, with `NAME=` before it to name its column; or a callable that
                takes a list of sequences and returns a number for each. A callable runs in this
                process, without a time limit; the others run in separate processes.
            output: also write the designs to this file, as `carbon design` does. Scored rounds
                are stored next to the file until it is complete.
            resume: continue from the stored rounds of an interrupted run.
            **options: fields of `carbon.design.config.DesignConfig`; give a length, a start or a
                protein.

        Raises:
            UserError: an option is invalid, a scoring function fails, or an earlier run left
                rounds next to the output.
        """
        from carbon.design.job import design_with

        return design_with(model.runner, functions, options, output, resume)


sys.modules[__name__].__class__ = _DesignPackage

"""Sequences optimised against scoring functions: `carbon.design(model, ...)`.

- `functions`: scoring functions, each but a callable in a process of its own.
- `goals`: what each score should be, and which candidates are the best by several scores.
- `rules`: what every design must keep to, restriction sites included.
- `proposals`: sequences and windows that the model draws.
- `strategies`, `search`: which candidates to measure next, and the loop over them.
- `designs`: a design with its likelihood and its distances.
- `config`, `job`: the options, and the run of `carbon design`.
- `benchmark_functions`: scoring functions whose maximum is known.
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


class _Callable(ModuleType):
    """A package that can be called: `carbon.design(model, ...)`."""

    def __call__(
        self,
        model: "Model",
        oracles: "Sequence[str | Function]",
        *,
        output: str | Path | None = None,
        resume: bool = False,
        **options: "Unpack[DesignOptions]",
    ) -> "list[Design]":
        """Optimise sequences against scoring functions; return the designs, the best first.

        Args:
            model: proposes sequences.
            oracles: scoring functions, each `python:MODULE:FUNCTION`, `finetuned:FOLDER[:LABEL]` or
                `command:COMMAND`, with `NAME=` before it to name its column; or a callable that
                takes a list of sequences and returns a number for each. A callable runs in this
                process, without a time limit; the others run in processes of their own.
            output: also write the designs to this file, as `carbon design` does. Measured rounds
                are kept next to the file until it is complete.
            resume: continue from the rounds that an earlier run has kept there.
            **options: fields of `carbon.design.config.DesignTask`; give a length, a start or a
                protein.

        Raises:
            UserError: an option makes no sense, a scoring function fails, or an earlier run is in
                the way.
        """
        from carbon.design.job import design_with

        return design_with(model.runner, oracles, options, output, resume)


sys.modules[__name__].__class__ = _Callable

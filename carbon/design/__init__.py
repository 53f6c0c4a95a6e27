"""Optimise sequences against scoring functions: `carbon.design.run(model, ...)`.

- `functions`: scoring functions: Python functions, fine-tuned models, commands, callables.
- `goals`: a goal for each score, and Pareto fronts.
- `rules`, `measures`: constraints on every design, and their values in the output.
- `proposals`: sequences and windows that the model draws.
- `strategies`, `search`: which candidates to score next, and the loop over rounds.
- `designs`, `distances`: a design with its likelihood and its edit distances.
- `config`, `job`: the options, and the run of `carbon design`.
- `genbank`, `report`: designs as annotated records, and side by side as a page.
- `benchmark_functions`: scoring functions with a known maximum.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from carbon.design.config import DesignOptions
    from carbon.design.designs import Design
    from carbon.design.functions import Function
    from carbon.inference import Model

__all__ = ["run"]


def run(
    model: "Model",
    functions: "Sequence[str | Function]",
    *,
    output: str | Path | Sequence[str | Path] = (),
    resume: bool = False,
    **options: "Unpack[DesignOptions]",
) -> "list[Design]":
    """Optimise sequences against scoring functions; return the designs, best first.

    Args:
        model: proposes sequences.
        functions: scoring functions, each `python:MODULE:FUNCTION`, `finetuned:FOLDER[:LABEL]`,
            `codons:TABLE`, `codons:FASTA:ANNOTATION` or `command:COMMAND`, with `NAME=` before it
            to name its column; or a callable that takes a list of sequences and returns a number
            for each. A callable runs in this process, without a time limit; the others run in
            separate processes.
        output: also write the designs to these files, as `carbon design` does; the model must have
            been loaded from a folder or by a name. Scored rounds are stored next to the first file
            until all are complete.
        resume: continue from the stored rounds of an interrupted run with the same output.
        **options: fields of `carbon.design.config.DesignOptions`: the options of `carbon design`,
            such as `length_bp`, `sites` or `temperature`. Give a length, a start or a protein. An
            empty protein keeps the translation of the start.

    Raises:
        TypeError: there is no such option, or an argument is a single string instead of a list.
        UserError: an option is invalid, a scoring function fails, no candidate qualifies, or an
            earlier run left rounds next to the output.
    """
    from carbon.design.job import design_with
    from carbon.progress import bars_only

    outputs = [output] if isinstance(output, str | Path) else output
    with bars_only():
        return design_with(model, functions, options, list(map(Path, outputs)), resume)

"""`carbon design`: sequences optimised against scoring functions."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token

from carbon.commands.shared import (
    DesignConstraints,
    Device,
    Loading,
    Natural,
    RuleOptions,
    SamplingRule,
    SearchOptions,
    Tags,
    check_inputs,
    group_of,
)
from carbon.errors import UserError
from carbon.inference import options
from carbon.inference.options import changed
from carbon.io.tables import FORMATS, any_of

if TYPE_CHECKING:
    from carbon.design.rules import Rules

_OUTPUT = f"{any_of(FORMATS['designs'])} to write."


def _protein(hint: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    return (tokens[-1].value,)  # cyclopts requires a value of the option's type


Functions = Annotated[
    tuple[str, ...],
    Parameter(
        metavar="[NAME=]KIND:ARGUMENT",
        help="finetuned:FOLDER[:LABEL], python:MODULE:FUNCTION or command:COMMAND; repeatable.",
    ),
]
Goals = Annotated[
    tuple[str, ...],
    Parameter(
        metavar="maximize|minimize|NUMBER",
        help="a goal for each scoring function, in their order; default: maximize.",
    ),
]
Protein = Annotated[
    tuple[str, ...] | None,
    Parameter(
        group=group_of(options.CONSTRAINTS),
        converter=_protein,
        consume_multiple=(0, 1),
        metavar="[LETTERS]",
    ),
]


_SEARCH, _SAMPLING = options.SearchOptions(), options.SamplingRule()
_CONSTRAINTS, _RULES = options.Constraints(), options.RuleOptions()


def design(
    *,
    loading: Loading,
    device: Device = "auto",
    tags: Tags = (),
    functions: Functions,
    goals: Goals = (),
    output: Annotated[Path, Parameter(help=_OUTPUT, metavar="FILE")],
    length_bp: int | None = None,
    start: Annotated[Path | None, Parameter(metavar="FASTA")] = None,
    prompt: str = "",
    num_designs: Annotated[Natural, Parameter(name="-n")] = 10,
    seed: Natural = 0,
    search: SearchOptions = _SEARCH,
    sampling: SamplingRule = _SAMPLING,
    constraints: DesignConstraints = _CONSTRAINTS,
    protein: Protein = None,
    rules: RuleOptions = _RULES,
    records: Annotated[str | None, Parameter(metavar="FASTA|CORPUS")] = None,
    timeout_seconds: float = 600.0,
    resume: bool = False,
) -> None:
    """Optimise sequences against scoring functions.

    Draws sequences, scores them, redraws parts of the best, and writes the best of all. Each design
    has the model's likelihood and its edit distances: compare them to detect a design that exploits
    an error of a scoring function. Several scoring functions give a Pareto front. --protein without
    letters keeps the translation of --start.

    Args:
        output: the designs.
        length_bp: bases of a design; default: the length of start or protein.
        start: FASTA whose first record lineages begin from.
        prompt: DNA before every design, not part of it.
        num_designs: number of designs to write.
        protein: amino acids that the generated bases encode, three bases each; * for a stop.
        seed: of the random numbers.
        records: training data of the model: report the nearest record to each design.
        timeout_seconds: for a batch of a scoring function.
        resume: continue an interrupted run.
    """
    from carbon.io.files import check_no_input

    check_no_input(output, start, records)
    check_inputs(loading.model, start, records, carbon_only=True)
    from carbon.design.config import DesignConfig
    from carbon.design.job import DesignJob, check_job, run_design_job, summary_of
    from carbon.genome import read_sequences

    first = next(read_sequences(start))[1] if start else None
    given: Any = changed(sampling)
    config = DesignConfig(
        length_bp=length_bp,
        start=first,
        prompt=prompt,
        goals=goals,
        num_designs=num_designs,
        seed=seed,
        tags=tags,
        rules=_rules(constraints, protein, rules, first),
        sampling=given,
        records=records,
        timeout_seconds=timeout_seconds,
        **changed(search),
    )
    job = DesignJob(loading.model, functions, config, output, resume)
    check_job(job)
    print(json.dumps(summary_of(job, run_design_job(loading.load(device).runner, job))))


def _rules(
    constraints: DesignConstraints,
    protein: tuple[str, ...] | None,
    rules: RuleOptions,
    start: str | None,
) -> "Rules":
    from carbon.design.rules import Rules
    from carbon.genome.alphabet import translate

    if protein is not None:
        letters = "".join(protein)
        if not letters and start is None:
            raise UserError("--protein: give its letters, or a --start to translate")
        constraints = replace(constraints, protein=letters or translate(start or ""))
    return Rules(constraints=constraints, **changed(rules))

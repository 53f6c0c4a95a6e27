"""`carbon design`: sequences optimised against scoring functions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from carbon.commands.shared import (
    DesignConstraints,
    Device,
    Loading,
    Natural,
    RuleOptions,
    SamplingRule,
    SearchOptions,
    Several,
    Tags,
    check_inputs,
    group_of,
)
from carbon.console import print_summary
from carbon.inference import options
from carbon.inference.options import changed
from carbon.io.tables import FORMATS, any_of

_OUTPUT = f"one or more of {any_of(FORMATS['designs'])}; GenBank has features, HTML is a report."
_ANY_NUMBER = 10**9


def _protein(hint: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    return (tokens[-1].value,)  # cyclopts requires a value of the option's type


Functions = Annotated[
    tuple[str, ...],
    Parameter(
        metavar="[NAME=]KIND:ARGUMENT",
        consume_multiple=(1, _ANY_NUMBER),
        help="one or more of finetuned:FOLDER[:LABEL], python:MODULE:FUNCTION, codons:TABLE (the "
        "codon adaptation index of a host), codons:FASTA:ANNOTATION or command:COMMAND.",
    ),
]
Goals = Annotated[
    tuple[str, ...],
    Parameter(
        metavar="maximize|minimize|NUMBER",
        consume_multiple=(1, _ANY_NUMBER),
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
    output: Annotated[Several, Parameter(help=_OUTPUT, metavar="FILE")],
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
        seed: seed of the random numbers.
        records: training data of the model: report the nearest record to each design.
        timeout_seconds: maximum seconds for a batch of a scoring function.
        resume: continue an interrupted run.
    """
    from carbon.io.files import check_different_files

    check_different_files(output, start, records)
    check_inputs(loading.model, start, records, carbon_only=True)
    from carbon.design.config import config_of
    from carbon.design.job import DesignJob, check_job, run_design_job, summary_of
    from carbon.genome import read_sequences

    first = next(read_sequences(start))[1] if start else None
    flat: Any = {
        "length_bp": length_bp,
        "start": first,
        "prompt": prompt,
        "goals": goals,
        "num_designs": num_designs,
        "seed": seed,
        "tags": tags,
        "records": records,
        "timeout_seconds": timeout_seconds,
        **({} if protein is None else {"protein": "".join(protein)}),
    }
    for part in (search, sampling, constraints, rules):
        flat |= changed(part)
    job = DesignJob(loading.model, functions, config_of(flat), list(map(Path, output)), resume)
    check_job(job)
    print_summary(summary_of(job, run_design_job(loading.load(device).runner, job)))

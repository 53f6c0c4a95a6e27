"""`carbon score`: the log-likelihood of sequences."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from carbon.blocks.crew import Crew, add_crew, add_resume, crew_of
from carbon.options import STRANDS_READ, By
from carbon.tables import TABLE_WRITERS, TableWriter, any_of, chosen_by_ending
from carbon.verbs.common import Verbs, add_model, check_inputs, load
from carbon.verbs.sequences import SequenceJob, run_sequence_job, why_alone


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "score",
        help="log-likelihood of each sequence of a FASTA or FASTQ",
        description="Writes a row a sequence, or with --per-base a row a base (position from 1). "
        "A few million bases are in memory at a time.",
    )
    add_model(verb)
    verb.add_argument("sequences", help="FASTA or FASTQ, plain, bgzip or gzip; - is stdin")
    verb.add_argument("--output", metavar="FILE", help=f"a {any_of(TABLE_WRITERS)}; TSV to stdout")
    verb.add_argument("--per-base", action="store_true", help="a row a base")
    verb.add_argument("--by", choices=get_args(By), default="chain")
    verb.add_argument("--strands", choices=STRANDS_READ, default="forward")
    add_crew(verb)
    add_resume(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.files import check_no_input
    from carbon.genome import read_sequences

    output = arguments.output
    writer = chosen_by_ending(output, TABLE_WRITERS) if output else TABLE_WRITERS[".tsv"]
    if output:
        check_no_input(output, arguments.sequences)
    records = read_sequences(arguments.sequences)
    check_inputs(arguments)
    with crew_of(arguments, why_alone(arguments.sequences, output)) as crew:
        _score(arguments, writer, records, crew)


def _score(
    arguments: argparse.Namespace,
    writer: TableWriter,
    records: Iterator[tuple[str, str]],
    crew: Crew | None,
) -> None:
    from contextlib import nullcontext

    from carbon.files import atomic_file
    from carbon.inference.identity import identity_of
    from carbon.inference.scoring import PER_BASE, PER_SEQUENCE, SequenceScore, packing_of

    output = arguments.output
    method = {"by": arguments.by, "strands": arguments.strands, "tags": tuple(arguments.tags)}
    table = PER_BASE if arguments.per_base else PER_SEQUENCE
    model = load(arguments)
    settings = {"model": arguments.model, "yarn": model.yarn, **method}
    settings |= {"dtype": model.dtype, "unit": "nats"}

    def write(scores: Iterator[tuple[str, str, SequenceScore]]) -> None:
        with (
            atomic_file(output) if output else nullcontext(Path("-")) as path,
            writer(path, table.columns, settings) as write_row,
        ):
            for name, bases, score in scores:
                for row in table.rows(name, bases, score):
                    write_row(row)

    packed, unpacked = packing_of(per_base=arguments.per_base)
    job = SequenceJob(
        source=arguments.sequences,
        output=output,
        job=settings
        | {"per_base": arguments.per_base}
        | identity_of(model.reader, arguments.model),
        read=lambda bases: model.score(bases, **method),
        packed=packed,
        unpacked=unpacked,
        resume=arguments.resume,
    )
    run_sequence_job(job, records, crew, write)

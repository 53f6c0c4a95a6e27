"""`carbon score`: the log-likelihood of sequences."""

import argparse
from pathlib import Path
from typing import get_args

from carbon.options import STRANDS_READ, By
from carbon.tables import TABLE_WRITERS, any_of, chosen_by_ending
from carbon.verbs.common import Verbs, add_model, check_inputs, load, read_named


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
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from contextlib import nullcontext

    from carbon.console import track
    from carbon.files import atomic_file
    from carbon.genome import read_sequences

    output = arguments.output
    writer = chosen_by_ending(output, TABLE_WRITERS) if output else TABLE_WRITERS[".tsv"]
    records = read_sequences(arguments.sequences)
    check_inputs(arguments)

    from carbon.inference.scoring import PER_BASE, PER_SEQUENCE

    method = {"by": arguments.by, "strands": arguments.strands, "tags": tuple(arguments.tags)}
    table = PER_BASE if arguments.per_base else PER_SEQUENCE
    model = load(arguments)
    settings = {"model": arguments.model, "yarn": model.yarn, **method}
    settings |= {"dtype": model.dtype, "unit": "nats"}
    scores = read_named(records, lambda bases: model.score(bases, **method), arguments.sequences)
    with (
        atomic_file(output) if output else nullcontext(Path("-")) as path,
        writer(path, table.columns, settings) as write,
    ):
        for name, bases, score in track(scores, "sequences"):
            for row in table.rows(name, bases, score):
                write(row)

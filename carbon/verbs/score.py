"""`carbon score`: the log-likelihood of sequences."""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from carbon.io.tables import FORMATS, any_of, chosen_by_ending, write_tsv
from carbon.options import STRANDS_READ, By
from carbon.parallel.options import add_resume, add_workers
from carbon.verbs.common import Verbs, add_model, check_inputs, loading_of
from carbon.verbs.sequences import Rows, SequenceJob, SequenceWorker, run_sequence_job

if TYPE_CHECKING:
    from carbon.inference.scoring import SequenceScore


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
    verb.add_argument(
        "--output", metavar="FILE", help=f"a {any_of(FORMATS['table'])}; TSV to stdout"
    )
    verb.add_argument("--per-base", action="store_true", help="a row a base")
    verb.add_argument("--by", choices=get_args(By), default="chain")
    verb.add_argument("--strands", choices=STRANDS_READ, default="forward")
    add_workers(verb)
    add_resume(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from contextlib import nullcontext

    from carbon.genome import read_sequences
    from carbon.io.files import atomic_file, check_no_input, output_path

    source, output = arguments.sequences, arguments.output
    writer = chosen_by_ending(output, "table") if output else write_tsv
    if output:
        output_path(output)
        check_no_input(output, source)
    records = read_sequences(source)
    check_inputs(arguments)
    from carbon.inference.scoring import PER_BASE, PER_SEQUENCE, packing_of  # and torch with it

    table = PER_BASE if arguments.per_base else PER_SEQUENCE

    def write(settings: dict[str, Any], scores: "Rows[SequenceScore]") -> None:
        with (
            atomic_file(output) if output else nullcontext(Path("-")) as path,
            writer(path, table.columns, settings) as write_row,
        ):
            for name, bases, score in scores:
                for row in table.rows(name, bases, score):
                    write_row(row)

    method = {"by": arguments.by, "strands": arguments.strands, "tags": tuple(arguments.tags)}
    job = SequenceJob(
        source=source,
        output=output,
        make=partial(
            scorer, arguments.model, loading_of(arguments), source, method, arguments.per_base
        ),
        unpack=packing_of(per_base=arguments.per_base)[1],
        asked={"per_base": arguments.per_base},
        resume=arguments.resume,
    )
    run_sequence_job(arguments, job, records, write)


def scorer(
    model: str, loading: dict[str, Any], source: str, method: dict[str, Any], per_base: bool
) -> "SequenceWorker[SequenceScore]":
    """Load a model, and return a worker that computes the likelihoods of sequences.

    Args:
        model: folder or name.
        loading: keywords of `carbon.load`.
        source: the file of the sequences, for messages.
        method: keywords of `Carbon.score`.
        per_base: whether the likelihood of each base is needed.
    """
    from carbon.inference import load
    from carbon.inference.identity import identity_of
    from carbon.inference.scoring import packing_of

    loaded = load(model, **loading)
    settings = {"model": model, "yarn": loaded.yarn, **method}
    settings |= {"dtype": loaded.dtype, "unit": "nats"}
    about = {"settings": settings, "identity": identity_of(loaded.reader, model)}
    return SequenceWorker(
        source, about, partial(loaded.score, **method), packing_of(per_base=per_base)[0]
    )

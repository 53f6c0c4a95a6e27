"""`carbon next`: what a model expects behind a context."""

import argparse

from carbon.io.tables import FORMATS, any_of, chosen_by_ending, write_tsv
from carbon.verbs.common import Verbs, add_model, check_inputs, load

COLUMNS = {"kmer": str, "probability": float, "cross_entropy_nats": float, "fns_nats": float}


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "next",
        help="the 6-mers that may follow a context, best first",
        description="Writes a row a 6-mer with its probability, and the loss by cross-entropy and "
        "by FNS if it were the true one. The 6-mer begins right behind the context.",
    )
    add_model(verb)
    verb.add_argument("--prompt", default="", metavar="SEQ", help="the context; none by default")
    verb.add_argument(
        "--fixed",
        default="......",
        metavar="PATTERN",
        help="bases of the 6-mer that are given, such as A..T..; probabilities are those among the "
        "6-mers with them, losses stay those of the model",
    )
    verb.add_argument(
        "--output", metavar="FILE", help=f"a {any_of(FORMATS['table'])}; TSV to stdout"
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from contextlib import nullcontext
    from pathlib import Path

    from carbon.io.files import atomic_file

    output = arguments.output
    writer = chosen_by_ending(output, "table") if output else write_tsv
    check_inputs(arguments)

    from carbon.inference import kmer_index

    model = load(arguments)
    token = model.next_token(arguments.prompt, tags=arguments.tags)
    given = token.given(arguments.fixed)
    settings = {"model": arguments.model, "yarn": model.yarn, "dtype": model.dtype}
    settings |= {"tags": arguments.tags, "context": given.context, "fixed": given.fixed}
    cross_entropy_nats, fns_nats = token.cross_entropy_nats, token.fns_nats
    with (
        atomic_file(output) if output else nullcontext(Path("-")) as path,
        writer(path, COLUMNS, settings) as write,
    ):
        for kmer, probability in given.ranked():
            index = kmer_index(kmer)
            losses = float(cross_entropy_nats[index]), float(fns_nats[index])
            write((kmer, probability, *losses))

"""`carbon embed`: one vector a sequence."""

import argparse

from carbon.console import natural
from carbon.options import POOLS
from carbon.verbs.common import Verbs, add_model, check_inputs, load, read_named


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "embed",
        help="one vector for each sequence of a FASTA or FASTQ, as Parquet",
        description="Writes name, bases and embedding (float32, a list of fixed size) in row "
        "groups; memory does not grow with the file.",
    )
    add_model(verb)
    verb.add_argument("sequences", help="FASTA or FASTQ, plain, bgzip or gzip; - is stdin")
    verb.add_argument("--output", required=True, metavar="FILE", help="a .parquet to write")
    verb.add_argument(
        "--pool",
        choices=POOLS,
        default="mean",
        help="mean over known bases (default), state of the last 6-mer, or of </dna> after it",
    )
    verb.add_argument(
        "--layer", type=natural, metavar="N", help="behind N layers; default: all and the last norm"
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    import json

    from carbon.console import track
    from carbon.files import atomic_file
    from carbon.genome import read_sequences
    from carbon.tables import chosen_by_ending

    chosen_by_ending(arguments.output, {".parquet": None})
    method = {"pool": arguments.pool, "layer": arguments.layer, "tags": tuple(arguments.tags)}
    records = read_sequences(arguments.sequences)
    check_inputs(arguments)

    from carbon.inference.embeddings import write_embeddings

    model = load(arguments)
    settings = {"model": arguments.model, "yarn": model.yarn, **method, "dtype": model.dtype}
    read = read_named(records, lambda bases: model.embed(bases, **method), arguments.sequences)
    rows = ((name, len(bases), vector) for name, bases, vector in track(read, "sequences"))
    width = model.model.network.config.hidden_size
    with atomic_file(arguments.output) as path:
        num_rows = write_embeddings(path, rows, width, settings)
    print(json.dumps({"sequences": num_rows, "width": width, **settings}))

"""`carbon embed`: one vector a sequence."""

import argparse
from collections.abc import Iterator
from typing import Any

from carbon.blocks.crew import Crew, add_crew, add_resume, crew_of, tell
from carbon.console import natural
from carbon.options import POOLS
from carbon.verbs.common import Verbs, add_model, check_inputs, load
from carbon.verbs.sequences import SequenceJob, run_sequence_job, why_alone


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
    add_crew(verb)
    add_resume(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.files import check_no_input
    from carbon.genome import read_sequences
    from carbon.tables import chosen_by_ending

    chosen_by_ending(arguments.output, {".parquet": None})
    check_no_input(arguments.output, arguments.sequences)
    records = read_sequences(arguments.sequences)
    check_inputs(arguments)
    with crew_of(arguments, why_alone(arguments.sequences, arguments.output)) as crew:
        tell(_embed(arguments, records, crew))


def _embed(
    arguments: argparse.Namespace, records: Iterator[tuple[str, str]], crew: Crew | None
) -> dict[str, Any] | None:
    import base64

    import numpy as np

    from carbon.files import atomic_file
    from carbon.inference.embeddings import Float32s, write_embeddings
    from carbon.inference.identity import identity_of

    method = {"pool": arguments.pool, "layer": arguments.layer, "tags": tuple(arguments.tags)}
    model = load(arguments)
    settings = {"model": arguments.model, "yarn": model.yarn, **method, "dtype": model.dtype}
    width = model.model.network.config.hidden_size

    def write(vectors: Iterator[tuple[str, str, Float32s]]) -> dict[str, Any]:
        rows = ((name, len(bases), vector) for name, bases, vector in vectors)
        with atomic_file(arguments.output) as path:
            num_rows = write_embeddings(path, rows, width, settings)
        return {"sequences": num_rows, "width": width, **settings}

    job = SequenceJob(
        source=arguments.sequences,
        output=arguments.output,
        job=settings | identity_of(model.reader, arguments.model),
        read=lambda bases: model.embed(bases, **method),
        packed=lambda vector: base64.b64encode(vector.tobytes()).decode(),
        unpacked=lambda _, text: np.frombuffer(base64.b64decode(text), dtype=np.float32),
        resume=arguments.resume,
    )
    return run_sequence_job(job, records, crew, write)

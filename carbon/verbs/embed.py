"""`carbon embed`: one vector a sequence."""

import argparse
import base64
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from carbon.console import natural
from carbon.io.tables import FORMATS, any_of, check_ending, chosen_by_ending
from carbon.options import POOLS
from carbon.parallel.options import add_resume, add_workers
from carbon.verbs.common import Verbs, add_model, check_inputs, loading_of
from carbon.verbs.sequences import Rows, SequenceJob, SequenceWorker, run_sequence_job

if TYPE_CHECKING:
    from carbon.inference.embeddings import Float32s


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
    verb.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help=f"a {any_of(FORMATS['embeddings'])} to write",
    )
    verb.add_argument(
        "--pool",
        choices=POOLS,
        default="mean",
        help="mean over known bases (default), state of the last 6-mer, or of </dna> after it",
    )
    verb.add_argument(
        "--layer", type=natural, metavar="N", help="behind N layers; default: all and the last norm"
    )
    add_workers(verb)
    add_resume(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    import numpy as np

    from carbon.genome import read_sequences
    from carbon.io.files import atomic_file, check_no_input, output_path

    check_ending(arguments.output, "embeddings")
    output_path(arguments.output)
    check_no_input(arguments.output, arguments.sequences)
    records = read_sequences(arguments.sequences)
    check_inputs(arguments)
    write_vectors = chosen_by_ending(arguments.output, "embeddings")  # and torch with it

    def write(settings: dict[str, Any], vectors: "Rows[Float32s]") -> dict[str, Any]:
        written = {name: value for name, value in settings.items() if name != "width"}
        rows = ((name, len(bases), vector) for name, bases, vector in vectors)
        with atomic_file(arguments.output) as path:
            num_rows = write_vectors(path, rows, settings["width"], written)
        return {"sequences": num_rows, "width": settings["width"], **written}

    method = {"pool": arguments.pool, "layer": arguments.layer, "tags": tuple(arguments.tags)}
    job = SequenceJob(
        source=arguments.sequences,
        output=arguments.output,
        make=partial(embedder, arguments.model, loading_of(arguments), arguments.sequences, method),
        unpack=lambda _, text: np.frombuffer(base64.b64decode(text), dtype=np.float32),
        asked={},
        resume=arguments.resume,
    )
    print(json.dumps(run_sequence_job(arguments, job, records, write)))


def embedder(
    model: str, loading: dict[str, Any], source: str, method: dict[str, Any]
) -> "SequenceWorker[Float32s]":
    """Load a model, and return a worker that computes the embeddings of sequences.

    Args:
        model: folder or name.
        loading: keywords of `carbon.load`.
        source: the file of the sequences, for messages.
        method: keywords of `Carbon.embed`.
    """
    from carbon.inference import load
    from carbon.inference.identity import identity_of

    loaded = load(model, **loading)
    width = loaded.model.network.config.hidden_size
    settings = {"model": model, "yarn": loaded.yarn, **method, "dtype": loaded.dtype}
    about = {
        "settings": settings | {"width": width},
        "identity": identity_of(loaded.reader, model),
    }
    return SequenceWorker(source, about, partial(loaded.embed, **method), _packed)


def _packed(vector: "Float32s") -> str:
    return base64.b64encode(vector.tobytes()).decode()

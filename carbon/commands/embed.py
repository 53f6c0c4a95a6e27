"""`carbon embed`: one vector for each sequence."""

import base64
import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from carbon.commands.shared import WORKERS, File, Loading, Natural, Tags, Workers, check_inputs
from carbon.commands.workers import embedder
from carbon.inference.options import Pool
from carbon.inference.sequence_job import Rows, SequenceJob, run_sequence_job
from carbon.io.tables import FORMATS, any_of, check_ending, chosen_by_ending

if TYPE_CHECKING:
    from carbon.inference.embed import Float32s

_OUTPUT = f"a {any_of(FORMATS['embeddings'])} to write."


def embed(
    sequences: File,
    /,
    *,
    loading: Loading,
    tags: Tags = (),
    output: Annotated[str, Parameter(help=_OUTPUT)],
    pool: Pool = "mean",
    layer: Natural | None = None,
    workers: Workers = WORKERS,
) -> None:
    """Compute a vector for each sequence of a FASTA or FASTQ.

    Writes name, bases and embedding (float32, of fixed size). Memory use does not depend on the
    file size.

    Args:
        sequences: FASTA or FASTQ, plain, bgzip or gzip; - for standard input.
        output: the vectors.
        pool: mean over known bases, state of the last 6-mer, or of </dna> after it.
        layer: after N layers; default: all and the last norm.
    """
    import numpy as np

    from carbon.genome import read_sequences
    from carbon.io.files import atomic_file, check_no_input, output_path

    check_ending(output, "embeddings")
    output_path(output)
    check_no_input(output, sequences)
    records = read_sequences(sequences)
    check_inputs(loading.model)
    write_vectors = chosen_by_ending(output, "embeddings")

    def write(settings: dict[str, Any], vectors: "Rows[Float32s]") -> dict[str, Any]:
        written = {name: value for name, value in settings.items() if name != "width"}
        rows = ((name, len(bases), vector) for name, bases, vector in vectors)
        with atomic_file(output) as path:
            num_rows = write_vectors(path, rows, settings["width"], written)
        return {"sequences": num_rows, "width": settings["width"], **written}

    method = {"pool": pool, "layer": layer, "tags": tags}
    keywords = loading.worker_keywords(workers)
    job = SequenceJob(
        source=sequences,
        output=output,
        make=partial(embedder, loading.model, keywords, sequences, method),
        unpack=lambda _, text: np.frombuffer(base64.b64decode(text), dtype=np.float32),
        inputs={},
        resume=workers.resume,
    )
    print(json.dumps(run_sequence_job(workers, job, records, write)))

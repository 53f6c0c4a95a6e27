"""`carbon embed`: one vector a sequence."""

import base64
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from carbon.commands.sequences import Rows, SequenceJob, run_sequence_job
from carbon.commands.shared import WORKERS, File, Loading, Natural, Tags, Workers, check_inputs
from carbon.commands.workers import embedder
from carbon.options import Pool

if TYPE_CHECKING:
    from carbon.inference.embeddings.vectors import Float32s


def embed(
    sequences: File,
    /,
    *,
    loading: Loading,
    tags: Tags = (),
    output: str,
    pool: Pool = "mean",
    layer: Natural | None = None,
    workers: Workers = WORKERS,
) -> None:
    """One vector for each sequence of a FASTA or FASTQ, as Parquet.

    Writes name, bases and embedding (float32, a list of fixed size) in row groups; memory does not
    grow with the file.

    Args:
        sequences: FASTA or FASTQ, plain, bgzip or gzip; - is standard input.
        output: a .parquet to write.
        pool: mean over known bases, state of the last 6-mer, or of </dna> after it.
        layer: after N layers; default: all and the last norm.
    """
    import numpy as np

    from carbon.files import atomic_file, check_no_input, output_path
    from carbon.genome import read_sequences
    from carbon.tables import chosen_by_ending

    chosen_by_ending(output, {".parquet": None})
    output_path(output)
    check_no_input(output, sequences)
    records = read_sequences(sequences)
    check_inputs(loading.model)
    from carbon.inference.embeddings.files import write_embeddings  # and torch with it

    def write(settings: dict[str, Any], vectors: "Rows[Float32s]") -> dict[str, Any]:
        written = {name: value for name, value in settings.items() if name != "width"}
        rows = ((name, len(bases), vector) for name, bases, vector in vectors)
        with atomic_file(output) as path:
            num_rows = write_embeddings(path, rows, settings["width"], written)
        return {"sequences": num_rows, "width": settings["width"], **written}

    method = {"pool": pool, "layer": layer, "tags": tags}
    keywords = loading.worker_keywords(workers)
    job = SequenceJob(
        source=sequences,
        output=output,
        make=partial(embedder, loading.model, keywords, sequences, method),
        unpack=lambda _, text: np.frombuffer(base64.b64decode(text), dtype=np.float32),
        asked={},
        resume=workers.resume,
    )
    print(json.dumps(run_sequence_job(workers, job, records, write)))

"""`carbon embed`: one vector for each sequence."""

import json

from carbon.commands.shared import WORKERS, EmbedJob, File, Workers, check_job
from carbon.io.tables import check_ending


def embed(sequences: File, /, *, job: EmbedJob, workers: Workers = WORKERS) -> None:
    """Compute a vector for each sequence of a FASTA or FASTQ.

    Writes name, bases and embedding (float32, of fixed size). Memory use does not depend on the
    file size.

    Args:
        sequences: FASTA or FASTQ, plain, bgzip or gzip; - for standard input.
    """
    check_ending(job.output, "embeddings")
    check_job(job)

    from carbon.inference.sequence_job import run_embed_job

    print(json.dumps(run_embed_job(sequences, job, workers)))

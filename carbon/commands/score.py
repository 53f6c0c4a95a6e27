"""`carbon score`: the log-likelihood of sequences."""

from carbon.commands.shared import WORKERS, File, ScoreJob, Workers, check_job
from carbon.io.tables import check_ending


def score(sequences: File, /, *, job: ScoreJob, workers: Workers = WORKERS) -> None:
    """Compute the log-likelihood of each sequence of a FASTA or FASTQ.

    Writes a row for each sequence, or with --per-base for each base (position from 1). Keeps a few
    million bases in memory.

    Args:
        sequences: FASTA or FASTQ, plain, bgzip or gzip; - for standard input.
    """
    if job.output:
        check_ending(job.output, "table")
    check_job(job)

    from carbon.inference.sequence_job import run_score_job

    run_score_job(sequences, job, workers)

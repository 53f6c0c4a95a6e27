"""`carbon background`: score random variants once, for percentiles or calibrated deltas."""

from carbon.commands.shared import WORKERS, BackgroundJob, Workers, check_job
from carbon.console import print_summary
from carbon.io.tables import check_ending


def background(*, job: BackgroundJob, workers: Workers = WORKERS) -> None:
    """Score random variants as a background for other scores.

    Scores random variants of every kind and stores the quantiles. With this file, `carbon variants
    --background` writes the percentile of each variant among random variants of its kind. With
    --neighbour-bp, stores the mean deltas of neutral sites for the score calibrated_delta instead.
    """
    check_job(job)
    job.genes.check()
    job.check_neutral()

    from carbon.inference.variants.background_job import plan_background_job, run_background_job

    check_ending(job.output, "background")
    run = plan_background_job if job.dry_run else run_background_job
    print_summary(run(job, workers))

"""`carbon dependency`: which bases of a region depend on each other."""

from carbon.commands.shared import DependencyJob, Device, check_job
from carbon.console import print_summary


def dependency(*, job: DependencyJob, device: Device = "auto") -> None:
    """Compute the nucleotide dependency map of a region or gene.

    Writes e(i, j): how much a substitution at base i changes the log2 odds of a base at j, at most.
    Bases that pair or belong to one motif depend on each other. Time grows with the square of the
    region's length.
    """
    check_job(job)
    from carbon.inference.dependency.job import plan_dependency_job, run_dependency_job

    run = plan_dependency_job if job.dry_run else run_dependency_job
    print_summary(run(job, device))

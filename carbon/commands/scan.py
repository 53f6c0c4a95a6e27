"""`carbon scan`: score every base and every SNV of a region, gene or contig."""

from carbon.commands.shared import WORKERS, ScanJob, Workers, check_job
from carbon.console import print_summary


def scan(*, job: ScanJob, workers: Workers = WORKERS) -> None:
    """Score every base and every SNV of a region, gene or contig.

    Writes log p(base | all bases to its left) of A, C, G and T for every base, in nats. With
    --sides both, it is the log softmax of the log-likelihoods of each base with the bases
    downstream of it. The delta of an SNV is log p(ALT) - log p(REF): negative means that the model
    finds the variant less likely. --strands gene reads the strand of the gene.
    """
    check_job(job)
    from carbon.inference.scan.job import run_scan_job
    from carbon.inference.scan.plan import plan_scan_job

    run = plan_scan_job if job.dry_run else run_scan_job
    print_summary(run(job, workers))

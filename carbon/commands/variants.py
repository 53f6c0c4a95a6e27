"""`carbon variants`: score the variants of a VCF or of the command line."""

from carbon.commands.shared import WORKERS, VariantJob, Workers, check_job
from carbon.console import print_summary
from carbon.errors import UserError
from carbon.io.tables import check_ending


def variants(*, job: VariantJob, workers: Workers = WORKERS) -> None:
    """Score the variants of a VCF or of the command line.

    Writes log-likelihood(ALT) - log-likelihood(REF) in nats, the delta: negative means that the
    model finds the variant less likely. --scores adds others from the same forward passes.
    """
    if job.lenient:
        raise UserError(
            "--lenient was removed, omit it: lenient reading is the default; --strict refuses a "
            "VCF that breaks a rule"
        )
    check_job(job)
    job.genes.check()
    job.check_scores()

    check_ending(job.output, "variants")  # a wrong ending is known before anything is loaded
    from carbon.inference.variants.files import run_variant_job
    from carbon.inference.variants.plan import plan_variant_job

    run = plan_variant_job if job.dry_run else run_variant_job
    print_summary(run(job, workers))

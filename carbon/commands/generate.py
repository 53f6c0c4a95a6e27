"""`carbon generate`: draw continuations or fill gaps."""

from carbon.commands.shared import WORKERS, GenerateJob, Workers, check_job
from carbon.errors import UserError


def generate(*, job: GenerateJob, workers: Workers = WORKERS) -> None:
    """Continue DNA prompts, or fill a gap, as FASTA.

    Writes the generated bases without the prompt; headers have the settings.
    """
    if job.engine != "own" and (job.draft or job.right is not None):
        raise UserError("--engine continuous takes neither --draft nor --right; leave it out")
    if job.right is not None and job.prompts:
        raise UserError("--right fills one gap; give its left side by --prompt, not --prompts")
    if job.num_samples < 1:
        raise UserError("-n 0: give 1 or more")
    check_job(job, carbon_only=True)

    from carbon.inference.generate.job import run_generate_job

    run_generate_job(job, workers)

"""`carbon generate`: DNA behind prompts, or in a gap."""

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from carbon.commands.drawing import Drawer, GenerateJob, draw_at_once, draw_in_blocks
from carbon.commands.sequences import why_streamed
from carbon.commands.shared import WORKERS, Workers, check_inputs
from carbon.parallel.journal import journal_path
from carbon.parallel.options import is_streamed, workers_of


def generate(
    *, job: Annotated[GenerateJob, Parameter(name="*")], workers: Workers = WORKERS
) -> None:
    """Continue DNA prompts, or fill a gap, as FASTA.

    Writes the generated bases alone; headers tell how they were drawn.
    """
    from carbon.errors import UserError
    from carbon.io.files import check_no_input, output_path

    if job.engine != "own" and (job.draft or job.right is not None):
        raise UserError("--engine continuous takes neither --draft nor --right; leave it out")
    if job.right is not None and job.prompts:
        raise UserError("--right fills one gap; give its left side by --prompt, not --prompts")
    if job.num_samples < 1:
        raise UserError("-n 0: give 1 or more")
    if job.output:
        output_path(job.output)
        check_no_input(job.output, job.prompts)
    check_inputs(job.loading.model, job.prompts)
    why = why_streamed("", job.output)
    if job.right is not None:
        why = "a gap (--right) is filled by one process"
    if job.engine != "own":
        why = "--engine continuous draws all prompts in one process"
    keywords = job.loading.worker_keywords(workers)
    if is_streamed(workers, why) or not job.output:
        draw_at_once(job, keywords)
        return
    output = Path(job.output)
    with workers_of(workers, partial(Drawer, job, keywords)) as found:
        if found.is_this_process and not (workers.resume or journal_path(output).exists()):
            draw_at_once(job, keywords)
        else:
            draw_in_blocks(job, output, found, workers.resume)

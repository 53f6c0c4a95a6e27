"""`carbon generate`: DNA behind prompts, or in a gap."""

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from carbon.commands.drawing import Drawer, GenerateJob, draw_at_once, draw_in_blocks
from carbon.commands.sequences import why_streamed
from carbon.commands.shared import (
    NONE,
    WORKERS,
    Constrained,
    Loading,
    Natural,
    Sampling,
    Tags,
    Workers,
    check_inputs,
    one_of,
)
from carbon.options import Engine
from carbon.parallel.journal import journal_path
from carbon.parallel.options import is_streamed, workers_of

_PROMPT = one_of("Prompts, one of these")


def generate(
    *,
    loading: Loading,
    tags: Tags = (),
    prompt: Annotated[str, Parameter(group=_PROMPT, metavar="DNA")] = "",
    prompts: Annotated[str | None, Parameter(group=_PROMPT, metavar="FASTA")] = None,
    length_bp: int,
    num_samples: Annotated[Natural, Parameter(name="-n")] = 1,
    seed: Natural = 0,
    output: Annotated[str | None, Parameter(metavar="FASTA")] = None,
    sampling: Sampling = NONE,
    constraints: Constrained = NONE,
    draft: Annotated[str | None, Parameter(metavar="MODEL")] = None,
    draft_tokens: Natural = 4,
    engine: Engine = "own",
    right: Annotated[str | None, Parameter(metavar="DNA")] = None,
    candidates: Natural = 16,
    workers: Workers = WORKERS,
    resume: bool = False,
) -> None:
    """Continue DNA prompts, or fill a gap, as FASTA.

    Writes the generated bases alone; headers tell how they were drawn.

    Args:
        loading: which model.
        tags: metadata tags.
        prompt: DNA of any length; none by default.
        prompts: one prompt a record.
        length_bp: bases to add.
        num_samples: samples a prompt.
        seed: of the random numbers.
        output: file to write; default: standard output.
        sampling: how.
        constraints: what the bases keep to.
        draft: a smaller model, to decode speculatively.
        draft_tokens: 6-mers it proposes at a time.
        engine: continuous: transformers' continuous batching, for many prompts of different
            lengths.
        right: fill the gap between --prompt and this.
        candidates: to draw for a gap; the best -n are written.
        workers: where.
        resume: continue a run that was stopped.
    """
    from carbon.errors import UserError
    from carbon.files import check_no_input, output_path

    if engine != "own" and (draft or right is not None):
        raise UserError("--engine continuous takes neither --draft nor --right; leave it out")
    if right is not None and prompts:
        raise UserError("--right fills one gap; give its left side by --prompt, not --prompts")
    if num_samples < 1:
        raise UserError("-n 0: give 1 or more")
    if output:
        output_path(output)
        check_no_input(output, prompts)
    check_inputs(loading.model, prompts)
    job = GenerateJob(
        model=loading.model,
        loading=loading.worker_keywords(workers),
        prompt=prompt,
        prompts=prompts,
        right=right,
        length_bp=length_bp,
        num_samples=num_samples,
        candidates=candidates,
        seed=seed,
        tags=tags,
        output=output,
        sampling=sampling,
        constraints=constraints,
        draft=draft,
        draft_tokens=draft_tokens,
        engine=engine,
        resume=resume,
    )
    why = why_streamed("", output)
    if right is not None:
        why = "a gap (--right) is filled by one process"
    if engine != "own":
        why = "--engine continuous draws all prompts in one process"
    if is_streamed(workers, why) or not output:
        draw_at_once(job)
        return
    with workers_of(workers, partial(Drawer, job)) as found:
        is_begun = resume or journal_path(Path(output)).exists()
        if found.is_this_process and not is_begun:
            draw_at_once(job)
        else:
            draw_in_blocks(job, Path(output), found)

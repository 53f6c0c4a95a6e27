"""Draw the sequences of a job: continuations or fillings of a gap, as FASTA."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import read_sequences
from carbon.inference.checks import NotFinite
from carbon.inference.generate.prompts import Task, check_amount, samples_of
from carbon.inference.identity import identity_of
from carbon.inference.jobs import GenerateJob, workers_for
from carbon.inference.options import changed
from carbon.inference.sequence_job import is_streamed, streaming_reason
from carbon.io.files import atomic_file, check_no_input, output_path
from carbon.io.tables import words_of
from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.journal import journal_path
from carbon.parallel.options import WorkerOptions, device_here
from carbon.progress import progress, say

if TYPE_CHECKING:
    from carbon.inference.generate.speculative import Draft
    from carbon.inference.model import Model

Record = tuple[str, dict[str, Any], str]
"""Name, facts of the header, bases."""

_LINE_BP = 60
_BLOCK_TEXTS = 64  # per block of a worker


class Wanted(NamedTuple):
    """A sequence to draw.

    Attributes:
        name: of its prompt.
        prompt: DNA.
        number: of the sample in its record, from 0.
        sample: seeds its random numbers: the number of earlier samples of the same prompt, in this
            record and in others.
    """

    name: str
    prompt: str
    number: int
    sample: int


def settings_of(job: GenerateJob, dtype: str) -> dict[str, Any]:
    """Return all settings that determine the bases, except for the prompts."""
    sampling, constraints = asdict(job.sampling), job.constraints
    if not job.sampling.repetition_penalty > 0:
        sampling |= {"repetition_penalty": None, "repetition_window_bp": None}
    return {
        "model": job.loading.model,
        "dtype": dtype,
        "yarn": job.loading.yarn,
        "draft": job.draft,
        "draft_tokens": job.num_proposed if job.draft else None,
        "engine": job.engine if job.engine != "own" else None,
        "seed": job.seed,
        "tags": "".join(job.tags),
        **sampling,
        **asdict(constraints),
        "forbid": ",".join(constraints.forbid),
        "require": ",".join(constraints.require),
        "gc": "-".join(map(str, constraints.gc or ())),
    }


def run_generate_job(job: GenerateJob, options: WorkerOptions) -> None:
    """Draw the sequences of a job, in this process or by workers, and write them as FASTA.

    Raises:
        UserError: an option or a prompt is invalid, or the output cannot be written.
    """
    _check_options(job)
    if job.output:
        output_path(job.output)
        check_no_input(job.output, job.prompts)
    reason = streaming_reason("", job.output)
    if job.right is not None:
        reason = "a gap (--right) is filled by one process"
    if job.engine != "own":
        reason = "--engine continuous draws all prompts in one process"
    draw_streamed = partial(_draw_streamed, job, options)
    if is_streamed(options, reason) or not job.output:
        draw_streamed()
        return
    with workers_for(job, Drawer, options) as workers:
        has_journal = options.resume or journal_path(job.output).exists()
        if workers.is_this_process and not has_journal:
            draw_streamed()
        else:
            _draw_in_blocks(job, job.output, workers)


def _check_options(job: GenerateJob) -> None:
    """Raise UserError for options that would have no effect, and for too few candidates."""
    if job.draft_tokens is not None and not job.draft:
        raise UserError("--draft-tokens is of a draft; give --draft, or take it out")
    if job.candidates is not None and job.right is None:
        raise UserError("--candidates is of a gap; give --right, or take it out")
    if job.right is not None and job.num_samples > job.num_candidates:
        raise UserError(
            f"-n {job.num_samples}: only {job.num_candidates} candidates are drawn; raise "
            "--candidates"
        )


def _draw_streamed(job: GenerateJob, options: WorkerOptions) -> None:
    """Draw all sequences in this process, without a journal."""
    device = device_here(options)
    if not job.output:
        sys.stdout.writelines(_lines(job, device))
        return
    with atomic_file(job.output) as path:  # an unwritable output is reported first
        path.write_text("".join(_lines(job, device)), encoding="utf-8")


def _draft_of(job: GenerateJob, device: str) -> "Draft | None":
    """Load the draft of a job, if it has one."""
    from carbon.inference.generate.speculative import Draft

    if not job.draft:
        return None
    return Draft(replace(job.loading, model=job.draft, yarn=None).load(device), job.num_proposed)


def _lines(job: GenerateJob, device: str) -> list[str]:
    model, draft = job.loading.load(device), _draft_of(job, device)
    records = _continue if job.right is None else _fill
    lines = list(_fasta(job, model.dtype, records(job, model, draft)))
    if draft:
        _say_accepted(draft.num_proposed, draft.num_accepted)
    return lines


def _say_accepted(num_proposed: int, num_accepted: int) -> None:
    share = num_accepted / max(1, num_proposed)
    say(f"the draft proposed {num_proposed} 6-mers, of which {100 * share:.1f} % were accepted")


class Drawer:
    """A worker: takes prompts, returns generated sequences.

    Attributes:
        about: `dtype`, and `models`, the identity of the model and of its draft.
    """

    def __init__(self, model: "Model", job: GenerateJob) -> None:
        """Load the draft, if the job has one, onto the device of the model."""
        self._job, self._model = job, model
        self._draft = _draft_of(job, str(model.runner.device))
        models = [identity_of(model.runner, job.loading.model)]
        if self._draft:
            models.append(identity_of(self._draft.model.runner, job.draft or ""))
        self.about = {"dtype": model.dtype, "models": models}

    def __call__(self, payload: list[Wanted]) -> dict[str, Any]:
        """Return the sequences, and the numbers of proposed and accepted 6-mers of the draft."""
        before = self._counts()
        texts = _drawn(self._job, self._model, self._draft, payload)
        draft = [now - then for now, then in zip(self._counts(), before, strict=True)]
        return {"texts": texts, "draft": draft}

    def _counts(self) -> tuple[int, int]:
        return (self._draft.num_proposed, self._draft.num_accepted) if self._draft else (0, 0)


def _draw_in_blocks(job: GenerateJob, output: Path, workers: Workers) -> None:
    """Draw the sequences by workers, and write them in order."""
    wanted = _wanted(job)
    about = workers.about(in_blocks(wanted, _BLOCK_TEXTS))
    dtype: str = about["dtype"]

    def write(results: Iterator[tuple[list[Wanted], dict[str, Any]]]) -> None:
        num_proposed = num_accepted = 0
        with atomic_file(output) as path, path.open("w", encoding="utf-8") as sink:
            for block, result in results:
                records = map(_record, block, result["texts"])
                sink.writelines(_fasta(job, dtype, records))
                num_proposed += result["draft"][0]
                num_accepted += result["draft"][1]
        if job.draft:
            _say_accepted(num_proposed, num_accepted)

    blocks = Job(
        description="sequences",
        output=output,
        settings=settings_of(job, dtype)
        | {"length": job.length_bp, "prompts": _digest(wanted), "models": about["models"]},
        check=lambda: len(wanted),
        blocks=lambda: in_blocks(wanted, _BLOCK_TEXTS),
        source=str(job.prompts or ""),
        records="sequences",
    )
    run_job(blocks, workers, write)


def _digest(wanted: list[Wanted]) -> str:
    return sha256(json.dumps(wanted).encode()).hexdigest()


def _wanted(job: GenerateJob) -> list[Wanted]:
    prompts = [("generated", job.prompt)]
    if job.prompts:
        prompts = list(read_sequences(job.prompts))
    check_amount(len(prompts) * job.num_samples, job.length_bp)
    named = [(*prompt, n) for prompt in prompts for n in range(job.num_samples)]
    samples = samples_of([prompt for _, prompt, _ in named])
    return [Wanted(*each, sample) for each, sample in zip(named, samples, strict=True)]


def _record(wanted: Wanted, text: str) -> Record:
    facts = {"sample": wanted.sample, "prompt_bp": len(wanted.prompt)}
    return f"{wanted.name}_{wanted.number}", facts, text


def _drawn(
    job: GenerateJob,
    model: "Model",
    draft: "Draft | None",
    wanted: list[Wanted],
    advance: Callable[[int], None] = lambda num_bases: None,
) -> list[str]:
    from carbon.inference.generate.continuous import generate_by

    task = Task(job.length_bp, job.sampling, job.seed, tuple(job.tags), job.constraints)
    prompts, samples = [each.prompt for each in wanted], [each.sample for each in wanted]
    try:
        return generate_by(job.engine, model.runner, prompts, task, draft, advance, samples)
    except NotFinite as error:
        raise NotFinite(f"prompt '{wanted[(error.number or 1) - 1].name}'") from None


def _continue(job: GenerateJob, model: "Model", draft: "Draft | None") -> Iterator[Record]:
    wanted = _wanted(job)
    with progress("bases", len(wanted) * job.length_bp) as advance:
        texts = _drawn(job, model, draft, wanted, advance)
    yield from map(_record, wanted, texts)


def _fill(job: GenerateJob, model: "Model", draft: "Draft | None") -> Iterator[Record]:
    right = job.right or ""

    with progress("bases", job.num_candidates * job.length_bp) as advance:
        fillings = model.infill(
            job.prompt,
            right,
            job.length_bp,
            candidates=job.num_candidates,
            draft=draft,
            advance=advance,
            seed=job.seed,
            tags=job.tags,
            constraints=job.constraints,
            **changed(job.sampling),
        )
    if len(fillings) < job.num_samples:
        say(
            f"the {job.num_candidates} candidates have {len(fillings)} distinct fillings, fewer "
            f"than -n {job.num_samples}; raise --candidates or --temperature"
        )
    for rank, filling in enumerate(fillings[: job.num_samples]):
        facts = {
            "rank": rank,
            "candidates": job.num_candidates,
            "prompt_bp": len(job.prompt),
            "right_bp": len(right),
            "score": f"{filling.score:.4f}",
            "gap_log_likelihood": f"{filling.gap_log_likelihood:.4f}",
            "right_log_likelihood": f"{filling.right_log_likelihood:.4f}",
        }
        yield f"filling_{rank}", facts, filling.bases


def _fasta(job: GenerateJob, dtype: str, records: Iterator[Record]) -> Iterator[str]:
    """Yield FASTA; headers have all settings that determine the bases, except for the prompts."""
    settings = words_of(settings_of(job, dtype))
    for name, facts, bases in records:
        yield f">{name} {words_of(facts)} {settings}\n"
        yield from (f"{bases[at : at + _LINE_BP]}\n" for at in range(0, len(bases), _LINE_BP))

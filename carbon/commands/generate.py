"""`carbon generate`: draw continuations or fill gaps, in one process or by workers."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from carbon.commands.shared import (
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
from carbon.inference.options import ConstraintOptions, Engine, SamplingOptions
from carbon.inference.sequence_job import streaming_reason
from carbon.io.tables import words_of
from carbon.parallel import driver
from carbon.parallel.driver import Job, run_job
from carbon.parallel.journal import journal_path
from carbon.parallel.options import is_streamed, workers_of

if TYPE_CHECKING:
    from carbon.inference import Draft, Model

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


_PROMPT = one_of("Prompts, one of these")


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateJob:
    """The options of `carbon generate`.

    Attributes:
        loading: model and how to load it.
        tags: metadata tags.
        prompt: DNA of any length; none by default.
        prompts: FASTA with one prompt per record.
        length_bp: bases to add.
        num_samples: samples per prompt.
        seed: of the random numbers.
        output: file to write; default: standard output.
        sampling: how 6-mers are drawn.
        constraints: on the bases.
        draft: a smaller model, to decode speculatively.
        draft_tokens: 6-mers it proposes at a time.
        engine: continuous: transformers' continuous batching, for many prompts of different
            lengths.
        right: DNA after a gap; fill the gap between --prompt and it.
        candidates: number to draw for a gap; the best -n are written.
    """

    loading: Loading
    tags: Tags = ()
    prompt: Annotated[str, Parameter(group=_PROMPT, metavar="DNA")] = ""
    prompts: Annotated[str | None, Parameter(group=_PROMPT, metavar="FASTA")] = None
    length_bp: int
    num_samples: Annotated[Natural, Parameter(name="-n")] = 1
    seed: Natural = 0
    output: Annotated[str | None, Parameter(metavar="FASTA")] = None
    sampling: Sampling = field(default_factory=SamplingOptions)
    constraints: Constrained = field(default_factory=ConstraintOptions)
    draft: Annotated[str | None, Parameter(metavar="MODEL")] = None
    draft_tokens: Natural = 4
    engine: Engine = "own"
    right: Annotated[str | None, Parameter(metavar="DNA")] = None
    candidates: Natural = 16

    def load(self, keywords: dict[str, Any]) -> tuple["Model", "Draft | None"]:
        """Return the model and its draft, loaded with keywords of `carbon.load`."""
        from carbon.inference import Draft, load

        model = load(self.loading.model, **keywords)
        if not self.draft:
            return model, None
        return model, Draft(load(self.draft, **keywords | {"yarn": None}), self.draft_tokens)

    def settings(self, dtype: str) -> dict[str, Any]:
        """Return all settings that determine the bases, except for the prompts."""
        from carbon.inference import SamplingRule

        sampling = asdict(SamplingRule(**self.sampling))
        if not sampling["repetition_penalty"] > 0:
            sampling |= {"repetition_penalty": None, "repetition_window_bp": None}
        constraints = self.constraints
        return {
            "model": self.loading.model,
            "dtype": dtype,
            "yarn": self.loading.yarn,
            "draft": self.draft,
            "draft_tokens": self.draft_tokens if self.draft else None,
            "engine": self.engine if self.engine != "own" else None,
            "seed": self.seed,
            "tags": "".join(self.tags),
            **sampling,
            "forbid": ",".join(constraints.get("forbid", ())),
            "require": ",".join(constraints.get("require", ())),
            "gc": "-".join(map(str, constraints.get("gc") or ())),
            "gc_window_bp": constraints.get("gc_window_bp"),
            "no_stop_frame": constraints.get("no_stop_frame"),
            "protein": constraints.get("protein"),
        }


def draw_streamed(job: GenerateJob, keywords: dict[str, Any]) -> None:
    """Draw all sequences in this process, without a journal."""
    from carbon.io.files import atomic_file

    if not job.output:
        sys.stdout.writelines(_lines(job, keywords))
        return
    with atomic_file(job.output) as path:  # an unwritable output is reported first
        path.write_text("".join(_lines(job, keywords)), encoding="utf-8")


def _lines(job: GenerateJob, keywords: dict[str, Any]) -> list[str]:
    model, draft = job.load(keywords)
    records = _continue if job.right is None else _fill
    lines = list(_fasta(job, model.dtype, records(job, model, draft)))
    if draft:
        _say_accepted(draft.num_proposed, draft.num_accepted)
    return lines


def _say_accepted(num_proposed: int, num_accepted: int) -> None:
    from carbon.progress import say

    share = num_accepted / max(1, num_proposed)
    say(f"the draft proposed {num_proposed} 6-mers, of which {100 * share:.1f} % were accepted")


class Drawer:
    """A worker: takes prompts, returns generated sequences.

    Attributes:
        about: `dtype`, and `models`, the identity of the model and of its draft.
    """

    def __init__(self, job: GenerateJob, keywords: dict[str, Any]) -> None:
        """Load the models of a job with keywords of `carbon.load`."""
        from carbon.inference.identity import identity_of

        self._job = job
        self._model, self._draft = job.load(keywords)
        models = [identity_of(self._model.runner, job.loading.model)]
        if self._draft:
            models.append(identity_of(self._draft.model.runner, job.draft or ""))
        self.about = {"dtype": self._model.dtype, "models": models}

    def __call__(self, payload: list[Wanted]) -> dict[str, Any]:
        """Return the sequences, and the numbers of proposed and accepted 6-mers of the draft."""
        before = self._counts()
        texts = _drawn(self._job, self._model, self._draft, payload)
        draft = [now - then for now, then in zip(self._counts(), before, strict=True)]
        return {"texts": texts, "draft": draft}

    def _counts(self) -> tuple[int, int]:
        return (self._draft.num_proposed, self._draft.num_accepted) if self._draft else (0, 0)


def draw_in_blocks(job: GenerateJob, output: Path, workers: driver.Workers, resume: bool) -> None:
    """Draw the sequences by workers, and write them in order."""
    from carbon.io.files import atomic_file

    wanted, about = _wanted(job), workers.about()
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
        settings=job.settings(dtype)
        | {"length": job.length_bp, "prompts": _digest(wanted), "models": about["models"]},
        check=lambda: len(wanted),
        blocks=lambda: (wanted[n : n + _BLOCK_TEXTS] for n in range(0, len(wanted), _BLOCK_TEXTS)),
        source=job.prompts or "",
        records="sequences",
        resume=resume,
    )
    run_job(blocks, workers, write)


def _digest(wanted: list[Wanted]) -> str:
    return sha256(json.dumps(wanted).encode()).hexdigest()


def _wanted(job: GenerateJob) -> list[Wanted]:
    from carbon.genome import read_sequences
    from carbon.inference.generate.prompts import check_amount, samples_of

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
    from carbon.inference.checks import NotFinite
    from carbon.inference.generate.constraints import Constraints
    from carbon.inference.generate.continuous import generate_by
    from carbon.inference.generate.prompts import SamplingRule, Task

    rule, constraints = SamplingRule(**job.sampling), Constraints(**job.constraints)
    task = Task(job.length_bp, rule, job.seed, job.tags, constraints)
    prompts, samples = [each.prompt for each in wanted], [each.sample for each in wanted]
    try:
        return generate_by(job.engine, model.runner, prompts, task, draft, advance, samples)
    except NotFinite as error:
        raise NotFinite(f"prompt '{wanted[(error.number or 1) - 1].name}'") from None


def _continue(job: GenerateJob, model: "Model", draft: "Draft | None") -> Iterator[Record]:
    from carbon.progress import progress

    wanted = _wanted(job)
    with progress("bases", len(wanted) * job.length_bp) as advance:
        texts = _drawn(job, model, draft, wanted, advance)
    yield from map(_record, wanted, texts)


def _fill(job: GenerateJob, model: "Model", draft: "Draft | None") -> Iterator[Record]:
    from carbon.inference import Constraints
    from carbon.progress import progress

    right = job.right or ""

    with progress("bases", job.candidates * job.length_bp) as advance:
        fillings = model.infill(
            job.prompt,
            right,
            job.length_bp,
            candidates=job.candidates,
            draft=draft,
            advance=advance,
            seed=job.seed,
            tags=job.tags,
            constraints=Constraints(**job.constraints),
            **job.sampling,
        )
    for rank, filling in enumerate(fillings[: job.num_samples]):
        facts = {
            "rank": rank,
            "candidates": job.candidates,
            "prompt_bp": len(job.prompt),
            "right_bp": len(right),
            "score": f"{filling.score:.4f}",
            "gap_log_likelihood": f"{filling.gap_log_likelihood:.4f}",
            "right_log_likelihood": f"{filling.right_log_likelihood:.4f}",
        }
        yield f"filling_{rank}", facts, filling.bases


def _fasta(job: GenerateJob, dtype: str, records: Iterator[Record]) -> Iterator[str]:
    """Yield FASTA; headers have all settings that determine the bases, except for the prompts."""
    settings = words_of(job.settings(dtype))
    for name, facts, bases in records:
        yield f">{name} {words_of(facts)} {settings}\n"
        yield from (f"{bases[at : at + _LINE_BP]}\n" for at in range(0, len(bases), _LINE_BP))


def generate(
    *, job: Annotated[GenerateJob, Parameter(name="*")], workers: Workers = WORKERS
) -> None:
    """Continue DNA prompts, or fill a gap, as FASTA.

    Writes the generated bases without the prompt; headers have the settings.
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
    reason = streaming_reason("", job.output)
    if job.right is not None:
        reason = "a gap (--right) is filled by one process"
    if job.engine != "own":
        reason = "--engine continuous draws all prompts in one process"
    keywords = job.loading.worker_keywords(workers)
    if is_streamed(workers, reason) or not job.output:
        draw_streamed(job, keywords)
        return
    output = Path(job.output)
    with workers_of(workers, partial(Drawer, job, keywords)) as running:
        if running.is_this_process and not (workers.resume or journal_path(output).exists()):
            draw_streamed(job, keywords)
        else:
            draw_in_blocks(job, output, running, workers.resume)

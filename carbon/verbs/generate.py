"""`carbon generate`: DNA behind prompts, or in a gap."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.console import natural
from carbon.io.tables import words_of
from carbon.options import ENGINES
from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.journal import journal_path
from carbon.parallel.options import add_resume, add_workers, is_streamed, workers_of
from carbon.verbs.common import Verbs, add_model, check_inputs, loading_of, options_of
from carbon.verbs.drawing import add_constraints, add_sampling, constraints_of
from carbon.verbs.sequences import why_streamed

if TYPE_CHECKING:
    from carbon.inference import Carbon, Draft

Record = tuple[str, dict[str, Any], str]
"""Name, what the header tells, bases."""

_LINE_BP = 60
_BLOCK_TEXTS = 64  # that a worker draws at a time


class Wanted(NamedTuple):
    """A sequence to draw.

    Attributes:
        name: of its prompt.
        prompt: DNA.
        number: which of the samples of its record, from 0.
        sample: key of its random numbers: how many samples of the same prompt come before it, in
            this record and in others.
    """

    name: str
    prompt: str
    number: int
    sample: int


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "generate",
        help="continue DNA prompts, or fill a gap, as FASTA",
        description="Writes the generated bases alone; headers tell how they were drawn.",
    )
    add_model(verb)
    source = verb.add_mutually_exclusive_group()
    source.add_argument("--prompt", default="", help="DNA of any length; none by default")
    source.add_argument("--prompts", metavar="FASTA", help="one prompt a record")
    verb.add_argument("--length", type=int, required=True, metavar="BP", help="bases to add")
    verb.add_argument("-n", type=natural, default=1, dest="num_samples", help="samples a prompt")
    verb.add_argument("--seed", type=natural, default=0)
    verb.add_argument("--output", metavar="FASTA", help="default: standard output")
    add_sampling(verb)
    add_constraints(verb)
    verb.add_argument("--draft", metavar="MODEL", help="a smaller model, to decode speculatively")
    verb.add_argument(
        "--draft-tokens", type=natural, default=4, help="6-mers it proposes at a time"
    )
    verb.add_argument(
        "--engine",
        choices=ENGINES,
        default="own",
        help="continuous: transformers' continuous batching, for many prompts of different lengths",
    )
    verb.add_argument("--right", metavar="SEQ", help="fill the gap between --prompt and this")
    verb.add_argument(
        "--candidates", type=natural, default=16, help="to draw for a gap; the best -n are written"
    )
    add_workers(verb)
    add_resume(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.errors import UserError
    from carbon.io.files import check_no_input, output_path

    if arguments.engine != "own" and (arguments.draft or arguments.right is not None):
        raise UserError("--engine continuous takes neither --draft nor --right; leave it out")
    if arguments.right is not None and arguments.prompts:
        raise UserError("--right fills one gap; give its left side by --prompt, not --prompts")
    if arguments.num_samples < 1:
        raise UserError("-n 0: give 1 or more")
    if arguments.output:
        output_path(arguments.output)
        check_no_input(arguments.output, arguments.prompts)
    check_inputs(arguments, arguments.prompts)
    why = why_streamed("", arguments.output)
    if arguments.right is not None:
        why = "a gap (--right) is filled by one process"
    if arguments.engine != "own":
        why = "--engine continuous draws all prompts in one process"
    if is_streamed(arguments, why):
        _draw_at_once(arguments)
        return
    given = {name: value for name, value in vars(arguments).items() if name != "run"}
    with workers_of(arguments, partial(Drawer, argparse.Namespace(**given))) as workers:
        is_begun = arguments.resume or journal_path(Path(arguments.output)).exists()
        if workers.is_this_process and not is_begun:
            _draw_at_once(arguments)
        else:
            _draw_in_blocks(arguments, workers)


def _draw_at_once(arguments: argparse.Namespace) -> None:
    """Draw all sequences together, which is fastest for one process, without a journal."""
    from carbon.io.files import atomic_file

    if not arguments.output:
        sys.stdout.writelines(_lines(arguments))
        return
    with atomic_file(arguments.output) as path:  # an impossible one is known before the work
        path.write_text("".join(_lines(arguments)), encoding="utf-8")


def _lines(arguments: argparse.Namespace) -> list[str]:
    model, draft = _loaded(arguments)
    records = _continue if arguments.right is None else _fill
    lines = list(_fasta(arguments, model.dtype, records(arguments, model, draft)))
    if draft:
        _say_accepted(draft.num_proposed, draft.num_accepted)
    return lines


def _loaded(arguments: argparse.Namespace) -> tuple["Carbon", "Draft | None"]:
    from carbon.inference import Draft, load

    model = load(arguments.model, **loading_of(arguments))
    if not arguments.draft:
        return model, None
    small = load(arguments.draft, **loading_of(arguments) | {"yarn": None})
    return model, Draft(small, arguments.draft_tokens)


def _say_accepted(num_proposed: int, num_accepted: int) -> None:
    from carbon.console import say

    share = num_accepted / max(1, num_proposed)
    say(f"the draft proposed {num_proposed} 6-mers, of which {100 * share:.1f} % were accepted")


class Drawer:
    """A worker: prompts in, generated sequences out.

    Attributes:
        about: `dtype`, and `models`, the identity of the model and of its draft.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Load the models that a command line names."""
        from carbon.inference.identity import identity_of

        self._arguments = arguments
        self._model, self._draft = _loaded(arguments)
        models = [identity_of(self._model.reader, arguments.model)]
        if self._draft:
            models.append(identity_of(self._draft.model.reader, arguments.draft))
        self.about = {"dtype": self._model.dtype, "models": models}

    def __call__(self, payload: list[Wanted]) -> dict[str, Any]:
        """Return the sequences, and how many 6-mers the draft proposed and had accepted."""
        before = self._counts()
        texts = _drawn(self._arguments, self._model, self._draft, payload)
        draft = [now - then for now, then in zip(self._counts(), before, strict=True)]
        return {"texts": texts, "draft": draft}

    def _counts(self) -> tuple[int, int]:
        return (self._draft.num_proposed, self._draft.num_accepted) if self._draft else (0, 0)


def _draw_in_blocks(arguments: argparse.Namespace, workers: Workers) -> None:
    """Have workers draw the sequences, and write them in order."""
    from carbon.io.files import atomic_file

    wanted, about = _wanted(arguments), workers.about()
    dtype: str = about["dtype"]

    def write(results: Iterator[tuple[list[Wanted], dict[str, Any]]]) -> None:
        num_proposed = num_accepted = 0
        with atomic_file(arguments.output) as path, path.open("w", encoding="utf-8") as sink:
            for block, result in results:
                records = map(_record, block, result["texts"])
                sink.writelines(_fasta(arguments, dtype, records))
                num_proposed += result["draft"][0]
                num_accepted += result["draft"][1]
        if arguments.draft:
            _say_accepted(num_proposed, num_accepted)

    job = Job(
        description="sequences",
        output=Path(arguments.output),
        settings=_asked(arguments, dtype)
        | {"length": arguments.length, "prompts": _digest(wanted), "models": about["models"]},
        check=lambda: len(wanted),
        blocks=lambda: (wanted[n : n + _BLOCK_TEXTS] for n in range(0, len(wanted), _BLOCK_TEXTS)),
        source=arguments.prompts or "",
        records="sequences",
        resume=arguments.resume,
    )
    run_job(job, workers, write)


def _digest(wanted: list[Wanted]) -> str:
    return sha256(json.dumps(wanted).encode()).hexdigest()


def _wanted(arguments: argparse.Namespace) -> list[Wanted]:
    from carbon.genome import read_sequences
    from carbon.inference.generation import check_amount, samples_of

    prompts = [("generated", arguments.prompt)]
    if arguments.prompts:
        prompts = list(read_sequences(arguments.prompts))
    check_amount(len(prompts) * arguments.num_samples, arguments.length)
    named = [(*prompt, n) for prompt in prompts for n in range(arguments.num_samples)]
    samples = samples_of([prompt for _, prompt, _ in named])
    return [Wanted(*each, sample) for each, sample in zip(named, samples, strict=True)]


def _record(wanted: Wanted, text: str) -> Record:
    facts = {"sample": wanted.sample, "prompt_bp": len(wanted.prompt)}
    return f"{wanted.name}_{wanted.number}", facts, text


def _drawn(
    arguments: argparse.Namespace,
    model: "Carbon",
    draft: "Draft | None",
    wanted: list[Wanted],
    advance: Callable[[int], None] = lambda num_bases: None,
) -> list[str]:
    from carbon.inference.generation import SamplingRule, Task, generate_by
    from carbon.inference.reading import NotFinite

    options = _options(arguments)
    seed, tags, constraints = (options.pop(name) for name in ("seed", "tags", "constraints"))
    task = Task(arguments.length, SamplingRule(**options), seed, tuple(tags), constraints)
    prompts, samples = [each.prompt for each in wanted], [each.sample for each in wanted]
    try:
        return generate_by(arguments.engine, model.reader, prompts, task, draft, advance, samples)
    except NotFinite as error:
        raise NotFinite(f"prompt '{wanted[(error.number or 1) - 1].name}'") from None


def _continue(
    arguments: argparse.Namespace, model: "Carbon", draft: "Draft | None"
) -> Iterator[Record]:
    from carbon.console import progress

    wanted = _wanted(arguments)
    with progress("bases", len(wanted) * arguments.length) as advance:
        texts = _drawn(arguments, model, draft, wanted, advance)
    yield from map(_record, wanted, texts)


def _fill(
    arguments: argparse.Namespace, model: "Carbon", draft: "Draft | None"
) -> Iterator[Record]:
    from carbon.console import progress

    with progress("bases", arguments.candidates * arguments.length) as advance:
        fillings = model.infill(
            arguments.prompt,
            arguments.right,
            arguments.length,
            candidates=arguments.candidates,
            draft=draft,
            advance=advance,
            **_options(arguments),
        )
    for rank, filling in enumerate(fillings[: arguments.num_samples]):
        facts = {
            "rank": rank,
            "candidates": arguments.candidates,
            "prompt_bp": len(arguments.prompt),
            "right_bp": len(arguments.right),
            "score": f"{filling.score:.4f}",
            "gap_log_likelihood": f"{filling.gap_log_likelihood:.4f}",
            "right_log_likelihood": f"{filling.right_log_likelihood:.4f}",
        }
        yield f"filling_{rank}", facts, filling.bases


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    from carbon.inference import SamplingOptions

    return {
        "seed": arguments.seed,
        "tags": arguments.tags,
        "constraints": constraints_of(arguments),
        **options_of(arguments, SamplingOptions),
    }


def _fasta(arguments: argparse.Namespace, dtype: str, records: Iterator[Record]) -> Iterator[str]:
    """Yield FASTA whose headers tell all that the bases follow from, but for the prompts."""
    asked = words_of(_asked(arguments, dtype))
    for name, facts, bases in records:
        yield f">{name} {words_of(facts)} {asked}\n"
        yield from (f"{bases[at : at + _LINE_BP]}\n" for at in range(0, len(bases), _LINE_BP))


def _asked(arguments: argparse.Namespace, dtype: str) -> dict[str, Any]:
    from carbon.inference import SamplingOptions, SamplingRule

    sampling = asdict(SamplingRule(**options_of(arguments, SamplingOptions)))
    if not sampling["repetition_penalty"] > 0:
        sampling |= {"repetition_penalty": None, "repetition_window_bp": None}
    return {
        "model": arguments.model,
        "dtype": dtype,
        "yarn": arguments.yarn,
        "draft": arguments.draft,
        "draft_tokens": arguments.draft_tokens if arguments.draft else None,
        "engine": arguments.engine if arguments.engine != "own" else None,
        "seed": arguments.seed,
        "tags": "".join(arguments.tags),
        **sampling,
        "forbid": ",".join(arguments.forbid),
        "require": ",".join(arguments.require),
        "gc": "-".join(map(str, arguments.gc or ())),
        "gc_window_bp": arguments.gc_window,
        "no_stop_frame": arguments.no_stop,
        "protein": arguments.protein,
    }

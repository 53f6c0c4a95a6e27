"""`carbon generate`: DNA behind prompts, or in a gap."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from carbon.console import natural
from carbon.options import MODES
from carbon.verbs.common import NOT_GIVEN, Verbs, add_model, check_inputs, load, options_of

if TYPE_CHECKING:
    from carbon.inference import Carbon, Draft

Record = tuple[str, dict[str, Any], str]
"""Name, what the header tells, bases."""

_LINE_BP = 60


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
    _add_sampling(verb)
    _add_constraints(verb)
    verb.add_argument("--draft", metavar="MODEL", help="a smaller model, to decode speculatively")
    verb.add_argument(
        "--draft-tokens", type=natural, default=4, help="6-mers it proposes at a time"
    )
    verb.add_argument("--right", metavar="SEQ", help="fill the gap between --prompt and this")
    verb.add_argument(
        "--candidates", type=natural, default=16, help="to draw for a gap; the best -n are written"
    )
    verb.set_defaults(run=run)


def _add_sampling(verb: argparse.ArgumentParser) -> None:
    """Add what `SamplingOptions` has."""
    group = verb.add_argument_group("sampling", argument_default=NOT_GIVEN)
    group.add_argument(
        "--mode",
        choices=MODES,
        help="draw 6-mers, bases by their marginals, or bases one after the other",
    )
    group.add_argument("--temperature", type=float, help="0 takes the most likely")
    group.add_argument("--top-k", type=int, metavar="K", help="only the K most likely")
    group.add_argument("--top-p", type=float, metavar="P", help="only the fewest that hold P")
    group.add_argument(
        "--min-p", type=float, metavar="P", help="of those at least P times the best"
    )
    group.add_argument(
        "--repetition-penalty",
        type=float,
        metavar="NATS",
        help="for every time a 6-mer stands in the last bases, in any frame",
    )
    group.add_argument("--repetition-window", type=int, dest="repetition_window_bp", metavar="BP")


def _add_constraints(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("constraints, kept exactly")
    group.add_argument(
        "--forbid", nargs="+", action="extend", default=[], metavar="MOTIF", help="IUPAC motifs"
    )
    group.add_argument(
        "--require", nargs="+", action="extend", default=[], metavar="MOTIF", help="IUPAC motifs"
    )
    group.add_argument(
        "--gc", nargs=2, type=float, metavar=("MIN", "MAX"), help="share of G and C, 0 to 1"
    )
    group.add_argument(
        "--gc-window", type=int, metavar="BP", help="of each window of so many; default: of all"
    )
    group.add_argument(
        "--no-stop",
        type=int,
        choices=[0, 1, 2],
        metavar="FRAME",
        help="no stop codon so many bases, and every third, after the prompt's start: 0, 1 or 2",
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.errors import UserError
    from carbon.files import atomic_file, check_no_input

    if arguments.right is not None and arguments.prompts:
        raise UserError("--right fills one gap; give its left side by --prompt, not --prompts")
    if arguments.num_samples < 1:
        raise UserError("-n 0: give 1 or more")
    if arguments.output:
        check_no_input(arguments.output, arguments.prompts)
    check_inputs(arguments, arguments.prompts)
    if not arguments.output:
        sys.stdout.writelines(_lines(arguments))
        return
    with atomic_file(arguments.output) as path:  # an impossible one is known before the work
        path.write_text("".join(_lines(arguments)), encoding="utf-8")


def _lines(arguments: argparse.Namespace) -> list[str]:
    from carbon.console import say
    from carbon.inference import Draft

    model, draft = load(arguments), None
    if arguments.draft:
        small = argparse.Namespace(**{**vars(arguments), "model": arguments.draft, "yarn": None})
        draft = Draft(load(small), arguments.draft_tokens)
    records = _continue if arguments.right is None else _fill
    lines = list(_fasta(arguments, model.dtype, records(arguments, model, draft)))
    if draft:
        say(
            f"the draft proposed {draft.num_proposed} 6-mers, of which "
            f"{100 * draft.accepted_share:.1f} % were accepted"
        )
    return lines


def _continue(
    arguments: argparse.Namespace, model: "Carbon", draft: "Draft | None"
) -> Iterator[Record]:
    from carbon.console import progress
    from carbon.genome import read_sequences
    from carbon.inference.generation import check_amount
    from carbon.inference.reading import NotFinite

    prompts = [("generated", arguments.prompt)]
    if arguments.prompts:
        prompts = list(read_sequences(arguments.prompts))
    check_amount(len(prompts) * arguments.num_samples, arguments.length)
    named = [(*prompt, n) for prompt in prompts for n in range(arguments.num_samples)]
    try:
        with progress("bases", len(named) * arguments.length) as advance:
            texts = model.generate(
                [prompt for _, prompt, _ in named],
                arguments.length,
                draft=draft,
                advance=advance,
                **_options(arguments),
            )
    except NotFinite as error:
        raise NotFinite(f"prompt '{named[(error.number or 1) - 1][0]}'") from None
    for (name, prompt, sample), text in zip(named, texts, strict=True):
        yield f"{name}_{sample}", {"sample": sample, "prompt_bp": len(prompt)}, text


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
    from carbon.inference import Constraints, SamplingOptions

    return {
        "seed": arguments.seed,
        "tags": arguments.tags,
        "constraints": Constraints(
            tuple(arguments.forbid),
            tuple(arguments.require),
            tuple(arguments.gc) if arguments.gc else None,
            arguments.gc_window,
            arguments.no_stop,
        ),
        **options_of(arguments, SamplingOptions),
    }


def _fasta(arguments: argparse.Namespace, dtype: str, records: Iterator[Record]) -> Iterator[str]:
    """Yield FASTA whose headers tell all that the bases follow from, but for the prompts."""
    asked = _words(_asked(arguments, dtype))
    for name, facts, bases in records:
        yield f">{name} {_words(facts)} {asked}\n"
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
        "seed": arguments.seed,
        "tags": "".join(arguments.tags),
        **sampling,
        "forbid": ",".join(arguments.forbid),
        "require": ",".join(arguments.require),
        "gc": "-".join(map(str, arguments.gc or ())),
        "gc_window_bp": arguments.gc_window,
        "no_stop_frame": arguments.no_stop,
    }


def _words(facts: dict[str, Any]) -> str:
    """Write `name=value`, blanks in a value as %20; what was not asked for is left out."""
    shown = {key: str(value) for key, value in facts.items() if value not in (None, "")}
    return " ".join(f"{key}={'%20'.join(value.split())}" for key, value in shown.items())

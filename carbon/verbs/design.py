"""`carbon design`: sequences that oracles like."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from carbon.console import natural
from carbon.errors import UserError
from carbon.io.tables import FORMATS, any_of
from carbon.options import DESIGN_WAYS
from carbon.verbs.common import Verbs, add_model, check_inputs, load, options_of
from carbon.verbs.drawing import add_constraints, add_oracles, add_sampling, constraints_of

if TYPE_CHECKING:
    from carbon.design.job import DesignJob
    from carbon.design.rules import Rules

_OF_START = ""  # what `--protein` is without letters


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "design",
        help="look for sequences that a measure likes",
        description="Draws sequences, has oracles measure them, and writes the best, each with the "
        "model's likelihood and its distances, which tell whether an oracle was fooled.",
    )
    add_model(verb)
    add_oracles(verb, several="; several make a Pareto front")
    verb.add_argument(
        "--output", required=True, metavar="FILE", help=f"{any_of(FORMATS['designs'])} to write"
    )
    verb.add_argument("--length", type=int, metavar="BP", help="default: of start or protein")
    verb.add_argument("--start", metavar="FASTA", help="its first record is where lineages begin")
    verb.add_argument("--prompt", default="", help="DNA before every design, not part of it")
    verb.add_argument("-n", type=natural, default=10, dest="num_designs", help="best to write")
    verb.add_argument("--seed", type=natural, default=0)
    _add_search(verb)
    add_sampling(verb)
    add_constraints(verb, protein_of_start=_OF_START)
    _add_rules(verb)
    verb.add_argument(
        "--records",
        metavar="FASTA|CORPUS",
        help="what the model was trained on: the nearest record to each design is told",
    )
    verb.add_argument(
        "--timeout", type=float, default=600, metavar="SECONDS", help="of a batch of an oracle"
    )
    verb.add_argument("--resume", action="store_true", help="go on where a run was stopped")
    verb.set_defaults(run=run)


def _add_search(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("the way to look")
    group.add_argument(
        "--way",
        choices=DESIGN_WAYS,
        default="beam",
        help="; ".join(f"{name}: {does}" for name, does in DESIGN_WAYS.items()),
    )
    group.add_argument("--calls", type=natural, default=1000, help="most sequences to measure")
    group.add_argument("--batch", type=natural, default=16, help="that are measured at once")
    group.add_argument("--width", type=natural, default=4, help="lineages of a beam")
    group.add_argument("--hot", type=float, default=1.2, help="temperature of its first round")
    group.add_argument("--cold", type=float, default=0.8, help="when the calls are spent")
    group.add_argument(
        "--within", type=float, default=0.0, help="of a target, what rejection takes"
    )


def _add_rules(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("more rules")
    group.add_argument(
        "--sites",
        nargs="+",
        action="extend",
        default=[],
        metavar="SITE",
        help="enzymes such as EcoRI, or IUPAC motifs, that stand on neither strand",
    )
    group.add_argument("--most-run", type=int, metavar="BP", help="longest run of one base")
    group.add_argument(
        "--most-repeat", type=int, metavar="BP", help="longest stretch that stands twice"
    )
    group.add_argument(
        "--hairpin",
        type=float,
        metavar="KCAL",
        help="least free energy of a fold of 60 bases, in windows that overlap by half, such as -8 "
        "(needs ViennaRNA)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.io.files import check_no_input

    check_no_input(arguments.output, arguments.start, arguments.records)
    check_inputs(arguments, arguments.start, arguments.records)
    job = _job(arguments)
    from carbon.design.job import check_job, run_design_job, summary_of

    check_job(job)
    print(json.dumps(summary_of(job, run_design_job(load(arguments).reader, job))))


def _job(arguments: argparse.Namespace) -> "DesignJob":
    from carbon.design.job import DesignJob
    from carbon.design.task import DesignTask
    from carbon.inference.generation.sampling import SamplingOptions

    start = _start(arguments)
    task = DesignTask(
        length_bp=arguments.length,
        start=start,
        prompt=arguments.prompt,
        goals=tuple(arguments.goals),
        way=arguments.way,
        calls=arguments.calls,
        batch=arguments.batch,
        width=arguments.width,
        hot=arguments.hot,
        cold=arguments.cold,
        within=arguments.within,
        num_designs=arguments.num_designs,
        seed=arguments.seed,
        tags=tuple(arguments.tags),
        rules=_rules(arguments, start),
        sampling=options_of(arguments, SamplingOptions),
        records=arguments.records,
        timeout_seconds=arguments.timeout,
    )
    return DesignJob(
        arguments.model, arguments.oracles, task, Path(arguments.output), arguments.resume
    )


def _start(arguments: argparse.Namespace) -> str | None:
    from carbon.genome import read_sequences

    return next(read_sequences(arguments.start))[1] if arguments.start else None


def _rules(arguments: argparse.Namespace, start: str | None) -> "Rules":
    from carbon.design.rules import Rules
    from carbon.genome.alphabet import translate

    if arguments.protein == _OF_START:
        if start is None:
            raise UserError("--protein: give its letters, or a --start to translate")
        arguments.protein = translate(start)
    return Rules(
        constraints=constraints_of(arguments),
        sites=tuple(arguments.sites),
        most_run_bp=arguments.most_run,
        most_repeat_bp=arguments.most_repeat,
        least_kcal=arguments.hairpin,
    )

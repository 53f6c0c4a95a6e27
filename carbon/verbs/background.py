"""`carbon background`: random variants of every kind, scored once, for percentiles."""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.console import natural
from carbon.io.tables import FORMATS, any_of, check_ending
from carbon.parallel.options import add_resume, add_workers, workers_of
from carbon.verbs.common import (
    Verbs,
    add_contigs,
    add_genetic_code,
    add_model,
    add_variant_method,
    check_genetic_code,
    check_inputs,
    loading_of,
    options_of,
)

if TYPE_CHECKING:
    from carbon.inference.background import BackgroundJob, BackgroundScorer


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "background",
        help="score random variants, to read the scores of others by",
        description="Scores random variants of every kind and keeps the quantiles. With the file, "
        "`carbon variants --background` writes of each variant how many in a hundred random "
        "variants of its kind have a lower delta.",
    )
    add_model(verb)
    verb.add_argument("--reference", required=True, help="FASTA to draw variants from")
    verb.add_argument("--output", required=True, help=f"a {any_of(FORMATS['background'])} to write")
    verb.add_argument(
        "--annotation",
        help="GFF3, GTF, BED or GenBank: tell SNVs by consequence, and indels in coding sequence "
        "from others",
    )
    add_contigs(verb)
    add_genetic_code(verb)
    verb.add_argument(
        "--draw-from", nargs="+", default=[], metavar="NAME", help="contigs; default: all"
    )
    verb.add_argument(
        "--variants-per-kind", type=natural, default=200, metavar="N", help="default: 200"
    )
    verb.add_argument("--seed", type=natural, default=0, help="default: 0")
    add_variant_method(verb)
    add_workers(verb)
    add_resume(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    check_inputs(arguments, arguments.reference, arguments.annotation)
    check_genetic_code(arguments)

    from carbon.inference.background import (
        BackgroundJob,
        Drawing,
        run_background_job,
    )
    from carbon.inference.variants import VariantOptions

    check_ending(arguments.output, "background")
    job = BackgroundJob(
        model=arguments.model,
        reference=Path(arguments.reference),
        output=Path(arguments.output),
        annotation=Path(arguments.annotation) if arguments.annotation else None,
        contigs=arguments.contigs,
        genetic_code=arguments.genetic_code,
        drawing=Drawing(arguments.variants_per_kind, arguments.seed, tuple(arguments.draw_from)),
        options=options_of(arguments, VariantOptions),
        resume=arguments.resume,
    )
    make = partial(background_scorer, job, loading_of(arguments))
    with workers_of(arguments, make) as workers:
        print(json.dumps(run_background_job(job, workers)))


def background_scorer(job: "BackgroundJob", loading: dict[str, Any]) -> "BackgroundScorer":
    """Return a worker with the model of a job, loaded with keywords of `carbon.load`."""
    from carbon.inference import load
    from carbon.inference.background import BackgroundScorer

    return BackgroundScorer(load(job.model, **loading).reader, job)

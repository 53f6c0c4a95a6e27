"""`carbon background`: score random variants of every kind once, for percentiles."""

import json
from functools import partial
from pathlib import Path

from carbon.commands.shared import (
    NO_GENES,
    NONE,
    WORKERS,
    Genes,
    Loading,
    Natural,
    Several,
    VariantMethod,
    Workers,
    check_inputs,
)
from carbon.commands.workers import background_scorer
from carbon.io.tables import check_ending
from carbon.parallel.options import workers_of


def background(
    *,
    loading: Loading,
    reference: Path,
    output: Path,
    genes: Genes = NO_GENES,
    draw_from: Several = (),
    variants_per_kind: Natural = 200,
    seed: Natural = 0,
    method: VariantMethod = NONE,
    workers: Workers = WORKERS,
) -> None:
    """Score random variants as a background for other scores.

    Scores random variants of every kind and stores the quantiles. With this file, `carbon variants
    --background` writes the percentile of each variant among random variants of its kind.

    Args:
        reference: FASTA to draw variants from.
        output: a .json to write.
        genes: separate SNVs by consequence, and coding indels from others.
        draw_from: contigs to draw from; default: all.
        variants_per_kind: number to draw.
        seed: of the random numbers.
    """
    check_inputs(loading.model, reference, genes.annotation)
    genes.check()

    from carbon.inference.variants.background import Drawing
    from carbon.inference.variants.background_job import BackgroundJob, run_background_job

    check_ending(output, "background")
    job = BackgroundJob(
        model=loading.model,
        reference=reference,
        output=output,
        annotation=genes.annotation,
        contigs=genes.contigs,
        genetic_code=genes.genetic_code,
        drawing=Drawing(variants_per_kind, seed, draw_from),
        options=method,
        resume=workers.resume,
    )
    make = partial(background_scorer, job, loading.worker_keywords(workers))
    with workers_of(workers, make) as running:
        print(json.dumps(run_background_job(job, running)))

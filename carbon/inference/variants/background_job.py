"""Compute a background or a calibration: draw variants, and score them by workers."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.__version__ import __version__
from carbon.batching import in_blocks
from carbon.genome import Annotation, Reference, Variant, contig_names
from carbon.genome.bed import read_regions
from carbon.genome.contig_names import names_table
from carbon.inference.identity import settings_of
from carbon.inference.jobs import BackgroundJob, workers_for
from carbon.inference.options import input_files
from carbon.inference.variants.annotate import read_genes, warn_of_unknown_codes
from carbon.inference.variants.background import (
    KIND_SCHEMES,
    Background,
    RandomVariant,
    background_of,
)
from carbon.inference.variants.background_file import BackgroundFile
from carbon.inference.variants.background_scores import (
    RoundedDeltas,
    draw,
    draw_calibration,
    neutral_of,
    rounded_runner,
    sample_of,
    with_tolerance,
)
from carbon.inference.variants.calibration import Calibration, calibration_of
from carbon.inference.variants.files import VariantWorker, blocks_by_place
from carbon.inference.variants.plan import costs_of
from carbon.inference.variants.score import score_variants
from carbon.io.files import check_no_input, content_sha256, output_path
from carbon.parallel.driver import Job, run_job
from carbon.parallel.options import WorkerOptions

if TYPE_CHECKING:
    from carbon.inference.model import Model
    from carbon.inference.runner import ModelRunner

_VARIANTS_PER_BLOCK = 64


class _Part(NamedTuple):
    """A variant to score, and whether to use rounded weights."""

    variant: Variant
    is_rounded: bool


Results = Iterator[tuple[list[_Part], Any]]


class BackgroundScorer(VariantWorker):
    """A worker that computes the deltas of variants.

    Attributes:
        about: `settings` that a delta depends on; `device`; and `is_rounded_too`: whether the
            tolerance needs deltas of rounded weights.
    """

    def __init__(self, model: "Model", job: BackgroundJob) -> None:
        """Describe the model and the method."""
        super().__init__(model, job)
        self._rounded: ModelRunner | None = None
        self.about: dict[str, Any] = {
            "carbon": __version__,
            "settings": settings_of(self.runner, self.method),
            "device": self.runner.device.type,
            "is_rounded_too": self.runner.dtype == "float32",
        }

    def __call__(self, payload: list[_Part]) -> RoundedDeltas:
        """Return the deltas of variants, all or none of them with rounded weights."""
        runner, weights = self.runner, ""
        if payload[0].is_rounded:
            runner = self._rounded = self._rounded or rounded_runner(self.runner)
            weights = runner.weights_sha256
        variants = [part.variant for part in payload]
        scores = score_variants(runner, self.reference, variants, self.method)
        return RoundedDeltas(weights, [score.delta for score in scores])


def run_background_job(job: BackgroundJob, options: WorkerOptions) -> dict[str, Any]:
    """Write a background, which appears when complete; return a summary.

    Raises:
        GenomeError: the reference or the annotation is malformed, or they do not match.
        UserError: a setting is invalid, or another run writes the same output.
    """
    output_path(job.output)
    check_no_input(job.output, *input_files(job), names_table(job.genes.contigs))
    with (
        workers_for(job, BackgroundScorer, options) as workers,
        Reference(job.reference) as reference,
    ):
        plan_by = _read_sources(job, reference)
        scored_by = workers.about(_expected_blocks(job))
        plan = plan_by(scored_by)

        def write(results: Results) -> BackgroundFile:
            background = plan.background(results)
            background.write(job.output)
            return background

        work = Job(
            description="scoring random variants",
            output=job.output,
            settings=plan.about | _fingerprints(job, scored_by["device"]),
            check=lambda: sum(map(len, plan.blocks)),
            blocks=lambda: iter(plan.blocks),
            records="random variants",
        )
        background = run_job(work, workers, write)
    counts = plan.counts(background)
    return {"output": str(job.output), **counts, **background.drawn, **background.settings}


def plan_background_job(job: BackgroundJob, options: WorkerOptions) -> dict[str, Any]:
    """Estimate the tokens and the time of a background, without writing output.

    Variants are drawn and their tokens counted. The time is extrapolated from the first variants,
    as by `plan_variant_job`; deltas of rounded weights count as the others.

    Args:
        job: the job.
        options: only the device is used.

    Returns:
        `variants` to score, with those to score again with rounded weights; `tokens`,
        `tokens_per_variant`, `tokens_per_second`, `hours` and `hours_h200` as `plan_variant_job`
        returns them; and the settings.

    Raises:
        GenomeError, UserError: as for `run_background_job`.
    """
    output_path(job.output)
    with Reference(job.reference) as reference:
        plan_by = _read_sources(job, reference)
        scorer = BackgroundScorer(job.loading.load(options.device), job)
        plan = plan_by(scorer.about)
        number, costs = costs_of(
            scorer.runner,
            reference,
            lambda: ([part.variant for part in block] for block in plan.blocks),
            scorer.method,
        )
    return {"variants": number, **costs, **scorer.about["settings"]}


def _read_sources(job: BackgroundJob, reference: Reference) -> Callable[[dict[str, Any]], "_Plan"]:
    """Read what variants are drawn from; return the function from `about` to the plan."""
    names = contig_names(job.genes.contigs, reference.contig_lengths_bp)
    genes = read_genes(job.genes, reference, names)
    warn_of_unknown_codes(job.genes, genes)
    plan_of = _kinds_plan if job.drawing.neighbour_bp is None else _calibration_plan
    return partial(plan_of, job, reference, names, genes.annotation)


class _Plan(NamedTuple):
    """What is scored for a background, and how it follows from the deltas.

    Attributes:
        about: content of the file besides the scores.
        blocks: variants to score.
        background: function from the results of the blocks to the background.
        counts: function from the background to the counts of the summary.
    """

    about: dict[str, Any]
    blocks: list[list[_Part]]
    background: Callable[[Results], BackgroundFile]
    counts: Callable[[Any], dict[str, int]]


def _kinds_plan(
    job: BackgroundJob,
    reference: Reference,
    names: Mapping[str, str],
    annotation: Annotation | None,
    scored_by: dict[str, Any],
) -> _Plan:
    """Plan the quantiles of random variants of every kind."""
    drawn, about = draw(reference, scored_by["settings"], annotation, job.drawing)
    about["drawn"] |= _named(job)
    parts = [_Part(each.variant, False) for each in drawn]
    rounded = [_Part(each.variant, True) for each in sample_of(drawn)]
    blocks = list(in_blocks(parts, _VARIANTS_PER_BLOCK))
    if scored_by["is_rounded_too"]:
        blocks += in_blocks(rounded, _VARIANTS_PER_BLOCK)

    def counts(background: Background) -> dict[str, int]:
        short = sum("instead" in known for known in background.table.values())
        return {"kinds": len(background.table), "kinds_with_too_few": short}

    return _Plan(about, blocks, lambda results: _background(drawn, about, results), counts)


def _calibration_plan(
    job: BackgroundJob,
    reference: Reference,
    names: Mapping[str, str],
    annotation: Annotation | None,
    scored_by: dict[str, Any],
) -> _Plan:
    """Plan the mean deltas of neutral sites."""
    lengths_bp = reference.contig_lengths_bp
    regions = read_regions(None, job.neutral, lengths_bp, names)
    if regions:
        neutral = regions.intervals
    else:
        assert annotation is not None  # by `BackgroundJob.check_neutral`
        neutral = tuple(neutral_of(annotation, reference))
    drawn, about = draw_calibration(reference, scored_by["settings"], neutral, job.drawing)
    source = {"neutral": job.neutral.name} if job.neutral else {}
    about["drawn"] |= source | _named(job)
    parts = [_Part(snv, False) for site in drawn.sites for snv in site.snvs]

    def calibration(results: Results) -> Calibration:
        deltas = [delta for _, of_block in results for delta in RoundedDeltas(*of_block).deltas]
        return calibration_of(reference, drawn, deltas, about)

    def counts(background: Calibration) -> dict[str, int]:
        levels = [cell["context_bp"] for cell in background.cells.values()]
        return {
            "cells": len(levels),
            "cells_of_narrower_context": sum(
                level is not None and level != background.neighbour_bp for level in levels
            ),
            "cells_with_too_few": levels.count(None),
        }

    blocks = blocks_by_place(
        parts,
        scored_by["settings"],
        lambda part: (part.variant.contig, part.variant.position),
        _VARIANTS_PER_BLOCK,
    )
    return _Plan(about, list(blocks), calibration, counts)


def _expected_blocks(job: BackgroundJob) -> range:
    """Return an item for each block of SNVs, before they are drawn."""
    drawing = job.drawing
    if drawing.neighbour_bp is not None:
        num_snvs = 3 * drawing.num_sites * 4**drawing.neighbour_bp
    else:
        kinds = KIND_SCHEMES["consequence" if job.genes.annotation else "change"].narrowest_snvs
        num_snvs = drawing.num_variants * len(kinds)
    return range(0, num_snvs, _VARIANTS_PER_BLOCK)


def _named(job: BackgroundJob) -> dict[str, Any]:
    """Return the names of the job's model and files."""
    model, genes = Path(job.loading.model), job.genes
    named = {"model": model.name if model.is_dir() else job.loading.model}
    named |= {"annotation": genes.annotation.name} if genes.annotation else {}
    return named | ({"genetic_code": genes.genetic_code} if genes.genetic_code else {})


def _background(drawn: list[RandomVariant], about: dict[str, Any], results: Results) -> Background:
    """Compute the background from the results of all blocks."""
    deltas: list[float | None] = []
    rounded: RoundedDeltas | None = None
    for block, result in results:
        of_block = RoundedDeltas(*result)
        if not block[0].is_rounded:
            deltas += of_block.deltas
        elif rounded is None:
            rounded = of_block
        else:
            rounded.deltas.extend(of_block.deltas)
    return with_tolerance(background_of(drawn, deltas, about), drawn, deltas, rounded)


def _fingerprints(job: BackgroundJob, device: str) -> dict[str, Any]:
    """Return checksums of the inputs."""
    inputs = {
        "reference file": job.reference,
        "annotation file": job.genes.annotation,
        "neutral file": job.neutral,
        "table of contigs": names_table(job.genes.contigs),
    }
    sums = {name: content_sha256(path) for name, path in inputs.items() if path}
    return sums | {"carbon": __version__, "device": device, "contigs": job.genes.contigs}

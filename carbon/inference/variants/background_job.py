"""Compute a background: draw variants, score them in blocks by workers, measure its tolerance.

A background of a float32 model also serves bfloat16. Rounding shifts each delta slightly in either
direction, so quantiles agree up to noise. The tolerance is how far rounding moves the percentile of
a single variant; it is measured here.
"""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from carbon.__version__ import __version__
from carbon.genome import Annotation, Consequences, Reference, Variant, contig_names
from carbon.genome.contig_names import names_table
from carbon.inference.identity import settings_of, weights_sha256
from carbon.inference.jobs import BackgroundJob, workers_for
from carbon.inference.options import BackgroundOptions, input_files
from carbon.inference.variants.annotate import read_genes, warn_of_unknown_codes
from carbon.inference.variants.background import (
    LEAST_VARIANTS,
    Background,
    RandomVariant,
    background_of,
    draw_variants,
)
from carbon.inference.variants.score import VariantWorker, score_variants
from carbon.inference.variants.windows import Method
from carbon.io.files import check_no_input, content_sha256, output_path
from carbon.parallel.driver import Job, in_blocks, run_job
from carbon.parallel.options import WorkerOptions

if TYPE_CHECKING:
    from carbon.inference.model import Model
    from carbon.inference.runner import ModelRunner

T = TypeVar("T")

ROUNDED = "bfloat16"
_VARIANTS = 320  # evenly spaced over the variants, and so over the kinds
_SHARE = 0.95


class RoundedDeltas(NamedTuple):
    """Deltas of some variants, computed with rounded weights.

    Attributes:
        weights_sha256: checksum of the rounded weights.
        deltas: in nats, None for a variant without a score.
    """

    weights_sha256: str
    deltas: list[float | None]


def rounded_runner(runner: "ModelRunner") -> "ModelRunner":
    """Return a runner of the same network with bfloat16 weights; positions stay in float32."""
    from carbon.inference.runner import ModelRunner
    from carbon.model import LoadedModel

    network: Any = copy.deepcopy(runner.network)
    for weight in network.parameters():
        weight.data = weight.data.bfloat16()
    return ModelRunner(LoadedModel(network, runner.vocabulary), runner.batch_tokens)


def sample_of(drawn: Sequence[T]) -> Sequence[T]:
    """Return an evenly spaced sample of variants, or deltas, to measure the tolerance on."""
    return drawn[:: max(1, -(-len(drawn) // _VARIANTS))]


def with_tolerance(
    background: Background,
    drawn: Sequence[RandomVariant],
    deltas: Sequence[float | None],
    rounded: RoundedDeltas | None,
) -> Background:
    """Return a background with its tolerance for bfloat16.

    Args:
        background: of these variants and deltas.
        drawn: the variants.
        deltas: delta of each in nats, None without a score.
        rounded: deltas of the sample; None if the background is not float32.
    """
    if rounded is None:
        return background
    moved = []
    both = zip(sample_of(drawn), sample_of(deltas), rounded.deltas, strict=True)
    for each, delta, rounded_delta in both:
        kind = next((k for k in each.path if "quantiles" in background.table[k]), None)
        if kind and delta is not None and rounded_delta is not None:
            points = [background.percentile_in(kind, value) for value in (delta, rounded_delta)]
            moved.append((abs(rounded_delta - delta), abs(points[1] - points[0])))
    if not moved:
        return background
    of_delta, of_percentile = np.quantile(np.array(moved), _SHARE, axis=0)
    return background.with_tolerance(
        ROUNDED,
        {
            "weights_sha256": rounded.weights_sha256,
            "variants": len(moved),
            "delta": float(f"{of_delta:.2g}"),
            "percentile": float(f"{of_percentile:.2g}"),
        },
    )


_VARIANTS_PER_BLOCK = 64


class _Part(NamedTuple):
    """A variant to score, and whether to use rounded weights."""

    variant: Variant
    is_rounded: bool


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
        self.about = {
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
            weights = weights_sha256(runner)
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
        names = contig_names(job.genes.contigs, reference.contig_lengths_bp)
        genes = read_genes(job.genes, reference, names)
        warn_of_unknown_codes(job.genes, genes)
        scored_by = workers.about()
        drawn, about = _draw(reference, scored_by["settings"], genes.annotation, job.drawing)
        about["drawn"] |= _named(job)
        parts = [_Part(each.variant, False) for each in drawn]
        rounded = [_Part(each.variant, True) for each in sample_of(drawn)]
        blocks = list(in_blocks(parts, _VARIANTS_PER_BLOCK))
        if scored_by["is_rounded_too"]:
            blocks += in_blocks(rounded, _VARIANTS_PER_BLOCK)

        def write(results: Iterator[tuple[list[_Part], Any]]) -> Background:
            background = _background(drawn, about, results)
            background.write(job.output)
            return background

        work = Job(
            description="scoring random variants",
            output=job.output,
            settings=about | _fingerprints(job, scored_by["device"]),
            check=lambda: sum(map(len, blocks)),
            blocks=lambda: iter(blocks),
            records="random variants",
        )
        background = run_job(work, workers, write)
    short = sum("instead" in known for known in background.table.values())
    counts = {"kinds": len(background.table), "kinds_with_too_few": short}
    return {"output": str(job.output), **counts, **background.drawn, **background.settings}


def _named(job: BackgroundJob) -> dict[str, Any]:
    """Return the names of the job's model and files."""
    model, genes = Path(job.loading.model), job.genes
    named = {"model": model.name if model.is_dir() else job.loading.model}
    named |= {"annotation": genes.annotation.name} if genes.annotation else {}
    return named | ({"genetic_code": genes.genetic_code} if genes.genetic_code else {})


def _background(
    drawn: list[RandomVariant], about: dict[str, Any], results: Iterator[tuple[list[_Part], Any]]
) -> Background:
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


def make_background(
    runner: "ModelRunner",
    reference: Reference,
    method: Method,
    drawing: BackgroundOptions,
    annotation: Annotation | None = None,
) -> Background:
    """Draw random variants of every kind, score them and compute the quantiles.

    Args:
        runner: runner of the model.
        reference: reference to draw from.
        method: scoring method.
        drawing: number of variants, and contigs.
        annotation: annotation of the reference; with it, kinds depend on consequences, otherwise on
            changes.

    Raises:
        UserError: the variants cannot be drawn.
    """
    drawn, about = _draw(reference, settings_of(runner, method), annotation, drawing)

    def deltas_of(runner: "ModelRunner", drawn: Sequence[RandomVariant]) -> list[float | None]:
        scores = score_variants(runner, reference, (each.variant for each in drawn), method)
        return [score.delta for score in scores]

    deltas = deltas_of(runner, drawn)
    rounded = None
    if runner.dtype == "float32":
        small = rounded_runner(runner)
        rounded = RoundedDeltas(weights_sha256(small), deltas_of(small, sample_of(drawn)))
    return with_tolerance(background_of(drawn, deltas, about), drawn, deltas, rounded)


def _draw(
    reference: Reference,
    settings: dict[str, Any],
    annotation: Annotation | None,
    drawing: BackgroundOptions,
) -> tuple[list[RandomVariant], dict[str, Any]]:
    """Draw variants; return them with the content of their background except the quantiles."""
    kinds = "consequence" if annotation else "change"
    consequences = Consequences(reference, annotation) if annotation else None
    drawn = draw_variants(reference, kinds, drawing, consequences)
    record = {
        "reference": reference.path.name,
        "variants_per_kind": drawing.variants_per_kind,
        "seed": drawing.seed,
        "contigs": drawing.draw_from,
        "least_variants": LEAST_VARIANTS,
        "variants": len(drawn),
    }
    return drawn, {"kinds_by": kinds, "settings": settings, "drawn": record}


def _fingerprints(job: BackgroundJob, device: str) -> dict[str, Any]:
    """Return checksums of the inputs."""
    inputs = {
        "reference file": job.reference,
        "annotation file": job.genes.annotation,
        "table of contigs": names_table(job.genes.contigs),
    }
    sums = {name: content_sha256(path) for name, path in inputs.items() if path}
    return sums | {"carbon": __version__, "device": device, "contigs": job.genes.contigs}

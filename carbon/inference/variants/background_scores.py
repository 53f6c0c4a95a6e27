"""Score random variants, and measure the tolerance of their background.

A background of a float32 model also serves bfloat16. Rounding shifts each delta slightly in either
direction, so quantiles agree up to noise. The tolerance is how far rounding moves the percentile of
a single variant; it is measured here.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from carbon.genome import Annotation, Consequences, Interval, Reference
from carbon.genome.genes import intergenic
from carbon.inference.identity import settings_of
from carbon.inference.options import BackgroundOptions
from carbon.inference.variants.background import (
    LEAST_VARIANTS,
    Background,
    RandomVariant,
    background_of,
    draw_variants,
)
from carbon.inference.variants.background_file import CONTIGS, longest_contigs
from carbon.inference.variants.calibration import (
    LEAST_SITES,
    Calibration,
    NeutralSites,
    calibration_of,
    draw_neutral_sites,
    folds,
)
from carbon.inference.variants.score import score_variants
from carbon.inference.variants.windows import Method
from carbon.progress import say

if TYPE_CHECKING:
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
    drawn, about = draw(reference, settings_of(runner, method), annotation, drawing)

    def deltas_of(runner: "ModelRunner", drawn: Sequence[RandomVariant]) -> list[float | None]:
        scores = score_variants(runner, reference, (each.variant for each in drawn), method)
        return [score.delta for score in scores]

    deltas = deltas_of(runner, drawn)
    rounded = None
    if runner.dtype == "float32":
        small = rounded_runner(runner)
        rounded = RoundedDeltas(small.weights_sha256, deltas_of(small, sample_of(drawn)))
    return with_tolerance(background_of(drawn, deltas, about), drawn, deltas, rounded)


def draw(
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
        "variants_per_kind": drawing.num_variants,
        "seed": drawing.seed,
        "contigs": drawing.draw_from,
        CONTIGS: longest_contigs(reference.contig_lengths_bp, drawing.draw_from),
        "least_variants": LEAST_VARIANTS,
        "variants": len(drawn),
    }
    return drawn, {"kinds_by": kinds, "settings": settings, "drawn": record}


def neutral_of(annotation: Annotation, reference: Reference) -> list[Interval]:
    """Return the intervals between genes of the contigs that have genes.

    A contig without any gene is often one that the annotation does not cover; it is reported.
    """
    lengths_bp = reference.contig_lengths_bp
    free = list(intergenic(annotation, lengths_bp))
    without = [each for each in free if each.length_bp == lengths_bp[each.contig]]
    if without:
        say(
            f"{reference.path}: left out contigs without genes: {len(without):,} of "
            f"{sum(each.length_bp for each in without):,} bp (e.g. {without[0].contig}); "
            "--neutral takes a BED with neutral sites of any contig"
        )
    return [each for each in free if each.length_bp < lengths_bp[each.contig]]


def make_calibration(
    runner: "ModelRunner",
    reference: Reference,
    method: Method,
    neutral: Iterable[Interval],
    drawing: BackgroundOptions,
) -> Calibration:
    """Draw neutral sites, score their SNVs and compute the means.

    Args:
        runner: runner of the model.
        reference: reference to draw from.
        method: scoring method.
        neutral: intervals that do not overlap.
        drawing: bases of a context, number of sites, and contigs.

    Raises:
        UserError: an option is invalid, or the sites cannot be drawn.
    """
    drawn, about = draw_calibration(reference, settings_of(runner, method), neutral, drawing)
    snvs = (snv for site in drawn.sites for snv in site.snvs)
    deltas = [score.delta for score in score_variants(runner, reference, snvs, method)]
    return calibration_of(reference, drawn, deltas, about)


def draw_calibration(
    reference: Reference,
    settings: dict[str, Any],
    neutral: Iterable[Interval],
    drawing: BackgroundOptions,
) -> tuple[NeutralSites, dict[str, Any]]:
    """Draw neutral sites; return them with the content of their calibration except the cells."""
    drawing.check_neighbours()
    is_folded = folds(settings["strands"])
    drawn = draw_neutral_sites(reference, neutral, drawing, is_folded=is_folded)
    record = {
        "reference": reference.path.name,
        "sites_per_context": drawing.num_sites,
        "least_sites": LEAST_SITES,
        "seed": drawing.seed,
        "contigs": drawing.draw_from,
        CONTIGS: longest_contigs(reference.contig_lengths_bp, drawing.draw_from),
        "sites": len(drawn.sites),
        "neutral_sites": sum(drawn.num_by_context.values()),
    }
    content = {"neighbour_bp": drawing.neighbour_bp, "is_folded": is_folded}
    return drawn, {**content, "settings": settings, "drawn": record}

"""How far percentiles move when a model computes in bfloat16 and its background is of float32.

Rounding moves each delta a little, and not to one side, so the quantiles of both are the same but
for noise. What matters is how far it moves the percentile of one variant, which is measured here.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from carbon.__version__ import __version__
from carbon.genome import (
    Annotation,
    Consequences,
    Reference,
    Variant,
    contig_names,
    read_gene_file,
)
from carbon.genome.cds_codes import cds_of_unknown_code, told_of_unknown_code
from carbon.genome.contig_names import names_table
from carbon.inference.identity import settings_of, weights_sha256
from carbon.inference.options import VariantOptions
from carbon.inference.variants.background import (
    LEAST_VARIANTS,
    Background,
    Drawing,
    Drawn,
    background_of,
    draw_variants,
)
from carbon.inference.variants.score import score_variants
from carbon.inference.variants.windows import Method, method_for
from carbon.io.files import check_no_input, content_sha256, output_path
from carbon.parallel.driver import Job, Workers, run_job
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

T = TypeVar("T")

ROUNDED = "bfloat16"
_VARIANTS = 320  # evenly over what was drawn, and so over the kinds
_SHARE = 0.95


class RoundedDeltas(NamedTuple):
    """Deltas of some variants, computed with rounded weights.

    Attributes:
        weights_sha256: of the rounded weights.
        deltas: in nats, None where a variant has no score.
    """

    weights_sha256: str
    deltas: list[float | None]


def rounded_runner(runner: "ModelRunner") -> "ModelRunner":
    """Return a runner of the same network with rounded weights; positions stay in float32."""
    from carbon.inference.runner import ModelRunner
    from carbon.model import LoadedModel

    network: Any = copy.deepcopy(runner.network)
    for weight in network.parameters():
        weight.data = weight.data.bfloat16()
    return ModelRunner(LoadedModel(network, runner.vocabulary), runner.batch_tokens)


def chosen(drawn: Sequence[T]) -> Sequence[T]:
    """Return the variants, or deltas, of which the tolerance is measured: evenly over all."""
    return drawn[:: max(1, -(-len(drawn) // _VARIANTS))]


def with_tolerance(
    background: Background,
    drawn: Sequence[Drawn],
    deltas: Sequence[float | None],
    rounded: RoundedDeltas | None,
) -> Background:
    """Return a background with its tolerance for bfloat16.

    Args:
        background: of these variants and deltas.
        drawn: the variants.
        deltas: of each in nats, None where it has no score.
        rounded: of the chosen ones; None if the background is not of float32.
    """
    if rounded is None:
        return background
    moved = []
    both = zip(chosen(drawn), chosen(deltas), rounded.deltas, strict=True)
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


_VARIANTS_AT_ONCE = 64  # of a block


class _Part(NamedTuple):
    """A variant to score, and whether with rounded weights."""

    variant: Variant
    is_rounded: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundJob:
    """What to draw and how to score it.

    Attributes:
        model: its name, for the record.
        reference: FASTA.
        output: the JSON file to write.
        annotation: GFF3, GTF, BED or GenBank of the reference: kinds are told by consequence.
        contigs: `chr`, or a table, where the annotation names contigs otherwise than the reference.
        genetic_code: NCBI translation table where the annotation states none, such as `4`, or
            `1,Mito=3`.
        drawing: how many variants are drawn, and where.
        options: how the variants are scored.
        resume: go on with what an earlier run left.
    """

    model: str
    reference: Path
    output: Path
    annotation: Path | None = None
    contigs: str | None = None
    genetic_code: str | None = None
    drawing: Drawing = field(default_factory=Drawing)
    options: VariantOptions = field(default_factory=VariantOptions)
    resume: bool = False


class BackgroundScorer:
    """A worker: variants in, their deltas out.

    Attributes:
        about: `settings`, what a delta follows from; `device`; and `is_rounded_too`: whether deltas
            of rounded weights are needed for the tolerance.
    """

    def __init__(self, runner: "ModelRunner", job: BackgroundJob) -> None:
        """Open the reference.

        Args:
            runner: of the model.
            job: what to score.

        Raises:
            UserError: an option is not possible.
        """
        self._runner, self._method = runner, method_for(runner, **job.options)
        self._reference = Reference(job.reference)
        self._rounded: ModelRunner | None = None
        self.about = {
            "carbon": __version__,
            "settings": settings_of(runner, self._method),
            "device": runner.device.type,
            "is_rounded_too": runner.dtype == "float32",
        }

    def __call__(self, payload: list[_Part]) -> RoundedDeltas:
        """Return the deltas of variants, all of them with rounded weights or none."""
        runner, weights = self._runner, ""
        if payload[0].is_rounded:
            runner = self._rounded = self._rounded or rounded_runner(self._runner)
            weights = weights_sha256(runner)
        variants = [part.variant for part in payload]
        found = score_variants(runner, self._reference, variants, self._method)
        return RoundedDeltas(weights, [score.delta for score in found])


def run_background_job(job: BackgroundJob, workers: Workers) -> dict[str, Any]:
    """Write a background, which appears when it is whole; return what was done.

    Args:
        job: what to draw and score.
        workers: each a `BackgroundScorer` of this job.

    Raises:
        GenomeError: the reference or the annotation is malformed, or they do not fit one another.
        UserError: a setting is not possible, or another run is in the way.
    """
    output_path(job.output)
    check_no_input(job.output, job.reference, job.annotation, names_table(job.contigs))
    with Reference(job.reference) as reference:
        names = contig_names(job.contigs, reference.contig_lengths_bp)
        genes = _annotation(job, reference, names)
        told = workers.about()
        drawn, about = _drawn(reference, told["settings"], genes, job.drawing)
        about["drawn"] |= _named(job)
        parts = [_Part(one.variant, False) for one in drawn]
        rounded = [_Part(one.variant, True) for one in chosen(drawn)]
        blocks = [*_blocks(parts), *(_blocks(rounded) if told["is_rounded_too"] else [])]

        def write(results: Iterator[tuple[list[_Part], Any]]) -> Background:
            background = _background(drawn, about, results)
            background.write(job.output)
            return background

        work = Job(
            description="scoring random variants",
            output=job.output,
            settings=about | _fingerprints(job, told["device"]),
            check=lambda: sum(map(len, blocks)),
            blocks=lambda: iter(blocks),
            records="random variants",
            resume=job.resume,
        )
        background = run_job(work, workers, write)
    short = sum("instead" in known for known in background.table.values())
    counts = {"kinds": len(background.table), "kinds_with_too_few": short}
    return {"output": str(job.output), **counts, **background.drawn, **background.settings}


def _named(job: BackgroundJob) -> dict[str, Any]:
    """Return the model and the files of a job by name."""
    model = Path(job.model)
    named = {"model": model.name if model.is_dir() else job.model}
    named |= {"annotation": job.annotation.name} if job.annotation else {}
    return named | ({"genetic_code": job.genetic_code} if job.genetic_code else {})


def _blocks(parts: list[_Part]) -> Iterator[list[_Part]]:
    for start in range(0, len(parts), _VARIANTS_AT_ONCE):
        yield parts[start : start + _VARIANTS_AT_ONCE]


def _background(
    drawn: list[Drawn], about: dict[str, Any], results: Iterator[tuple[list[_Part], Any]]
) -> Background:
    """Return the background of the results of all blocks."""
    deltas: list[float | None] = []
    rounded: RoundedDeltas | None = None
    for block, result in results:
        found = RoundedDeltas(*result)
        if not block[0].is_rounded:
            deltas += found.deltas
        elif rounded is None:
            rounded = found
        else:
            rounded.deltas.extend(found.deltas)
    return with_tolerance(background_of(drawn, deltas, about), drawn, deltas, rounded)


def _annotation(
    job: BackgroundJob, reference: Reference, names: Mapping[str, str]
) -> Annotation | None:
    """Read the annotation, and print how many CDS of it have an unknown genetic code."""
    if job.annotation is None:
        return None
    found = read_gene_file(job.annotation, reference, names, job.genetic_code)
    for line in told_of_unknown_code(job.annotation, cds_of_unknown_code(reference, found)):
        say(f"warning: {line}")
    return found


def make_background(
    runner: "ModelRunner",
    reference: Reference,
    method: Method,
    drawing: Drawing,
    annotation: Annotation | None = None,
) -> Background:
    """Draw random variants of every kind, score them and keep the quantiles.

    Args:
        runner: of the model.
        reference: where variants are drawn.
        method: how they are scored.
        drawing: how many are drawn, and where.
        annotation: of the reference: kinds are told by consequence; without, by change.

    Raises:
        UserError: the variants cannot be drawn.
    """
    drawn, about = _drawn(reference, settings_of(runner, method), annotation, drawing)

    def deltas_of(runner: "ModelRunner", some: Sequence[Drawn]) -> list[float | None]:
        scores = score_variants(runner, reference, (one.variant for one in some), method)
        return [score.delta for score in scores]

    deltas = deltas_of(runner, drawn)
    rounded = None
    if runner.dtype == "float32":
        small = rounded_runner(runner)
        rounded = RoundedDeltas(weights_sha256(small), deltas_of(small, chosen(drawn)))
    return with_tolerance(background_of(drawn, deltas, about), drawn, deltas, rounded)


def _drawn(
    reference: Reference,
    settings: dict[str, Any],
    annotation: Annotation | None,
    drawing: Drawing,
) -> tuple[list[Drawn], dict[str, Any]]:
    """Draw variants, and return them with what their background holds beside the quantiles."""
    kinds = "consequence" if annotation else "change"
    consequences = Consequences(reference, annotation) if annotation else None
    drawn = draw_variants(reference, kinds, drawing, consequences)
    record = {
        "reference": reference.path.name,
        **drawing._asdict(),
        "least_variants": LEAST_VARIANTS,
        "variants": len(drawn),
    }
    return drawn, {"kinds_by": kinds, "settings": settings, "drawn": record}


def _fingerprints(job: BackgroundJob, device: str) -> dict[str, Any]:
    """Return what distinguishes the inputs from others of the same names."""
    inputs = {
        "reference file": job.reference,
        "annotation file": job.annotation,
        "table of contigs": names_table(job.contigs),
    }
    sums = {name: content_sha256(path) for name, path in inputs.items() if path}
    return sums | {"carbon": __version__, "device": device, "contigs": job.contigs}

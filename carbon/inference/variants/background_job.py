"""Compute a background: draw variants, and score them in blocks by workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.__version__ import __version__
from carbon.batching import in_blocks
from carbon.genome import Reference, Variant, contig_names
from carbon.genome.contig_names import names_table
from carbon.inference.identity import settings_of, weights_sha256
from carbon.inference.jobs import BackgroundJob, workers_for
from carbon.inference.options import input_files
from carbon.inference.variants.annotate import read_genes, warn_of_unknown_codes
from carbon.inference.variants.background import (
    KIND_SCHEMES,
    Background,
    RandomVariant,
    background_of,
)
from carbon.inference.variants.background_scores import (
    RoundedDeltas,
    draw,
    rounded_runner,
    sample_of,
    with_tolerance,
)
from carbon.inference.variants.files import VariantWorker
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
        scored_by = workers.about(_expected_blocks(job))
        drawn, about = draw(reference, scored_by["settings"], genes.annotation, job.drawing)
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


def _expected_blocks(job: BackgroundJob) -> range:
    """Return an item for each block of SNVs, before they are drawn."""
    kinds = KIND_SCHEMES["consequence" if job.genes.annotation else "change"].narrowest_snvs
    return range(0, job.drawing.variants_per_kind * len(kinds), _VARIANTS_PER_BLOCK)


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


def _fingerprints(job: BackgroundJob, device: str) -> dict[str, Any]:
    """Return checksums of the inputs."""
    inputs = {
        "reference file": job.reference,
        "annotation file": job.genes.annotation,
        "table of contigs": names_table(job.genes.contigs),
    }
    sums = {name: content_sha256(path) for name, path in inputs.items() if path}
    return sums | {"carbon": __version__, "device": device, "contigs": job.genes.contigs}

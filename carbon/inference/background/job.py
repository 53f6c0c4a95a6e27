"""Random variants drawn, scored and kept as quantiles: what `carbon background` does."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carbon.__version__ import __version__
from carbon.blocks.journal import Journal
from carbon.console import progress, say
from carbon.files import check_no_input, output_path
from carbon.genome import Annotation, Consequences, Reference, contig_names, read_gene_file
from carbon.genome.cds_codes import cds_of_unknown_code, told_of_unknown_code
from carbon.genome.contig_names import names_table
from carbon.inference.background.draw import Drawing, Drawn, draw_variants
from carbon.inference.background.identity import settings_of
from carbon.inference.background.quantiles import LEAST_VARIANTS, Background, background_of
from carbon.inference.background.tolerance import with_tolerance
from carbon.inference.reading import Reader
from carbon.inference.variants.method import Method, VariantOptions, method_for
from carbon.inference.variants.scores import score_variants
from carbon.sums import content_sha256

_VARIANTS_AT_ONCE = 64  # scored together, and kept together by the journal


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


def run_background_job(reader: Reader, job: BackgroundJob) -> dict[str, Any]:
    """Write a background, which appears when it is whole; return what was done.

    Raises:
        GenomeError: the reference or the annotation is malformed, or they do not fit one another.
        UserError: a setting is not possible, or another run is in the way.
    """
    output_path(job.output)
    check_no_input(job.output, job.reference, job.annotation, names_table(job.contigs))
    method = method_for(reader, **job.options)
    with Reference(job.reference) as reference:
        names = contig_names(job.contigs, reference.contig_lengths_bp)
        genes = _annotation(job, reference, names)
        drawn, about = _drawn(reader, reference, method, genes, job.drawing)
        model = Path(job.model)
        about["drawn"] |= {"model": model.name if model.is_dir() else job.model}
        about["drawn"] |= {"annotation": job.annotation.name} if job.annotation else {}
        about["drawn"] |= {"genetic_code": job.genetic_code} if job.genetic_code else {}
        journal = Journal(job.output, about | _fingerprints(reader, job), resume=job.resume)
        try:
            deltas = list(_kept_and_scored(reader, reference, method, drawn, journal))
            background = background_of(drawn, deltas, about)
            background = with_tolerance(background, reader, reference, method, drawn, deltas)
            background.write(job.output)
        except BaseException:
            journal.say_what_is_kept()
            raise
        journal.remove()
    short = sum("instead" in known for known in background.table.values())
    counts = {"kinds": len(background.table), "kinds_with_too_few": short}
    return {"output": str(job.output), **counts, **background.drawn, **background.settings}


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
    reader: Reader,
    reference: Reference,
    method: Method,
    drawing: Drawing,
    annotation: Annotation | None = None,
) -> Background:
    """Draw random variants of every kind, score them and keep the quantiles.

    Args:
        reader: of the model.
        reference: where variants are drawn.
        method: how they are scored.
        drawing: how many are drawn, and where.
        annotation: of the reference: kinds are told by consequence; without, by change.

    Raises:
        UserError: the variants cannot be drawn.
    """
    drawn, about = _drawn(reader, reference, method, annotation, drawing)
    scores = score_variants(reader, reference, (one.variant for one in drawn), method)
    deltas = [score.delta for score in scores]
    background = background_of(drawn, deltas, about)
    return with_tolerance(background, reader, reference, method, drawn, deltas)


def _drawn(
    reader: Reader,
    reference: Reference,
    method: Method,
    annotation: Annotation | None,
    drawing: Drawing,
) -> tuple[list[Drawn], dict[str, Any]]:
    """Draw variants, and say of them what their background will say."""
    kinds = "consequence" if annotation else "change"
    consequences = Consequences(reference, annotation) if annotation else None
    drawn = draw_variants(reference, kinds, drawing, consequences)
    record = {
        "reference": reference.path.name,
        **drawing._asdict(),
        "least_variants": LEAST_VARIANTS,
        "variants": len(drawn),
    }
    settings = settings_of(reader, method)
    return drawn, {"kinds_by": kinds, "settings": settings, "drawn": record}


def _kept_and_scored(
    reader: Reader, reference: Reference, method: Method, drawn: list[Drawn], journal: Journal
) -> Iterator[float | None]:
    """Yield what an earlier run has left and then the rest, block by block."""
    done = min(journal.num_blocks * _VARIANTS_AT_ONCE, len(drawn))
    for block in journal.kept():
        yield from block
    with progress("scoring random variants", len(drawn), done) as advance:
        for start in range(done, len(drawn), _VARIANTS_AT_ONCE):
            variants = [one.variant for one in drawn[start : start + _VARIANTS_AT_ONCE]]
            found = score_variants(reader, reference, variants, method)
            deltas = [score.delta for score in found]
            journal.add(deltas)
            yield from deltas
            advance(len(deltas))


def _fingerprints(reader: Reader, job: BackgroundJob) -> dict[str, Any]:
    """Tell the inputs from others of the same name, and how they are computed with."""
    inputs = {
        "reference file": job.reference,
        "annotation file": job.annotation,
        "table of contigs": names_table(job.contigs),
    }
    sums = {name: content_sha256(path) for name, path in inputs.items() if path}
    device = reader.device.type
    return sums | {"carbon": __version__, "device": device, "contigs": job.contigs}

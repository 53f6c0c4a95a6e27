"""A region, a gene or a contig in; a table, tracks of a genome browser and a picture out."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from carbon.console import progress
from carbon.errors import UserError
from carbon.files import atomic_file
from carbon.genome import Annotation, Interval, Reference, from_region, read_annotation
from carbon.genome.gene_lookup import find_gene
from carbon.inference.reading import Reader
from carbon.inference.scan.chunks import ScanChunk, join_chunks
from carbon.inference.scan.method import ScanMethod, ScanOptions, scan_method_for
from carbon.inference.scan.regions import scan_region
from carbon.inference.scan.writers import SCAN_WRITERS, ScanWriter
from carbon.tables import chosen_by_ending

PICTURE_ENDINGS = (".png", ".svg", ".pdf")
MOST_DRAWN_BP = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanJob:
    """What to scan, and what to write of it.

    Attributes:
        model: its name, for the record.
        reference: FASTA.
        outputs: .parquet, .tsv and .bw files.
        region: `contig:first-last`, 1-based and inclusive; one of this and the next two is given.
        contig: the whole of it.
        gene: name or identifier, in the annotation.
        annotation: GFF3 or GTF, for the gene and for the exons of the picture.
        flank_bp: scanned on both sides beside it.
        plot: a picture to draw.
        along_gene: read the strand of the gene.
        options: how the region is scanned.
    """

    model: str
    reference: Path
    outputs: tuple[Path, ...]
    region: str | None = None
    contig: str | None = None
    gene: str | None = None
    annotation: Path | None = None
    flank_bp: int = 0
    plot: Path | None = None
    along_gene: bool = False
    options: ScanOptions = field(default_factory=ScanOptions)

    @property
    def wanted(self) -> list[Path]:
        """All that is to be written."""
        return [*self.outputs, *([self.plot] if self.plot else [])]


def run_scan_job(load: Callable[[], Reader], job: ScanJob, dtype: str) -> dict[str, Any]:
    """Scan a region into files, which appear when they are whole; return what was done.

    The model is loaded when all else is known to be right.

    Raises:
        GenomeError: the region or the gene is not there, or a file is malformed.
        UserError: an ending, a window or a combination of settings is not possible.
    """
    writers = _checked(job)
    with Reference(job.reference) as reference, ExitStack() as files:
        annotation = read_annotation(job.annotation, reference) if job.annotation else None
        place, options = _place(reference, annotation, job)
        temporary = {path: files.enter_context(atomic_file(path)) for path in job.wanted}
        reader = load()
        method = scan_method_for(reader, **options)
        settings = _settings(reader, job, place, method, dtype)
        drawn: list[ScanChunk] = []
        with ExitStack() as sinks:
            lengths_bp = reference.contig_lengths_bp
            writes = [
                sinks.enter_context(writer(temporary[path], lengths_bp, settings))
                for path, writer in zip(job.outputs, writers, strict=True)
            ]
            writes += [drawn.append] if job.plot else []
            counts = _write_all(scan_region(reader, reference, place, method), writes, place)
        if job.plot:
            _draw(join_chunks(drawn), annotation, temporary[job.plot], settings)
    return {"outputs": [str(path) for path in job.wanted], **counts, **settings}


def _write_all(
    chunks: Iterator[ScanChunk], writes: list[Callable[[ScanChunk], None]], place: Interval
) -> dict[str, int]:
    """Hand every chunk to all that write; return what was scanned."""
    counts = {"bases": 0, "known_bases": 0, "tokens_read": 0}
    with progress("scanning bases", place.length_bp) as advance:
        for chunk in chunks:
            for write in writes:
                write(chunk)
            counts["bases"] += chunk.interval.length_bp
            counts["known_bases"] += int(chunk.is_base.sum())
            counts["tokens_read"] += chunk.tokens_read
            advance(chunk.interval.length_bp)
    return counts


def _checked(job: ScanJob) -> list[ScanWriter]:
    """Return a writer for each output; what is wrong with the names is known at once."""
    writers = [chosen_by_ending(path, SCAN_WRITERS) for path in job.outputs]
    if job.plot and job.plot.suffix not in PICTURE_ENDINGS:
        raise UserError(f"{job.plot}: end the picture with one of {', '.join(PICTURE_ENDINGS)}")
    given = [job.reference, *([job.annotation] if job.annotation else [])]
    resolved = [path.resolve() for path in (*given, *job.wanted)]
    for path in job.wanted:
        if resolved.count(path.resolve()) > 1:
            raise UserError(f"{path}: is named twice, or an input too; name another output")
    for package, needed in (
        ("pyBigWig", any(path.suffix == ".bw" for path in job.outputs)),
        ("matplotlib", job.plot is not None),
    ):
        if needed and find_spec(package) is None:
            raise UserError(f"{package} is not installed; run: pip install 'carbon-dna[scan]'")
    if job.gene and not job.annotation:
        raise UserError(f"gene '{job.gene}': give the --annotation that it is in")
    if job.along_gene and not job.gene:
        raise UserError("--strands gene: give the --gene whose strand to read")
    return writers


def _place(
    reference: Reference, annotation: Annotation | None, job: ScanJob
) -> tuple[Interval, ScanOptions]:
    """Return where to scan, and how."""
    lengths_bp, options = reference.contig_lengths_bp, job.options
    if job.gene and annotation:
        gene = find_gene(annotation, job.gene)
        place = gene.interval
        if place.end > lengths_bp[place.contig]:
            raise UserError(
                f"gene '{job.gene}': goes over the origin of '{place.contig}'; give its two parts "
                "as regions"
            )
        if job.along_gene:
            options = {**options, "strands": "forward" if gene.strand == "+" else "reverse"}
    elif job.contig:
        if job.contig not in lengths_bp:
            raise UserError(f"{reference.path}: {reference.explain_missing([job.contig])}")
        place = Interval(job.contig, 0, lengths_bp[job.contig])
    else:
        place = from_region(job.region or "", lengths_bp)
    place = place.widened(job.flank_bp, lengths_bp[place.contig])
    if place.length_bp == 0:
        raise UserError(f"'{place.contig}' has no bases to scan")
    if job.plot and place.length_bp > MOST_DRAWN_BP:
        raise UserError(
            f"{job.plot}: {place.length_bp} bases make no readable picture; draw at most "
            f"{MOST_DRAWN_BP}, and look at more in a genome browser (an output that ends in .bw)"
        )
    return place, options


def _settings(
    reader: Reader, job: ScanJob, place: Interval, method: ScanMethod, dtype: str
) -> dict[str, Any]:
    return {
        "model": job.model,
        "yarn": reader.yarn,
        "protocol": "scan",
        "region": place.to_region(),
        "gene": job.gene,
        **method._asdict(),
        "dtype": dtype,
        "values": "log p(base | all bases before it on the strand that is read), nats",
        "delta": "log p(alt) - log p(ref)",
        "position": "1-based",
    }


def _draw(
    chunk: ScanChunk, annotation: Annotation | None, path: Path, settings: dict[str, Any]
) -> None:
    from carbon.inference.scan.picture import draw_scan

    genes = annotation.genes if annotation else ()
    shown = [gene for gene in genes if gene.interval.overlaps(chunk.interval)]
    frames = "every base at the start of its token"
    if settings["combine"] == "mean":
        frames = f"frames {', '.join(map(str, settings['frames']))}"
    title = f"{settings['region']} (strands: {settings['strands']}; {frames})"
    draw_scan(chunk, shown, path, title)

"""A region, a gene or a contig in; a table, tracks of a genome browser and a picture out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carbon.blocks.crew import Crew
from carbon.blocks.work import is_shared, run_work
from carbon.console import progress
from carbon.errors import UserError
from carbon.files import atomic_file, behind_links, stamp_of, told_of
from carbon.genome import (
    Annotation,
    Interval,
    Reference,
    contig_names,
    read_gene_file,
    region_by_name,
)
from carbon.genome.contig_names import names_table
from carbon.genome.gene_lookup import find_gene
from carbon.inference.identity import identity_of
from carbon.inference.reading import Reader
from carbon.inference.scan.blocks import Scanned
from carbon.inference.scan.chunks import ScanChunk, join_chunks
from carbon.inference.scan.method import ScanMethod, ScanOptions, scan_method_for
from carbon.inference.scan.regions import scan_region
from carbon.inference.scan.writers import SCAN_WRITERS, ScanWriter
from carbon.pictures import check_installed, check_picture
from carbon.tables import chosen_by_ending

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
        annotation: GFF3, GTF or BED, for the gene and for the exons of the picture.
        contigs: `chr`, or a table, where the region, the contig or the annotation names contigs
            otherwise than the reference.
        flank_bp: scanned on both sides beside it.
        plot: a picture to draw.
        along_gene: read the strand of the gene.
        options: how the region is scanned.
        resume: go on with what several processes have left.
    """

    model: str
    reference: Path
    outputs: tuple[Path, ...]
    region: str | None = None
    contig: str | None = None
    gene: str | None = None
    annotation: Path | None = None
    contigs: str | None = None
    flank_bp: int = 0
    plot: Path | None = None
    along_gene: bool = False
    options: ScanOptions = field(default_factory=ScanOptions)
    resume: bool = False

    @property
    def wanted(self) -> list[Path]:
        """All that is to be written."""
        return [*self.outputs, *([self.plot] if self.plot else [])]


def run_scan_job(
    load: Callable[[], Reader], job: ScanJob, crew: Crew | None = None
) -> dict[str, Any] | None:
    """Scan a region into files, which appear when they are whole.

    The model is loaded when all else is known to be right.

    Args:
        load: loads the model.
        job: what to scan.
        crew: the processes that share it; None for this one alone.

    Returns:
        What was done; None where another process of the crew writes the files.

    Raises:
        GenomeError: the region or the gene is not there, or a file is malformed.
        UserError: an ending, a window or a combination of settings is not possible.
    """
    writers = _checked(job)
    with Reference(job.reference) as reference, ExitStack() as files:
        names = contig_names(job.contigs, reference.contig_lengths_bp)
        annotation = None
        if job.annotation:
            annotation = read_gene_file(job.annotation, reference, names)
        place, options = _place(reference, annotation, job, names)
        is_for_many = is_shared(crew, job.outputs[0])
        temporary = {} if is_for_many else _temporaries(files, job)
        reader = load()
        method = scan_method_for(reader, **options)
        settings = _settings(reader, job, place, method)

        def write(chunks: Iterator[ScanChunk]) -> dict[str, int]:
            where = temporary or _temporaries(files, job)
            drawn: list[ScanChunk] = []
            with ExitStack() as sinks:
                # Of a bigWig the contigs with values alone, as of UCSC's tools: 100,000 of them
                # would take libBigWig longer than the scan.
                lengths_bp = {place.contig: reference.contig_lengths_bp[place.contig]}
                writes = [
                    sinks.enter_context(_opened(writer(where[path], lengths_bp, settings), path))
                    for path, writer in zip(job.outputs, writers, strict=True)
                ]
                writes += [drawn.append] if job.plot else []
                counts = _write_all(chunks, writes, place)
            if job.plot:
                _draw(join_chunks(drawn), annotation, where[job.plot], settings)
            return counts

        if is_for_many:
            scanned = Scanned(reader, reference, place, method)
            work = scanned.work(job.outputs[0], settings | _identity(reader, job), job.resume)
            # The files have their names before it is noted that they are whole.
            counts = run_work(
                work, crew, lambda found: _closed(files, write(scanned.chunks(found)))
            )
        else:
            counts = write(scan_region(reader, reference, place, method))
    outputs = {"outputs": [str(path) for path in job.wanted]}
    return None if counts is None else outputs | counts | settings


def _identity(reader: Reader, job: ScanJob) -> dict[str, Any]:
    """Tell model and reference from others of the same name."""
    return {"reference": stamp_of(job.reference), **identity_of(reader, job.model)}


def _temporaries(files: ExitStack, job: ScanJob) -> dict[Path, Path]:
    """Open what is to be written, under temporary names."""
    return {path: files.enter_context(atomic_file(path)) for path in job.wanted}


def _closed(files: ExitStack, counts: dict[str, int]) -> dict[str, int]:
    files.close()
    return counts


@contextmanager
def _opened(
    opened: AbstractContextManager[Callable[[ScanChunk], None]], path: Path
) -> Iterator[Callable[[ScanChunk], None]]:
    """Name the output that cannot be written, of several."""

    def write(chunk: ScanChunk) -> None:
        with told_of(path):
            inner(chunk)

    with told_of(path), opened as inner:
        yield write


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
    check_picture(job.plot)
    given = (job.reference, job.annotation, names_table(job.contigs))
    resolved = [behind_links(path) for path in (*given, *job.wanted) if path]
    for path in job.wanted:
        if resolved.count(behind_links(path)) > 1:
            raise UserError(f"{path}: is named twice, or an input too; name another output")
    if any(path.suffix == ".bw" for path in job.outputs):
        check_installed("pyBigWig")
    if job.gene and not job.annotation:
        raise UserError(f"gene '{job.gene}': give the --annotation that it is in")
    if job.along_gene and not job.gene:
        raise UserError("--strands gene: give the --gene whose strand to read")
    return writers


def _place(
    reference: Reference, annotation: Annotation | None, job: ScanJob, names: Mapping[str, str]
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
        contig = names.get(job.contig, job.contig)
        if contig not in lengths_bp:
            raise UserError(f"{reference.path}: {reference.explain_missing([contig])}")
        place = Interval(contig, 0, lengths_bp[contig])
    else:
        place = region_by_name(job.region or "", lengths_bp, names)
    place = place.widened(job.flank_bp, lengths_bp[place.contig])
    if place.length_bp == 0:
        raise UserError(f"'{place.contig}' has no bases to scan")
    if job.plot and place.length_bp > MOST_DRAWN_BP:
        raise UserError(
            f"{job.plot}: {place.length_bp} bases make no readable picture; draw at most "
            f"{MOST_DRAWN_BP}, and look at more in a genome browser (an output that ends in .bw)"
        )
    return place, options


def _settings(reader: Reader, job: ScanJob, place: Interval, method: ScanMethod) -> dict[str, Any]:
    return {
        "model": job.model,
        "yarn": reader.yarn,
        "protocol": "scan",
        "region": place.to_region(),
        "gene": job.gene,
        **({"contigs": job.contigs} if job.contigs else {}),
        **method._asdict(),
        "dtype": reader.dtype,
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
    gene = f"{settings['gene']}, " if settings["gene"] else ""
    title = f"{gene}{settings['region']} (strands: {settings['strands']}; {frames})"
    draw_scan(chunk, shown, path, title)

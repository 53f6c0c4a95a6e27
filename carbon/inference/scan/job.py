"""What to scan: a region, a gene, a contig or a genome, and the files that are to come of it."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carbon.errors import UserError
from carbon.genome import (
    Annotation,
    Interval,
    Reference,
    contig_names,
    read_gene_file,
    region_by_name,
)
from carbon.genome.bed import Regions, read_regions
from carbon.genome.contig_names import names_table
from carbon.genome.genes import find_gene
from carbon.inference.identity import identity_of
from carbon.inference.options import ScanOptions
from carbon.inference.scan.formats import ScanWriter
from carbon.inference.scan.method import ScanMethod, scan_method_for
from carbon.inference.scan.score import (
    ScanChunk,
    Window,
    WindowValues,
    chunks_of,
    join_chunks,
    read_windows,
    window_blocks,
    windows_at_once,
)
from carbon.io.files import (
    atomic_file,
    atomic_folder,
    behind_links,
    content_sha256,
    free_folder,
    output_path,
    told_of,
)
from carbon.io.tables import chosen_by_ending
from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.engines import MakeWorker
from carbon.reports.figures import check_installed, check_picture

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

MOST_DRAWN_BP = 20_000
_DATASET = ".parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanJob:
    """What to scan, and what to write of it.

    Attributes:
        model: its name, for the record.
        reference: FASTA.
        outputs: .parquet, .tsv and .bw files; of a genome, a .parquet is a folder.
        region: `contig:first-last`, 1-based and inclusive; one of this and the next four is given.
        contig: the whole of it.
        gene: name or identifier, in the annotation.
        genome: all contigs of the reference.
        regions: a BED whose regions are scanned.
        annotation: GFF3, GTF or BED, for the gene and for the exons of the picture.
        contigs: `chr`, or a table, where the region, the contig or the annotation names contigs
            otherwise than the reference.
        flank_bp: scanned on both sides beside it.
        plot: a picture to draw.
        along_gene: read the strand of the gene.
        options: how the region is scanned.
        resume: go on with what was left of blocks.
    """

    model: str
    reference: Path
    outputs: tuple[Path, ...]
    region: str | None = None
    contig: str | None = None
    gene: str | None = None
    genome: bool = False
    regions: Path | None = None
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

    @property
    def folders(self) -> list[Path]:
        """Those of the outputs that are folders."""
        return [path for path in self.outputs if self.genome and path.suffix == _DATASET]

    def check_outputs(self) -> None:
        """Raise UserError where an output cannot be written."""
        for path in self.wanted:
            free_folder(path) if path in self.folders else output_path(path)


class Asked(NamedTuple):
    """What a job asks for, found in its files.

    Attributes:
        writers: one for each output.
        reference: opened.
        annotation: if one is given.
        places: to scan, of a contig each.
        options: how.
    """

    writers: list[ScanWriter]
    reference: Reference
    annotation: Annotation | None
    places: tuple[Interval, ...]
    options: ScanOptions


@contextmanager
def asked(job: ScanJob) -> Iterator[Asked]:
    """Check a job, and open its reference.

    Raises:
        GenomeError: the region or the gene is not there, or a file is malformed.
        UserError: an ending or a combination of settings is not possible.
    """
    writers = _checked(job)
    with Reference(job.reference) as reference:
        names = contig_names(job.contigs, reference.contig_lengths_bp)
        annotation = None
        if job.annotation:
            annotation = read_gene_file(job.annotation, reference, names)
        places, options = _places(reference, annotation, job, names)
        num_bases = sum(place.length_bp for place in places)
        if job.plot and (len(places) > 1 or num_bases > MOST_DRAWN_BP):
            raise UserError(
                f"{job.plot}: {num_bases} bases make no readable picture; draw at most "
                f"{MOST_DRAWN_BP}, and look at more in a genome browser (an output that ends in "
                ".bw)"
            )
        yield Asked(writers, reference, annotation, places, options)


def settings_of(
    job: ScanJob, model: Mapping[str, Any], places: tuple[Interval, ...], method: ScanMethod
) -> dict[str, Any]:
    """Return what is written beside the numbers.

    Args:
        job: what is scanned.
        model: its `yarn` and `dtype`.
        places: that are scanned.
        method: how.
    """
    return {
        "model": job.model,
        "yarn": model["yarn"],
        "protocol": "scan",
        "region": _region_of(job, places),
        "gene": job.gene,
        **({"contigs": job.contigs} if job.contigs else {}),
        **method._asdict(),
        "dtype": model["dtype"],
        "values": "log p(base | all bases before it on the strand that is read), nats",
        "delta": "log p(alt) - log p(ref)",
        "position": "1-based",
    }


def _region_of(job: ScanJob, places: tuple[Interval, ...]) -> str:
    if job.genome:
        return "genome"
    return job.regions.name if job.regions else places[0].to_region()


def fingerprints(job: ScanJob) -> dict[str, Any]:
    """Return what distinguishes the reference from others of the same name."""
    found = {"reference": content_sha256(job.reference)}
    return found | ({"regions": content_sha256(job.regions)} if job.regions else {})


def _checked(job: ScanJob) -> list[ScanWriter]:
    """Return a writer for each output; what is wrong with the names is known at once."""
    kind = "genome scan" if job.genome else "scan"
    writers = [chosen_by_ending(path, kind) for path in job.outputs]
    check_picture(job.plot)
    given = (job.reference, job.annotation, names_table(job.contigs), job.regions)
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


def _places(
    reference: Reference, annotation: Annotation | None, job: ScanJob, names: Mapping[str, str]
) -> tuple[tuple[Interval, ...], ScanOptions]:
    """Return where to scan, and how."""
    lengths_bp = reference.contig_lengths_bp
    if job.genome:
        contigs = [Interval(contig, 0, end) for contig, end in lengths_bp.items() if end]
        if not contigs:
            raise UserError(f"{job.reference}: has no bases to scan")
        return tuple(contigs), job.options
    if job.regions and (regions := read_regions(None, job.regions, lengths_bp, names)):
        wide = [each.widened(job.flank_bp, lengths_bp[each.contig]) for each in regions.intervals]
        return Regions(wide, lengths_bp).intervals, job.options
    place, options = _place(reference, annotation, job, names)
    place = place.widened(job.flank_bp, lengths_bp[place.contig])
    if place.length_bp == 0:
        raise UserError(f"'{place.contig}' has no bases to scan")
    return (place,), options


def _place(
    reference: Reference, annotation: Annotation | None, job: ScanJob, names: Mapping[str, str]
) -> tuple[Interval, ScanOptions]:
    """Return a region, a gene or a contig, and how to scan there."""
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
    return place, options


Packed = dict[str, Any]
"""The values of a block's windows, as JSON holds them."""


class ScanWorker:
    """A worker: windows in, the log-probabilities of their bases out.

    Attributes:
        about: `method`, how regions are scanned; `windows`, how many a block has; `model`, what of
            the model the output holds; and its `identity`.
    """

    def __init__(self, runner: "ModelRunner", job: ScanJob, options: ScanOptions) -> None:
        """Open the reference.

        Args:
            runner: of the model.
            job: what to scan.
            options: how, which of a gene's strand depend on the annotation.

        Raises:
            UserError: an option is not possible.
        """
        self._runner, self._method = runner, scan_method_for(runner, **options)
        self._reference = Reference(job.reference)
        self.about = {
            "method": self._method._asdict(),
            "windows": windows_at_once(runner, self._method),
            "model": {"yarn": runner.yarn, "dtype": runner.dtype},
            "identity": identity_of(runner, job.model),
        }

    def __call__(self, payload: list[Window]) -> Packed:
        """Return the values of each window, and the number of tokens that were read."""
        found = read_windows(self._runner, self._reference, payload, self._method)
        texts = [base64.b64encode(values.tobytes()).decode() for values in found.values]
        return {"values": texts, "tokens_read": found.tokens_read}


def chunks_from(
    results: Iterator[tuple[list[Window], Packed]],
    reference: Reference,
    regions: Sequence[Interval],
    method: ScanMethod,
) -> Iterator[ScanChunk]:
    """Yield the chunks of regions from the results of their blocks; see `chunks_of`."""
    read = ((block, _unpacked(packed)) for block, packed in results)
    return chunks_of(read, reference, regions, method)


def _unpacked(packed: Packed) -> WindowValues:
    arrays = (np.frombuffer(base64.b64decode(text), np.float32) for text in packed["values"])
    return WindowValues([array.reshape(-1, 4) for array in arrays], packed["tokens_read"])


def run_scan_job(
    job: ScanJob,
    make: Callable[[ScanJob, ScanOptions], ScanWorker],
    start: Callable[[MakeWorker], AbstractContextManager[Workers]],
) -> dict[str, Any]:
    """Scan a region, or a genome, into files, which appear when they are whole.

    Workers start when all else is known to be right.

    Args:
        job: what to scan.
        make: makes a worker; a function of a module, or a partial of one.
        start: starts workers, given how to make one.

    Returns:
        The summary.

    Raises:
        GenomeError: the region or the gene is not there, or a file is malformed.
        UserError: an ending, a window or a combination of settings is not possible.
    """
    with asked(job) as found:
        job.check_outputs()
        with start(partial(make, job, found.options)) as workers:
            return _run(job, found, workers)


def _run(job: ScanJob, found: Asked, workers: Workers) -> dict[str, Any]:
    about = workers.about()
    method = ScanMethod(**about["method"])
    settings = settings_of(job, about["model"], found.places, method)

    def blocks() -> Iterator[list[Window]]:
        return window_blocks(found.reference, found.places, method, about["windows"])

    def write(results: Iterator[tuple[list[Window], Packed]]) -> dict[str, int]:
        chunks = chunks_from(results, found.reference, found.places, method)
        return _write(chunks, found, job, settings)

    work = Job(
        description="scanning windows",
        output=job.outputs[0],
        settings=settings | fingerprints(job) | about["identity"],
        check=lambda: sum(map(len, blocks())),
        blocks=blocks,
        source=settings["region"],
        records="windows",
        resume=job.resume,
    )
    counts = run_job(work, workers, write)
    return {"outputs": [str(path) for path in job.wanted]} | counts | settings


def _write(
    chunks: Iterator[ScanChunk], found: Asked, job: ScanJob, settings: dict[str, Any]
) -> dict[str, int]:
    """Write all outputs, which have their names when this returns; return what was scanned."""
    drawn: list[ScanChunk] = []
    with ExitStack() as files:
        where = _temporaries(files, job)
        with ExitStack() as sinks:
            writes = open_all(sinks, found, job, where, settings)
            writes += [drawn.append] if job.plot else []
            counts = _write_all(chunks, writes)
        if job.plot:
            _draw(join_chunks(drawn), found.annotation, where[job.plot], settings)
    return counts


def _temporaries(files: ExitStack, job: ScanJob) -> dict[Path, Path]:
    """Open what is to be written, under temporary names."""
    return {
        path: files.enter_context((atomic_folder if path in job.folders else atomic_file)(path))
        for path in job.wanted
    }


def open_all(
    sinks: ExitStack, found: Asked, job: ScanJob, where: dict[Path, Path], settings: dict[str, Any]
) -> list[Callable[[ScanChunk], None]]:
    """Open the writers of all outputs."""
    # Of a bigWig the contigs with values alone, as of UCSC's tools: 100,000 of them would take
    # libBigWig longer than the scan.
    lengths_bp = {
        place.contig: found.reference.contig_lengths_bp[place.contig] for place in found.places
    }
    return [
        sinks.enter_context(_opened(writer(where[path], lengths_bp, settings), path))
        for path, writer in zip(job.outputs, found.writers, strict=True)
    ]


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
    chunks: Iterator[ScanChunk], writes: list[Callable[[ScanChunk], None]]
) -> dict[str, int]:
    """Hand every chunk to all that write; return what was scanned."""
    counts = {"bases": 0, "known_bases": 0, "tokens_read": 0}
    for chunk in chunks:
        for write in writes:
            write(chunk)
        counts["bases"] += chunk.interval.length_bp
        counts["known_bases"] += int(chunk.is_base.sum())
        counts["tokens_read"] += chunk.tokens_read
    return counts


def _draw(
    chunk: ScanChunk, annotation: Annotation | None, path: Path, settings: dict[str, Any]
) -> None:
    from carbon.inference.scan.figure import draw_scan

    genes = annotation.genes if annotation else ()
    shown = [gene for gene in genes if gene.interval.overlaps(chunk.interval)]
    offsets = "every base at the start of its token"
    if settings["combine"] == "mean":
        offsets = f"offsets {', '.join(map(str, settings['offsets']))}"
    gene = f"{settings['gene']}, " if settings["gene"] else ""
    title = f"{gene}{settings['region']} (strands: {settings['strands']}; {offsets})"
    draw_scan(chunk, shown, path, title)

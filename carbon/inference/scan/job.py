"""Scan a region, a gene, a contig or a genome into files, in blocks by workers."""

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
    ScanWindow,
    WindowValues,
    chunks_of,
    join_chunks,
    score_windows,
    window_blocks,
    windows_per_block,
)
from carbon.io.files import (
    atomic_file,
    atomic_folder,
    behind_links,
    content_sha256,
    errors_naming,
    free_folder,
    output_path,
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
    """Regions to scan and outputs to write.

    Attributes:
        model: name of the model, for the record.
        reference: FASTA.
        outputs: .parquet, .tsv and .bw files; for a genome, a .parquet is a folder.
        region: `contig:first-last`, 1-based and inclusive. Exactly one of this and the next four
            fields is set.
        contig: a whole contig.
        gene: name or identifier in the annotation.
        genome: all contigs of the reference.
        regions: a BED of regions.
        annotation: GFF3, GTF or BED, for the gene and for the exons of the figure.
        contigs: `chr`, or a table, if the region, the contig or the annotation uses other contig
            names than the reference.
        flank_bp: additional bases on both sides.
        plot: a figure to draw.
        along_gene: score the strand of the gene.
        options: scanning options.
        resume: continue an earlier run from its blocks.
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
        """All outputs."""
        return [*self.outputs, *([self.plot] if self.plot else [])]

    @property
    def folders(self) -> list[Path]:
        """The outputs that are folders."""
        return [path for path in self.outputs if self.genome and path.suffix == _DATASET]

    def check_outputs(self) -> None:
        """Raise UserError if an output cannot be written."""
        for path in self.wanted:
            free_folder(path) if path in self.folders else output_path(path)


class OpenedScan(NamedTuple):
    """A checked job with its opened files.

    Attributes:
        writers: a writer for each output.
        reference: the opened reference.
        annotation: the annotation, if there is one.
        places: intervals to scan, each within a contig.
        options: scanning options.
    """

    writers: list[ScanWriter]
    reference: Reference
    annotation: Annotation | None
    places: tuple[Interval, ...]
    options: ScanOptions


@contextmanager
def open_scan(job: ScanJob) -> Iterator[OpenedScan]:
    """Check a job, and open its reference.

    Raises:
        GenomeError: the region or the gene does not exist, or a file is malformed.
        UserError: a suffix or a combination of settings is invalid.
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
                f"{job.plot}: {num_bases} bases do not fit into a readable figure; draw at most "
                f"{MOST_DRAWN_BP}, and view more in a genome browser (an output that ends in "
                ".bw)"
            )
        yield OpenedScan(writers, reference, annotation, places, options)


def settings_of(
    job: ScanJob, model: Mapping[str, Any], places: tuple[Interval, ...], method: ScanMethod
) -> dict[str, Any]:
    """Return the settings to store with the scores.

    Args:
        job: the scan.
        model: `yarn` and `dtype` of the model.
        places: scanned intervals.
        method: scanning method.
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
    """Return checksums of the inputs."""
    digests = {"reference": content_sha256(job.reference)}
    return digests | ({"regions": content_sha256(job.regions)} if job.regions else {})


def _checked(job: ScanJob) -> list[ScanWriter]:
    """Return a writer for each output, after checking the file names."""
    kind = "genome scan" if job.genome else "scan"
    writers = [chosen_by_ending(path, kind) for path in job.outputs]
    check_picture(job.plot)
    inputs = (job.reference, job.annotation, names_table(job.contigs), job.regions)
    resolved = [behind_links(path) for path in (*inputs, *job.wanted) if path]
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
    """Return the intervals to scan, and the scanning options."""
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
    """Return the interval of a region, gene or contig, and the scanning options."""
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
"""The scores of a block's windows as JSON."""


class ScanWorker:
    """A worker that scores the bases of windows.

    Attributes:
        about: `method`, the scanning method; `windows`, the number of windows a block; `model`, the
            model settings that the output stores; and `identity` of the model.
    """

    def __init__(self, runner: "ModelRunner", job: ScanJob, options: ScanOptions) -> None:
        """Open the reference.

        Args:
            runner: runner of the model.
            job: the scan.
            options: scanning options; strands may depend on the gene.

        Raises:
            UserError: an option is invalid.
        """
        self._runner, self._method = runner, scan_method_for(runner, **options)
        self._reference = Reference(job.reference)
        self.about = {
            "method": self._method._asdict(),
            "windows": windows_per_block(runner, self._method),
            "model": {"yarn": runner.yarn, "dtype": runner.dtype},
            "identity": identity_of(runner, job.model),
        }

    def __call__(self, payload: list[ScanWindow]) -> Packed:
        """Return the scores of each window, and the number of input tokens."""
        scores = score_windows(self._runner, self._reference, payload, self._method)
        texts = [base64.b64encode(values.tobytes()).decode() for values in scores.values]
        return {"values": texts, "tokens_read": scores.tokens_read}


def chunks_from(
    results: Iterator[tuple[list[ScanWindow], Packed]],
    reference: Reference,
    regions: Sequence[Interval],
    method: ScanMethod,
) -> Iterator[ScanChunk]:
    """Yield the chunks of regions from the results of their blocks; see `chunks_of`."""
    scored = ((block, _unpacked(packed)) for block, packed in results)
    return chunks_of(scored, reference, regions, method)


def _unpacked(packed: Packed) -> WindowValues:
    arrays = (np.frombuffer(base64.b64decode(text), np.float32) for text in packed["values"])
    return WindowValues([array.reshape(-1, 4) for array in arrays], packed["tokens_read"])


def run_scan_job(
    job: ScanJob,
    make: Callable[[ScanJob, ScanOptions], ScanWorker],
    start: Callable[[MakeWorker], AbstractContextManager[Workers]],
) -> dict[str, Any]:
    """Scan a region or a genome into files, which appear when complete.

    Workers start after all other checks.

    Args:
        job: the scan.
        make: makes a worker; a module-level function, or a partial of one.
        start: starts workers from a function that makes one.

    Returns:
        The summary.

    Raises:
        GenomeError: the region or the gene does not exist, or a file is malformed.
        UserError: a suffix, a window or a combination of settings is invalid.
    """
    with open_scan(job) as scan:
        job.check_outputs()
        with start(partial(make, job, scan.options)) as workers:
            return _run(job, scan, workers)


def _run(job: ScanJob, scan: OpenedScan, workers: Workers) -> dict[str, Any]:
    about = workers.about()
    method = ScanMethod(**about["method"])
    settings = settings_of(job, about["model"], scan.places, method)

    def blocks() -> Iterator[list[ScanWindow]]:
        return window_blocks(scan.reference, scan.places, method, about["windows"])

    def write(results: Iterator[tuple[list[ScanWindow], Packed]]) -> dict[str, int]:
        chunks = chunks_from(results, scan.reference, scan.places, method)
        return _write(chunks, scan, job, settings)

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
    chunks: Iterator[ScanChunk], scan: OpenedScan, job: ScanJob, settings: dict[str, Any]
) -> dict[str, int]:
    """Write all outputs and rename them to their final names; return counts of scanned bases."""
    drawn: list[ScanChunk] = []
    with ExitStack() as files:
        where = _temporaries(files, job)
        with ExitStack() as sinks:
            writes = open_all(sinks, scan, job, where, settings)
            writes += [drawn.append] if job.plot else []
            counts = _write_all(chunks, writes)
        if job.plot:
            _draw(join_chunks(drawn), scan.annotation, where[job.plot], settings)
    return counts


def _temporaries(files: ExitStack, job: ScanJob) -> dict[Path, Path]:
    """Open all outputs under temporary names."""
    return {
        path: files.enter_context((atomic_folder if path in job.folders else atomic_file)(path))
        for path in job.wanted
    }


def open_all(
    sinks: ExitStack,
    scan: OpenedScan,
    job: ScanJob,
    where: dict[Path, Path],
    settings: dict[str, Any],
) -> list[Callable[[ScanChunk], None]]:
    """Open the writers of all outputs."""
    # A bigWig lists only contigs with values, as with UCSC's tools: for 100,000 contigs libBigWig
    # would take longer than the scan.
    lengths_bp = {
        place.contig: scan.reference.contig_lengths_bp[place.contig] for place in scan.places
    }
    return [
        sinks.enter_context(_opened(writer(where[path], lengths_bp, settings), path))
        for path, writer in zip(job.outputs, scan.writers, strict=True)
    ]


@contextmanager
def _opened(
    opened: AbstractContextManager[Callable[[ScanChunk], None]], path: Path
) -> Iterator[Callable[[ScanChunk], None]]:
    """Name the output in errors of its writer."""

    def write(chunk: ScanChunk) -> None:
        with errors_naming(path):
            inner(chunk)

    with errors_naming(path), opened as inner:
        yield write


def _write_all(
    chunks: Iterator[ScanChunk], writes: list[Callable[[ScanChunk], None]]
) -> dict[str, int]:
    """Pass every chunk to all writers; return counts of scanned bases."""
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

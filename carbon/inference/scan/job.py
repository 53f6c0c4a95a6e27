"""Scan a region, a gene, a contig or a genome into files, in blocks by workers."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carbon.errors import UserError
from carbon.genome import (
    Annotation,
    Gene,
    Interval,
    Reference,
    contig_names,
    read_gene_file,
    region_by_name,
)
from carbon.genome.bed import Regions, read_regions
from carbon.genome.contig_names import names_table
from carbon.genome.genes import find_gene
from carbon.inference.identity import checksums_of, identity_of
from carbon.inference.jobs import ScanJob, workers_for
from carbon.inference.options import PROTOCOLS, SIDES, STRANDS_READ, Strands, input_files
from carbon.inference.scan.formats import ScanWriter
from carbon.inference.scan.method import ScanMethod, scan_method_for
from carbon.inference.scan.score import (
    KmerPositions,
    ScanChunk,
    WindowValues,
    chunks_of,
    join_chunks,
    score_windows,
)
from carbon.inference.scan.windows import (
    BLOCK_TOKENS,
    ScanWindow,
    window_blocks,
    windows_per_block,
)
from carbon.inference.variants.windows import tile_grid
from carbon.io.files import (
    atomic_file,
    atomic_folder,
    check_different_files,
    content_sha256,
    errors_naming,
    free_folder,
    output_path,
)
from carbon.io.tables import chosen_by_ending
from carbon.model.folder import ModelFolder, model_folder
from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.options import WorkerOptions
from carbon.reports.figures import check_installed, check_picture

if TYPE_CHECKING:
    from carbon.inference.model import Model

MOST_DRAWN_BP = 20_000
_DATASET = ".parquet"


def outputs_of(job: ScanJob) -> list[Path]:
    """Return the tables and tracks of a job."""
    return [Path(path) for path in job.output]


def written_files(job: ScanJob) -> list[Path]:
    """Return all outputs of a job, the figure included."""
    return [*outputs_of(job), *([job.plot] if job.plot else [])]


def is_folder(job: ScanJob, output: Path) -> bool:
    """Return whether an output is a folder with a file for each contig."""
    return job.genome and output.suffix == _DATASET


def check_outputs(job: ScanJob) -> None:
    """Raise UserError if an output cannot be written."""
    for path in written_files(job):
        free_folder(path) if is_folder(job, path) else output_path(path)


class OpenedScan(NamedTuple):
    """A checked job with its opened files.

    Attributes:
        writers: a writer for each output.
        reference: the opened reference.
        annotation: the annotation, if there is one.
        places: intervals to scan, each within a contig.
        job: the job, with the strand of the gene if it is to be scanned.
    """

    writers: list[ScanWriter]
    reference: Reference
    annotation: Annotation | None
    places: tuple[Interval, ...]
    job: ScanJob


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
        places, strand = _places(reference, annotation, job, names)
        if strand:
            strands: Strands = "forward" if strand == "+" else "reverse"
            job = replace(job, method=replace(job.method, strands=strands))
        num_bases = sum(place.length_bp for place in places)
        if job.plot and (len(places) > 1 or num_bases > MOST_DRAWN_BP):
            raise UserError(
                f"{job.plot}: {num_bases} bases do not fit into a readable figure; draw at most "
                f"{MOST_DRAWN_BP}, and view more in a genome browser (an output that ends in "
                ".bw)"
            )
        yield OpenedScan(writers, reference, annotation, places, job)


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
        "model": job.loading.model,
        "yarn": model["yarn"],
        "protocol": "scan",
        "region": _region_of(job, places),
        "gene": job.gene,
        **({"contigs": job.contigs} if job.contigs else {}),
        **method.settings(),
        "dtype": model["dtype"],
        "values": SIDES[method.sides].values,
        "delta": "log p(alt) - log p(ref)",
        "position": "1-based",
    }


def _region_of(job: ScanJob, places: tuple[Interval, ...]) -> str:
    if job.genome:
        return "genome"
    return job.regions_file.name if job.regions_file else places[0].to_region()


def fingerprints(job: ScanJob) -> dict[str, Any]:
    """Return checksums of the inputs, and the option that no setting records."""
    table = names_table(job.contigs)
    return {
        "reference": content_sha256(job.reference),
        "regions": content_sha256(job.regions_file) if job.regions_file else None,
        "contigs": content_sha256(table) if table else job.contigs,
        "flank_bp": job.flank_bp,
    }


def _checked(job: ScanJob) -> list[ScanWriter]:
    """Return a writer for each output, after checking the file names."""
    kind = "genome scan" if job.genome else "scan"
    outputs, written = outputs_of(job), written_files(job)
    writers = [chosen_by_ending(path, kind) for path in outputs]
    check_picture(job.plot)
    check_different_files(written, *input_files(job), names_table(job.contigs))
    if any(path.suffix == ".bw" for path in outputs):
        check_installed("pyBigWig")
    if job.gene and not job.annotation:
        raise UserError(f"gene '{job.gene}': give the --annotation that it is in")
    if job.flank_bp and (job.genome or job.contig):
        name = "--genome" if job.genome else "--contig"
        raise UserError(f"--flank {job.flank_bp}: {name} has no bases around it; leave one out")
    if job.method.strands == "gene" and not job.gene:
        raise UserError("--strands gene: give the --gene whose strand to read")
    return writers


def _places(
    reference: Reference, annotation: Annotation | None, job: ScanJob, names: Mapping[str, str]
) -> tuple[tuple[Interval, ...], str | None]:
    """Return the intervals to scan, and the strand of the gene if it is to be scanned."""
    lengths_bp = reference.contig_lengths_bp
    if job.genome:
        contigs = [Interval(contig, 0, end) for contig, end in lengths_bp.items() if end]
        if not contigs:
            raise UserError(f"{job.reference}: has no bases to scan")
        return tuple(contigs), None
    regions = read_regions(None, job.regions_file, lengths_bp, names)
    if regions:
        wide = [each.widened(job.flank_bp, lengths_bp[each.contig]) for each in regions.intervals]
        return Regions(wide, lengths_bp).intervals, None
    place, strand = _place(reference, annotation, job, names)
    place = place.widened(job.flank_bp, lengths_bp[place.contig])
    if place.length_bp == 0:
        raise UserError(f"'{place.contig}' has no bases to scan")
    return (place,), strand


def _place(
    reference: Reference, annotation: Annotation | None, job: ScanJob, names: Mapping[str, str]
) -> tuple[Interval, str | None]:
    """Return the interval of a region, gene or contig, and the strand to scan of a gene."""
    lengths_bp = reference.contig_lengths_bp
    if job.gene and annotation:
        gene = gene_in_one_part(annotation, job.gene, lengths_bp)
        return gene.interval, gene.strand if job.method.strands == "gene" else None
    if job.contig:
        contig = names.get(job.contig, job.contig)
        if contig not in lengths_bp:
            raise UserError(f"{reference.path}: {reference.explain_missing([contig])}")
        return Interval(contig, 0, lengths_bp[contig]), None
    return region_by_name(job.region or "", lengths_bp, names), None


def gene_in_one_part(
    annotation: Annotation, name: str, contig_lengths_bp: Mapping[str, int]
) -> Gene:
    """Return a gene by its name or identifier.

    Raises:
        UserError: no gene or several genes have the name, or it goes over a contig's origin.
    """
    gene = find_gene(annotation, name)
    if gene.interval.end > contig_lengths_bp[gene.interval.contig]:
        raise UserError(
            f"gene '{name}': goes over the origin of '{gene.interval.contig}'; give its two parts "
            "as regions"
        )
    return gene


Packed = dict[str, Any]
"""The scores of a block's windows as JSON."""


class ScanWorker:
    """A worker that scores the bases of windows.

    Attributes:
        about: `method`, the scanning method; `windows`, the number of windows a block; `model`, the
            model settings that the output stores; and `identity` of the model.
    """

    def __init__(self, model: "Model", job: ScanJob) -> None:
        """Open the reference.

        Raises:
            UserError: an option is invalid.
        """
        self._runner = runner = model.runner
        self._method = scan_method_for(runner, job.method)
        self._reference = Reference(job.reference)
        self.about = {
            "method": asdict(self._method),
            "windows": windows_per_block(runner, self._method),
            "model": {"yarn": runner.yarn, "dtype": runner.dtype},
            "identity": identity_of(runner, job.loading.model),
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


def run_scan_job(job: ScanJob, options: WorkerOptions) -> dict[str, Any]:
    """Scan a region or a genome into files, which appear when complete; return the summary.

    Workers start after all other checks.

    Raises:
        GenomeError: the region or the gene does not exist, or a file is malformed.
        UserError: a suffix, a window or a combination of settings is invalid.
    """
    with open_scan(job) as scan:
        check_outputs(job)
        with workers_for(scan.job, ScanWorker, options) as workers:
            return _run(job, scan, workers)


def _run(job: ScanJob, scan: OpenedScan, workers: Workers) -> dict[str, Any]:
    about = workers.about(_expected_blocks(scan))
    method = ScanMethod(**about["method"])
    settings = settings_of(job, about["model"], scan.places, method)
    settings |= checksums_of(about["identity"], scan.reference.contig_lengths_bp)

    def blocks() -> Iterator[list[ScanWindow]]:
        return window_blocks(scan.reference, scan.places, method, about["windows"])

    def write(results: Iterator[tuple[list[ScanWindow], Packed]]) -> dict[str, Any]:
        chunks = chunks_from(results, scan.reference, scan.places, method)
        return _write(chunks, scan, job, method, settings)

    work = Job(
        description="scanning windows",
        output=outputs_of(job)[0],
        settings=settings | fingerprints(job) | about["identity"],
        check=lambda: sum(map(len, blocks())),
        blocks=blocks,
        source=settings["region"],
        records="windows",
    )
    counts = run_job(work, workers, write)
    return {"outputs": [str(path) for path in written_files(job)]} | counts | settings


def _expected_blocks(scan: OpenedScan) -> range:
    """Return an item for each block that there is at least, before the model is loaded."""
    method, model = scan.job.method, model_folder(scan.job.loading.model)
    k = model.vocabulary.k
    strands: Any = method.strands or SIDES[method.sides].default_strands
    offsets = method.offsets
    num_offsets = k if offsets == "all" else len(offsets or (0,))
    num_readings = num_offsets * len(STRANDS_READ[strands])
    if method.sides == "both":  # a block is a tile, of which the first also owns its context
        window_bp = method.window_bp or _default_tile_bp(model, scan.job.loading.yarn or 1)
        grid = tile_grid(window_bp, method.downstream_bp, method.least_context_bp, k=k)
        own_bp = [place.length_bp - grid.least_context_bp for place in scan.places]
        return range(num_readings * sum(max(1, -(-bp // grid.step_bp)) for bp in own_bp))
    num_bases = sum(place.length_bp for place in scan.places)
    most_bp = max(BLOCK_TOKENS * k, method.window_bp or 0)
    return range(0, num_bases * num_readings, most_bp)


def _default_tile_bp(model: ModelFolder, yarn: float) -> int:
    """Return the default window of a scan of both sides."""
    protocol, vocabulary = PROTOCOLS["tiled"], model.vocabulary
    context_tokens = int(model.config["max_position_embeddings"] * yarn)
    most_bp = (context_tokens - len(vocabulary.prefix())) * vocabulary.k
    return vocabulary.default_window_bp(protocol.default_window_bp, protocol.room_bp(most_bp))


def _write(
    chunks: Iterator[ScanChunk],
    scan: OpenedScan,
    job: ScanJob,
    method: ScanMethod,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Write all outputs and rename them to their final names; return counts of scanned bases."""
    drawn: list[ScanChunk] = []
    by_position = KmerPositions(method, scan.reference.contig_lengths_bp)
    with ExitStack() as files:
        where = _temporaries(files, job)
        with ExitStack() as sinks:
            writes = open_all(sinks, scan, job, where, settings)
            writes += [drawn.append] if job.plot else []
            counts: dict[str, Any] = _write_all(chunks, [*writes, by_position.add])
        if method.sides == "both":
            counts["missing_bases"] = counts["bases"] - counts["known_bases"]
            counts["log_p_ref_by_position_in_kmer"] = by_position.summary()
        if job.plot:
            _draw(join_chunks(drawn), scan.annotation, where[job.plot], settings)
    return counts


def _temporaries(files: ExitStack, job: ScanJob) -> dict[Path, Path]:
    """Open all outputs under temporary names."""
    return {
        path: files.enter_context((atomic_folder if is_folder(job, path) else atomic_file)(path))
        for path in written_files(job)
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
        for path, writer in zip(outputs_of(job), scan.writers, strict=True)
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
    sides = "both sides; " if settings.get("sides") == "both" else ""
    title = f"{gene}{settings['region']} ({sides}strands: {settings['strands']}; {offsets})"
    draw_scan(chunk, shown, path, title)

"""Regions, genes, contigs and genomes in; tables, tracks and a picture out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from carbon.genome import Annotation
from carbon.inference.scan.blocks import Packed, ScanWorker, chunks_from
from carbon.inference.scan.chunks import ScanChunk, join_chunks
from carbon.inference.scan.job import Asked, ScanJob, asked, fingerprints, settings_of
from carbon.inference.scan.method import ScanMethod
from carbon.inference.scan.regions import Window, window_blocks
from carbon.io.files import atomic_file, atomic_folder, told_of
from carbon.options import ScanOptions
from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.engines import MakeWorker


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
    from carbon.inference.scan.picture import draw_scan

    genes = annotation.genes if annotation else ()
    shown = [gene for gene in genes if gene.interval.overlaps(chunk.interval)]
    frames = "every base at the start of its token"
    if settings["combine"] == "mean":
        frames = f"frames {', '.join(map(str, settings['frames']))}"
    gene = f"{settings['gene']}, " if settings["gene"] else ""
    title = f"{gene}{settings['region']} (strands: {settings['strands']}; {frames})"
    draw_scan(chunk, shown, path, title)

"""Regions, genes, contigs and genomes in; tables, tracks and a picture out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from carbon.blocks.crew import Crew
from carbon.blocks.work import is_shared, run_work
from carbon.console import progress
from carbon.files import atomic_file, atomic_folder, told_of
from carbon.genome import Annotation, Interval
from carbon.inference.reading import Reader
from carbon.inference.scan.blocks import Scanned
from carbon.inference.scan.chunks import ScanChunk, join_chunks
from carbon.inference.scan.job import Asked, ScanJob, asked, identity, settings_of
from carbon.inference.scan.method import scan_method_for
from carbon.inference.scan.regions import scan_region


def run_scan_job(
    load: Callable[[], Reader], job: ScanJob, crew: Crew | None = None
) -> dict[str, Any] | None:
    """Scan a region, or a genome, into files, which appear when they are whole.

    The model is loaded when all else is known to be right. A genome is scanned in blocks that are
    kept until then, by one process too.

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
    if job.genome:
        crew = crew or Crew()
    with asked(job) as found, ExitStack() as files:
        is_for_many = is_shared(crew, job.outputs[0])
        temporary = {} if is_for_many else _temporaries(files, job)
        reader = load()
        method = scan_method_for(reader, **found.options)
        settings = settings_of(job, reader, found.places, method)

        def write(chunks: Iterator[ScanChunk]) -> dict[str, int]:
            where = temporary or _temporaries(files, job)
            drawn: list[ScanChunk] = []
            with ExitStack() as sinks:
                writes = open_all(sinks, found, job, where, settings)
                writes += [drawn.append] if job.plot else []
                counts = _write_all(chunks, writes, found.places)
            if job.plot:
                _draw(join_chunks(drawn), found.annotation, where[job.plot], settings)
            return counts

        if is_for_many:
            scanned = Scanned(reader, found.reference, found.places, method)
            work = scanned.work(job, settings | identity(job, reader))
            # The files have their names before it is noted that they are whole.
            counts = run_work(
                work, crew, lambda results: _closed(files, write(scanned.chunks(results)))
            )
        else:
            counts = write(scan_region(reader, found.reference, found.places[0], method))
    outputs = {"outputs": [str(path) for path in job.wanted]}
    return None if counts is None else outputs | counts | settings


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
    chunks: Iterator[ScanChunk],
    writes: list[Callable[[ScanChunk], None]],
    places: tuple[Interval, ...],
) -> dict[str, int]:
    """Hand every chunk to all that write; return what was scanned."""
    counts = {"bases": 0, "known_bases": 0, "tokens_read": 0}
    with progress("scanning bases", sum(place.length_bp for place in places)) as advance:
        for chunk in chunks:
            for write in writes:
                write(chunk)
            counts["bases"] += chunk.interval.length_bp
            counts["known_bases"] += int(chunk.is_base.sum())
            counts["tokens_read"] += chunk.tokens_read
            advance(chunk.interval.length_bp)
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

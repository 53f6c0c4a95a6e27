"""Estimate the cost of a scan: count its windows, and time the first of them."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.genome import Interval
from carbon.inference.jobs import ScanJob
from carbon.inference.scan.job import (
    OpenedScan,
    check_outputs,
    is_folder,
    open_all,
    open_scan,
    outputs_of,
    settings_of,
)
from carbon.inference.scan.method import ScanMethod, scan_method_for
from carbon.inference.scan.score import (
    SCANNED_BASES,
    ScanChunk,
    WindowValues,
    chunks_of,
    num_window_tokens,
    score_windows,
)
from carbon.inference.scan.windows import ScanWindow, passes, window_blocks, windows_per_block
from carbon.io.files import scratch_folder
from carbon.parallel.options import WorkerOptions

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

_LEAST_SECONDS = 2.0
_LEAST_TIMED_BP = 16
_FETCH_BP = 2**16
_JOURNAL_BYTES = 4 * len(SCANNED_BASES) * 4 / 3
"""Bytes of a base and pass in the journal: float32 as base64."""


def plan_scan_job(job: ScanJob, options: WorkerOptions) -> dict[str, Any]:
    """Estimate the windows, tokens, time and bytes of a scan, without writing output.

    Windows and tokens are counted. Time and bytes are extrapolated from the first windows, which
    are scored here for at least two seconds.

    Args:
        job: the scan.
        options: only the device is used.

    Returns:
        `contigs`, `bases`, `windows` (tiles, for both sides), `tokens`; `tokens_per_second` of this
        process and `hours` in one such process; `bytes` of each output, and of the `blocks` in the
        journal that exists until the scan is complete.

    Raises:
        GenomeError, UserError: as for `run_scan_job`.
    """
    with open_scan(job) as scan:
        check_outputs(job)
        runner = job.loading.load(options.device).runner
        method = scan_method_for(runner, scan.job.method)
        model = {"yarn": runner.yarn, "dtype": runner.dtype}
        settings = settings_of(job, model, scan.places, method)
        num_windows = num_tokens = 0
        for block in _blocks(runner, scan, method):
            num_windows += len(block)
            num_tokens += sum(
                num_window_tokens(runner, scan.reference, window, method) for window in block
            )
        num_bases = sum(place.length_bp for place in scan.places)
        chunks, tokens_per_second = _sample(runner, scan, method)
        return {
            "contigs": len(scan.places),
            "bases": num_bases,
            "windows": num_windows,
            "tokens": num_tokens,
            "tokens_per_second": round(tokens_per_second),
            "hours": round(num_tokens / tokens_per_second / 3600, 4) if num_tokens else 0.0,
            "bytes": {
                **_bytes_of_outputs(chunks, num_bases, scan, job, settings),
                "blocks": round(num_bases * len(passes(method)) * _JOURNAL_BYTES),
            },
        } | settings


def _blocks(
    runner: "ModelRunner", scan: OpenedScan, method: ScanMethod
) -> Iterator[list[ScanWindow]]:
    number = windows_per_block(runner, method)
    return window_blocks(scan.reference, scan.places, method, number)


def _sample(
    runner: "ModelRunner", scan: OpenedScan, method: ScanMethod
) -> tuple[list[ScanChunk], float]:
    """Score the first bases, twice as many each time, until it takes long enough.

    Returns:
        The completed bases, and the tokens per second of the last batch.
    """
    return (_sample_of_tiles if method.sides == "both" else _sample_of_windows)(
        runner, scan, method
    )


def _sample_of_tiles(
    runner: "ModelRunner", scan: OpenedScan, method: ScanMethod
) -> tuple[list[ScanChunk], float]:
    """Score the beginning of a place, because a whole tile has many continuations."""
    place, length_bp = _place_of_known_bases(scan), _LEAST_TIMED_BP
    while True:
        part = replace(place, end=min(place.start + length_bp, place.end))
        blocks = window_blocks(scan.reference, [part], method, len(passes(method)))
        began = time.perf_counter()
        scored = [(b, score_windows(runner, scan.reference, b, method)) for b in blocks]
        seconds = time.perf_counter() - began
        if seconds > _LEAST_SECONDS or part == place:
            tokens = sum(values.tokens_read for _, values in scored)
            return list(chunks_of(scored, scan.reference, [part], method)), tokens / seconds
        length_bp *= 2


def _place_of_known_bases(scan: OpenedScan) -> Interval:
    """Return the first place from its first known base on; the first place if all are unknown."""
    for place in scan.places:
        for start in range(place.start, place.end, _FETCH_BP):
            part = replace(place, start=start, end=min(start + _FETCH_BP, place.end))
            bases = scan.reference.fetch(part).upper()
            if known := [at for at in map(bases.find, SCANNED_BASES) if at >= 0]:
                return replace(place, start=start + min(known))
    return scan.places[0]


def _sample_of_windows(
    runner: "ModelRunner", scan: OpenedScan, method: ScanMethod
) -> tuple[list[ScanChunk], float]:
    reference = scan.reference
    windows = (window for block in _blocks(runner, scan, method) for window in block)
    chunks: list[ScanChunk] = []
    scored: list[tuple[list[ScanWindow], WindowValues]] = []
    tokens_per_second, number = 0.0, len(passes(method))
    while batch := list(islice(windows, number)):
        began = time.perf_counter()
        values = score_windows(runner, reference, batch, method)
        seconds = time.perf_counter() - began
        tokens_per_second = values.tokens_read / seconds
        scored.append((batch, values))
        chunks = list(chunks_of(scored, reference, scan.places, method))
        if chunks and seconds > _LEAST_SECONDS:
            break
        number *= 2
    return chunks, tokens_per_second


def _bytes_of_outputs(
    chunks: list[ScanChunk],
    num_bases: int,
    scan: OpenedScan,
    job: ScanJob,
    settings: dict[str, Any],
) -> dict[str, int]:
    """Write the first bases, and extrapolate the bytes of each output."""
    times = num_bases / sum(chunk.interval.length_bp for chunk in chunks)
    with scratch_folder("scan-plan") as folder:
        where = {path: folder / f"{n}{path.suffix}" for n, path in enumerate(outputs_of(job))}
        for path in outputs_of(job):
            if is_folder(job, path):
                where[path].mkdir()
        with ExitStack() as sinks:
            writes = open_all(sinks, scan, job, where, settings)
            for chunk in chunks:
                for write in writes:
                    write(chunk)
        return {str(path): round(times * _bytes_of(written)) for path, written in where.items()}


def _bytes_of(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

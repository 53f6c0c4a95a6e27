"""What a scan will cost: counted, and measured on its first windows."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.inference.scan.job import Asked, ScanJob, asked, open_all, settings_of
from carbon.inference.scan.method import ScanMethod, scan_method_for
from carbon.inference.scan.score import (
    SCANNED_BASES,
    ScanChunk,
    Window,
    WindowValues,
    chunks_of,
    num_passes,
    read_windows,
    tokens_of,
    window_blocks,
    windows_at_once,
)
from carbon.io.files import scratch_folder

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

_LEAST_SECONDS = 2.0
_KEPT_BYTES = 4 * len(SCANNED_BASES) * 4 / 3
"""Of a base and pass in the journal: float32 as base64."""


def plan_scan_job(load: Callable[[], "ModelRunner"], job: ScanJob) -> dict[str, Any]:
    """Tell what a scan will read and write, and how long it takes; write nothing.

    Windows and tokens are counted. Time and bytes are those of the first windows, read here for two
    seconds or more, as often as they go into the whole.

    Args:
        load: loads the model.
        job: what would be scanned.

    Returns:
        `contigs`, `bases`, `windows`, `tokens`; `tokens_per_second` of this process and `hours` for
        one like this; `bytes` of each output, and of the `blocks` in the journal beside the
        first until all is done.

    Raises:
        GenomeError, UserError: as of `run_scan_job`.
    """
    with asked(job) as found:
        job.check_outputs()
        runner = load()
        method = scan_method_for(runner, **found.options)
        model = {"yarn": runner.yarn, "dtype": runner.dtype}
        settings = settings_of(job, model, found.places, method)
        num_windows = num_tokens = 0
        for block in _blocks(runner, found, method):
            num_windows += len(block)
            num_tokens += sum(tokens_of(window, runner, method) for window in block)
        num_bases = sum(place.length_bp for place in found.places)
        chunks, tokens_per_second = _sample(runner, found, method)
        return {
            "contigs": len(found.places),
            "bases": num_bases,
            "windows": num_windows,
            "tokens": num_tokens,
            "tokens_per_second": round(tokens_per_second),
            "hours": round(num_tokens / tokens_per_second / 3600, 4),
            "bytes": {
                **_bytes_of_outputs(chunks, num_bases, found, job, settings),
                "blocks": round(num_bases * num_passes(method) * _KEPT_BYTES),
            },
        } | settings


def _blocks(runner: "ModelRunner", found: Asked, method: ScanMethod) -> Iterator[list[Window]]:
    number = windows_at_once(runner, method)
    return window_blocks(found.reference, found.places, method, number)


def _sample(
    runner: "ModelRunner", found: Asked, method: ScanMethod
) -> tuple[list[ScanChunk], float]:
    """Read the first windows, twice as many each time, until that takes long enough.

    Returns:
        The bases that are whole, and the tokens a second of the last reading.
    """
    reference = found.reference
    windows = (window for block in _blocks(runner, found, method) for window in block)
    chunks: list[ScanChunk] = []
    read: list[tuple[list[Window], WindowValues]] = []
    tokens_per_second, number = 0.0, num_passes(method)
    while some := list(islice(windows, number)):
        began = time.perf_counter()
        values = read_windows(runner, reference, some, method)
        seconds = time.perf_counter() - began
        tokens_per_second = values.tokens_read / seconds
        read.append((some, values))
        chunks = list(chunks_of(read, reference, found.places, method))
        if chunks and seconds > _LEAST_SECONDS:
            break
        number *= 2
    return chunks, tokens_per_second


def _bytes_of_outputs(
    chunks: list[ScanChunk], num_bases: int, found: Asked, job: ScanJob, settings: dict[str, Any]
) -> dict[str, int]:
    """Write the first bases, and tell how many bytes all will take."""
    times = num_bases / sum(chunk.interval.length_bp for chunk in chunks)
    with scratch_folder("scan-plan") as folder:
        where = {path: folder / f"{n}{path.suffix}" for n, path in enumerate(job.outputs)}
        for path in job.folders:
            where[path].mkdir()
        with ExitStack() as sinks:
            writes = open_all(sinks, found, job, where, settings)
            for chunk in chunks:
                for write in writes:
                    write(chunk)
        return {str(path): round(times * _bytes_of(written)) for path, written in where.items()}


def _bytes_of(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

"""Write bigWig files by pyBigWig in a separate process, and verify them by reading them back.

libBigWig ignores disk errors: when the disk is full, it leaves a torn file or corrupts its own
memory. So it runs in a process that may crash, and the file is valid only if its values can be read
back and the disk accepts more bytes. This file is also the program of that process, and so imports
nothing of Carbon. pybigtools is not a substitute: it prints such an error on stdout and returns, or
panics.
"""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from errno import EIO, ENOSPC
from pathlib import Path
from signal import Signals
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]
Write = Callable[[str, int, Float32s], None]  # contig, 0-based start, values

_READ_BP = 1 << 20  # bases of the file that are read back at a time
_SPARE_BYTES = 1 << 16


@contextmanager
def open_bigwig(path: Path, contig_lengths_bp: Mapping[str, int]) -> Iterator[Write]:
    """Open a bigWig for writing, span by span of each contig, from left to right.

    Yields:
        A function that writes one value a base from `start` on; bases with NaN have no value in the
        file.

    Raises:
        OSError: the file does not hold the written values.
    """
    child = subprocess.Popen(
        [sys.executable, "-P", __file__, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )

    def send(header: Any, values: bytes = b"") -> None:
        assert child.stdin
        try:
            child.stdin.write(json.dumps(header).encode() + b"\n" + values)
            child.stdin.flush()
        except BrokenPipeError:
            check_end()

    def check_end() -> None:
        reason, _ = child.communicate()
        if child.returncode < 0:
            number = Signals(-child.returncode).name
            raise OSError(
                EIO,
                f"the process that wrote it was killed by {number}; is memory short?",
                str(path),
            )
        if child.returncode:
            shown = f"; {reason.decode()}" if reason else ""
            raise OSError(EIO, f"was not written whole; is the disk full?{shown}", str(path))

    try:
        send(dict(contig_lengths_bp))
        yield lambda contig, start, values: send(
            (contig, start, len(values)), values.astype("<f4").tobytes()
        )
        send(None)
        check_end()
    finally:
        child.kill()
        child.communicate()


class _Span:
    """A written run of bases: contig, start, end, a checksum and the number of values."""

    def __init__(self, contig: str, start: int) -> None:
        self.contig = contig
        self.start = self.end = start
        self.checksum = self.num_values = 0

    def add(self, values: Float32s) -> None:
        same = np.where(np.isnan(values), np.float32(np.nan), values).astype("<f4")
        self.checksum = zlib.crc32(same.tobytes(), self.checksum)
        self.num_values += int((~np.isnan(values)).sum())
        self.end += len(values)


def _write_file(path: str, source: IO[bytes]) -> None:
    """Write and verify a file from the stream that `open_bigwig` sends."""
    import pyBigWig

    contig_lengths_bp = json.loads(source.readline())
    written: list[_Span] = []
    sink = pyBigWig.open(path, "w")
    sink.addHeader(list(contig_lengths_bp.items()))
    while header := json.loads(source.readline()):  # invalid JSON if the sender died
        contig, start, num_bases = header
        # After an error the library may spend minutes on empty zoom levels.
        _check_room(path, _SPARE_BYTES + 2 * 4 * num_bases)
        values = np.frombuffer(source.read(4 * num_bases), dtype="<f4")
        for first, last in _runs(~np.isnan(values)):
            sink.addEntries(contig, start + first, values=values[first:last], span=1, step=1)
        if not written or (contig, start) != (written[-1].contig, written[-1].end):
            written.append(_Span(contig, start))
        written[-1].add(values)
    sink.close()
    _check_room(path, _SPARE_BYTES, sync=True)
    _check_values(path, contig_lengths_bp, written)


def _runs(flags: Any) -> list[tuple[int, int]]:
    """Return `(first, last)` of the runs of true values, half-open.

    >>> _runs(np.array([True, False, True, True]))
    [(0, 1), (2, 4)]
    """
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _check_room(path: str, spare_bytes: int, *, sync: bool = False) -> None:
    """Raise OSError if a file cannot grow: then the disk may not have accepted all of it."""
    with open(path, "r+b", buffering=0) as file:
        num_bytes = file.seek(0, os.SEEK_END)
        num_taken = file.write(os.urandom(spare_bytes))  # some disks store zeros without space
        if sync:
            os.fsync(file.fileno())
        file.truncate(num_bytes)
    if num_taken < spare_bytes:
        raise OSError(os.strerror(ENOSPC))


def _check_values(path: str, contig_lengths_bp: dict[str, int], written: list[_Span]) -> None:
    """Raise ValueError unless the file holds exactly the written values."""
    import pyBigWig

    num_values = sum(span.num_values for span in written)
    with pyBigWig.open(path) as source:
        _expect(source.chroms() == contig_lengths_bp, "its contigs")
        _expect(source.header()["nBasesCovered"] == num_values, "its summary")
        for span in written if num_values else ():
            read_back = _Span(span.contig, span.start)
            for start in range(span.start, span.end, _READ_BP):
                end = min(start + _READ_BP, span.end)
                read_back.add(source.values(span.contig, start, end, numpy=True).astype(np.float32))
            _expect(vars(read_back) == vars(span), f"the values of '{span.contig}'")


def _expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise ValueError(f"{what} cannot be read back")


def _main() -> None:
    try:
        _write_file(sys.argv[1], sys.stdin.buffer)
    except Exception as error:  # of any type: the file is incomplete
        print(str(error).partition("\n")[0] or type(error).__name__, end="", flush=True)
        os._exit(1)  # the library may never exit by itself


if __name__ == "__main__":
    _main()

"""bigWig files, written in a process of their own and read back.

libBigWig looks at no error of the disk: where that is full, it leaves a torn file or breaks its own
memory. So it runs in a process that may die, and its file counts only when all that was written,
zoom levels included, has been read from it again. This file is that process's program too, and so
imports nothing of Carbon.
"""

import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EIO, ENOSPC
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]

_READ_BP = 1 << 20  # of the file that is read back, at a time
_ZOOM_RECORD = np.dtype([("place", "<u4", 3), ("covered", "<u4"), ("values", "<f4", 4)])


class BigWig:
    """A bigWig that is being written, span after span of each contig, from left to right."""

    def __init__(self, path: Path, contig_lengths_bp: Mapping[str, int]) -> None:
        """Begin a file; use `open_bigwig`."""
        self._path = path
        self._child = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._send({"path": str(path), "contig_lengths_bp": dict(contig_lengths_bp)})

    def write(self, contig: str, start: int, values: Float32s) -> None:
        """Write a value a base from `start` on; a base whose value is NaN has none in the file."""
        self._send({"contig": contig, "start": start, "bases": len(values)}, values)

    def close(self) -> None:
        """End the file; raise OSError unless it is whole."""
        self._send({})
        assert self._child.stdin
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        self._check()

    def abandon(self) -> None:
        """End the process, if it is still there."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe
            with suppress(BrokenPipeError):
                pipe.close()

    def _send(self, header: dict[str, Any], values: Float32s | None = None) -> None:
        assert self._child.stdin
        try:
            self._child.stdin.write(json.dumps(header).encode() + b"\n")
            if values is not None:
                self._child.stdin.write(values.astype("<f4").tobytes())
        except BrokenPipeError:
            self._check()

    def _check(self) -> None:
        assert self._child.stdout
        reason = self._child.stdout.read().decode()
        if self._child.wait() != 0:
            shown = f"; {reason}" if reason else ""
            what = f"was not written whole; is the disk full?{shown}"
            raise OSError(EIO, what, str(self._path))


@contextmanager
def open_bigwig(path: Path, contig_lengths_bp: Mapping[str, int]) -> Iterator[BigWig]:
    """Open a bigWig for writing; what it may hold are values of these contigs.

    Raises:
        OSError: what is in the file in the end is not what was written.
    """
    sink = BigWig(path, contig_lengths_bp)
    try:
        yield sink
        sink.close()
    finally:
        sink.abandon()


class _Span:
    """What was written of a contig: from where to where, a checksum, and how many values."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.checksum = self.num_values = 0

    def add(self, values: Float32s) -> None:
        is_none = np.isnan(values)
        same = np.where(is_none, np.float32(np.nan), values).astype("<f4")
        self.checksum = zlib.crc32(same.tobytes(), self.checksum)
        self.num_values += int((~is_none).sum())
        self.end += len(values)


def _write_file(source: IO[bytes]) -> None:
    """Write and check a file whose content comes as `BigWig` sends it."""
    import pyBigWig

    header = json.loads(source.readline())
    written: dict[str, _Span] = {}
    sink = pyBigWig.open(header["path"], "w")
    sink.addHeader(list(header["contig_lengths_bp"].items()))
    while chunk := json.loads(source.readline()):  # nothing at all if the sender died
        contig, start = chunk["contig"], chunk["start"]
        _check_room(header["path"], chunk["bases"])
        values = np.frombuffer(source.read(4 * chunk["bases"]), dtype="<f4")
        for first, last in _runs(~np.isnan(values)):
            sink.addEntries(contig, start + first, values=values[first:last], span=1, step=1)
        written.setdefault(contig, _Span(start)).add(values)
    sink.close()
    _check_file(header["path"], header["contig_lengths_bp"], written)


def _check_room(path: str, num_bases: int) -> None:
    """Raise OSError where the disk has no room for so many values.

    Going on behind an error, the library may take minutes for zoom levels of nothing.
    """
    if shutil.disk_usage(path).free < 2 * 4 * num_bases:
        raise OSError(os.strerror(ENOSPC))


def _runs(flags: Any) -> list[tuple[int, int]]:
    """Return `(first, last)` of the runs of true values, half-open.

    >>> _runs(np.array([True, False, True, True]))
    [(0, 1), (2, 4)]
    """
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _check_file(path: str, contig_lengths_bp: dict[str, int], written: dict[str, _Span]) -> None:
    """Raise ValueError unless the file has what was written, and nothing else."""
    import pyBigWig

    num_values = sum(span.num_values for span in written.values())
    with open(path, "rb") as file:
        os.fsync(file.fileno())  # tells what the disk could not take
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check_ends_and_zooms(data, num_values)
    with pyBigWig.open(path) as source:
        _expect(source.chroms() == contig_lengths_bp, "its contigs")
        _expect(source.header()["nBasesCovered"] == num_values, "its summary")
        for contig, span in written.items() if num_values else ():
            found = _Span(span.start)
            for start in range(span.start, span.end, _READ_BP):
                end = min(start + _READ_BP, span.end)
                found.add(source.values(contig, start, end, numpy=True).astype(np.float32))
            _expect(vars(found) == vars(span), f"the values of '{contig}'")


def _check_ends_and_zooms(data: mmap.mmap, num_values: int) -> None:
    """Check what the library does not read: the last bytes, and the bases of every zoom level."""
    _expect(data[-4:] == data[:4], "its end")
    (num_zooms,) = struct.unpack_from("<H", data, 6)
    for number in range(num_zooms):
        _, _, index_at = struct.unpack_from("<QQQ", data, 64 + 24 * number)
        _expect(_num_covered(data, index_at + 48) == num_values, "a zoom level")


def _num_covered(data: mmap.mmap, node_at: int) -> int:
    """Count the bases that the records below a node of a zoom level's index cover."""
    is_leaf, _, num_children = struct.unpack_from("<BBH", data, node_at)
    total = 0
    for child in range(num_children):
        if is_leaf:
            at, size = struct.unpack_from("<QQ", data, node_at + 4 + 32 * child + 16)
            records = np.frombuffer(zlib.decompress(data[at : at + size]), dtype=_ZOOM_RECORD)
            total += int(records["covered"].sum())
        else:
            (at,) = struct.unpack_from("<Q", data, node_at + 4 + 24 * child + 16)
            total += _num_covered(data, at)
    return total


def _expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise ValueError(f"{what} cannot be read back")


def _main() -> None:
    try:
        _write_file(sys.stdin.buffer)
    except Exception as error:  # whatever it is, the file is not whole
        print(str(error).partition("\n")[0] or type(error).__name__, end="", flush=True)
        os._exit(1)  # without the library's own ending, which may never come


if __name__ == "__main__":
    _main()

"""A record on its way into the corpus.

A record is segments of one contig, each read along its strand, joined in reading order: one for a
region, one an exon for a transcript. From them every base can be traced back to its place.
"""

import csv
import hashlib
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from carbon.corpus import SCHEMA
from carbon.genome import Interval, Reference, Strand, reverse_complement
from carbon.genome.genes import parts_on_contig


class Segment(NamedTuple):
    """Bases `start` to `end` of a contig, 0-based; `-` is read as the reverse complement.

    On a circular contig `end` may be past its length: the segment continues from base 0.
    """

    start: int
    end: int
    strand: Strand


@dataclass(slots=True)
class Record:
    """Place and type of a record, before its bases are fetched."""

    contig: str
    segments: tuple[Segment, ...]
    gene_type: str
    name: str

    def place(self) -> tuple[int, int, str]:
        """Return the outermost bases of all segments, and their strand, `.` where they differ."""
        if len(self.segments) == 1:
            return self.segments[0]
        starts, ends, strands = zip(*self.segments, strict=True)
        return min(starts), max(ends), strands[0] if len(set(strands)) == 1 else "."

    def intervals(self, contig_length_bp: int) -> list[Interval]:
        """Return where the segments lie, those past the end of a circular contig brought back."""
        return [
            part
            for start, end, _ in self.segments
            for part in parts_on_contig(Interval(self.contig, start, end), contig_length_bp)
        ]


def read_bases(reference: Reference, contig: str, segments: Iterable[Segment]) -> str:
    """Return the bases of segments, joined in reading order, in the case of the file."""
    return "".join(
        bases if segment.strand == "+" else reverse_complement(bases)
        for segment in segments
        for bases in (reference.fetch_circular(contig, segment.start, segment.end),)
    )


def digest_of(sequence: str) -> int:
    """Return 64 bits that a sequence in any case and its reverse complement share."""
    return digests_of([sequence])[0]


def digests_of(sequences: Sequence[str]) -> list[int]:
    """Return `digest_of` some sequences, whose other strands are made all at once."""
    ends = accumulate(map(len, sequences), initial=0)
    text = "".join(sequences).upper()
    forward, backward = text.encode("ascii"), reverse_complement(text).encode("ascii")
    size = len(forward)
    return [
        _bits_of(min(forward[start:end], backward[size - end : size - start]))
        for start, end in pairwise(ends)
    ]


def _bits_of(letters: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(letters, digest_size=8).digest(), "little")


DROPPED_COLUMNS = ("source", "name", "reason", "assembly", "contig", "start", "end")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def one_line(text: str) -> str:
    """Return a text with a blank for control characters, such as tabs and line ends."""
    return text if text.isprintable() else _CONTROL.sub(" ", text)


def dropped_writer(sink: TextIO) -> Callable[[Iterable[Any]], None]:
    """Return a function that writes values of DROPPED_COLUMNS as one line."""
    writer = csv.writer(sink, delimiter="\t", lineterminator="\n")
    return lambda row: writer.writerow(one_line(str(value)) for value in row)


SPLITS = ("train", "test")
BASES_A_BATCH, _ROWS_A_BATCH = 1 << 25, 1 << 16
_COUNT = struct.Struct("<QQ")
SHARD_SCHEMA = pa.schema([*SCHEMA, ("split", pa.string())])
FACTS = np.dtype([("digest", "<u8"), ("length_bp", "<u4"), ("held_out", "?")])
"""What deduplication needs of every record; both strands have the same digest."""


class ShardWriter:
    """Writes the records of a shard, a batch in memory at a time, to four files per source.

    SOURCE.arrow      rows of SHARD_SCHEMA, not compressed, so that readers can map them
    SOURCE.facts      FACTS of each record
    SOURCE.sketches   the sketch of each record, where records are sketched
    SOURCE.bands      the same sketches band by band, in blocks (`bands_of`)
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, pa.RecordBatchFileWriter] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._bases: dict[str, int] = {}

    def add(self, row: dict[str, Any]) -> None:
        """Add one row of SHARD_SCHEMA, with `digest` and `sketch` (None, or bytes)."""
        source = row["source"]
        rows = self._rows.setdefault(source, [])
        rows.append(row)
        self._bases[source] = self._bases.get(source, 0) + len(row["sequence"])
        if self._bases[source] >= BASES_A_BATCH or len(rows) >= _ROWS_A_BATCH:
            self._flush(source)

    def close(self) -> None:
        """Write the remaining rows and end the files."""
        for source, rows in self._rows.items():
            if rows:  # none is left where the last one filled a batch
                self._flush(source)
        for writer in self._writers.values():
            writer.close()

    def _flush(self, source: str) -> None:
        if source not in self._writers:
            path = self._folder / f"{source}.arrow"
            self._writers[source] = pa.ipc.new_file(str(path), SHARD_SCHEMA)
        rows = self._rows[source]
        self._writers[source].write_batch(_batch(rows))
        facts = [(r["digest"], len(r["sequence"]), r["split"] == "test") for r in rows]
        self._append(source, "facts", np.array(facts, dtype=FACTS).tobytes())
        if rows[0]["sketch"] is not None:
            sketches = b"".join(row["sketch"] for row in rows)
            self._append(source, "sketches", sketches)
            bands = np.frombuffer(sketches, dtype="<u8").reshape(len(rows), -1)
            self._append(source, "bands", _COUNT.pack(*bands.shape) + bands.T.tobytes())
        rows.clear()
        self._bases[source] = 0

    def _append(self, source: str, ending: str, content: bytes) -> None:
        with (self._folder / f"{source}.{ending}").open("ab") as sink:
            sink.write(content)


def bands_of(path: Path, number: int) -> NDArray[np.uint64]:
    """Return one band of all sketches in a file of bands: (n,).

    Each block has the number of its records and of bands, then the bands one after another.
    """
    found = []
    with path.open("rb") as file:
        while header := file.read(_COUNT.size):
            records, bands = _COUNT.unpack(header)
            file.seek(8 * records * number, os.SEEK_CUR)
            found.append(np.frombuffer(file.read(8 * records), dtype="<u8"))
            file.seek(8 * records * (bands - number - 1), os.SEEK_CUR)
    return np.concatenate(found)


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = [
        _segments([row["segments"] for row in rows])
        if column.name == "segments"
        else pa.array([row[column.name] for row in rows], type=column.type)
        for column in SHARD_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SHARD_SCHEMA)


def _segments(of_rows: list[Sequence[Segment]]) -> pa.ListArray:
    """Return segments as Arrow has them, from their three columns."""
    kind = SHARD_SCHEMA.field("segments").type
    columns = list(zip(*chain.from_iterable(of_rows), strict=True)) or [()] * 3
    parts = [
        pa.array(values, type=field.type)
        for values, field in zip(columns, kind.value_type, strict=True)
    ]
    offsets = pa.array(accumulate(map(len, of_rows), initial=0), type=pa.int32())
    structs = pa.StructArray.from_arrays(parts, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(offsets, structs, type=kind)


def shard_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a shard's file, mapped and not read."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


class ShardTexts:
    """A text column of a shard's file, read one value at a time.

    A map of the file would be shorter, but touched pages of a map count as memory.
    """

    def __init__(self, path: Path, column: str) -> None:
        """Find where the batches of the file lie."""
        self._pieces: list[tuple[int, int]] = []  # of a batch: where its offsets and letters lie
        starts = [0]
        is_wide = pa.types.is_large_string(SHARD_SCHEMA.field(column).type)
        self._offset = np.dtype("<i8" if is_wide else "<i4")
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            source.seek(0)
            first = source.read_buffer(1).address
            for i in range(reader.num_record_batches):
                batch = reader.get_batch(i)
                _, offsets, letters = batch.column(column).buffers()
                self._pieces.append((offsets.address - first, letters.address - first))
                starts.append(starts[-1] + batch.num_rows)
        self._starts = np.array(starts)
        self._file = os.open(path, os.O_RDONLY)

    def __call__(self, row: int) -> str:
        """Return the value of a row."""
        piece = int(np.searchsorted(self._starts, row, side="right")) - 1
        offsets, letters = self._pieces[piece]
        size = self._offset.itemsize
        ends = os.pread(self._file, 2 * size, offsets + (row - int(self._starts[piece])) * size)
        start, end = np.frombuffer(ends, dtype=self._offset).tolist()
        return os.pread(self._file, end - start, letters + start).decode()

    def __del__(self) -> None:
        os.close(self._file)


def shard_sources(shard: Path) -> list[str]:
    """Return the sources of a shard, in the order of their files."""
    return [path.stem for path in sorted(shard.glob("*.arrow"))]

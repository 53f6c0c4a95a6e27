"""Count the content of a corpus by reading it once.

A corpus may be larger than memory: Parquet is read one row group at a time, and only counts are
kept. `data_pipeline.inspect.report` makes tables and a page of them.
"""

import csv
import hashlib
import heapq
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from carbon.corpus import Split, check_corpus, read_manifest
from carbon.corpus.schema import Shard, compare_sums, open_shards, opened
from carbon.progress import progress
from carbon.tokenizer import K

GC_BINS = 50
LARGEST = 5
# Counted letters of a sequence: ACGT in either case, G and C, lower case.
_LETTERS = np.zeros((256, 3), dtype=np.int64)
_LETTERS[list(b"ACGTacgt"), 0] = 1
_LETTERS[list(b"GCgc"), 1] = 1
_LETTERS[ord("a") : ord("z") + 1, 2] = 1


class RowGroup(NamedTuple):
    """Some consecutive rows of one split of one source, not yet read."""

    shard: Shard
    number: int
    first_row: int
    num_rows: int

    def read(self, columns: list[str]) -> pa.Table:
        """Read some columns; a CorpusError if the file is damaged."""
        return self.shard.read(columns, self.number)


def row_groups(corpus: str | Path, source: str, split: Split) -> Iterator[RowGroup]:
    """Yield the row groups of one split of one source, in the order of the files' names.

    Raises:
        CorpusError: the source is absent, or a file of it is missing, torn or lacks a column.
    """
    first_row = 0
    for shard in open_shards(corpus, source, split):
        for number, num_rows in enumerate(shard.group_rows):
            yield RowGroup(shard, number, first_row, num_rows)
            first_row += num_rows


def read_dropped(corpus: str | Path) -> Iterator[dict[str, str]]:
    """Yield the rows of `dropped.tsv`, from column to value.

    Raises:
        CorpusError: the file is missing, or differs from the file that the manifest names.
    """
    path = f"{corpus}/dropped.tsv"
    with opened(path) as source:
        sha256 = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]
    compare_sums(path, sha256, read_manifest(corpus)["outputs"].get("dropped.tsv"))
    with io.TextIOWrapper(opened(path), encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines, delimiter="\t")


@dataclass(slots=True)
class Census:
    """Running counts of the records of one split of one source.

    Attributes:
        bases: all letters.
        tokens: 6-mers, with the one at the end of a record that is not full; no tags.
        known: letters that are one of ACGT, in either case.
        gc: letters that are G or C.
        masked: lower-case letters.
        lengths_bp: records of each length.
        gc_bins: records by share of GC among ACGT, in steps of 1 / GC_BINS from 0.
        gene_types: records of each.
        species_types: records of each.
        origins: records of each assembly and organism.
        bases_of: bases of each assembly.
        largest: the longest records as `(bases, -row, name)`, longest first.
    """

    bases: int = 0
    tokens: int = 0
    known: int = 0
    gc: int = 0
    masked: int = 0
    lengths_bp: Counter[int] = field(default_factory=Counter)
    gc_bins: Counter[int] = field(default_factory=Counter)
    gene_types: Counter[str] = field(default_factory=Counter)
    species_types: Counter[str] = field(default_factory=Counter)
    origins: Counter[tuple[str, str]] = field(default_factory=Counter)
    bases_of: Counter[str] = field(default_factory=Counter)
    largest: list[tuple[int, int, str]] = field(default_factory=list)

    def add(self, group: RowGroup) -> None:
        """Count the records of a row group."""
        columns = ["name", "gene_type", "species_type", "assembly", "organism"]
        table = group.read(["sequence", *columns])
        names, genes, species, *origins = (table[column].to_pylist() for column in columns)
        lengths_bp = self.count(each.as_buffer() for each in table["sequence"])
        self.gene_types.update(genes)
        self.species_types.update(species)
        self.origins.update(zip(*origins, strict=True))
        for assembly, length_bp in zip(origins[0], lengths_bp, strict=True):
            self.bases_of[assembly] += length_bp
        rows = range(-group.first_row, -group.first_row - group.num_rows, -1)
        more = zip(lengths_bp, rows, names, strict=True)
        self.largest = heapq.nlargest(LARGEST, [*self.largest, *more])

    def count(self, sequences: Iterable[bytes]) -> list[int]:
        """Count the letters of sequences, none of them empty; return how many each has."""
        lengths_bp = []
        for sequence in sequences:
            letters = np.frombuffer(sequence, dtype=np.uint8)
            known, gc, masked = (np.bincount(letters, minlength=256) @ _LETTERS).tolist()
            self.known += known
            self.gc += gc
            self.masked += masked
            self.tokens += -(-len(letters) // K)
            self.gc_bins[min(GC_BINS * gc // max(known, 1), GC_BINS - 1)] += 1
            lengths_bp.append(len(letters))
        self.bases += sum(lengths_bp)
        self.lengths_bp.update(lengths_bp)
        return lengths_bp

    @property
    def median_bp(self) -> int:
        """The shortest length that half of the records do not exceed; 0 if there is none."""
        lengths_bp = sorted(self.lengths_bp)
        up_to = accumulate(self.lengths_bp[length_bp] for length_bp in lengths_bp)
        half = self.lengths_bp.total() / 2
        return next((each for each, n in zip(lengths_bp, up_to, strict=True) if n >= half), 0)

    @property
    def percents(self) -> tuple[float, float, float]:
        """GC among ACGT, other letters, and lower case among all letters, in percent."""
        bases, known = max(self.bases, 1), max(self.known, 1)
        shares = self.gc / known, (self.bases - self.known) / bases, self.masked / bases
        return 100 * shares[0], 100 * shares[1], 100 * shares[2]


Counts = dict[str, dict[Split, Census]]


def count_corpus(corpus: str | Path, manifest: dict[str, Any]) -> Counts:
    """Read every record once; return the counts of each source and split.

    Raises:
        CorpusError: a file is absent or damaged.
    """
    check_corpus(corpus)
    counts: Counts = {name: {"train": Census(), "test": Census()} for name in manifest["sources"]}
    total = sum(
        split["records"] for each in manifest["sources"].values() for split in each.values()
    )
    with progress("records counted", total) as advance:
        for source, splits in counts.items():
            for split, census in splits.items():
                for group in row_groups(corpus, source, split):
                    census.add(group)
                    advance(group.num_rows)
    return counts


def summed(counts: Counts, name: str) -> Counter[Any]:
    """Return the sum of one counter, such as `origins`, over all sources and splits."""
    total: Counter[Any] = Counter()
    for splits in counts.values():
        for census in splits.values():
            total.update(getattr(census, name))
    return total


def dropped_counts(manifest: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return source, kind of reason and how often; by source, the most frequent first."""
    rows = [(*key.partition(":")[::2], count) for key, count in manifest["dropped"].items()]
    return sorted(rows, key=lambda row: (row[0], -row[2], row[1]))

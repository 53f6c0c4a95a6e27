"""Parquet files of a corpus, checked before they are read.

Opening a file checks that it exists, that its footer is whole, that every column has its type, and,
by the footer, that no value is missing. Opening a whole split compares its number of records with
the manifest. Before a local file is first read, its SHA-256 is compared with the manifest; what is
read is checked for UTF-8 and for missing values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from carbon.corpus.schema import (
    REBUILD,
    SCHEMA,
    Split,
    compare_sums,
    parquet,
    read_manifest,
    source_files,
    stated_count,
)
from carbon.errors import CorpusError
from carbon.io.files import content_sha256


@dataclass(slots=True)
class Shard:
    """An open Parquet file of a corpus.

    Attributes:
        path: path or URL.
        file: the open file.
        sha256: checksum in the manifest, if there is one.
    """

    path: str
    file: pq.ParquetFile
    sha256: str | None
    _is_checked: bool = field(default=False, init=False)

    @property
    def group_rows(self) -> list[int]:
        """Number of records of each row group."""
        metadata = self.file.metadata
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    def read(self, columns: Sequence[str], group: int | None = None) -> pa.Table:
        """Return columns of one row group, or of all.

        Raises:
            CorpusError: the content is damaged, or has a missing value.
        """
        self._check_content()
        groups = range(self.file.num_row_groups) if group is None else [group]
        try:
            table = self.file.read_row_groups(groups, columns=list(columns))
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, str(error)) from None
        for name in columns:
            if any(map(_has_missing, table[name].chunks)):
                raise _unreadable(self.path, f"a value of column '{name}' is missing")
        return table

    def _check_content(self) -> None:
        local = Path(self.path.removeprefix("file://"))
        if not self._is_checked and self.sha256 is not None and local.is_file():
            compare_sums(self.path, content_sha256(local), self.sha256)
        self._is_checked = True


def open_shards(
    corpus: str | Path, source: str, split: Split, columns: Sequence[str] = SCHEMA.names
) -> Iterator[Shard]:
    """Yield the files of one split of one source in the order of their names.

    Raises:
        CorpusError: the source is missing; a file is missing, torn, or lacks a column; or the files
            have another number of records than the manifest states.
    """
    num_records = 0
    kinds = {name: SCHEMA.field(name).type for name in columns}
    for path, sha256 in source_files(corpus, source, split).items():
        shard = Shard(path, parquet(path, kinds), sha256)
        _check_footer(shard, columns)
        num_records += shard.file.metadata.num_rows
        yield shard
    check_records(corpus, source, split, num_records)


def check_records(corpus: str | Path, source: str, split: Split, num_records: int) -> None:
    """Compare the number of records in the files of a split with the manifest, if there is one.

    Raises:
        CorpusError: they differ.
    """
    stated = stated_count(corpus, source, split)
    if stated is not None and stated != num_records:
        raise CorpusError(
            f"{corpus}/{source}: its {split} files have {num_records:,} records, manifest.json "
            f"states {stated:,}; {REBUILD}"
        )


def check_corpus(corpus: str | Path) -> None:
    """Check that all files of all sources are there, by their footers.

    Raises:
        CorpusError: a file is missing, torn or of other columns, or records are missing.
    """
    splits: tuple[Split, ...] = ("train", "test")
    for source in read_manifest(corpus)["sources"]:
        for split in splits:
            check_split(corpus, source, split)


def check_split(corpus: str | Path, source: str, split: Split) -> None:
    """Check that all files of one split of one source are there, by their footers.

    Raises:
        CorpusError: as for `open_shards`.
    """
    for shard in open_shards(corpus, source, split):
        shard.file.close()


def read_source(
    corpus: str | Path, source: str, split: Split, columns: Sequence[str] = SCHEMA.names
) -> pa.Table:
    """Return one split of one source, with rows in the order of the file names.

    Raises:
        CorpusError: the source is missing, or a file is missing, damaged, or lacks a column.
    """
    tables = [shard.read(columns) for shard in open_shards(corpus, source, split, columns)]
    return pa.concat_tables(tables, promote_options="permissive")


def _check_footer(shard: Shard, columns: Sequence[str]) -> None:
    """Refuse missing values that the statistics in the footer count."""
    metadata = shard.file.metadata
    wanted = set(columns)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            statistics = column.statistics if column.path_in_schema in wanted else None
            if statistics is not None and statistics.has_null_count and statistics.null_count:
                name = column.path_in_schema
                raise _unreadable(shard.path, f"a value of column '{name}' is missing")


def _has_missing(values: pa.Array) -> bool:
    """Return whether a value, or a value nested in it, is missing."""
    if values.null_count:
        return True
    kind = values.type
    if pa.types.is_list(kind):
        return _has_missing(values.flatten())
    return pa.types.is_struct(kind) and any(map(_has_missing, values.flatten()))


def _unreadable(path: str, reason: str) -> CorpusError:
    return CorpusError(f"{path}: cannot be read ({reason.splitlines()[0]}); {REBUILD}")

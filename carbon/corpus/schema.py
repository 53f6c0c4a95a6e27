"""Schema, manifest and files of a corpus, on disk or at a URL, checked before they are read.

Opening a file checks that it exists, that its footer is whole, that every column has its type, and,
by the footer, that no value is missing. Opening a whole split compares its number of records with
the manifest. Before a local file is first read, its SHA-256 is compared with the manifest; what is
read is checked for UTF-8 and for missing values.
"""

import mmap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, NotRequired

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ConfigDict, NonNegativeInt
from typing_extensions import TypedDict

from carbon.errors import CorpusError
from carbon.io.files import content_sha256
from carbon.io.structured import open_parquet, open_regular, parse_json, read_bytes


def opened(path: str) -> IO[bytes]:
    """Open a path or fsspec URL for reading and seeking.

    Raises:
        CorpusError: the file is missing or a pipe, or support for its protocol is not installed.
    """
    import fsspec

    local = _local(path)
    try:
        source: IO[bytes] = (
            open_regular(local, CorpusError) if local else fsspec.open(path, "rb").open()
        )
    except CorpusError:
        raise
    except Exception as error:  # each file system of fsspec raises different errors
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None
    return source


def content_if_there(path: str) -> bytes | None:
    """Return the content of a path or URL; None if the file does not exist.

    Raises:
        CorpusError: the file cannot be read for another reason.
    """
    import fsspec

    try:
        if local := _local(path):
            return read_bytes(local, error=CorpusError, remedy=REBUILD)
        with fsspec.open(path, "rb").open() as source:
            content: bytes = source.read()
    except FileNotFoundError:
        return None
    except CorpusError:
        raise
    except Exception as error:
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None
    return content


def _local(path: str) -> str | None:
    """Return the path of a file on disk; None for a URL of another protocol."""
    inner = path.removeprefix("file://")
    return None if "://" in inner else inner


def listed(folder: str, ending: str) -> list[str]:
    """Return the sorted files with an ending in a folder, which is a path or URL.

    Raises:
        CorpusError: the folder cannot be listed.
    """
    import fsspec

    try:
        system, inner = fsspec.core.url_to_fs(folder)
        names = system.ls(inner, detail=False)
    except FileNotFoundError:
        return []
    except Exception as error:
        raise CorpusError(f"{folder}: cannot be listed: {_reason(error)}") from None
    return [system.unstrip_protocol(name) for name in sorted(names) if name.endswith(ending)]


def parquet(path: str, columns: Mapping[str, pa.DataType] | None = None) -> pq.ParquetFile:
    """Open a Parquet file, by name if it is on disk: pyarrow's threads outlive Python's files.

    Raises:
        CorpusError: the file is missing, torn, or lacks a column of the given types.
    """
    local = _local(path)
    file = None if local else opened(path)
    try:
        return open_parquet(
            local or path, columns or {}, file=file, error=CorpusError, remedy=REBUILD
        )
    except OSError as error:
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None


def mapped(path: Path, dtype: Any, count: int, *, scattered: bool = False) -> NDArray[Any]:
    """Return a file as a memory-mapped array of `count` numbers.

    Args:
        path: file with the numbers.
        dtype: type of the numbers.
        count: expected number of numbers.
        scattered: whether access is random, so that the system does not read ahead.

    Raises:
        CorpusError: the file is missing or truncated.
    """
    size = path.stat().st_size if path.is_file() else -1
    if size != count * np.dtype(dtype).itemsize:
        raise CorpusError(f"{path}: is not whole; remove its folder, it will be made again")
    if not count:
        return np.zeros(0, dtype=dtype)
    with path.open("rb") as source:
        pages = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    if scattered and hasattr(pages, "madvise"):
        pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, dtype=dtype)


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0].lower()


Split = Literal["train", "test"]

REMEDY = "remove its folder, which is made again"
"""For a damaged file of what a run derives from a corpus."""
REBUILD = "build or fetch the corpus again"
"""For a damaged file of a corpus."""

# Sources that are read on either strand if the manifest does not say: sources of corpora built
# before manifests had that field, and two of the released corpus. The list is frozen.
BOTH_STRANDS = (
    "eukaryote",
    "eukaryote_concatenated",
    "prokaryote",
    "promoter",
    "eukaryote_generator",
    "prokaryote_evo2",
)
HELD_OUT_NAMES = ("test", "valid", "dev", "eval", "heldout", "held_out")
"""Beginnings of the names of files that are held out, where no manifest says so."""

SCHEMA = pa.schema(
    [
        ("sequence", pa.large_string()),
        ("source", pa.string()),
        ("record_id", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("strand", pa.string()),
        ("gene_type", pa.string()),
        ("species_type", pa.string()),
        ("organism", pa.string()),
        ("assembly", pa.string()),
        ("name", pa.string()),
        (
            "segments",
            pa.list_(
                pa.struct([("start", pa.int64()), ("end", pa.int64()), ("strand", pa.string())])
            ),
        ),
    ]
)


class Count(TypedDict):
    """Records and bases of a source in a split."""

    records: NonNegativeInt
    bases: NonNegativeInt


class InputFile(TypedDict):
    """A file that a corpus was built from."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    path: str
    sha256: str


class InputRecipe(TypedDict):
    """The keys that are read of an input's table in the recipe."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    genome: NotRequired[str]
    organism: NotRequired[str]
    accession: NotRequired[str]
    licence: NotRequired[str]
    taxonomy: NotRequired[str]


class Input(TypedDict):
    """An assembly or file that a corpus was built from."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    title: str
    recipe: InputRecipe
    files: list[InputFile]


class SkippedInput(TypedDict):
    """An input that could not be read and was left out."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    error: str


class CorpusManifest(TypedDict):
    """The keys of `manifest.json` that are read; builds write more.

    `outputs` has the SHA-256 of each file. Absent keys are empty, except the required ones.
    """

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    held_out: list[str]
    outputs: dict[str, str]
    sources: dict[str, dict[Split, Count]]
    both_strands: NotRequired[dict[str, bool]]
    clades: NotRequired[dict[str, str]]
    dropped: NotRequired[dict[str, int]]
    inputs: NotRequired[list[Input]]
    left_out: NotRequired[list[SkippedInput]]
    recipe: NotRequired[dict[str, Any]]
    steps: NotRequired[dict[str, dict[str, Count]]]


_EMPTY: dict[str, Any] = {
    "both_strands": {}, "clades": {}, "dropped": {}, "inputs": [], "left_out": [], "recipe": {},
    "steps": {},
}  # fmt: skip


def read_manifest(corpus: str | Path) -> dict[str, Any]:
    """Return the manifest of a corpus, which is a folder or an fsspec URL.

    Raises:
        CorpusError: the corpus does not exist, or its manifest is incomplete.
    """
    manifest = _manifest_if_there(corpus)
    if manifest is None:
        raise CorpusError(
            f"{corpus}: is not a corpus: it has no manifest.json; make one with "
            "`carbon corpus build`"
        )
    return manifest


def _manifest_if_there(corpus: str | Path) -> dict[str, Any] | None:
    path = f"{corpus}/manifest.json"
    content = content_if_there(path)
    if content is None:
        return None
    manifest = parse_json(content, path, CorpusManifest, error=CorpusError, remedy=REBUILD)
    return {**_EMPTY, **manifest}


def held_out_of(corpus: str | Path, genome: Path, contigs: Collection[str]) -> list[str]:
    """Return the regions of a genome that a corpus holds out, as `contig` or `contig:first-last`.

    In a corpus of several assemblies, the checksum of the genome names its assembly. If the corpus
    was built from another file, such as a packed one, the names of the contigs do.

    Raises:
        CorpusError: no region of the genome is held out, or regions of several assemblies are on
            contigs of these names.
    """
    manifest = read_manifest(corpus)
    inputs = [each for each in manifest["inputs"] if "genome" in each["recipe"]]
    inputs = inputs or [{"title": "", "held_out": manifest["held_out"]}]
    if len(inputs) > 1:
        sha256 = content_sha256(genome)
        same = [each for each in inputs if sha256 in {file["sha256"] for file in each["files"]}]
        inputs = same or inputs
        of_which = [each["title"] for each in inputs if _on_contigs(each, contigs)]
        if len(of_which) > 1 and not same:
            raise CorpusError(
                f"{genome}: {corpus} holds out regions of {' and of '.join(of_which)} on contigs "
                "of these names; give the file that the corpus was built from"
            )
    result = [region for each in inputs for region in _on_contigs(each, contigs)]
    if not result:
        raise CorpusError(
            f"{genome}: has no contig that {corpus} held out "
            f"({', '.join(manifest['held_out']) or 'nothing'}); give the genome that the corpus "
            "was made from"
        )
    return result


def _on_contigs(each: Mapping[str, Any], contigs: Collection[str]) -> list[str]:
    """Return the held-out regions of an input of a corpus that are on some contigs."""
    regions: list[str] = each.get("held_out", [])
    return [text for text in regions if text in contigs or text.rpartition(":")[0] in contigs]


def source_files(corpus: str | Path, source: str, split: Split) -> dict[str, str | None]:
    """Return the files of a source and split, in order, each with its SHA-256 from the manifest.

    Without a manifest, as in the released layout, a split is the Parquet files in the source's
    folder with a held-out name, or without one, and checksums are None.

    Raises:
        CorpusError: the source does not exist, or the manifest is incomplete.
    """
    root = str(corpus).rstrip("/")
    manifest = _manifest_if_there(root)
    if manifest is None:
        is_held_out = split == "test"
        files: dict[str, str | None] = {
            path: None
            for path in listed(f"{root}/{source}", ".parquet")
            if path.rpartition("/")[2].startswith(HELD_OUT_NAMES) == is_held_out
        }
    else:
        outputs, prefix = manifest["outputs"], f"{source}/{split}-"
        names = sorted(name for name in outputs if name.startswith(prefix))
        files = {f"{root}/{name}": outputs[name] for name in names}
    if not files:
        known = ", ".join(sorted(manifest["sources"])) if manifest else "folders of Parquet"
        raise CorpusError(
            f"{corpus}: has no {split} files of a source '{source}'; it has {known}; is that the "
            "name in the mixture, and data.corpus the right folder?"
        )
    return files


def reads_both_strands(corpus: str | Path, source: str) -> bool:
    """Return whether a source is read on either strand, by the manifest or else by its name.

    Raises:
        CorpusError: the manifest is incomplete.
    """
    manifest = _manifest_if_there(str(corpus).rstrip("/")) or _EMPTY
    return bool(manifest["both_strands"].get(source, source in BOTH_STRANDS))


def stated_count(corpus: str | Path, source: str, split: Split) -> int | None:
    """Return the number of records that the manifest states for a split, if it does."""
    manifest = _manifest_if_there(str(corpus).rstrip("/")) or {"sources": {}}
    counts = manifest["sources"].get(source, {})
    return counts[split]["records"] if split in counts else None


def compare_sums(path: str, sha256: str, known: str | None) -> None:
    """Compare the SHA-256 of a file with the one in the manifest, if there is one.

    Raises:
        CorpusError: they differ.
    """
    if known is not None and sha256 != known:
        raise CorpusError(
            f"{path}: is not the file that the manifest names (its sha256 is {sha256[:12]}..., not "
            f"{known[:12]}...); is it of another build? Build or fetch the corpus again"
        )


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

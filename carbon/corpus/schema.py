"""Schema, manifest and files of a corpus, on disk or at a URL."""

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal, NotRequired

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ConfigDict, NonNegativeInt
from typing_extensions import TypedDict

from carbon.errors import CorpusError
from carbon.io.structured import open_parquet, parse_json


def opened(path: str) -> IO[bytes]:
    """Open a path or fsspec URL for reading and seeking.

    Raises:
        CorpusError: the file does not exist, or support for the protocol is not installed.
    """
    import fsspec

    try:
        source: IO[bytes] = fsspec.open(path, "rb").open()
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
        with fsspec.open(path, "rb").open() as source:
            content: bytes = source.read()
    except FileNotFoundError:
        return None
    except Exception as error:
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None
    return content


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
    inner = path.removeprefix("file://")
    file = opened(path) if "://" in inner else None
    try:
        return open_parquet(inner, columns or {}, file=file, error=CorpusError, remedy=REBUILD)
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
_HELD_OUT_NAMES = ("test", "valid", "dev", "eval", "heldout", "held_out")

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


class LeftOut(TypedDict):
    """An input that could not be read and was left out."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    error: str


class Manifest(TypedDict):
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
    left_out: NotRequired[list[LeftOut]]
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
    manifest = parse_json(content, path, Manifest, error=CorpusError, remedy=REBUILD)
    return {**_EMPTY, **manifest}


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
            if path.rpartition("/")[2].startswith(_HELD_OUT_NAMES) == is_held_out
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

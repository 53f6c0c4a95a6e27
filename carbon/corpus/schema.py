"""Files of a corpus: opened wherever they are, mapped where they are on disk."""

import json
import mmap
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from carbon.errors import CorpusError


def opened(path: str) -> IO[bytes]:
    """Open a path, or a URL that fsspec opens, to read and seek.

    Raises:
        CorpusError: it is not there, or what opens its protocol is not installed.
    """
    import fsspec

    try:
        source: IO[bytes] = fsspec.open(path, "rb").open()
    except Exception as error:  # each kind of store has errors of its own
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None
    return source


def content_if_there(path: str) -> bytes | None:
    """Return what is in a path or URL, None if there is no such file.

    Raises:
        CorpusError: it may be there, but it cannot be read.
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
    """Return the files of a folder, a path or URL, that end so, in order.

    Raises:
        CorpusError: it cannot be listed.
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


def parquet(path: str) -> pq.ParquetFile:
    """Open a Parquet file; one on disk by its name, as pyarrow's threads outlive Python's files."""
    inner = path.removeprefix("file://")
    return pq.ParquetFile(opened(path) if "://" in inner else inner)


def mapped(path: Path, dtype: Any, count: int, *, scattered: bool = False) -> NDArray[Any]:
    """Return a file as an array of `count` numbers that stays on disk.

    Args:
        path: of the file.
        dtype: of the numbers.
        count: how many there are.
        scattered: whether they are read here and there; the system then reads nothing ahead.

    Raises:
        CorpusError: it is missing or cut off.
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

# Sources that are read on either strand where no manifest says so: those of corpora that were built
# before manifests did, and two of the released corpus. It stays as it is.
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


def read_manifest(corpus: str | Path) -> dict[str, Any]:
    """Return the manifest of a corpus, a folder or a URL that fsspec opens.

    Raises:
        CorpusError: there is no corpus, or its manifest is not whole.
    """
    manifest = _manifest_if_there(corpus)
    if manifest is None:
        raise CorpusError(
            f"{corpus}: is no corpus, it has no manifest.json; make one with "
            "`python -m data_pipeline build`"
        )
    return manifest


def _manifest_if_there(corpus: str | Path) -> dict[str, Any] | None:
    path = f"{corpus}/manifest.json"
    content = content_if_there(path)
    if content is None:
        return None
    try:
        manifest: dict[str, Any] = json.loads(content)
    except ValueError as error:
        raise CorpusError(f"{path}: is not valid JSON ({error}); build the corpus again") from None
    for key, kind in (("held_out", list), ("outputs", dict), ("sources", dict)):
        if not isinstance(manifest, dict) or not isinstance(manifest.get(key), kind):
            raise CorpusError(f"{path}: has no '{key}'; build the corpus again")
    return manifest


def source_files(corpus: str | Path, source: str, split: Split) -> dict[str, str | None]:
    """Return the files of a source and split, in order, each with the sha256 of the manifest.

    Where there is no manifest, as in the released layout, all Parquet of the source's folder is
    there to train on, without sums, but what is named as held out is.

    Raises:
        CorpusError: there is no such source, or the manifest is not whole.
    """
    root = str(corpus).rstrip("/")
    manifest = _manifest_if_there(root)
    if manifest is None and split == "train":
        files: dict[str, str | None] = {
            path: None
            for path in listed(f"{root}/{source}", ".parquet")
            if not path.rpartition("/")[2].startswith(_HELD_OUT_NAMES)
        }
    else:
        outputs = read_manifest(root)["outputs"]
        prefix = f"{source}/{split}-"
        names = sorted(name for name in outputs if name.startswith(prefix))
        files = {f"{root}/{name}": str(outputs[name]) for name in names}
    if not files:
        known = ", ".join(sorted(manifest["sources"])) if manifest else "folders of Parquet"
        raise CorpusError(
            f"{corpus}: has no {split} files of a source '{source}'; it has {known}; is that the "
            "name in the mixture, and data.corpus the right folder?"
        )
    return files


def reads_both_strands(corpus: str | Path, source: str) -> bool:
    """Tell whether a source is read on either strand: as the manifest says, else by its name.

    Raises:
        CorpusError: the manifest is not whole.
    """
    root = str(corpus).rstrip("/")
    said = (_manifest_if_there(root) or {}).get("both_strands", {})
    found = said.get(source, source in BOTH_STRANDS) if isinstance(said, dict) else said
    if not isinstance(found, bool):
        raise CorpusError(
            f"{root}/manifest.json: both_strands of '{source}' is {found!r}, not true or false; "
            "build the corpus again"
        )
    return found


def read_source(
    corpus: str | Path, source: str, split: Split, columns: list[str] | None = None
) -> pa.Table:
    """Read one split of one source; its rows keep the order of the files' names.

    Raises:
        CorpusError: the source is absent, or a file of it is torn or lacks a column.
    """
    folder = Path(corpus) / source
    paths = sorted(folder.glob(f"{split}-*.parquet"))
    if not paths:
        known = ", ".join(sorted(p.name for p in Path(corpus).glob("*/"))) or "none"
        raise CorpusError(f"{folder}: has no {split}-*.parquet; the corpus has sources: {known}")
    tables = []
    for path in paths:
        try:
            tables.append(pq.read_table(path, columns=columns or SCHEMA.names))
        except (pa.ArrowException, KeyError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise CorpusError(f"{path}: cannot be read ({reason}); build it again") from None
    return pa.concat_tables(tables, promote_options="default")

"""What a corpus is on disk: a folder a source, Parquet inside, and a manifest.

    corpus/
      manifest.json              recipe, inputs with sha256, counts, which sources are read on both
                                 strands, what was dropped, versions
      <source>/train-*.parquet   records to train on
      <source>/test-*.parquet    records of what was held out

`datasets.load_dataset("parquet", data_dir="corpus/<source>")` finds the two splits by their names.
Coordinates are 0-based and half-open on the forward strand of the contig `record_id`. `sequence`
is the bases of `segments`, joined in that order, each read along its strand: one segment for a
region, one an exon for a transcript. `start` and `end` are the outermost of them; `strand` is
theirs, or `.` where they differ. On a circular contig `end` may be past its length: it goes on from
base 0.
"""

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from carbon.corpus.files import content_if_there, listed
from carbon.errors import CorpusError

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

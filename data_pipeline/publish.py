"""A corpus to a store or to the Hub: its files, a dataset card, and its manifest last."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import TypedDict

from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.io.files import sha256_of_file
from carbon.io.structured import parse_json
from carbon.progress import say
from data_pipeline.inputs.remote import public_reason, public_url

_ORIGIN = ("organism", "accession", "licence")
# Of the Hub's `size_categories`.
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
          (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip
_CARD, _MANIFEST = "README.md", "manifest.json"
# Takes the place of the manifest until all files are uploaded, and lists their names: no
# reader of corpora takes it for one. A folder without any would be read as the released layout is.
_UNFINISHED = "this upload broke off or goes on; publish the corpus again"


class _Place(NamedTuple):
    """Where a corpus may go: a store, the path there, and what an upload that broke off has left.

    `left` has paths below `folder`.
    """

    system: Any
    folder: str
    left: set[str]

    def write(self, name: str, content: bytes) -> None:
        self.system.pipe_file(f"{self.folder}/{name}", content)


def publish_to(corpus: str | Path, url: str) -> None:
    """Upload a corpus that is whole to a URL that fsspec opens, its manifest last.

    Of existing files, only the files of an interrupted upload are removed.

    Raises:
        UserError: the corpus is not whole, files of others are there, or the store refuses.
    """
    folder = Path(corpus)
    manifest = read_manifest(folder)
    for name, digest in manifest["outputs"].items():
        path = folder / name
        if not path.is_file() or sha256_of_file(path) != digest:
            raise UserError(f"{path}: is not there as the manifest says; build the corpus again")
    card = dataset_card(public_url(url).rstrip("/").rpartition("/")[2], manifest).encode()
    with _told_of(url):
        place = _free(url)
        _begin(place, {*manifest["outputs"], _CARD, _MANIFEST})
        for name in manifest["outputs"]:
            say(f"uploading {name}")
            remote = f"{place.folder}/{name}"
            place.system.makedirs(remote.rpartition("/")[0], exist_ok=True)
            place.system.put_file(str(folder / name), remote)
        place.write(_CARD, card)
        place.write(_MANIFEST, (folder / _MANIFEST).read_bytes())


def check_is_free(url: str) -> None:
    """Check that a store answers, and that a URL there holds no corpus and no files of others.

    Raises:
        UserError: it holds some, or the store refuses.
    """
    with _told_of(url):
        _free(url)


def _begin(place: _Place, names: set[str]) -> None:
    """Note the names of an upload, and remove the other files of an interrupted one."""
    place.system.makedirs(place.folder, exist_ok=True)
    note = {"unfinished": _UNFINISHED, "files": sorted(place.left | names)}
    place.write(_MANIFEST, json.dumps(note).encode() + b"\n")
    for name in sorted(place.left - names):
        place.system.rm_file(f"{place.folder}/{name}")


def _free(url: str) -> _Place:
    """Return the place of a URL that holds no corpus, and nothing that looks like part of one."""
    import fsspec

    system, folder = fsspec.core.url_to_fs(url.rstrip("/"))
    system.invalidate_cache()  # of listings: a build may have taken hours since the last
    there = {path.removeprefix(f"{folder}/") for path in system.find(folder)}
    ours: set[str] = set()
    if _MANIFEST in there:
        ours = _noted(system.cat_file(f"{folder}/{_MANIFEST}"))
        if not ours:
            raise UserError(f"{public_url(url)}: holds a corpus already; name another place")
    others = sorted(filter(_is_of_a_corpus, there - ours))
    if others:
        told = f"holds {others[0]}, which no upload of a corpus has left"
        raise UserError(f"{public_url(url)}: {told}; name another place, or remove it")
    return _Place(system, folder, there & ours)


class _Note(TypedDict):
    unfinished: Any
    files: list[str]


def _noted(content: bytes) -> set[str]:
    """Return the names in a note of an upload; none if it is a manifest, or of anything else."""
    try:
        note = parse_json(content, _MANIFEST, _Note)
    except UserError:
        return set()
    return set(note["files"]) if note["unfinished"] == _UNFINISHED else set()


def _is_of_a_corpus(name: str) -> bool:
    return name.endswith(".parquet") or name in (_CARD, "dropped.tsv")


@contextmanager
def _told_of(url: str) -> Iterator[None]:
    """Report errors of a store in one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each kind of store has other errors
        raise UserError(f"{public_url(url)}: cannot be written ({public_reason(error)})") from None


def dataset_card(name: str, manifest: dict[str, Any]) -> str:
    """Return README.md of a dataset: YAML for the Hub, a configuration a source, and tables."""
    from huggingface_hub import DatasetCardData

    from carbon.reports.render import render_card

    sources: dict[str, Any] = manifest["sources"]
    records = sum(split["records"] for each in sources.values() for split in each.values())
    licences = {each["recipe"].get("licence") for each in manifest["inputs"]} - {None, ""}
    metadata = DatasetCardData(
        pretty_name=name,
        license="other" if licences else "unknown",
        tags=["biology", "genomics", "dna"],
        size_categories=[next((label for most, label in _SIZES if records < most), "n>1T")],
        configs=[_configuration(source) for source in sources],
    )
    return render_card(
        "corpus.md",
        name=name,
        metadata=metadata.to_yaml(),
        sources=[
            (name, *(f"{splits[s][n]:,}" for s in ("train", "test") for n in ("records", "bases")))
            for name, splits in sources.items()
        ],
        inputs=[
            (Path(each["title"]).name, *(each["recipe"].get(key, "") for key in _ORIGIN))
            for each in manifest["inputs"]
        ],
        origin=_ORIGIN,
        held_out=", ".join(manifest["held_out"]) or "nothing by place",
    )


def _configuration(source: str) -> dict[str, Any]:
    """Return a source as a configuration that `datasets` loads by name."""
    files = [{"split": s, "path": f"{source}/{s}-*.parquet"} for s in ("train", "test")]
    return {"config_name": source, "data_files": files}

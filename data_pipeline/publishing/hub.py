"""A corpus to a store or to the Hub: its files, a dataset card, and its manifest last."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from carbon.console import say
from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.files import sha256_of_file

_LINE_OR_BAR = re.compile(r"[|\r\n]+")
# Of the Hub's `size_categories`.
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
          (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip
# What stands for the manifest until all else is there: no reader of corpora takes it for one. A
# folder without any would be read as the released layout is.
_UNFINISHED = b'{"unfinished": "this upload broke off or goes on; publish the corpus again"}\n'


def publish_to(corpus: str | Path, url: str) -> None:
    """Upload a corpus that is whole to a URL that fsspec opens, its manifest last.

    Raises:
        UserError: the corpus is not whole, there is one already, or the store refuses.
    """
    folder = Path(corpus)
    manifest = read_manifest(folder)
    for name, digest in manifest["outputs"].items():
        path = folder / name
        if not path.is_file() or sha256_of_file(path) != digest:
            raise UserError(f"{path}: is not there as the manifest says; build the corpus again")
    card = dataset_card(url.rstrip("/").rpartition("/")[2], manifest).encode()
    with _told_of(url):
        system, inner = _free(url)
        last = f"{inner}/manifest.json"
        system.makedirs(inner, exist_ok=True)
        system.pipe_file(last, _UNFINISHED)
        for left in system.find(inner):  # by an upload that broke off, perhaps of another build
            if left.endswith(".parquet"):
                system.rm_file(left)
        for name in manifest["outputs"]:
            say(f"uploading {name}")
            remote = f"{inner}/{name}"
            system.makedirs(remote.rpartition("/")[0], exist_ok=True)
            system.put_file(str(folder / name), remote)
        system.pipe_file(f"{inner}/README.md", card)
        system.pipe_file(last, (folder / "manifest.json").read_bytes())


def check_is_free(url: str) -> None:
    """Check that a store answers, and that a URL there holds no corpus.

    Raises:
        UserError: it holds one, or the store refuses.
    """
    with _told_of(url):
        _free(url)


def _free(url: str) -> tuple[Any, str]:
    """Return the store of a URL and the path there, which holds no corpus."""
    import fsspec

    system, inner = fsspec.core.url_to_fs(url.rstrip("/"))
    last = f"{inner}/manifest.json"
    if system.exists(last) and system.cat_file(last) != _UNFINISHED:
        raise UserError(f"{url}: holds a corpus already; name another place")
    return system, inner


@contextmanager
def _told_of(url: str) -> Iterator[None]:
    """Tell of what a store refuses in one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each kind of store has errors of its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{url}: cannot be written ({type(error).__name__}: {reason})") from None


def dataset_card(name: str, manifest: dict[str, Any]) -> str:
    """Return README.md of a dataset: YAML for the Hub, a configuration a source, and tables."""
    sources: dict[str, Any] = manifest["sources"]
    records = sum(split["records"] for each in sources.values() for split in each.values())
    size = next((label for most, label in _SIZES if records < most), "n>1T")
    licences = {each["recipe"].get("licence") for each in manifest["inputs"]} - {None, ""}
    lines = ["---", f"pretty_name: {json.dumps(name)}"]
    lines += [f"license: {'other' if licences else 'unknown'}"]
    lines += ["tags:", *(f"- {tag}" for tag in ("biology", "genomics", "dna"))]
    lines += ["size_categories:", f"- {size}", "configs:"]
    for source in sources:
        lines += [f"- config_name: {json.dumps(source)}", "  data_files:"]
        for split in ("train", "test"):
            lines += [
                f"  - split: {split}",
                f"    path: {json.dumps(f'{source}/{split}-*.parquet')}",
            ]
    lines += ["---", "", f"# {name}", "", "DNA sequences to train language models on, built with"]
    lines += ["Carbon (the package `carbon-dna`). `manifest.json` has the recipe,"]
    lines += ["inputs with checksums, and counts; `dropped.tsv` what was left out, and why.", ""]
    lines += ["| source | train records | bases | test records | bases |", "|---|---|---|---|---|"]
    for source, splits in sources.items():
        cells = [f"{splits[s][what]:,}" for s in ("train", "test") for what in ("records", "bases")]
        lines.append(f"| {source} | {' | '.join(cells)} |")
    lines += ["", "| input | organism | accession | licence |", "|---|---|---|---|"]
    for each in manifest["inputs"]:
        told = [each["recipe"].get(key, "") for key in ("organism", "accession", "licence")]
        cells = [_LINE_OR_BAR.sub(" ", cell) for cell in (Path(each["title"]).name, *told)]
        lines.append(f"| {' | '.join(cells)} |")
    held_out = ", ".join(manifest["held_out"]) or "nothing by place"
    return "\n".join([*lines, "", f"Held out: {held_out}.", ""])

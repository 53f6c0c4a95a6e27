"""Inputs by URL: fetched once into a cache, and read there as files.

Beside each lies what the store said of it (bytes, and an ETag or time where it tells one); what has
changed there is fetched again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from carbon.console import say
from carbon.errors import UserError
from carbon.files import atomic_file
from data_pipeline.recipe import AssemblyConfig, BuildConfig, FilesConfig

_VERSIONS = ("ETag", "etag", "LastModified", "last_modified", "mtime", "created")
_RECORD = "fetched.json"
_WILD = "*?["

Records = dict[str, dict[str, Any]]  # by local path: url, bytes, version


def is_url(path: str) -> bool:
    """Tell a URL from a path."""
    return "://" in path


def with_inputs_here(config: BuildConfig) -> tuple[BuildConfig, Records]:
    """Return a recipe whose inputs are all files of this machine, and what was fetched for it.

    Raises:
        UserError: an input cannot be fetched.
    """
    cache = Path(config.cache) if config.cache else _usual_cache()
    fetched: Records = {}

    def here(path: str) -> str:
        if not is_url(path):
            return path
        local, records = fetch(path, cache)
        fetched.update(records)
        return local

    return replace(
        config,
        assemblies=tuple(_assembly(each, here) for each in config.assemblies),
        files=tuple(_files(each, here) for each in config.files),
        evaluations=tuple(replace(each, path=here(each.path)) for each in config.evaluations),
    ), fetched


def _assembly(config: AssemblyConfig, here: Callable[[str], str]) -> AssemblyConfig:
    return replace(
        config,
        genome=here(config.genome),
        annotation=here(config.annotation),
        regions=tuple(replace(each, path=here(each.path)) for each in config.regions),
    )


def _files(config: FilesConfig, here: Callable[[str], str]) -> FilesConfig:
    return replace(config, path=here(config.path), mates=here(config.mates))


def _usual_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "carbon" / "inputs"


def fetch(url: str, cache: Path) -> tuple[str, Records]:
    """Return the local path, or pattern, of a URL or of a pattern in its last part.

    Raises:
        UserError: nothing is there, or it cannot be read.
    """
    import fsspec

    folder = cache / hashlib.sha256(url.encode()).hexdigest()[:16]
    try:
        system, inner = fsspec.core.url_to_fs(url)
        last = _name(inner)
        wild = any(letter in last for letter in _WILD)
        found = sorted(system.glob(inner)) if wild else [inner]
        if not found:
            raise FileNotFoundError(url)
        folder.mkdir(parents=True, exist_ok=True)
        records = {str(folder / _name(name)): _fetched(system, name, folder) for name in found}
    except Exception as error:  # each kind of store has errors of its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{url}: cannot be fetched ({type(error).__name__}: {reason})") from None
    for path in folder.iterdir() if wild else ():  # of what is no longer there
        if path.name.removesuffix(f".{_RECORD}") not in {Path(each).name for each in records}:
            path.unlink()
    return str(folder / last), records


def _name(remote: str) -> str:
    """Return the last part of a remote path, of HTTP without the query behind it."""
    path = remote.partition("?")[0] if remote.startswith("http") else remote
    return path.rpartition("/")[2]


def _fetched(system: Any, name: str, folder: Path) -> dict[str, Any]:
    info = system.info(name)
    version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
    record = {
        "url": system.unstrip_protocol(name), "bytes": info.get("size"), "version": version
    }  # fmt: skip
    path = folder / _name(name)
    kept = folder / f"{path.name}.{_RECORD}"
    if path.is_file() and kept.is_file() and json.loads(kept.read_text("utf-8")) == record:
        return record
    kept.unlink(missing_ok=True)
    say(f"fetching {record['url']}")
    with (
        atomic_file(path) as temporary,
        system.open(name, "rb") as source,
        temporary.open("wb") as sink,
    ):
        shutil.copyfileobj(source, sink, 1 << 20)
    if record["bytes"] is not None and path.stat().st_size != record["bytes"]:
        got = path.stat().st_size
        path.unlink()
        raise OSError(f"{got:,} of {record['bytes']:,} bytes came")
    kept.write_text(json.dumps(record), encoding="utf-8")
    return record

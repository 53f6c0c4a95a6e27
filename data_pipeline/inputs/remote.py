"""Inputs by URL: fetched once into a cache, and read there as files.

A second folder holds the facts of the store about each file (bytes, and an ETag or time if it has
one); a file that has changed there is fetched again.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from carbon.errors import UserError
from carbon.io.files import atomic_file
from carbon.io.locks import locked_output
from carbon.io.structured import JSON_OBJECT, read_json
from carbon.progress import say
from data_pipeline.recipe import BuildConfig

_VERSIONS = ("ETag", "etag", "LastModified", "last_modified", "mtime", "created")
_WILD = "*?["
_ANY_URL = re.compile(r"[\w.+-]+://[^\s'\"]+")  # in a message

Records = dict[str, dict[str, Any]]  # by local path: url, bytes, version


def is_url(path: str) -> bool:
    """Return whether a path is a URL."""
    return "://" in path


def public_url(path: str) -> str:
    """Return a URL without what only its owner may see: user, password, and the query of HTTP.

    Of a chain (`simplecache::https://...`) each part is such a URL.

    >>> public_url("https://me:secret@host/a.fa?X-Amz-Signature=1"), public_url("s3://b/part-?.fa")
    ('https://host/a.fa', 's3://b/part-?.fa')
    """
    return "::".join(map(_public_part, path.split("::"))) if is_url(path) else path


def _public_part(url: str) -> str:
    if not is_url(url):
        return url
    if not url.startswith("http"):
        scheme, _, rest = url.partition("://")
        host, slash, inner = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{inner}"
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def public_reason(error: Exception) -> str:
    """Return type and first line of a store's error, with URLs as `public_url` shows them."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    told = _ANY_URL.sub(lambda found: public_url(found[0]), reason)
    return f"{type(error).__name__}: {told}"


def with_public_urls(config: BuildConfig) -> BuildConfig:
    """Return a recipe as it may be shown to anyone, without settings of one machine.

    These are the cache and the shell command before a task, which may set keys of a store.
    """
    executor = config.executor.replace(environment="")
    paths = _with_paths(config, public_url)
    return paths.replace(output=public_url(config.output), cache="", executor=executor)


def with_inputs_here(config: BuildConfig) -> tuple[BuildConfig, Records]:
    """Return a recipe whose inputs are local files, and the files that were fetched for it.

    Raises:
        UserError: an input cannot be fetched.
    """
    cache = cache_of(config, "inputs")
    fetched: Records = {}

    def here(path: str) -> str:
        if not is_url(path):
            return path
        local, records = fetch(path, cache)
        fetched.update(records)
        return local

    return _with_paths(config, here), fetched


def _with_paths(config: BuildConfig, here: Callable[[str], str]) -> BuildConfig:
    return config.replace(
        assemblies=tuple(
            each.replace(
                genome=here(each.genome),
                annotation=here(each.annotation),
                regions=tuple(place.replace(path=here(place.path)) for place in each.regions),
            )
            for each in config.assemblies
        ),
        files=tuple(
            each.replace(path=here(each.path), mates=here(each.mates)) for each in config.files
        ),
        evaluations=tuple(each.replace(path=here(each.path)) for each in config.evaluations),
    )


def cache_of(config: BuildConfig, kind: str) -> Path:
    """Return the folder for a kind of cached files: the recipe's, or one of the user's cache."""
    usual = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "carbon" / kind
    return Path(config.cache) if config.cache else usual


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
        with locked_output(folder, wait=True):  # another build may want the same
            folder.mkdir(parents=True, exist_ok=True)
            records = {str(folder / _name(name)): _fetched(system, name, folder) for name in found}
            _remove_others(folder, {Path(each).name for each in records})
    except Exception as error:  # each kind of store has other errors
        raise UserError(f"{public_url(url)}: cannot be fetched ({public_reason(error)})") from None
    return str(folder / last), records


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove files that a pattern no longer matches, and remains of a killed build."""
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()


def _name(remote: str) -> str:
    """Return the last part of a remote path, for HTTP without the query."""
    path = remote.partition("?")[0] if remote.startswith("http") else remote
    return path.rpartition("/")[2]


def _fetched(system: Any, name: str, folder: Path) -> dict[str, Any]:
    info = system.info(name)
    version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
    url = public_url(system.unstrip_protocol(name))
    record = {"url": url, "bytes": info.get("size"), "version": version}
    path = folder / _name(name)
    kept = folder.with_name(f"{folder.name}.fetched") / f"{path.name}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and kept.is_file() and read_json(kept, JSON_OBJECT) == record:
        return record
    kept.unlink(missing_ok=True)
    say(f"fetching {record['url']}")
    with (
        atomic_file(path) as temporary,
        system.open(name, mode="rb") as source,
        temporary.open("wb") as sink,
    ):
        shutil.copyfileobj(source, sink, 1 << 20)
    if record["bytes"] is not None and path.stat().st_size != record["bytes"]:
        got = path.stat().st_size
        path.unlink()
        raise OSError(f"{got:,} of {record['bytes']:,} bytes came")
    kept.write_text(json.dumps(record), encoding="utf-8")
    return record

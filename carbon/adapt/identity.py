"""What a stopped run was a run of: it resumes only with equal settings, data and base model.

The progress folder keeps this in `identity.json`. Paths say nothing about content, so files count
by their SHA-256, and the examples by what was made of the files.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from carbon.adapt.config import AdaptConfig
from carbon.adapt.examples import Examples
from carbon.adapt.prepare import Prepared
from carbon.errors import UserError
from carbon.io.files import atomic_file
from carbon.model import model_folder
from carbon.model.folder import weight_files
from carbon.sums import content_sha256

IDENTITY = "identity.json"

Identity = dict[str, dict[str, Any]]


def run_identity(config: AdaptConfig, prepared: Prepared) -> Identity:
    """Return the settings by dotted key, and the SHA-256 of files, model and examples by name."""
    folder = model_folder(config.model).path
    model = [*weight_files(folder), folder / "config.json"]
    hashes = {f"{each['role']} ({each['name']})": each["sha256"] for each in prepared.files}
    hashes |= {f"base model ({path.name})": content_sha256(path) for path in model}
    hashes |= {"set of examples": _sha256_of(prepared.examples)}
    plain: Identity = json.loads(
        json.dumps({"settings": dict(_flat(config.to_table())), "hashes": hashes})
    )
    return plain


def write_identity(folder: Path, identity: Identity) -> None:
    """Write `identity.json` into the progress folder of a run."""
    with atomic_file(folder / IDENTITY) as temporary:
        temporary.write_text(json.dumps(identity, indent=1), encoding="utf-8")


def check_identity(folder: Path, identity: Identity, what: str) -> None:
    """Compare a run with the one that its progress folder is of.

    Args:
        folder: progress folder, with `identity.json`.
        identity: of the run that is to resume.
        what: opens the message.

    Raises:
        UserError: a setting, a file, the base model or the examples have changed; the message names
            each change.
    """
    try:
        earlier = json.loads((folder / IDENTITY).read_text(encoding="utf-8"))
        changes = [
            *_changed_settings(earlier["settings"], identity["settings"]),
            *_changed_hashes(earlier["hashes"], identity["hashes"]),
        ]
    except (OSError, ValueError, KeyError):
        changes = [f"{folder / IDENTITY} cannot be read"]
    if changes:
        raise UserError(
            f"{what}: cannot resume: {'; '.join(changes)}. Restore what the run was started with, "
            f"or remove {folder} to start again"
        )


def _changed_settings(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(earlier.keys() | now.keys()):
        if earlier.get(key) != now.get(key):
            yield f"{key} was {earlier.get(key)!r} and is {now.get(key)!r}"


def _changed_hashes(earlier: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that differ; the examples follow from them, and count where none does."""
    names = [n for n in sorted(earlier.keys() | now.keys()) if earlier.get(n) != now.get(n)]
    for name in names if len(names) == 1 else (n for n in names if n != "set of examples"):
        yield f"the {name} has changed"


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _sha256_of(examples: Examples) -> str:
    """Return the SHA-256 of examples in their order, labels included."""
    texts = (examples.names, examples.sequences, examples.parts, examples.groups)
    digest = hashlib.sha256(json.dumps(texts).encode())
    digest.update(examples.labels.tobytes())
    return digest.hexdigest()

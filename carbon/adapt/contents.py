"""What tells an adapted model from another of its path."""

from pathlib import Path

from carbon.adapt.folder import ADAPTER, HEAD, MANIFEST, MODEL
from carbon.sums import content_sha256


def content_of(folder: Path) -> list[str]:
    """Return the SHA-256 of each file of an adapted model.

    The manifest has the hash of the base model, which is compared when that is loaded.
    """
    learned = [folder / MANIFEST, folder / HEAD]
    learned += [path for kind in (ADAPTER, MODEL) for path in sorted((folder / kind).glob("*"))]
    return [content_sha256(path) for path in learned if path.is_file()]

"""What tells a fine-tuned model from another of its path."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from carbon import __version__
from carbon.errors import ModelError
from carbon.finetune.tasks import Question
from carbon.inference.options import Pool, Strands
from carbon.io.files import content_sha256, sha256_of_file
from carbon.model.folder import weight_files


def content_of(folder: Path) -> list[str]:
    """Return the SHA-256 of each file of a fine-tuned model.

    The manifest has the hash of the base model, which is compared when that is loaded.
    """
    learned = [folder / MANIFEST, folder / HEAD]
    learned += [path for kind in (ADAPTER, MODEL) for path in sorted((folder / kind).glob("*"))]
    return [content_sha256(path) for path in learned if path.is_file()]


MANIFEST, HEAD, ADAPTER, MODEL = "finetune.json", "head.safetensors", "adapter", "model"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What `finetune.json` says.

    Attributes:
        way: key of `WAYS`.
        base: folder or name of the model that was fine-tuned.
        base_sha256: of its weights: `weights_sha256`.
        question: what is asked.
        pool: which states make a vector.
        layer: whose states are read; all layers and the last norm if None.
        norm: the head has a layer norm.
        strands: that are read for a prediction, unless others are asked for.
        too_long: what is done with sequences that the context does not hold, likewise.
        window_bp: around a variant or the middle of a place, likewise; 0 where nothing is known.
        data: files, split and hashes.
        results: scores.
    """

    way: str
    base: str
    base_sha256: str
    question: Question
    pool: Pool = "mean"
    layer: int | None = None
    norm: bool = True
    strands: Strands = "both"
    too_long: str = "refuse"
    window_bp: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        plain = asdict(self) | {"question": self.question.to_json()}
        return {"format": _FORMAT, "carbon": __version__, **plain}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote."""
        values = {name: value for name, value in found.items() if name not in ("format", "carbon")}
        return cls(**values | {"question": Question.from_json(found["question"])})


def is_finetuned(folder: str | Path) -> bool:
    """Tell whether a folder is one of these."""
    return (Path(folder) / MANIFEST).is_file()


def read_manifest(folder: str | Path) -> Manifest:
    """Read what a folder says of itself.

    Raises:
        ModelError: it is no such folder, or of a later version.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise ModelError(f"{folder}: has no {MANIFEST}; give what `carbon finetune` wrote")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise ModelError(f"{path}: is of format {found['format']}, this Carbon reads {_FORMAT}")
        return Manifest.from_json(found)
    except ModelError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: is damaged ({error!r}); copy the folder again") from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `finetune.json`."""
    text = json.dumps(manifest.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def weights_sha256(folder: Path) -> str:
    """Return the SHA-256 of a model's weights: of the one file, or of the hashes of several."""
    import hashlib

    hashes = [sha256_of_file(path) for path in weight_files(folder)]
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()

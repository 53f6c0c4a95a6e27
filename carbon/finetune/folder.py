"""The folder of a fine-tuned model: its manifest, file names and content hashes."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import NonNegativeInt, PositiveInt
from typing_extensions import TypedDict

from carbon import __version__
from carbon.errors import ModelError, abridged
from carbon.finetune.config import CALIBRATIONS, LOSSES_OF, METHODS, TOO_LONG, VariantInput
from carbon.finetune.tasks import TASK_TYPES, TRANSFORMS, LabelTask
from carbon.inference.options import Pool, Strands
from carbon.io.files import content_sha256, sha256_of_file
from carbon.io.structured import parse_json, read_bytes
from carbon.model.folder import weight_files


def content_of(folder: Path) -> list[str]:
    """Return the SHA-256 of each file of a fine-tuned model.

    The manifest has the hash of the base model, which is checked when the base is loaded.
    """
    learned = [folder / MANIFEST, folder / HEAD]
    learned += [path for name in (ADAPTER, MODEL) for path in sorted((folder / name).glob("*"))]
    hashes = [content_sha256(path) for path in learned if path.is_file()]
    members = sorted(path for path in folder.glob("*") if MEMBER.fullmatch(path.name))
    return [*hashes, *chain.from_iterable(map(content_of, members))]


MEMBER = re.compile(r"seed-\d{1,10}", re.ASCII)
MANIFEST, HEAD, ADAPTER, MODEL = "finetune.json", "head.safetensors", "adapter", "model"
_FORMAT = 3
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Content of `finetune.json`.

    Attributes:
        method: key of `METHODS`.
        base: folder or name of the base model.
        base_sha256: `weights_sha256` of the base model.
        task: the fitted task.
        k: bases of a token of the base model.
        pool: states that form a vector.
        layer: layer whose states are used; all layers and the final norm if None.
        norm: whether the head has a layer norm.
        strands: default strands of a prediction.
        too_long: default rule for sequences longer than the context.
        variant_input: what is read of a variant; `alt` if the model reads single sequences.
        window_bp: default window around a variant or the middle of an interval; 0 if unknown.
        members: folders of the seeds of an ensemble, inside this one; empty for a single model.
        data: files, split and hashes.
        results: scores.
    """

    method: str
    base: str
    base_sha256: str
    task: LabelTask
    k: PositiveInt
    pool: Pool = "mean"
    layer: NonNegativeInt | None = None
    norm: bool = True
    strands: Strands = "both"
    too_long: str = "refuse"
    variant_input: VariantInput = "alt"
    window_bp: NonNegativeInt = 0
    members: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        plain = asdict(self) | {"task": self.task.to_json()}
        return {"format": _FORMAT, "carbon": __version__, **plain}


def read_manifest(folder: str | Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        ModelError: the folder has no manifest, or one of another version, or a damaged one.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise ModelError(f"{folder}: has no {MANIFEST}; give a folder that `carbon finetune` wrote")
    content = read_bytes(path, error=ModelError)
    number = _parsed(content, path, _Format)["format"]
    if number != _FORMAT:
        raise ModelError(
            f"{path}: has format {number}, this Carbon reads {_FORMAT}; fine-tune again"
        )
    manifest = _parsed(content, path, Manifest)
    _check_names(manifest, path)
    return manifest


class _Format(TypedDict):
    format: int


def _parsed(content: bytes, path: Path, schema: type[_T]) -> _T:
    return parse_json(content, str(path), schema, error=ModelError, remedy="copy the folder again")


def _check_names(manifest: Manifest, path: Path) -> None:
    """Refuse names that this version of Carbon does not know."""
    task = manifest.task
    losses = {str(name): allowed for name, allowed in LOSSES_OF.items()}
    names: list[tuple[str, str, Iterable[str]]] = [
        ("method", manifest.method, METHODS),
        ("too_long", manifest.too_long, TOO_LONG),
        ("task.type", task.type, TASK_TYPES),
        ("task.loss", task.loss, losses.get(task.type, ())),
        *(("task.transforms", each.name, TRANSFORMS) for each in task.transforms),
    ]
    if task.calibration:
        names.append(("task.calibration", task.calibration.method, CALIBRATIONS))
    for key, name, allowed in names:
        known = list(allowed)
        if name not in known:
            raise ModelError(
                f"{path}: {key} is '{abridged(name)}', expected {', '.join(known)}; "
                "copy the folder again"
            )
    if task.calibration and task.calibration.num_outputs != task.num_outputs:
        raise ModelError(f"{path}: task.calibration does not fit the task; copy the folder again")
    if any(not MEMBER.fullmatch(name) for name in manifest.members):
        raise ModelError(f"{path}: members are not folders of seeds; copy the folder again")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `finetune.json`."""
    text = json.dumps(manifest.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def weights_sha256(folder: Path) -> str:
    """Return the SHA-256 of a model's weights file, or of the hashes of several files."""
    import hashlib

    hashes = [sha256_of_file(path) for path in weight_files(folder)]
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()

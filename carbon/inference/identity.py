"""What tells a model from others of its name, and how it is computed with."""

import hashlib
from typing import TYPE_CHECKING, Any

from carbon.__version__ import __version__
from carbon.io.files import content_sha256
from carbon.model.folder import model_folder, weight_files

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner
    from carbon.inference.variants.windows import Method

_TOKENIZER = "tokenizer.json"


def identity_of(runner: "ModelRunner", model: str) -> dict[str, Any]:
    """Return what the results of a model follow from, beside its settings.

    Args:
        runner: of the model.
        model: its folder or name.

    Returns:
        The version of Carbon, the device, the config, and the SHA-256 of weights and tokenizer.
    """
    folder = model_folder(model).path
    files = [*weight_files(folder), *folder.glob(_TOKENIZER)]
    return {
        "carbon": __version__,
        "weights": {path.name: content_sha256(path) for path in files},
        "config": runner.network.config.to_dict(),
        "device": runner.device.type,
    }


def settings_of(runner: "ModelRunner", method: "Method") -> dict[str, Any]:
    """Return what has to be the same for deltas to be compared."""
    return {
        **method._asdict(),
        "yarn": runner.yarn,
        "dtype": runner.dtype,
        "weights_sha256": weights_sha256(runner),
    }


def weights_sha256(runner: "ModelRunner") -> str:
    """Return the SHA-256 of a model's weights: names, shapes and values as float32, by name.

    A model has the same one wherever its files lie and however they are cut.
    """
    found = hashlib.sha256()
    for name, weight in sorted(runner.network.named_parameters()):
        found.update(f"{name} {tuple(weight.shape)}\n".encode())
        found.update(weight.detach().float().cpu().contiguous().numpy().data)
    return found.hexdigest()

"""Identify a model: checksums of its files, and the settings that scores depend on."""

from typing import TYPE_CHECKING, Any

from carbon.__version__ import __version__
from carbon.io.files import content_sha256
from carbon.model.folder import model_folder, weight_files

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner
    from carbon.inference.variants.windows import Method

_TOKENIZERS = ("tokenizer.json", "vocab.txt")


def identity_of(runner: "ModelRunner", model: str) -> dict[str, Any]:
    """Return everything in a model that its results depend on.

    Args:
        runner: runner of the model.
        model: its folder or name.

    Returns:
        The version of Carbon, the device, the config, and the SHA-256 of weights and tokenizer.
    """
    folder = model_folder(model).path
    tokenizers = [folder / name for name in _TOKENIZERS if (folder / name).is_file()]
    files = [*weight_files(folder), *tokenizers]
    return {
        "carbon": __version__,
        "weights": {path.name: content_sha256(path) for path in files},
        "config": runner.network.config.to_dict(),
        "device": runner.device.type,
    }


def settings_of(runner: "ModelRunner", method: "Method") -> dict[str, Any]:
    """Return the settings that must be equal for deltas to be comparable."""
    return {**method.settings(), **model_settings_of(runner)}


def model_settings_of(runner: "ModelRunner") -> dict[str, Any]:
    """Return those of the settings that are of the model, not of the method."""
    return {
        "yarn": runner.yarn,
        "dtype": runner.dtype,
        "weights_sha256": runner.weights_sha256,
    }

"""What tells a model from others of its name, and how it is computed with."""

from typing import TYPE_CHECKING, Any

from carbon.__version__ import __version__
from carbon.model.folder import model_folder, weight_files
from carbon.sums import content_sha256

if TYPE_CHECKING:
    from carbon.inference.reading.reader import Reader

_TOKENIZER = "tokenizer.json"


def identity_of(reader: "Reader", model: str) -> dict[str, Any]:
    """Return what the results of a model follow from, beside its settings.

    Args:
        reader: of the model.
        model: its folder or name.

    Returns:
        The version of Carbon, the device, the config, and the SHA-256 of weights and tokenizer.
    """
    folder = model_folder(model).path
    files = [*weight_files(folder), *folder.glob(_TOKENIZER)]
    return {
        "carbon": __version__,
        "weights": {path.name: content_sha256(path) for path in files},
        "config": reader.network.config.to_dict(),
        "device": reader.device.type,
    }

"""What tells a model from others of its name, and how it is computed with."""

from pathlib import Path
from typing import Any

from carbon.files import stamp_of
from carbon.inference.reading import Reader


def identity_of(reader: Reader, model: str) -> dict[str, Any]:
    """Return size and time of the weights of a folder, the config, and the device."""
    return {
        "weights": [stamp_of(path) for path in sorted(Path(model).glob("*.safetensors"))],
        "config": reader.network.config.to_dict(),
        "device": reader.device.type,
    }

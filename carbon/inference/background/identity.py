"""What a delta follows from, but for the variant: the model, and how it is asked."""

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # variants that are scored with a background read this
    from carbon.inference.reading.reader import Reader
    from carbon.inference.variants.method import Method


def settings_of(reader: "Reader", method: "Method") -> dict[str, Any]:
    """Return what has to be the same for deltas to be compared."""
    return {
        **method._asdict(),
        "yarn": reader.yarn,
        "dtype": reader.dtype,
        "weights_sha256": weights_sha256(reader),
    }


def weights_sha256(reader: "Reader") -> str:
    """Return the SHA-256 of a model's weights: names, shapes and values as float32, by name.

    A model has the same one wherever its files lie and however they are cut.
    """
    found = hashlib.sha256()
    for name, weight in sorted(reader.network.named_parameters()):
        found.update(f"{name} {tuple(weight.shape)}\n".encode())
        found.update(weight.detach().float().cpu().contiguous().numpy().data)
    return found.hexdigest()

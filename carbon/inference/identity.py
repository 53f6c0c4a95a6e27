"""Identify a model: checksums of its files, and the settings that scores depend on."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from carbon.__version__ import __version__
from carbon.io.files import content_sha256
from carbon.model.folder import model_folder, weight_files
from carbon.tokenizer import KmerVocabulary, Vocabulary

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
        The version of Carbon, the device, the config, and the SHA-256 of weights and tokenizer; for
        a stock model also of its tokens.
    """
    folder = model_folder(model).path
    tokenizers = [folder / name for name in _TOKENIZERS if (folder / name).is_file()]
    files = [*weight_files(folder), *tokenizers]
    return {
        "carbon": __version__,
        "weights": {path.name: content_sha256(path) for path in files},
        "config": runner.network.config.to_dict(),
        "device": runner.device.type,
        **tokens_of(runner.vocabulary),
    }


def checksums_of(
    identity: Mapping[str, Any], contig_lengths_bp: Mapping[str, int] | None = None
) -> dict[str, str]:
    """Return the checksums that outputs store, so that paths with new content do not look equal.

    Args:
        identity: from `identity_of`.
        contig_lengths_bp: length by contig of the reference, if there is one. Its bases are not
            hashed, so that a compressed or soft-masked copy has the same checksum.

    Returns:
        `model_sha256`, and `contigs_sha256` of a reference.
    """
    checksums = {"model_sha256": _sha256_of(identity["weights"])}
    if contig_lengths_bp is not None:
        checksums["contigs_sha256"] = _sha256_of(contig_lengths_bp)
    return checksums


def _sha256_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def settings_of(runner: "ModelRunner", method: "Method") -> dict[str, Any]:
    """Return the settings that must be equal for deltas to be comparable."""
    return {**method.settings(), **model_settings_of(runner)}


def model_settings_of(runner: "ModelRunner") -> dict[str, Any]:
    """Return those of the settings that are of the model, not of the method."""
    return {
        "yarn": runner.yarn,
        "dtype": runner.dtype,
        "weights_sha256": runner.weights_sha256,
        **tokens_of(runner.vocabulary),
    }


def tokens_of(vocabulary: KmerVocabulary) -> dict[str, str]:
    """Return the SHA-256 of a stock model's tokens, as `tokens_sha256`; of Carbon's own nothing.

    Carbon's weights have the rows of one vocabulary. The ids of a stock model are in its tokenizer.
    """
    if isinstance(vocabulary, Vocabulary):
        return {}
    special = f"{vocabulary.k} {vocabulary.begin} {vocabulary.other}\n"
    return {
        "tokens_sha256": hashlib.sha256(special.encode() + vocabulary.ids.tobytes()).hexdigest()
    }

"""`dna_config.json`, which stands beside the byte pairs in a released tokenizer's folder."""

import json
from pathlib import Path
from typing import Any

from carbon.errors import ModelError
from carbon.tokenizer.kmer import K
from carbon.tokenizer.text import DNA_END, DNA_START
from carbon.tokenizer.vocabulary import HYBRID

_MOST_JSON_BYTES = 64 << 20  # the largest, tokenizer.json of Qwen3, has 11 MB

DNA_CONFIG: dict[str, Any] = {
    "k": K,
    "dna_start_id": HYBRID.dna_start,
    "dna_vocab_size": HYBRID.size - HYBRID.dna_start,
    "dna_special_tokens": [DNA_START, DNA_END, "<oov>"],
    "auto_dna_tags": False,
}


def read_dna_config(path: Path) -> dict[str, Any]:
    """Read the file, and raise ModelError where it is not of the released vocabulary."""
    config = read_json(path)
    for key in ("k", "dna_start_id", "dna_special_tokens"):
        if config.get(key, DNA_CONFIG[key]) != DNA_CONFIG[key]:
            raise ModelError(
                f"{path}: {key} is {config[key]!r}, the released tokenizer has "
                f"{DNA_CONFIG[key]!r}; its ids would not fit"
            )
    return config


def read_json(path: Path) -> dict[str, Any]:
    """Read a table in JSON, or raise ModelError."""
    size_bytes = path.stat().st_size
    if size_bytes > _MOST_JSON_BYTES:
        raise ModelError(f"{path}: has {size_bytes:,} bytes, too many for a model's table in JSON")
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number))
    except (UnicodeDecodeError, TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not a table in JSON ({error}); copy it again") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")

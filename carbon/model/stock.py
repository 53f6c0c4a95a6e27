"""Config and tokenizer of stock causal models of transformers whose tokens are k-mers.

No remote code is run. `carbon.inference.stock_check` compares a loaded model with transformers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carbon.errors import ModelError, reason_of
from carbon.tokenizer import KmerVocabulary
from carbon.tokenizer.byte_pairs import read_table
from carbon.tokenizer.read import read_kmer_vocabulary

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
_REMEDY = "give a decoder of transformers whose tokens are k-mers"
_NUMBERS = ("max_position_embeddings", "hidden_size", "num_hidden_layers", "vocab_size")


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder has a tokenizer."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def stock_config(folder: Path, source: str | Path) -> dict[str, Any]:
    """Return the config of a stock causal model, its numbers under the usual names.

    Raises:
        ModelError: it needs code of its own, names no network, is no causal language model, or
            names no context.
    """
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import (  # type: ignore[attr-defined]
        CONFIG_MAPPING_NAMES,
    )
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = read_table(folder / "config.json").get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING_NAMES:
        raise ModelError(
            f"{source}: transformers has no model_type {kind!r}, and Carbon runs no code of a "
            f"model's own; {_REMEDY}"
        )
    try:
        config: Any = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # transformers raises errors of several types
        raise ModelError(f"{source}: config.json: {reason_of(error)}; {_REMEDY}") from None
    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    built_as = config.architectures
    if causal is not None and not built_as:
        raise ModelError(
            f"{source}: config.json has no architectures; add the class of the network, such as "
            f'["{causal}"]'
        )
    if causal is None or causal not in built_as:
        names = ", ".join(built_as or [f"model_type {config.model_type!r}"])
        raise ModelError(f"{source}: {names} is no causal language model; {_REMEDY}")
    numbers: dict[str, Any] = {name: getattr(config, name, None) for name in _NUMBERS}
    for name, value in numbers.items():
        if not isinstance(value, int) or value < 1:
            raise ModelError(f"{source}: config.json has no {name} above 0; {_REMEDY}")
    return {"tie_word_embeddings": False, **config.to_dict(), **numbers}


def stock_vocabulary(folder: Path, config: Mapping[str, Any], source: str | Path) -> KmerVocabulary:
    """Return the k-mers of a model's tokenizer.

    Raises:
        ModelError: the tokenizer needs code of its own, its tokens are not k-mers, or the network
            has fewer rows or a context of fewer than two k-mers.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # torn files surface as errors of several libraries
        raise ModelError(f"{source}: its tokenizer: {reason_of(error)}; {_REMEDY}") from None
    vocabulary = read_kmer_vocabulary(tokenizer, str(source))
    if vocabulary.rows.stop > config["vocab_size"]:
        raise ModelError(
            f"{source}: its tokenizer has id {vocabulary.rows.stop - 1}, the network "
            f"{config['vocab_size']} rows; are they of one model?"
        )
    tokens = config["max_position_embeddings"] - len(vocabulary.prefix())
    if tokens < 2:
        raise ModelError(
            f"{source}: its context holds {max(tokens, 0) * vocabulary.k} bp, which is shorter "
            f"than two {vocabulary.k}-mers; {_REMEDY}"
        )
    return vocabulary

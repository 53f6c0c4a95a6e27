"""Model folders: a stock `LlamaForCausalLM` in safetensors, read and written."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from carbon.errors import ModelError
from carbon.tokenizer import HYBRID, NATIVE, Vocabulary, save_stock_tokenizer


class LoadedModel(NamedTuple):
    """A network in evaluation mode and the vocabulary that its rows belong to."""

    network: LlamaForCausalLM
    vocabulary: Vocabulary


def load_model(source: str | Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load a local folder, or the Hub's model of that name, native or hybrid.

    Only safetensors are read and no remote code is run.

    Raises:
        ModelError: the folder has no weights, its files are torn, or it is no Carbon model.
    """
    if Path(source).is_dir():
        _check_folder(Path(source))
    elif str(source).count("/") != 1 or str(source).startswith((".", "/", "~")):
        raise ModelError(f"{source}: no such model folder")
    try:
        config = LlamaConfig.from_pretrained(str(source))
        vocabulary = vocabulary_of(config, str(source))
        with _no_bars():
            loaded: Any = LlamaForCausalLM.from_pretrained(
                str(source), dtype=dtype, use_safetensors=True, output_loading_info=True
            )
            network, found = loaded
    except ModelError:
        raise
    except Exception as error:  # torn weights surface as errors of many libraries
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{source}: the model cannot be loaded: {reason}") from None
    if missing := sorted(found["missing_keys"]):
        raise ModelError(f"{source}: the weights lack {len(missing)} tensors such as {missing[0]}")
    return LoadedModel(network.eval(), vocabulary)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Keep the bars of transformers off stderr, which our own progress shares."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _check_folder(folder: Path) -> None:
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise ModelError(f"{folder}: has no config.json; give the export/ folder of a run")
    try:
        kind = json.loads(config_path.read_text(encoding="utf-8")).get("model_type")
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise ModelError(f"{config_path}: is not valid JSON ({error})") from None
    if kind != "llama":
        raise ModelError(f"{config_path}: model_type is {kind!r}, Carbon models are 'llama'")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{folder}: has no *.safetensors weights; export or copy the model again")


def vocabulary_of(config: LlamaConfig, source: str) -> Vocabulary:
    """Tell the native from the hybrid vocabulary by the number of rows."""
    for vocabulary in (NATIVE, HYBRID):
        if config.vocab_size == vocabulary.size:
            return vocabulary
    raise ModelError(
        f"{source}: {config.vocab_size} rows fit neither the native vocabulary ({NATIVE.size}) "
        f"nor the hybrid one ({HYBRID.size}); is it a Carbon model?"
    )


def save_model(network: LlamaForCausalLM, folder: str | Path) -> None:
    """Write a native model as a stock folder: config, safetensors, tokenizer."""
    with _no_bars():
        network.save_pretrained(folder)
    save_stock_tokenizer(folder)

"""Model folders: a stock `LlamaForCausalLM` in safetensors, read and written."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from carbon.errors import ModelError, UserError
from carbon.model.folder import TAGS_KEY, model_folder
from carbon.model.streaming import Kind, write_streamed
from carbon.tokenizer import NATIVE, Vocabulary, save_stock_tokenizer


class LoadedModel(NamedTuple):
    """A network in evaluation mode and the vocabulary that its rows belong to."""

    network: LlamaForCausalLM
    vocabulary: Vocabulary


def load_model(
    source: str | Path,
    dtype: torch.dtype | Literal["auto"] = torch.float32,
    *,
    attention: str = "sdpa",
    yarn: float | None = None,
) -> LoadedModel:
    """Load a local folder, a model in the box, or the Hub's of that name, native or hybrid.

    Only safetensors are read and no remote code is run. The vocabulary has the tags that the model
    knows: those of a native model are named in its config, under `carbon_tags`; those of a hybrid
    are text and need its tokenizer files.

    Args:
        source: a folder, a name in the box, or `owner/name`.
        dtype: of the weights; `auto` for that of the files.
        attention: a name that transformers knows.
        yarn: stretch the context by this factor.

    Raises:
        ModelError: there is no such model, its files are torn or do not fit one another, or it is
            no Carbon model.
        UserError: the attention or the factor is not possible.
    """
    folder, _, _, vocabulary = model_folder(source)
    try:
        config = LlamaConfig.from_pretrained(str(folder))
        if yarn is not None:
            stretch(config, yarn)
        with no_bars():
            loaded: Any = LlamaForCausalLM.from_pretrained(
                str(folder),
                config=config,
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=True,
                output_loading_info=True,
            )
            network, found = loaded
    except UserError:
        raise
    except (ImportError, ValueError) as error:
        if attention not in str(error) and "attn_implementation" not in str(error):
            raise ModelError(
                f"{source}: the model cannot be loaded: {_first_line(error)}"
            ) from None
        raise UserError(f"attention '{attention}' cannot be used: {_first_line(error)}") from None
    except Exception as error:  # torn weights surface as errors of many libraries
        raise ModelError(f"{source}: the model cannot be loaded: {_first_line(error)}") from None
    if missing := sorted(found["missing_keys"]):
        raise ModelError(f"{source}: the weights lack {len(missing)} tensors such as {missing[0]}")
    return LoadedModel(network.eval(), vocabulary)


def stretch(config: LlamaConfig, factor: float) -> None:
    """Stretch the context of a config by a factor with YaRN (arXiv 2309.00071).

    The context that the network was trained with stays the original one, so that a config that is
    stretched already is stretched anew and not twice.

    Raises:
        UserError: the factor is below 1.
    """
    if not 1 <= factor <= 64:
        raise UserError(f"YaRN factor {factor:g}: give 1 to 64")
    rope: dict[str, Any] = dict(config.rope_parameters or {})
    trained_tokens = rope.get("original_max_position_embeddings") or config.max_position_embeddings
    config.max_position_embeddings = int(trained_tokens * factor)
    config.rope_parameters = {
        "rope_type": "yarn",
        "rope_theta": rope["rope_theta"],
        "factor": float(factor),
        "original_max_position_embeddings": trained_tokens,
    }


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def no_bars() -> Iterator[None]:
    """Keep the bars of transformers off stderr, which our own progress shares."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def name_tags(config: LlamaConfig, tags: Iterable[str]) -> None:
    """Write into a native model's config which metadata tags it was trained with.

    Whoever saves the model keeps them, as stock transformers keeps what a config says beyond it.
    """
    config.update({TAGS_KEY: list(tags)})


def save_model(
    network: LlamaForCausalLM, folder: str | Path, *, max_shard_size: str = "50GB"
) -> None:
    """Write a native model as a stock folder: config, safetensors, tokenizer.

    Its `generation_config.json` keeps stock `generate` from the rows that are no 6-mers, which
    no objective trains. Its `config.json` names RoPE as transformers 4 does too, and the metadata
    tags that `name_tags` has written there.

    Args:
        network: with the rows of the native vocabulary.
        folder: made if it does not exist.
        max_shard_size: cut the weights into files of at most so much, such as `5GB`.

    Raises:
        OSError: the disk is full, or will not have it for another reason.
    """
    with _errors_of_the_system(folder):
        with no_bars():
            network.save_pretrained(folder, max_shard_size=max_shard_size)
        _complete(Path(folder))


def save_weights(config: LlamaConfig, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write what `save_model` does, in one file, without a network: one weight is held at a time.

    Args:
        config: of the native model.
        weights: fp32, by their stock names; of tied ones the embedding.
        folder: that is there.

    Raises:
        OSError: the disk is full, or will not have it for another reason.
    """
    with torch.device("meta"):
        network = LlamaForCausalLM(config)
    kinds = {
        name: Kind(torch.float32, tuple(weight.shape))
        for name, weight in network.named_parameters()
    }
    config.architectures, config.dtype = [LlamaForCausalLM.__name__], "float32"
    with _errors_of_the_system(folder):
        config.save_pretrained(folder)
        write_streamed(folder / "model.safetensors", kinds, weights)
        _complete(folder)


def _complete(folder: Path) -> None:
    """Write what a native model's folder has beside its configuration and weights."""
    _add_older_rope_keys(folder / "config.json")
    generation = GenerationConfig(  # type: ignore[no-untyped-call]
        pad_token_id=NATIVE.pad, suppress_tokens=list(range(NATIVE.first_kmer))
    )
    generation.save_pretrained(folder)
    save_stock_tokenizer(folder)


@contextmanager
def _errors_of_the_system(folder: str | Path) -> Iterator[None]:
    """Raise as OSError what safetensors and tokenizers have by number in a text, as a full disk."""
    try:
        yield
    except Exception as error:
        if not (found := re.search(r"\(os error (\d+)\)", str(error))):
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(folder)) from None


def _add_older_rope_keys(config_path: Path) -> None:
    """Write `rope_theta` and `rope_scaling` beside `rope_parameters`.

    Whoever reads the config by transformers 4, as serving stacks may, knows only these, and takes
    a theta of 10,000 without a word where they are missing.
    """
    config = json.loads(config_path.read_text(encoding="utf-8"))
    scaling = dict(config["rope_parameters"])
    config["rope_theta"] = scaling.pop("rope_theta")
    config["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
    config_path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")

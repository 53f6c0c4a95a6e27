"""Load models as stock networks of transformers, and pass KV caches by their name in transformers.

`past_key_values` is called `cache` since transformers 5.24; a model's own code on the Hub may use
either name.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from carbon.errors import ModelError, UserError, abridged, reason_of
from carbon.model.folder import check_memory, model_folder, weight_files
from carbon.model.save import no_bars, tensor_types
from carbon.tokenizer import KmerVocabulary, Vocabulary, six_mers


def cache_arguments(network: Any, cache: Any = None) -> dict[str, Any]:
    """Return the keyword arguments that make a network use and extend a KV cache."""
    return {_name_in(type(network).forward): cache, "use_cache": True}


@lru_cache
def _name_in(forward: Callable[..., Any]) -> str:
    return "cache" if "cache" in signature(forward).parameters else "past_key_values"


def cache_of(output: Any) -> Any:
    """Return the KV cache of an output, or None."""
    cache = getattr(output, "cache", None)
    return getattr(output, "past_key_values", None) if cache is None else cache


class LoadedModel(NamedTuple):
    """A stock causal network of transformers in evaluation mode, and the vocabulary of its rows."""

    network: PreTrainedModel
    vocabulary: KmerVocabulary

    @property
    def six_mers(self) -> Vocabulary:
        """The vocabulary of a model of Carbon's own; raises UserError for other models."""
        return six_mers(self.vocabulary)


def load_model(
    source: str | Path,
    dtype: torch.dtype | Literal["auto"] = torch.float32,
    *,
    attention: str = "sdpa",
    yarn: float | None = None,
) -> LoadedModel:
    """Load a local folder, a bundled model or a model on the Hub: Carbon's own, or of k-mers.

    Only safetensors are read, and no remote code is run. Carbon's vocabularies have the tags that
    the model was trained with: a native model lists them in its config, under `carbon_tags`; the
    tags of a hybrid model are text and need its tokenizer files. Other stock causal models of
    transformers have tokens that are k-mers.

    Args:
        source: a folder, the name of a bundled model, or `owner/name` on the Hub.
        dtype: dtype of the weights; `auto` for that of the weight files, whatever config.json says.
        attention: name of an attention implementation of transformers.
        yarn: factor by which the context is stretched.

    Raises:
        ModelError: the model does not exist, its files are torn or inconsistent, or it is neither
            a Carbon model nor a causal model of k-mers, or a stock model has not the attention.
        UserError: the attention or the factor is invalid.
    """
    checked = model_folder(source)
    folder, vocabulary = checked.path, checked.vocabulary
    if dtype == "auto":
        dtype = _stored_dtype(folder)
    check_memory(dtype.itemsize * checked.num_parameters, source)
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        if yarn is not None:
            stretch(config, yarn)
        with no_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(folder),
                config=config,
                dtype=dtype,
                attn_implementation=attention,
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are in the report
                output_loading_info=True,
            )
            network, report = loaded
    except UserError:
        raise
    except (ImportError, ValueError) as error:
        if attention not in str(error) and "attn_implementation" not in str(error):
            raise ModelError(f"{source}: the model cannot be loaded: {reason_of(error)}") from None
        problem = f"attention '{attention}' cannot be used: {reason_of(error)}"
        if isinstance(vocabulary, Vocabulary):
            raise UserError(problem) from None
        raise ModelError(f"{source}: {problem}") from None
    except Exception as error:  # torn weights surface as errors of many libraries
        raise ModelError(f"{source}: the model cannot be loaded: {reason_of(error)}") from None
    _check_report(report, source)
    check_finite_weights(network, source)
    return LoadedModel(network.eval(), vocabulary)


def _check_report(report: Mapping[str, Any], source: str | Path) -> None:
    """Refuse weights that transformers would leave out, or replace by random ones."""
    # `model_folder` checks headers, before workers start and where training reads tensors itself;
    # but of other architectures than Carbon's only transformers knows, and may rename, the tensors.
    if missing := sorted(report["missing_keys"]):
        raise ModelError(f"{source}: the weights lack {len(missing)} tensors such as {missing[0]}")
    for name, stored, expected in sorted(report["mismatched_keys"]):
        raise ModelError(
            f"{source}: {name} is {tuple(stored)}, and config.json implies {tuple(expected)}; "
            "are they of one model?"
        )
    for name in sorted(report["unexpected_keys"]):
        raise ModelError(
            f"{source}: the weights have {abridged(repr(name))}, and the network of config.json "
            "does not; are they of one model?"
        )


def _stored_dtype(folder: Path) -> torch.dtype:
    """Return the smallest dtype that holds all weights of a folder's files exactly."""
    types = (each for path in weight_files(folder) for each in tensor_types(path).values())
    dtypes = (each.dtype for each in types if each.dtype.is_floating_point)
    return reduce(torch.promote_types, dtypes)


def check_finite_weights(network: nn.Module, where: str | Path) -> None:
    """Check that every weight of a network is a finite number.

    Raises:
        ModelError: a weight is NaN or infinite; the message begins with `where`.
    """
    for name, weight in network.named_parameters():
        check_finite(weight, name, where)


def check_finite(weight: torch.Tensor, name: str, where: str | Path) -> None:
    """Check that every number of a weight is finite; raises like `check_finite_weights`."""
    if not torch.isfinite(weight).all():
        raise ModelError(
            f"{where}: weight {name} is not finite; the file is damaged, or the training "
            "diverged: take an earlier checkpoint"
        )


def stretch(config: PreTrainedConfig, factor: float) -> None:
    """Stretch the context of a config by a factor with YaRN (arXiv 2309.00071).

    The factor is relative to the context of training, even if the config is already stretched.

    Raises:
        UserError: the factor is below 1, or the model has no rotary positions.
    """
    if not 1 <= factor <= 64:
        raise UserError(f"YaRN factor {factor:g}: give 1 to 64")
    rope: dict[str, Any] = dict(getattr(config, "rope_parameters", None) or {})
    if "rope_theta" not in rope:
        raise UserError(f"YaRN: a {config.model_type} model has no rotary positions to stretch")
    trained_tokens = rope.get("original_max_position_embeddings") or config.max_position_embeddings
    config.max_position_embeddings = int(trained_tokens * factor)
    config.rope_parameters = {
        "rope_type": "yarn",
        "rope_theta": rope["rope_theta"],
        "factor": float(factor),
        "original_max_position_embeddings": trained_tokens,
    }

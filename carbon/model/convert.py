"""A model of either vocabulary as a native stock folder: the 4,224 rows that DNA needs."""

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from carbon.model.load import LoadedModel
from carbon.model.save import name_tags
from carbon.tokenizer import HYBRID, NATIVE, Vocabulary

_SPECIALS = ("pad", "oov", "dna_start", "dna_end")


def native_network(model: LoadedModel, dtype: torch.dtype) -> LlamaForCausalLM:
    """Return a network to save, with the native rows; for DNA its logits are those of `model`.

    Of a hybrid's rows it keeps the 6-mers, `<dna>`, `</dna>`, `<oov>` and the padding. Native tags
    are one row each and those of a hybrid several byte pairs, so no row would be equal to a tag:
    they are zero, and the config names none. Those that a native model's config names stay named.
    All else is kept as it is, and may share memory with `model`.
    """
    network = model.network
    config = LlamaConfig.from_dict(network.config.to_dict() | native_ids())
    config.dtype = dtype
    name_tags(config, model.vocabulary.tags if model.vocabulary.name == NATIVE.name else ())
    with torch.device("meta"):
        native = LlamaForCausalLM(config)
    state = {name: tensor.to(dtype) for name, tensor in network.state_dict().items()}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = native_rows(state[name], model.vocabulary)
    native.load_state_dict(state, assign=True)
    native.tie_weights()
    return native


def native_ids() -> dict[str, int | None]:
    """Return what a config says of the native vocabulary."""
    return {
        "vocab_size": NATIVE.size,
        "pad_token_id": NATIVE.pad,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def native_rows(rows: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Return the rows of an embedding or a head in the native order: (4224, width)."""
    if vocabulary.size == NATIVE.size:
        return rows
    chosen = rows.new_zeros(NATIVE.size, rows.shape[1])
    for special in _SPECIALS:
        chosen[getattr(NATIVE, special)] = rows[getattr(HYBRID, special)]
    chosen[NATIVE.kmer_rows] = rows[HYBRID.kmer_rows]
    return chosen

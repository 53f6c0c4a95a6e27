"""Convert models: the native vocabulary, and GGUF for llama.cpp.

Keys and tensor names follow https://github.com/ggml-org/ggml/blob/master/docs/gguf.md for the
architecture `llama`. The tokenizer is llama.cpp's type `hybriddna`, with our ids: DNA follows
`<dna>`, and only tags precede it.
"""

from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from carbon.errors import UserError
from carbon.model.architectures import MODEL_SPECS
from carbon.model.load import LoadedModel
from carbon.model.save import name_tags
from carbon.tokenizer import (
    ALL_KNOWN,
    HYBRID,
    NATIVE,
    NUM_KMERS,
    K,
    Kmers,
    Vocabulary,
    decode_kmers,
)
from carbon.tokenizer.vocabulary import native_tokens

_KMER_MARK = "\ue000"  # marks 6-mers for llama.cpp, which does not print it
_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

_GGUF_DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_gguf(network: PreTrainedModel, path: Path, name: str) -> None:
    """Write a network with the native rows; matrices in its dtype, vectors in float32.

    Raises:
        UserError: the package gguf is missing, GGUF lacks the architecture or the dtype, or
            the context is stretched.
    """
    try:
        from gguf import GGUFWriter
    except ModuleNotFoundError:
        raise UserError("gguf is missing: pip install 'carbon-dna[gguf]'") from None
    config: Any = network.config
    if not (architecture := MODEL_SPECS[config.model_type].gguf):
        written = " and ".join(kind for kind, spec in MODEL_SPECS.items() if spec.gguf)
        raise UserError(
            f"{name}: is a {config.model_type} network, and only {written} "
            "can be written as GGUF; give an output folder instead"
        )
    if network.dtype not in _GGUF_DTYPES:
        stored = str(network.dtype).removeprefix("torch.")
        raise UserError(f"{name}: llama.cpp has no {stored} matrices; give --dtype float32")
    if config.rope_parameters["rope_type"] != "default":
        raise UserError(
            f"{name}: its context is stretched ({config.rope_parameters['rope_type']}); take "
            "rope_scaling out of config.json, and give llama.cpp --rope-scaling instead"
        )
    writer = GGUFWriter(path, architecture, use_temp_file=True)
    _add_config(writer, config, name)
    _add_tokenizer(writer)
    _add_tensors(writer, network)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_config(writer: Any, config: Any, name: str) -> None:
    head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(writer: Any) -> None:
    from gguf import TokenType

    every = np.arange(NUM_KMERS)
    kmers = wrap(decode_kmers(Kmers(every, np.full(NUM_KMERS, ALL_KNOWN, np.uint8))), K)
    others = native_tokens()
    texts = sorted(others, key=others.__getitem__) + [kmer + _KMER_MARK for kmer in kmers]
    of_dna = (NATIVE.other, NATIVE.begin, NATIVE.dna_end)  # built into its tokenizer
    types = [TokenType.CONTROL] * len(others) + [TokenType.NORMAL] * NUM_KMERS
    for number in of_dna:
        types[number] = TokenType.NORMAL
    writer.add_tokenizer_model("hybriddna")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges(["A A"])  # a file without merges is refused; no text is ever merged
    writer.add_bos_token_id(NATIVE.begin)  # its defaults are tags here
    writer.add_eos_token_id(NATIVE.pad)
    writer.add_pad_token_id(NATIVE.pad)
    writer.add_add_bos_token(False)


def _add_tensors(writer: Any, network: PreTrainedModel) -> None:
    from gguf import GGMLQuantizationType, quants

    config: Any = network.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue  # without a head llama.cpp uses the embedding
        gguf_name = _gguf_name(name)
        if part := heads.get(gguf_name.rpartition(".")[0].rpartition(".")[2]):
            tensor = _paired(tensor, part)
        values = tensor.float().numpy()
        kind = GGMLQuantizationType[_GGUF_DTYPES[tensor.dtype] if tensor.ndim > 1 else "F32"]
        writer.add_tensor(gguf_name, quants.quantize(values, kind), raw_dtype=kind)


def _gguf_name(name: str) -> str:
    """Return the GGUF name of a tensor.

    >>> _gguf_name("model.layers.3.self_attn.q_proj.weight")
    'blk.3.attn_q.weight'
    """
    if name in _NAMES:
        return _NAMES[name]
    _, _, number, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{number}.{_LAYER_NAMES[part]}.weight"


def _paired(weight: Tensor, num_heads: int) -> Tensor:
    """Interleave the rows that RoPE rotates together, which are half a head apart here."""
    halves = weight.view(num_heads, 2, -1, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)


_SPECIALS = ("pad", "other", "begin", "dna_end")


def native_network(model: LoadedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Return a network with the native rows; its logits for DNA equal those of `model`.

    From a hybrid model it keeps the rows of 6-mers, `<dna>`, `</dna>`, `<oov>` and padding. A
    native tag is one row, a hybrid tag several byte pairs, so tags cannot be converted: their rows
    are zero, and the config names none. Tags in a native model's config remain. Everything else is
    unchanged, and may share memory with `model`.
    """
    network = model.network
    config = network.config.from_dict(network.config.to_dict() | native_ids())
    config.dtype = dtype
    name_tags(config, model.six_mers.tags if model.six_mers.name == NATIVE.name else ())
    with torch.device("meta"):
        native = type(network)(config)
    state = {name: tensor.to(dtype) for name, tensor in network.state_dict().items()}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = native_rows(state[name], model.six_mers)
    native.load_state_dict(state, assign=True)
    native.tie_weights()
    return native


def native_ids() -> dict[str, int | None]:
    """Return the entries of a config for the native vocabulary."""
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

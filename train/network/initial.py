"""Weights as they begin: each a function of its name and the seed alone."""

import hashlib

import torch
from torch import Tensor
from transformers import LlamaConfig

from carbon.tokenizer import KMER_DIGITS, NATIVE, K
from train.choices.kmer_rows import KMER_ROWS, KmerRows
from train.start.adapter import initial_adapter_weight, is_adapter, is_b

_EMBEDDING = "model.embed_tokens.weight"


def initial_weight(
    name: str,
    shape: torch.Size,
    llama: LlamaConfig,
    seed: int,
    kmer_rows: KmerRows = KMER_ROWS["independent"],
) -> Tensor:
    """Return a parameter as it begins, fp32 on the CPU: a function of its name and the seed alone.

    So a process makes its own layers only, and they are the same however the network is divided.
    The distribution is that of `LlamaForCausalLM`, but for rows of 6-mers where another is given.
    """
    if len(shape) == 1:
        return torch.ones(shape)
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    if is_adapter(name):
        return initial_adapter_weight(shape, generator, is_b=is_b(name))
    weight = torch.randn(shape, generator=generator)
    if name in (_EMBEDDING, "lm_head.weight"):
        _share(weight[NATIVE.kmer_rows], kmer_rows, generator)
    weight *= llama.initializer_range
    if name == _EMBEDDING:
        weight[llama.pad_token_id] = 0
    return weight


def _share(rows: Tensor, kmer_rows: KmerRows, generator: torch.Generator) -> None:
    """Let 6-mers have in common what their bases are: rows (4096, width) of unit variance."""
    if kmer_rows.shared:
        of_bases = torch.randn((K, 4, rows.shape[1]), generator=generator)
        common = of_bases[torch.arange(K), torch.from_numpy(KMER_DIGITS).long()].sum(1) / K**0.5
        rows.mul_((1 - kmer_rows.shared) ** 0.5).add_(common, alpha=kmer_rows.shared**0.5)
    rows *= kmer_rows.scale

"""Tiny random stock models of k-mers, and their likelihoods by transformers alone."""

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CONTEXT_TOKENS = 96
_SHAPE = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "initializer_range": 0.4,
}  # fmt: skip
_KINDS = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}


def kmer_tokenizer(
    k: int, *, begin: bool, unknown: bool = True, lower: bool = False
) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose ids follow A, C, G, T, unlike Carbon's."""
    kmers = ["".join(bases) for bases in itertools.product("ACGT", repeat=k)]
    specials = ["<s>"] * begin + ["<unk>"] * unknown
    texts = [kmer.lower() if lower else kmer for kmer in kmers]
    ids = {text: n for n, text in enumerate([*specials, *texts])}
    named = {"unk_token": "<unk>"} if unknown else {}
    tokenizer = Tokenizer(models.WordLevel(ids, **(named or {"unk_token": texts[0]})))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(rf".{{1,{k}}}"), "isolated")
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", ids["<s>"])]
        )
        named["bos_token"] = "<s>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def save_stock_model(
    folder: Path,
    kind: str,
    k: int,
    *,
    begin: bool,
    seed: int = 0,
    context_tokens: int = CONTEXT_TOKENS,
    num_rows: int | None = None,
    **options: Any,
) -> Path:
    """Write a tiny random model and its tokenizer as transformers does.

    The network has a row for each token, or `num_rows`.
    """
    tokenizer = kmer_tokenizer(k, begin=begin, **options)
    config_of, network_of = _KINDS[kind]
    torch.manual_seed(seed)
    config = config_of(
        vocab_size=num_rows or len(tokenizer), max_position_embeddings=context_tokens,
        bos_token_id=None, eos_token_id=None, pad_token_id=None, **_SHAPE,
    )  # fmt: skip
    network_of(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class StockModel(NamedTuple):
    """A folder loaded by transformers alone."""

    network: Any
    tokenizer: Any
    k: int

    @classmethod
    def load(cls, folder: Path, k: int) -> "StockModel":
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return cls(network, AutoTokenizer.from_pretrained(folder), k)

    @property
    def has_begin(self) -> bool:
        return self.tokenizer.bos_token_id is not None

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text)["input_ids"]

    def states(self, text: str, layer: int | None = None) -> np.ndarray:
        """Return the states of a sequence's k-mers, the last ones or of a layer: (k-mers, width).

        The states of the last layer have the norm.
        """
        ids = torch.tensor([self.ids(text)])
        with torch.inference_mode():
            output = self.network.base_model(ids, output_hidden_states=True)
        states = (output[0] if layer is None else output.hidden_states[layer])[0]
        return states[int(self.has_begin) :].numpy()

    def conditionals(self, text: str) -> np.ndarray:
        """Return log p(base | all before it) of A, C, G, T at every place: (bases, 4) float64.

        Nothing predicts the first k-mer of a model without a begin token: bases are equally likely.
        """
        k, vocabulary = self.k, self.tokenizer.get_vocab()
        texts = ["".join(bases) for bases in itertools.product("ACGT", repeat=k)]
        places = [vocabulary[kmer] for kmer in texts]
        with torch.inference_mode():
            logits = self.network(torch.tensor([self.ids(text)])).logits[0].double()
        rows = []
        for at in range(0, len(text), k):
            row = at // k - 1 + self.has_begin
            p = np.ones(len(texts)) / len(texts)
            if row >= 0:
                p = logits[row, places].softmax(dim=0).numpy()
            for base in text[at : at + k]:
                p = p.reshape(4, -1)  # of the k-mers that begin as the text, by their next base
                rows.append(np.log(p.sum(axis=1) / p.sum()))
                p = p["ACGT".index(base)]
        return np.array(rows)

    def base_log_p(self, text: str) -> np.ndarray:
        """Return log p(base | all before it) of every base: (bases,) float64."""
        of_all = self.conditionals(text)
        return of_all[np.arange(len(text)), ["ACGT".index(base) for base in text]]

"""The 4,096-row head: only the rows of 6-mers are ever multiplied."""

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from carbon.tokenizer import Vocabulary


def kmer_logits(network: LlamaForCausalLM, hidden: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Return logits over the 6-mers from last hidden states: (..., D) -> (..., 4096).

    They come in the dtype of the weights; whoever takes their logarithms converts to fp32 first.
    """
    weight = network.lm_head.weight[vocabulary.kmer_rows]
    return torch.nn.functional.linear(hidden, weight)

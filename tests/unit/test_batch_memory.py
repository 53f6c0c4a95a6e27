"""Tokens of one pass that memory holds, by hand."""

from types import SimpleNamespace

import torch

import carbon.inference.runner as module
from carbon.inference.runner import batch_tokens_of


def test_keys_and_values_are_as_wide_as_their_heads(monkeypatch):
    """16 heads of 64 beside a hidden size of 64: 2 x 2 layers x 16 x 64 x 4 bytes a token.

    With what one layer needs, 4 x (12 x 64 + 4 x 1), that is 19,472 bytes a token. Half of 2^27
    bytes holds 3,446 tokens, so 2,048; heads of 4 would hold 2^14 of 4,112 bytes.
    """
    config = SimpleNamespace(
        hidden_size=64, num_attention_heads=16, num_key_value_heads=16, head_dim=64,
        num_hidden_layers=2, intermediate_size=1,
    )  # fmt: skip
    network = SimpleNamespace(
        config=config, device=torch.device("cpu"), parameters=lambda: [torch.zeros(0)]
    )
    sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2**27}
    monkeypatch.setattr(module.os, "sysconf", sizes.__getitem__)
    assert batch_tokens_of(network) == 2048

"""Tokens of one pass that memory holds, by hand."""

from types import SimpleNamespace

import torch

import carbon.inference.runner as module
from carbon.inference.runner import Batcher, batch_tokens_of


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


def test_batches_hold_every_row_once_and_keep_to_their_size():
    lengths = [5, 3, 9, 1, 1, 40, 8, 2]
    row_tokens = {n: lengths[n] for n in sorted(range(8), key=lengths.__getitem__)}
    batches = [batch for batch, _ in Batcher(None, 16).in_batches(row_tokens, len)]
    assert [n for batch in batches for n in batch] == list(row_tokens)
    assert all(len(b) == 1 or len(b) * max(lengths[n] for n in b) <= 16 for b in batches)


def test_rows_of_a_passage_stay_together_where_they_fit():
    row_tokens = dict.fromkeys(range(9), 4)
    passages = {0: 0, 1: 0, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 2, 8: 2}
    batches = [b for b, _ in Batcher(None, 12).in_batches(row_tokens, len, passages=passages)]
    assert batches == [[0, 1], [2, 3, 4], [5, 6, 7], [8]]

"""Weights as they begin: independent ones, and rows of 6-mers that share what their bases are."""

import pytest
import torch

from carbon.io.config import ConfigError
from carbon.model.presets import PRESETS
from carbon.tokenizer import NATIVE
from train.config import ModelConfig
from train.distributed.weights import KMER_INITS, KmerInit, initial_weight

LLAMA = PRESETS["tiny"]()
WIDTH = 2048
"""So wide that a correlation of rows is told to 2.2 hundredths (1 / 45)."""


def rows_of(kmer_rows, name="model.embed_tokens.weight", seed=0, width=WIDTH):
    shape = torch.Size([NATIVE.size, width])
    return initial_weight(name, shape, LLAMA, seed, kmer_rows)


def kmer(text):
    """The row of a 6-mer, by arithmetic: A 0, T 1, C 2, G 3, the first base most significant."""
    return 128 + sum("ATCG".index(base) * 4 ** (5 - place) for place, base in enumerate(text))


def correlation(weight, one, other):
    return float(torch.corrcoef(torch.stack([weight[kmer(one)], weight[kmer(other)]]))[0, 1])


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "lm_head.weight"])
def test_kmers_have_in_common_what_their_bases_are(name):
    """Each of six bases is a sixth of the 0.94: five alike 0.783, three 0.47, none 0."""
    weight = rows_of(KMER_INITS["bases"], name)
    assert correlation(weight, "ACGTAC", "ACGTAG") == pytest.approx(0.94 * 5 / 6, abs=0.05)
    assert correlation(weight, "ACGTAC", "ACGGCT") == pytest.approx(0.94 * 3 / 6, abs=0.05)
    assert correlation(weight, "ACGTAC", "CATGTA") == pytest.approx(0, abs=0.05)
    assert correlation(weight, "CAAAAA", "AAAAAC") == pytest.approx(0.94 * 4 / 6, abs=0.05)
    assert float(weight[128:].std()) == pytest.approx(3 * 0.02, rel=0.05)
    assert float(weight[1:128].std()) == pytest.approx(0.02, rel=0.05)


def test_independent_rows_are_those_of_stock_llama():
    weight = rows_of(KMER_INITS["independent"])
    assert correlation(weight, "ACGTAC", "ACGTAG") == pytest.approx(0, abs=0.05)
    assert float(weight[128:].std()) == pytest.approx(0.02, rel=0.01)
    assert not weight[NATIVE.pad].any()


def test_rows_are_a_function_of_name_and_seed():
    kmer_rows = KmerInit(shared=0.5)
    rows = rows_of(kmer_rows, width=8)
    assert torch.equal(rows, rows_of(kmer_rows, width=8))
    assert not torch.equal(rows, rows_of(kmer_rows, seed=1, width=8))
    assert not torch.equal(rows, rows_of(kmer_rows, "lm_head.weight", width=8))
    matrix = torch.Size([8, 8])
    name = "model.layers.0.mlp.up_proj.weight"
    drawn = [initial_weight(name, matrix, LLAMA, 0, kmer_rows) for kmer_rows in KMER_INITS.values()]
    assert torch.equal(*drawn)


def test_rows_of_a_start_are_as_they_are():
    with pytest.raises(ConfigError, match="rows are those of start = 'yeast'"):
        ModelConfig(start="yeast", kmer_init="bases")

"""Python functions for scoring, in a module; a starting model for RL."""

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.model import save_model
from carbon.tokenizer import BASES, KMER_DIGITS, NATIVE
from tests.conftest import small_config

MODULE = """
import os, time

def gc(sequences):
    print("printed text is not an answer")
    return [(s.count("G") + s.count("C")) / len(s) for s in sequences]

def at(sequences):
    return [1 - value for value in gc(sequences)]

def raises(sequences):
    if any(s.startswith("T") for s in sequences):
        raise ValueError("no T\\nsecond line")
    return [1] * len(sequences)

def no_numbers(sequences):
    return [1.0] * (len(sequences) - 1) + ["high"]

def not_finite(sequences):
    return [float("nan")] * len(sequences)

def too_few(sequences):
    return [1.0]

def no_list(sequences):
    return None

def hangs(sequences):
    time.sleep(600)

def ends(sequences):
    os._exit(3)

answers = gc

def odd(sequences):
    "Answer as the function does whose name is the first sequence, from there on."
    global answers
    answers = globals().get(sequences[0], answers)
    return answers(sequences)
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """A module `some_functions` in the folder that commands run in."""
    (tmp_path / "some_functions.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """A network that gives a part of its probability to rows that are no 6-mers.

    As a trained one it tells G and C from A and T: a direction of its head is their number.
    """
    folder = tmp_path_factory.mktemp("tuning") / "start"
    torch.manual_seed(0)
    network = LlamaForCausalLM(small_config())
    with torch.no_grad():
        weight = network.lm_head.weight
        weight[: NATIVE.first_kmer] *= 3
        num_gc = torch.tensor(np.isin(KMER_DIGITS, [BASES.index("G"), BASES.index("C")])).sum(dim=1)
        weight[NATIVE.kmer_rows] += (num_gc[:, None] - 3) * torch.randn(weight.shape[1]) / 5
    save_model(network, folder)
    return folder

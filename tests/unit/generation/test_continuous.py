"""Continuous batching against our own engine: greedy text, distributions, and what it refuses."""

import numpy as np
import pytest
import torch

from carbon.cli import main
from carbon.errors import UserError
from carbon.inference import Constraints, Draft
from carbon.inference.generate import continuous
from carbon.model import save_model
from carbon.tokenizer import HYBRID, NATIVE
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.generation import PROMPTS, agree, other_network
from tests.helpers.reference import INDEX

FITTING = [prompt for prompt in PROMPTS if len(prompt) < 290]


@pytest.mark.parametrize(("vocabulary", "length_bp"), [(NATIVE, 41), (HYBRID, 3)])
def test_greedy_text_is_that_of_our_own_engine(vocabulary, length_bp):
    model = other_network(3, vocabulary, context_tokens=100)
    own = model.generate(FITTING, length_bp, temperature=0)
    assert model.generate(FITTING, length_bp, temperature=0, engine="continuous") == own
    assert {len(text) for text in own} == {length_bp}


def test_unknown_bases_and_more_prompts_than_pages(monkeypatch):
    monkeypatch.setattr(continuous, "_MOST_PAGES", 4)
    model = other_network(3, context_tokens=100)
    prompts = [random_bases(12 + 6 * (n % 5), n)[:-3] + "NRA" for n in range(12)]
    own = model.generate(prompts, 20, temperature=0)
    assert model.generate(prompts, 20, temperature=0, engine="continuous") == own


@pytest.mark.parametrize(
    "how", [{}, {"temperature": 0.8, "top_k": 400, "top_p": 0.6, "min_p": 1e-4}]
)
def test_sampled_6_mers_have_the_distribution(how):
    model, context = other_network(4, context_tokens=100), random_bases(18, 9)
    texts = model.generate([context] * 400, 6, seed=2, engine="continuous", **how)
    counts = np.bincount([INDEX[text] for text in texts], minlength=4096)
    assert agree(counts, _distribution(model.next_token(context).log_probabilities, **how))


def _distribution(log_p, temperature=1.0, top_k=None, top_p=None, min_p=None):
    """Return p of each 6-mer behind temperature and cuts, by the words of `SamplingRule`."""
    p = np.exp(log_p.astype(np.float64) / temperature)
    p /= p.sum()
    ranked = np.argsort(-p)
    if top_k:
        p[ranked[top_k:]] = 0
    if top_p:
        p[ranked[1 + np.searchsorted(np.cumsum(p[ranked]) / p.sum(), top_p) :]] = 0
    if min_p:
        p[p < min_p * p.max()] = 0
    return p / p.sum()


def test_a_seed_is_a_text_and_no_other_random_numbers_are_used():
    model, prompts = other_network(4, context_tokens=100), FITTING[:3]
    before = torch.get_rng_state()
    first = model.generate(prompts, 12, seed=5, engine="continuous")
    assert torch.equal(torch.get_rng_state(), before)
    assert model.generate(prompts, 12, seed=5, engine="continuous") == first
    assert model.generate(prompts, 12, seed=6, engine="continuous") != first


def test_what_it_cannot_do_is_refused():
    model = other_network(4, context_tokens=100)
    for how, message in (
        ({"mode": "chain"}, "mode 'chain'"),
        ({"repetition_penalty": 1.0}, "repetition_penalty"),
        ({"constraints": Constraints(forbid=("ACG",))}, "constraints"),
        ({"draft": Draft(model, 2)}, "a draft"),
        ({"length_bp": 700}, "118 tokens"),
        ({"engine": "other"}, "engine 'other'"),
        ({"tags": ["<no>"]}, "<no>"),
    ):
        with pytest.raises(UserError, match=message):
            model.generate(["A"], **{"length_bp": 12, "engine": "continuous", **how})


def test_the_command(tmp_path, capsys):
    model = other_network(3, context_tokens=100)
    save_model(model.model.network, tmp_path / "m")
    fasta = write_fasta(tmp_path / "p.fa", {f"p{n}": text for n, text in enumerate(FITTING[1:4])})
    words = ["generate", "--model", str(tmp_path / "m"), "--prompts", str(fasta), "--length", "20"]
    words += ["--engine", "continuous"]
    assert main([*words, "--temperature", "0", "--processes", "2"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert "engine=continuous" in lines[0] and "in one process" in said.err
    assert lines[1::2] == model.generate(FITTING[1:4], 20, temperature=0)
    assert main([*words, "--right", "ACG"]) == 2

"""Compare: where an allele parts from the reference, and what is said of two of anything."""

import math

import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.inference import load
from carbon.model import save_model
from demo.allowed_models import AllowedModels
from demo.panels.compare import Compare
from tests.conftest import small_config
from tests.helpers.demo import GENE, answered, make_lab, values_of


@pytest.fixture(scope="module")
def lab(model, tmp_path_factory):
    lab = make_lab(tmp_path_factory.mktemp("lab"), model)
    torch.manual_seed(7)
    save_model(LlamaForCausalLM(small_config()), lab.runs / "other")
    lab.allowed = AllowedModels({"other": str(lab.runs / "other")}, False, load)
    return lab


@pytest.fixture(scope="module")
def panel(lab):
    return Compare(lab)


def test_an_allele_is_put_into_its_place(panel, lab):
    """Base 121 of the contig is base 21 of the gene, which begins at 101."""
    ref = lab.genome.reference.fetch(lab.genome.place("c1:121-121", 0, 1))
    alt = "A" if ref != "A" else "C"
    result = answered(panel, {"a": GENE, "b": f"c1:121 {ref}>{alt}"})
    a, b = result["a"], result["b"]
    assert a["log_p"][:15] == pytest.approx(b["log_p"][:15], abs=1e-5)
    assert a["log_p"][20] != b["log_p"][20]
    shown = panel.show(values_of(panel), result)
    ahead = shown["track"]["data"][2]["y"]
    assert ahead[-1] == pytest.approx(a["log_likelihood"] - b["log_likelihood"], abs=1e-3)
    times = math.exp(abs(ahead[-1]))
    word = "about as likely as A" if times < 1.1 else "less" if ahead[-1] > 0 else "more"
    assert word in result["said"]


def test_what_two_models_say_of_one_sequence(panel):
    result = answered(panel, {"b": "", "model_b": "other"})
    a, b = result["a"], result["b"]
    assert (a["model"], b["model"]) == ("model", "other") and a["length_bp"] == b["length_bp"]
    better = "A" if a["nats_per_base"] < b["nats_per_base"] else "B"
    times = math.exp(abs(a["nats_per_base"] - b["nats_per_base"]))
    assert f"The model of {better} " in result["said"] and f"{times:.3g} times" in result["said"]
    assert "are the same" in answered(panel, {"b": ""})["said"]


def test_sequences_of_other_lengths_are_compared_by_the_base(panel):
    result = answered(panel, {"a": "ACGTTGCA" * 12, "b": ">mine\n" + "ACGUUGCA" * 10})
    assert result["b"]["length_bp"] == 80 and "A base of" in result["said"]
    shown = panel.show(values_of(panel), result)
    assert len(shown["track"]["data"]) == 2  # bases do not stand under one another

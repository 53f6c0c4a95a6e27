"""Compare: numbers of `carbon score`, by one model and by two; sequences, alleles and models."""

import io
import math
import shlex
from contextlib import redirect_stdout

import pytest
import torch

from carbon.cli import main
from carbon.errors import UserError
from carbon.inference import load
from carbon.model import save_model
from carbon.offered import Offer
from demo.fields import checked_values
from demo.panels.compare import Compare
from tests.conftest import small_config
from tests.helpers.demo import GENE, answered, make_lab
from tests.helpers.files import random_bases


@pytest.fixture(scope="module")
def lab(model, tmp_path_factory):
    from transformers import LlamaForCausalLM

    lab = make_lab(tmp_path_factory.mktemp("lab"), model)
    torch.manual_seed(7)
    save_model(LlamaForCausalLM(small_config()), lab.runs / "other")
    lab.offer = Offer({"other": str(lab.runs / "other")}, False, load)
    return lab


@pytest.fixture(scope="module")
def panel(lab):
    return Compare(lab)


def written(panel, given, folder):
    """Save both files of the page as a visitor does."""
    for side, own in zip("ab", panel._pair(checked_values(panel.fields, given)), strict=True):
        (folder / f"{side}.fa").write_text(f">{side.upper()}\n{own.bases}\n")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"a": GENE, "b": "", "model_b": "other"},
        {"a": random_bases(150, seed=2), "b": random_bases(90, seed=3), "base_model": "other"},
    ],
)
def test_numbers_are_those_of_the_command_and_of_the_program(panel, given, tmp_path, monkeypatch):
    panel = panel.with_model(given.get("base_model", "model"))
    monkeypatch.chdir(tmp_path)
    values, result = checked_values(panel.fields, given), answered(panel, given)
    written(panel, given, tmp_path)
    for line in panel.command(values).splitlines()[1:]:
        assert main(shlex.split(line)[1:]) == 0
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(panel.python(values), {})
    for side, line in zip("ab", printed.getvalue().splitlines(), strict=True):
        _, header, row = (tmp_path / f"{side}.tsv").read_text().splitlines()
        told = dict(zip(header.split("\t"), row.split("\t"), strict=True))
        total, mean = map(float, line.split())
        assert result[side]["nats_per_base"] == pytest.approx(mean)
        assert result[side]["log_likelihood"] == pytest.approx(total)
        assert float(told["log_likelihood"]) == pytest.approx(total, rel=1e-5)
        assert sum(result[side]["log_p"]) == pytest.approx(total, rel=1e-5)


def test_an_allele_is_put_into_its_place(panel, lab):
    """Base 121 of the contig is base 21 of the gene, which begins at 101."""
    ref = lab.genome.reference.fetch(lab.genome.place("c1:121-121", 0, 1))
    alt = "A" if ref != "A" else "C"
    result = answered(panel, {"a": GENE, "b": f"c1:121 {ref}>{alt}"})
    a, b = result["a"], result["b"]
    assert a["log_p"][:15] == pytest.approx(b["log_p"][:15], abs=1e-5)
    assert a["log_p"][20] != b["log_p"][20]
    shown = panel.show(checked_values(panel.fields, {}), result)
    ahead = shown["track"]["data"][2]["y"]
    assert ahead[-1] == pytest.approx(a["log_likelihood"] - b["log_likelihood"], abs=1e-3)
    times = math.exp(abs(ahead[-1]))
    word = "about as likely as A" if times < 1.1 else "less" if ahead[-1] > 0 else "more"
    assert word in result["said"] and "B is about" in result["said"]


def test_what_two_models_say_of_one_sequence(panel):
    result = answered(panel, {"b": "", "model_b": "other"})
    a, b = result["a"], result["b"]
    assert (a["model"], b["model"]) == ("model", "other") and a["length_bp"] == b["length_bp"]
    better = "A" if a["nats_per_base"] < b["nats_per_base"] else "B"
    times = math.exp(abs(a["nats_per_base"] - b["nats_per_base"]))
    assert f"The model of {better} gives each base" in result["said"]
    assert f"{times:.3g} times" in result["said"]


def test_sequences_of_other_lengths_are_compared_by_the_base(panel):
    result = answered(panel, {"a": "ACGTTGCA" * 12, "b": ">mine\n" + "ACGUUGCA" * 10})
    assert result["b"]["length_bp"] == 80 and "A base of" in result["said"]
    shown = panel.show(checked_values(panel.fields, {}), result)
    assert len(shown["track"]["data"]) == 2  # bases do not stand under one another


def test_the_same_twice_is_told(panel):
    assert "are the same" in answered(panel, {"b": ""})["said"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": "nowhere"}, "gene 'nowhere': is not in"),
        ({"b": "c1:1300 A>C"}, "lies outside of the other sequence"),
        ({"a": "ACGTTGCA" * 12, "b": "c1:121 A>C"}, "lies outside of the other sequence"),
        ({"a": "N" * 40, "b": ""}, "no base that is one of ACGT"),
        ({"b": "what"}, "there is no contig 'what'"),
        ({"model_b": "elsewhere"}, "there is no 'elsewhere'"),
    ],
)
def test_what_cannot_be_compared(panel, given, message):
    with pytest.raises(UserError, match=message):
        answered(panel, given)

"""The panel of designs: what the command finds, as it is found, by safe oracles alone."""

import contextlib
import io
import re
import shlex
import shutil
from types import SimpleNamespace
from urllib.parse import unquote

import gradio as gr
import pytest

from carbon.adapt.folder import HEAD, MANIFEST
from carbon.cli import main
from carbon.design import known
from carbon.errors import UserError
from carbon.inference import load
from carbon.offered import Offer
from demo.fields import checked_values
from demo.limits import Limits
from demo.page import Page
from demo.panels.design import Design
from tests.helpers.demo import answered, make_lab

FEW = {"calls": 32, "length_bp": 48}


@pytest.fixture(scope="module")
def panel(model, tmp_path_factory):
    return Design(make_lab(tmp_path_factory.mktemp("lab"), model))


def values_of(panel, **given):
    return checked_values(panel.fields, FEW | given)


def test_the_front_grows_and_ends_with_all_calls(panel):
    sizes = [len(item["candidates"]) for item in panel.answer(values_of(panel))]
    assert sizes == sorted(sizes) and len(sizes) > 1 and sizes[-1] == 32
    result = answered(panel, FEW)
    bases = [each["bases"] for each in result["candidates"]]
    assert [each["value"] for each in result["candidates"]] == known.gc_window(bases)
    shown = panel.show(values_of(panel), result)
    measured, front, best = shown["front"]["data"]
    assert len(measured["x"]) == 32 and best["x"] == [max(measured["x"])]
    assert 1 <= len(front["x"]) < 32
    assert bases[0] in shown["table"]


def test_the_protein_stays(panel):
    from carbon.genome import translate

    result = answered(panel, {**FEW, "protein": "MSKGEEL"})
    assert {translate(each["bases"]) for each in result["candidates"]} == {"MSKGEEL"}


@pytest.mark.parametrize("given", [{}, {"oracle": "motif pair", "protein": "MSKGEELFTGVVP"}])
def test_python_and_command_give_the_same(panel, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = values_of(panel, **given)
    *_, result = panel.answer(values)
    best = result["candidates"][0]["value"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(panel.python(values), {})
    first = printed.getvalue().splitlines()[0].split()
    assert float(first[1].rstrip("}")) == best
    assert main(shlex.split(panel.command(values))[1:]) == 0
    lines = (tmp_path / "designs.tsv").read_text().splitlines()
    header, row, *_ = (line.split("\t") for line in lines if not line.startswith("#"))
    assert float(row[1]) == pytest.approx(best) and header[0] == "name"


def test_the_file_says_what_made_it(panel):
    given = {"oracle": "codons of yeast", "protein": "MSKG", "calls": 16, "seed": 3}
    shown = panel.show(checked_values(panel.fields, given), answered(panel, given))["table"]
    text = unquote(re.search(r'href="data:[^,]*,([^"]*)"', shown)[1])
    name, *words = text.splitlines()[0].split()
    told = dict(word.split("=", 1) for word in words)
    assert name.startswith(">") and told["carbon"] and told["model"] == panel.lab.model_name
    assert told["oracle"] == "python:carbon.design.known:yeast_codons"
    assert (told["protein"], told["calls"], told["seed"]) == ("MSKG", "16", "3")


@pytest.mark.parametrize(
    "oracle", ["python:os:system", "command:rm -rf /", "adapted: nothing", "callable"]
)
def test_nothing_else_can_be_asked_for(panel, oracle):
    with pytest.raises(UserError, match="Measure: there is no"):
        answered(panel, {"oracle": oracle})


def test_a_protein_that_is_none_is_told(panel):
    with pytest.raises(UserError, match="protein"):
        answered(panel, {**FEW, "protein": "MSK1"})


def test_a_measure_that_appears_is_offered_and_one_that_is_gone_is_told(model, tmp_path):
    """When the page is opened or a link followed, also under another model."""
    lab = make_lab(tmp_path, model)
    lab.offer = Offer({"other": str(tmp_path / "model")}, False, load)
    with gr.Blocks() as blocks:
        page = Page(blocks, Design(lab), Limits())
    other = page.panel.with_model("other")
    folder = tmp_path / "labels"
    folder.mkdir()
    for name in (HEAD, MANIFEST):
        (folder / name).touch()
    query = {"base_model": "other", "calls": "16", "length_bp": "36"}
    shown, *_ = page._open(SimpleNamespace(client=None, query_params=query))
    assert ("adapted: labels", "adapted: labels") in shown[0]["choices"]
    values = checked_values(other.fields, {"oracle": "adapted: labels"})
    assert f"measure=adapted:{folder}" in other.command(values)
    shutil.rmtree(folder)
    for ask in (lambda: next(other.answer(values)), lambda: other.command(values)):
        with pytest.raises(UserError, match="the folder 'labels' is no longer there"):
            ask()

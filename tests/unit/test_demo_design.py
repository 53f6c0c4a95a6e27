"""The panel of designs: what the command finds, as it is found, by safe scoring functions only."""

import shutil
from types import SimpleNamespace

import gradio as gr
import pytest

from carbon.design import benchmark_functions
from carbon.errors import UserError
from carbon.finetune.folder import HEAD, MANIFEST
from carbon.genome import translate
from carbon.inference import load
from demo.allowed_models import AllowedModels
from demo.limits import Limits
from demo.page import Page
from demo.panels.design import Design
from tests.helpers.demo import answered, downloads_of, make_lab, values_of, visited

FEW = {"calls": 32, "length_bp": 48}


@pytest.fixture(scope="module")
def panel(model, tmp_path_factory):
    return Design(make_lab(tmp_path_factory.mktemp("lab"), model))


def test_the_front_grows_and_ends_with_all_calls(panel):
    sizes = [len(item["candidates"]) for item in panel.answer(values_of(panel, **FEW))]
    assert sizes == sorted(sizes) and len(sizes) > 1 and sizes[-1] == 32
    _, result, shown = visited(panel, **FEW)
    bases = [each["bases"] for each in result["candidates"]]
    assert [each["value"] for each in result["candidates"]] == benchmark_functions.gc_window(bases)
    measured, front, best = shown["front"]["data"]
    assert len(measured["x"]) == 32 and best["x"] == [max(measured["x"])]
    assert 1 <= len(front["x"]) < 32
    assert bases[0] in shown["table"]


def test_the_protein_stays(panel):
    result = answered(panel, {**FEW, "protein": "MSKGEEL"})
    assert {translate(each["bases"]) for each in result["candidates"]} == {"MSKGEEL"}


def test_the_file_says_what_made_it(panel):
    given = {"function": "codons of yeast", "protein": "MSKG", "calls": 16, "seed": 3}
    _, _, shown = visited(panel, **given)
    text = downloads_of(shown)["designs.fa"]
    name, *words = text.splitlines()[0].split()
    told = dict(word.split("=", 1) for word in words)
    assert name.startswith(">") and told["carbon"] and told["model"] == panel.lab.model_name
    assert told["function"] == "python:carbon.design.benchmark_functions:yeast_codons"
    assert (told["protein"], told["calls"], told["seed"]) == ("MSKG", "16", "3")


def test_a_measure_that_appears_is_offered_and_one_that_is_gone_is_told(model, tmp_path):
    """When the page is opened or a link followed, also under another model."""
    lab = make_lab(tmp_path, model)
    lab.allowed = AllowedModels({"other": str(tmp_path / "model")}, False, load)
    with gr.Blocks() as blocks:
        page = Page(blocks, Design(lab), Limits())
    other = page.panel.with_model("other")
    folder = tmp_path / "labels"
    folder.mkdir()
    for name in (HEAD, MANIFEST):
        (folder / name).touch()
    query = {"base_model": "other", "calls": "16", "length_bp": "36"}
    shown, *_ = page._open(SimpleNamespace(client=None, query_params=query))
    assert ("finetuned: labels", "finetuned: labels") in shown[0]["choices"]
    values = values_of(other, function="finetuned: labels")
    assert f"prediction=finetuned:{folder}" in other.command(values)
    shutil.rmtree(folder)
    for ask in (lambda: next(other.answer(values)), lambda: other.command(values)):
        with pytest.raises(UserError, match="the folder 'labels' is no longer there"):
            ask()

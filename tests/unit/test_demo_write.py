"""Write: what the model writes, next to random DNA, and designs towards a goal."""

import shutil
from types import SimpleNamespace
from urllib.parse import unquote

import gradio as gr
import numpy as np
import pandas as pd
import pytest

from carbon.design import benchmark_functions
from carbon.design.strategies import Candidate
from carbon.errors import UserError
from carbon.finetune.folder import HEAD, MANIFEST
from carbon.genome import reverse_complement, translate
from carbon.inference import Constraints, load
from demo.allowed_models import AllowedModels
from demo.design_views import candidates_to_json
from demo.limits import Limits
from demo.page import Page, Shell
from demo.panels.write import Write
from demo.preview import Previews
from demo.turns import Turns
from demo.written_views import about_repeats
from tests.helpers.demo import (
    answered,
    downloads_of,
    make_lab,
    printed_by,
    run_commands,
    values_of,
    visited,
)

FEW = {"goal": "GC window", "calls": 32, "length_bp": 48, "input": ""}


@pytest.fixture(scope="module")
def panel(model, tmp_path_factory):
    return Write(make_lab(tmp_path_factory.mktemp("lab"), model))


def test_constraints_and_tags_reach_the_model(panel):
    fields = {field.name: field for field in panel.fields}
    tags = fields["species"].choices[1], fields["gene"].choices[1]
    given = {"input": "ATGGCCAAG", "length_bp": 36}
    tagged = given | {"species": tags[0], "gene": tags[1], "forbid": "GC"}
    expected = panel.lab.model.generate(
        ["ATGGCCAAG"], 36, tags=tags, constraints=Constraints(forbid=("GC",)), top_p=1.0
    )
    bases = answered(panel, tagged)["bases"]
    assert [bases] == expected and "GC" not in bases
    assert answered(panel, given)["bases"] != bases


def test_a_gene_is_continued_from_its_first_60_coding_bases(panel):
    prompt = "ATG" + ("TACCAATTAGGAGCA" * 4)[:57]
    result = answered(panel, {"length_bp": 36})
    assert result["prompt"] == prompt
    assert [result["bases"]] == panel.lab.model.generate([prompt], 36)


def test_probabilities_of_both_strips_are_those_of_their_bases(panel):
    result = answered(panel, {"input": "ATGGCCAAG", "length_bp": 36})
    for base, p, four in zip(
        result["bases"], result["probabilities"], result["alternatives"], strict=True
    ):
        assert p == four["ATCG".index(base)] and sum(four) == pytest.approx(1, abs=1e-3)
    for side in (result, result["random"]):
        text = result["prompt"] + side["bases"]
        (score,) = panel.lab.model.score([text])
        expected = np.exp(score.bases[len(result["prompt"]) :])
        assert side["probabilities"] == pytest.approx(expected.tolist(), abs=2e-3)


def test_colours_span_what_occurs(panel):
    _, result, shown = visited(panel, input="ATGGCCAAG", length_bp=60)
    low, high = shown["bases"]["range"]
    seen = sorted(result["probabilities"] + result["random"]["probabilities"])
    inside = [p for p in seen if low <= p <= high]
    assert len(inside) >= 0.95 * len(seen)
    assert shown["random"]["range"] == [low, high]


def test_open_frames_are_listed_with_their_proteins(panel):
    """A frame of 20 codons on the reverse strand, from base 64 back to base 2, with its stop."""
    coding = "ATG" + "GCC" * 19 + "TAA"
    prompt = f"C{reverse_complement(coding)}C"
    values = values_of(panel, input=prompt, length_bp=36)
    side = {"bases": "C" * 36, "probabilities": [0.25] * 36}
    result = {"prompt": prompt, "alternatives": [[0.25] * 4] * 36, "random": side, **side}
    shown = panel.show(values, result)
    assert f"<td>M{'A' * 19}</td>" in shown["frames"] and "2 to 64 on -" in shown["frames"]


def test_repeats_are_explained_only_where_they_occur():
    assert "repeats A." in about_repeats(0.0, "C" + "A" * 30)
    assert "repeats AAG." in about_repeats(0.0, "GC" + "AAG" * 12)
    assert about_repeats(0.0, "ACGTTGCATTAGCATGACCATGAAC") == ""
    assert about_repeats(1.0, "A" * 36) == ""


def test_a_protein_becomes_codons(panel):
    values, result, _ = visited(panel, protein="MSKGEEL")
    assert translate(result["bases"]) == "MSKGEEL" and result["prompt"] == ""
    assert "--protein MSKGEEL" in panel.command(values)


def test_the_front_grows_and_ends_with_all_calls(panel):
    sizes = [len(item["candidates"]) for item in panel.answer(values_of(panel, **FEW))]
    assert sizes == sorted(sizes) and len(sizes) > 1 and sizes[-1] == 32
    _, result, shown = visited(panel, **FEW)
    bases = [each["bases"] for each in result["candidates"]]
    assert [each["value"] for each in result["candidates"]] == benchmark_functions.gc_window(bases)
    scored, front, best = shown["front"]["data"]
    assert len(scored["x"]) == 32 and best["x"] == [max(scored["x"])]
    assert 1 <= len(front["x"]) < 32
    assert bases[0] in shown["designs"]


def test_the_best_is_not_dominated_and_ties_go_to_the_likelier():
    history = [Candidate(1, 0, None, "A", (0.5,), 1.0), Candidate(2, 0, None, "C", (1.0,), 1.4),
               Candidate(3, 0, None, "G", (1.0,), 1.2)]  # fmt: skip
    found = candidates_to_json(history)
    assert [each["bases"] for each in found] == ["G", "C", "A"]
    # C has the value of G and more nats; A has a lower value and fewer nats than both.
    assert [each["front"] for each in found] == [True, False, True]


def test_a_long_design_is_refused(panel):
    with pytest.raises(UserError, match="at most 300"):
        answered(panel, FEW | {"length_bp": 301})


def test_the_protein_stays(panel):
    result = answered(panel, {"goal": "GC window", "calls": 32, "protein": "MSKGEEL"})
    assert {translate(each["bases"]) for each in result["candidates"]} == {"MSKGEEL"}


def test_the_file_says_what_made_it(panel):
    given = {"goal": "codons of yeast", "protein": "MSKG", "calls": 16, "seed": 3}
    _, _, shown = visited(panel, **given)
    text = downloads_of(shown)["designs.fa"]
    name, *words = text.splitlines()[0].split()
    settings = dict(word.split("=", 1) for word in words)
    assert name.startswith(">") and settings["carbon"] and settings["model"] == "model"
    assert unquote(settings["goal"]) == "codons of yeast"
    assert (settings["protein"], settings["calls"], settings["seed"]) == ("MSKG", "16", "3")


def test_a_scoring_function_appears_and_disappears(model, tmp_path):
    """When the page is opened or a link followed, also under another model."""
    lab = make_lab(tmp_path, model)
    lab.allowed = AllowedModels({"other": str(tmp_path / "model")}, False, load)
    with gr.Blocks() as blocks:
        page = Page(blocks, Write(lab), Shell(Limits(), Turns(), Previews([]), []))
    other = page.panel.with_model("other")
    folder = tmp_path / "labels"
    folder.mkdir()
    for name in (HEAD, MANIFEST):
        (folder / name).touch()
    query = {"base_model": "other", "goal": "GC window", "calls": "16", "length_bp": "36"}
    shown, *_ = page._open(SimpleNamespace(client=None, query_params=query))
    assert ("finetuned: labels", "finetuned: labels") in shown[1]["choices"]
    values = values_of(other, goal="finetuned: labels")
    assert f"prediction=finetuned:{folder}" in other.command(values)
    shutil.rmtree(folder)
    for ask in (lambda: next(other.answer(values)), lambda: other.command(values)):
        with pytest.raises(UserError, match="the folder 'labels' is no longer there"):
            ask()


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "base", "temperature": 0.7, "top_p": 0.9, "seed": 5, "length_bp": 36},
        {"input": "", "forbid": "GAATTC TTTT", "require": "GGG", "gc_least": 0.4, "gc_most": 0.6},
        {"input": "acgtacgta", "no_stop_frame": "0", "length_bp": 60},
        {"protein": "MSKGEEL"},
    ],
)
def test_the_program_and_the_command_write_the_same(panel, given, capsys):
    values, result, _ = visited(panel, **given)
    assert printed_by(panel.python(values)) == [result["bases"]]
    (fasta,) = run_commands(panel.command(values), capsys)
    assert "".join(fasta.splitlines()[1:]) == result["bases"]


def test_the_program_and_the_command_design_the_same(panel, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    values, result, _ = visited(panel, **FEW | {"calls": 16})
    first, *_ = printed_by(panel.python(values))
    run_commands(panel.command(values), capsys)
    table = pd.read_csv("designs.tsv", sep="\t", comment="#")
    best = result["candidates"][0]["value"]
    assert float(first.split()[1].rstrip("}")) == best
    assert table.iloc[0, 1] == pytest.approx(best)

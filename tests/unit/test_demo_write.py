"""Write: what the model writes, next to random DNA, and designs towards a goal."""

import shutil
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pytest

from carbon.design import benchmark_functions
from carbon.design.strategies import Candidate
from carbon.errors import UserError
from carbon.finetune.folder import HEAD, MANIFEST
from carbon.genome import reverse_complement, translate
from carbon.inference import Constraints, load
from demo.models import AllowedModels
from demo.panels.write import Write
from demo.write_views import about_repeats, candidates_to_json
from tests.helpers.demo import (
    answered,
    downloads_of,
    make_lab,
    page_of,
    values_of,
    visited,
)

FEW = {"goal": "GC window", "calls": 24, "length_bp": 48, "input": ""}


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
    assert answered(panel, {"length_bp": 36})["prompt"] == "ATG" + ("TACCAATTAGGAGCA" * 4)[:57]


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
    assert sizes == sorted(sizes) and len(sizes) > 1 and sizes[-1] == 24
    _, result, shown = visited(panel, **FEW)
    bases = [each["bases"] for each in result["candidates"]]
    assert [each["value"] for each in result["candidates"]] == benchmark_functions.gc_window(bases)
    scored, front, best = shown["front"]["data"]
    assert len(scored["x"]) == 24 and best["x"] == [max(scored["x"])]
    assert 1 <= len(front["x"]) < 24
    assert bases[0] in shown["designs"]


def test_the_best_is_not_dominated_and_ties_go_to_the_likelier():
    history = [Candidate(1, 0, None, "A", (0.5,), 1.0), Candidate(2, 0, None, "C", (1.0,), 1.4),
               Candidate(3, 0, None, "G", (1.0,), 1.2)]  # fmt: skip
    found = candidates_to_json(history)
    assert [each["bases"] for each in found] == ["G", "C", "A"]
    # C has the value of G and more nats; A has a lower value and fewer nats than both.
    assert [each["front"] for each in found] == [True, False, True]


def test_the_protein_stays_and_the_file_says_what_made_it(panel):
    given = {"goal": "codons of yeast", "protein": "MSKG", "calls": 16, "seed": 3}
    _, result, shown = visited(panel, **given)
    assert {translate(each["bases"]) for each in result["candidates"]} == {"MSKG"}
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
    page = page_of(Write(lab))
    other = page.panel.with_model("other")
    folder = tmp_path / "labels"
    folder.mkdir()
    for name in (HEAD, MANIFEST):
        (folder / name).touch()
    query = {"base_model": "other", "goal": "GC window", "calls": "16", "length_bp": "36"}
    shown, *_ = page._open(SimpleNamespace(client=None, query_params=query))
    assert ("finetuned: labels", "finetuned: labels") in shown[page.inputs["goal"]]["choices"]
    values = values_of(other, goal="finetuned: labels")
    assert f"prediction=finetuned:{folder}" in other.command(values)
    shutil.rmtree(folder)
    for ask in (lambda: next(other.answer(values)), lambda: other.command(values)):
        with pytest.raises(UserError, match="the folder 'labels' is no longer there"):
            ask()

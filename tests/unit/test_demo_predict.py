"""The demo's predictions of models that learned labels."""

from dataclasses import replace

import pytest

from carbon.errors import UserError
from carbon.finetune.config import MethodConfig
from carbon.finetune.predict import write_finetuned
from demo.panels.predict import Predict
from tests.helpers.demo import answered, make_lab, visited, write_predictor
from tests.helpers.finetune import BASES, BINARY, NUMBERS, finetuned_of

TASKS = {"promoter": BINARY, "numbers": NUMBERS, "genes": BASES}


@pytest.fixture(scope="module")
def lab(tmp_path_factory, model):
    lab = make_lab(tmp_path_factory.mktemp("lab"), model)
    for name, task in TASKS.items():
        write_predictor(lab, f"finetuned/{name}", task)
    return lab


@pytest.fixture
def panel(lab):
    return Predict(lab)


def test_folders_are_offered_the_newest_first(panel):
    newest, *names = panel.fields[0].choices
    assert newest == "newest" and names[0] == "finetuned/genes"
    assert set(names) == {f"finetuned/{name}" for name in TASKS}


def test_it_opens_with_pieces_of_the_genome(panel, lab):
    result = answered(panel, {})
    assert result["names"] == ["c1:111-350(+)", "c1:1001-1240(+)"]  # coding, and behind the gene
    assert result["sequences"][0] == lab.genome.reference.fetch(
        lab.genome.place("c1:111-350", 0, 400)
    )


def test_sequences_without_a_known_base_have_no_prediction(panel):
    _, result, shown = visited(panel, model="finetuned/promoter", sequences="NNNNNNN\nACGTAC")
    assert result["predictions"][0] == [None] and result["predictions"][1] != [None]
    assert shown["tables"]


def test_a_base_model_that_is_another_is_told_without_folders(lab, tmp_path, model):
    other = make_lab(tmp_path, model)
    finetuned, opened = finetuned_of(
        other.runs / "model", BINARY, MethodConfig(name="lora", dropout=0.0)
    )
    folder = other.runs / "mine"
    folder.mkdir()
    manifest = replace(finetuned.manifest, base_sha256="0" * 64)
    write_finetuned(folder, finetuned.network, opened, manifest)
    with pytest.raises(UserError, match="other weights") as caught:
        answered(Predict(other), {})
    assert str(tmp_path) not in str(caught.value)


def test_no_folder_at_all(tmp_path, model):
    with pytest.raises(UserError, match="carbon finetune"):
        answered(Predict(make_lab(tmp_path, model)), {})

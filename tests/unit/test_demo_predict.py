"""The demo's predictions of models that learned labels."""

from dataclasses import replace

import pytest

from carbon.errors import UserError
from carbon.finetune.config import MethodConfig
from carbon.finetune.folder import HEAD, write_manifest
from carbon.finetune.predict import load_finetuned, write_finetuned
from demo.panels.predict import Predict
from demo.panels.write import Write
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


def ensemble_lab(folder, model):
    """Return a lab with an ensemble of two seeds and no other model."""
    lab, seeds = make_lab(folder, model), ("seed-1", "seed-22")
    one, _ = [write_predictor(lab, f"ensemble/{seed}", BINARY) for seed in seeds]
    write_manifest(lab.runs / "ensemble", replace(one.manifest, members=seeds))
    return lab


def test_an_ensemble_is_one_model_and_its_seeds_are_none(tmp_path, model):
    lab = ensemble_lab(tmp_path, model)
    panel = Predict(lab)
    assert panel.fields[0].choices == ("newest", "ensemble")
    goals = next(field for field in Write(lab).fields if field.name == "goal").choices
    assert [goal for goal in goals if "seed" in goal or "ensemble" in goal] == [
        "finetuned: ensemble"
    ]
    result = answered(panel, {"sequences": "ACGTACGGT"})
    (expected,) = load_finetuned(lab.runs / "ensemble", device="cpu").predict(["ACGTACGGT"])
    assert result["predictions"] == [pytest.approx(expected.tolist())]


def test_new_weights_of_a_seed_are_loaded(tmp_path, model):
    lab = ensemble_lab(tmp_path, model)
    panel, values = Predict(lab), {"sequences": "ACGTACGGT"}
    before = answered(panel, values)["predictions"]
    first, second = (lab.runs / "ensemble" / seed / HEAD for seed in ("seed-1", "seed-22"))
    first.write_bytes(second.read_bytes())  # of the same size
    after = answered(panel, values)["predictions"]
    assert after != before
    assert after == answered(Predict(lab), values)["predictions"]


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

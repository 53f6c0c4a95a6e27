"""Case 10: a fine-tuning of 120 sequences, killed at a checkpoint, against one that is not."""

import csv
import json
import shutil

import pytest
from safetensors.torch import load_file
from transformers import Trainer

from carbon.cli import main

pytestmark = pytest.mark.nightly

CHECKPOINTS = (2, 4, 6, 8, 10, 12, 14)
"""62 rows of train make 8 steps per epoch, and 3 validations per epoch are one every 8 // 3 = 2
steps. The best is at step 8, and three more without a better score end the run."""

RENAMED = {
    "[question]\nkind": "[task]\ntype",
    "[way]": "[method]",
    "looks_per_epoch": "validations_per_epoch",
}
"""Keys of the case's recipe, which is older than their names."""


@pytest.fixture
def case(tmp_path, real_data, monkeypatch):
    """A copy of the case, as the working folder: its paths are relative."""
    folder = real_data.parent / "cases" / "10_finetune_resume"
    shutil.copyfile(folder / "t.csv", tmp_path / "t.csv")
    recipe = (folder / "t.toml").read_text()
    for old, new in RENAMED.items():
        recipe = recipe.replace(old, new)
    (tmp_path / "t.toml").write_text(recipe)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kept(case, monkeypatch):
    """Keep what a kill after each checkpoint would leave: `killed/STEP`."""
    save = Trainer._save_checkpoint

    def save_and_keep(self, *args):
        save(self, *args)
        if not (killed := case / "killed" / str(self.state.global_step)).exists():
            shutil.copytree(case / ".x.progress", killed)

    monkeypatch.setattr(Trainer, "_save_checkpoint", save_and_keep)
    return case / "killed"


def run(*more):
    return main(["finetune", "--config", "t.toml", *more])


def outcome(folder):
    """Return the validations, and the tensors of the adapter and the head."""
    results = json.loads((folder / "results.json").read_text())
    tensors = load_file(folder / "head.safetensors")
    tensors |= load_file(folder / "adapter" / "adapter_model.safetensors")
    return results["seeds"], {name: x.tolist() for name, x in tensors.items()}


def test_killed_at_a_checkpoint_it_ends_the_same(case, kept, capsys):
    assert run() == 0
    whole = outcome(case / "x")
    (seed,) = whole[0]
    assert tuple(step["step"] for step in seed["validations"]) == CHECKPOINTS
    losses = {step["step"]: round(step["loss"], 3) for step in seed["validations"]}
    assert (losses[12], losses[14]) == (0.642, 0.651)
    for step in CHECKPOINTS[::3]:
        shutil.rmtree(case / "x")
        shutil.copytree(kept / str(step), case / ".x.progress")
        assert run("--resume") == 0
        assert outcome(case / "x") == whole, step
    capsys.readouterr()


def test_inverted_labels_under_the_same_path_are_refused(case, kept, capsys):
    assert run() == 0
    shutil.rmtree(case / "x")
    shutil.copytree(kept / "10", case / ".x.progress")
    rows = list(csv.reader((case / "t.csv").open()))
    inverted = [rows[0], *([*row[:2], 1 - int(row[2])] for row in rows[1:])]
    with (case / "t.csv").open("w", newline="") as sink:
        csv.writer(sink).writerows(inverted)
    capsys.readouterr()
    assert run("--resume") == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "x: cannot resume: the data (t.csv) has changed" in last
    assert not (case / "x").exists()
    assert (case / ".x.progress" / "seed-0" / "checkpoint-10").is_dir()

"""`carbon finetune` from a table to a folder; a run that was stopped; what is refused."""

import csv
import hashlib
import json

import numpy as np
import pytest

import carbon
from carbon.cli import main
from carbon.errors import UserError
from carbon.finetune import job
from carbon.finetune.config import METHODS
from carbon.finetune.tasks import LabelTask
from carbon.finetune.train import train_weights
from tests.helpers.files import random_bases
from tests.helpers.finetune import base_folder, motif_rows, run_config, strict_json, write_rows


@pytest.fixture
def folder(tmp_path, network):
    """A model and a table."""
    base_folder(tmp_path, network)
    write_rows(tmp_path / "data.csv", motif_rows())
    return tmp_path


@pytest.mark.parametrize("method", METHODS)
def test_a_run_from_table_to_predictions(finetuned, method):
    out = finetuned(method)
    table = out.parent / "data.csv"
    results = strict_json(out / "results.json")
    assert set(results["test"]) == {"model", "constant", "composition"}
    assert set(results["model_minus"]) == {"constant", "composition"}
    for score in results["test"]["model"].values():
        assert score["low"] <= score["value"] <= score["high"]
    lines = (out / "predictions.tsv").read_text().splitlines()[1:]
    test = [row for row in csv.DictReader(lines, delimiter="\t") if row["split"] == "test"]
    assert len(test) == results["examples"]["test"]
    said = np.array([[float(row["predicted_1"])] for row in test], dtype=np.float32)
    labels = np.array([[float(row["label"])] for row in test], dtype=np.float32)
    chosen_by = results["test"]["model"][results["chosen_by"]]["value"]
    assert LabelTask("binary", ("0", "1"), "").score(said, labels) == pytest.approx(chosen_by)
    sequences = {r["id"]: r["sequence"] for r in csv.DictReader(table.open())}
    again = carbon.load_finetuned(out).predict([sequences[row["name"]] for row in test])
    np.testing.assert_allclose(np.stack(list(again)), said, atol=1e-6)

    assert not list(out.parent.glob(".out*"))  # nothing is left of the checkpoints
    assert not [path for path in out.rglob("*") if path.suffix in (".pkl", ".bin", ".pt", ".py")]
    for page in ("report.html", "README.md"):
        assert f"{chosen_by:.3f}" in (out / page).read_text()
    sha256 = hashlib.sha256(table.read_bytes()).hexdigest()
    assert results["files"] == [{"role": "data", "name": "data.csv", "sha256": sha256}]
    (seed,) = results["seeds"]
    if method == "probe":
        sizes = [size["examples"] for size in seed["sizes"]]
        assert sizes == sorted(sizes) and sizes[-1] == results["examples"]["train"]
        assert len(sizes) > 2 and seed["sizes"][-1]["score"] == seed["score"]


def test_seeds_that_ended_are_not_learned_again_and_the_best_is_kept(folder, monkeypatch, no_pages):
    learned = []

    def train_until(stop):
        def training(finetuned, train, validation, method, seed, folder, *, resume):
            if seed == stop:
                raise KeyboardInterrupt
            if not any(folder.glob("checkpoint-*")):
                learned.append(seed)
            return train_weights(finetuned, train, validation, method, seed, folder, resume=resume)

        return training

    plain = run_config(folder, name="lora") | {"seeds": [0, 1, 2]}
    monkeypatch.setattr(job, "train_weights", train_until(1))
    with pytest.raises(KeyboardInterrupt):
        carbon.finetune.run(None, plain)
    with pytest.raises(UserError, match="--resume"):
        carbon.finetune.run(None, plain)
    with pytest.raises(UserError, match=r"cannot resume: seeds was \[0, 1, 2\]"):
        carbon.finetune.run(None, plain | {"seeds": [0]}, resume=True)
    monkeypatch.setattr(job, "train_weights", train_until(None))
    results = carbon.finetune.run(None, plain, resume=True)
    assert learned == [0, 1, 2] and [seed["seed"] for seed in results["seeds"]] == [0, 1, 2]
    scores = [seed["score"] for seed in results["seeds"]]
    kept = results["validation"][results["chosen_by"]]["value"]
    assert len(set(scores)) == 3
    assert kept == pytest.approx(max(scores), abs=1e-6)
    assert not list(folder.glob(".out*"))


def test_a_dry_run_learns_nothing(folder, capsys):
    config = job.FinetuneConfig.from_table(run_config(folder, name="lora", batch=32), "config")
    (folder / "c.toml").write_text(config.to_toml())
    command = ["finetune", "--config", str(folder / "c.toml"), "--dry-run"]
    assert main([*command, "--set", "method.epochs=2"]) == 0
    notes = json.loads(capsys.readouterr().out)
    assert sum(notes["examples"].values()) == 80
    assert notes["most_steps"] == 2 * -(-notes["examples"]["train"] // 32)
    with (folder / "data.csv").open("a") as sink:
        sink.write(f"long,{random_bases(500)},1\n")
    assert main(command) == 2
    assert "1 sequences are longer than the 282 bp" in capsys.readouterr().err
    assert main([*command, "--set", "method.too_long=truncate"]) == 0
    assert not list(folder.glob("*out*"))


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ({"name": "lora", "targets": ["query"]}, "no module is named 'query'"),
        ({"name": "probe", "layer": 9}, "the model has 2"),
        ({"name": "lora", "too_long": "tile"}, "cannot tile"),
    ],
)
def test_what_does_not_fit_the_model_leaves_nothing_behind(folder, method, wrong):
    if "too_long" in method:
        write_rows(folder / "data.csv", [*motif_rows(), ("long", random_bases(500), 1)])
    with pytest.raises(UserError, match=wrong):
        carbon.finetune.run(None, run_config(folder, **method))
    assert not list(folder.glob("*out*"))

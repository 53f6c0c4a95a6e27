"""`carbon finetune` from a table to a folder; a run that was stopped; what is refused."""

import csv
import hashlib
import json

import numpy as np
import pytest

import carbon
from carbon.cli import main
from carbon.errors import UserError
from carbon.finetune import checkpoints, job
from carbon.finetune import train as train_module
from carbon.finetune.config import WAYS
from carbon.finetune.metrics import first_score
from tests.helpers.files import random_bases
from tests.helpers.finetune import base_folder, motif_rows, run_config, strict_json, write_rows


@pytest.fixture
def folder(tmp_path, network):
    """A model and a table."""
    base_folder(tmp_path, network)
    write_rows(tmp_path / "data.csv", motif_rows())
    return tmp_path


@pytest.mark.parametrize("way", WAYS)
def test_a_run_from_table_to_predictions(finetuned, way):
    out = finetuned(way)
    table = out.parent / "data.csv"
    results = strict_json(out / "results.json")
    assert set(results["test"]) == {"model", "constant", "composition"}
    assert set(results["model_minus"]) == {"constant", "composition"}
    for score in results["test"]["model"].values():
        assert score["low"] <= score["value"] <= score["high"]
    lines = (out / "predictions.tsv").read_text().splitlines()[1:]
    test = [row for row in csv.DictReader(lines, delimiter="\t") if row["part"] == "test"]
    assert len(test) == results["examples"]["test"]
    said = np.array([[float(row["predicted_1"])] for row in test], dtype=np.float32)
    labels = np.array([[float(row["label"])] for row in test], dtype=np.float32)
    chosen_by = results["test"]["model"][results["chosen_by"]]["value"]
    assert first_score("binary", ("0", "1"), said, labels) == pytest.approx(chosen_by)
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
    if way == "probe":
        sizes = [size["examples"] for size in seed["sizes"]]
        assert sizes == sorted(sizes) and sizes[-1] == results["examples"]["train"]
        assert len(sizes) > 2 and seed["sizes"][-1]["score"] == seed["score"]


def test_seeds_that_ended_are_not_learned_again_and_the_best_is_kept(folder, monkeypatch, no_pages):
    learned = []

    def tune_until(stop):
        def tuned(finetuned, train, validation, way, seed, folder, *, resume):
            if seed == stop:
                raise KeyboardInterrupt
            began = checkpoints.restore_finished(finetuned.network, folder)
            learned.append(seed) if began is None else None
            return train_module.tune(finetuned, train, validation, way, seed, folder, resume=resume)

        return tuned

    plain = run_config(folder, name="lora") | {"seeds": [0, 1, 2]}
    monkeypatch.setattr(job, "tune", tune_until(1))
    with pytest.raises(KeyboardInterrupt):
        carbon.finetune(plain)
    with pytest.raises(UserError, match="--resume"):
        carbon.finetune(plain)
    with pytest.raises(UserError, match=r"cannot resume: seeds was \[0, 1, 2\]"):
        carbon.finetune(plain | {"seeds": [0]}, resume=True)
    monkeypatch.setattr(job, "tune", tune_until(None))
    results = carbon.finetune(plain, resume=True)
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
    assert main([*command, "--set", "way.epochs=2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told["examples"].values()) == 80
    assert told["most_steps"] == 2 * -(-told["examples"]["train"] // 32)
    with (folder / "data.csv").open("a") as sink:
        sink.write(f"long,{random_bases(500)},1\n")
    assert main(command) == 2
    assert "1 sequences are longer than the 282 bp" in capsys.readouterr().err
    assert main([*command, "--set", "way.too_long=cut"]) == 0
    assert not list(folder.glob("*out*"))


@pytest.mark.parametrize(
    ("way", "wrong"),
    [
        ({"name": "lora", "targets": ["query"]}, "no module is called 'query'"),
        ({"name": "probe", "layer": 9}, "the model has 2"),
        ({"name": "lora", "too_long": "tile"}, "`probe` tiles"),
    ],
)
def test_what_does_not_fit_the_model_leaves_nothing_behind(folder, way, wrong):
    if "too_long" in way:
        write_rows(folder / "data.csv", [*motif_rows(), ("long", random_bases(500), 1)])
    with pytest.raises(UserError, match=wrong):
        carbon.finetune(run_config(folder, **way))
    assert not list(folder.glob("*out*"))

"""`carbon finetune` from a table to a folder; a run that was stopped; what is refused."""

import csv
import hashlib
import json
import statistics
import tomllib

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import carbon
from carbon.cli import main
from carbon.errors import UserError
from carbon.finetune import job, train
from carbon.finetune.config import LINEAR, METHODS
from carbon.finetune.tasks import LabelTask
from carbon.finetune.train import train_weights
from carbon.progress import progress
from tests.helpers.files import random_bases, write_fasta
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


def test_seeds_that_ended_are_not_learned_again_and_are_an_ensemble(folder, monkeypatch, no_pages):
    learned, shown = [], []

    def shown_progress(description, *counts):
        shown.append(description)
        return progress(description, *counts)

    def train_until(stop):
        def training(finetuned, train, validation, method, seed, folder, *, resume):
            if seed == stop:
                raise KeyboardInterrupt
            if not any(folder.glob("checkpoint-*")):
                learned.append(seed)
            return train_weights(finetuned, train, validation, method, seed, folder, resume=resume)

        return training

    plain = run_config(folder, name="lora", epochs=0.4) | {"seeds": [0, 1, 2]}
    monkeypatch.setattr(train, "progress", shown_progress)
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
    assert list(dict.fromkeys(shown)) == [f"training with seed {n}, steps" for n in range(3)]
    assert not list(folder.glob(".out*"))
    check_ensemble(folder / "out", results, sequences_of(folder))


def sequences_of(folder):
    return {row["id"]: row["sequence"] for row in csv.DictReader((folder / "data.csv").open())}


def check_ensemble(out, results, sequences):
    """Compare predictions and scores with those of the three members, one by one."""
    lines = (out / "predictions.tsv").read_text().splitlines()[1:]
    test = [row for row in csv.DictReader(lines, delimiter="\t") if row["split"] == "test"]
    read = [sequences[row["name"]] for row in test]
    members = [carbon.load_finetuned(out / f"seed-{seed}") for seed in range(3)]
    logits = np.array([np.ravel(member.logits(read)) for member in members])
    expected = 1 / (1 + np.exp(-logits.mean(axis=0)))
    shown = [float(row["predicted_1"]) for row in test]
    np.testing.assert_allclose(shown, expected, atol=1e-6)
    again = np.ravel(list(carbon.load_finetuned(out).predict(read)))
    np.testing.assert_allclose(again, expected, atol=1e-6)
    each = 1 / (1 + np.exp(-logits))
    spread = [statistics.stdev(column) for column in each.T.tolist()]
    np.testing.assert_allclose([float(row["sd_1"]) for row in test], spread, atol=1e-6)
    check_predict(out, read, [expected, spread])
    assert len(set(map(tuple, each.tolist()))) == 3
    labels = [int(row["label"]) for row in test]
    scores = [roc_auc_score(labels, member) for member in each]
    found = results["of_seeds"]["auroc"]
    assert found["seeds"] == pytest.approx(scores)
    assert found["mean"] == pytest.approx(statistics.mean(scores))
    assert found["sd"] == pytest.approx(statistics.stdev(scores))
    ensemble = results["test"]["model"]["auroc"]["value"]
    assert ensemble == pytest.approx(roc_auc_score(labels, expected))
    assert [row["predicted"] for row in test] == ["01"[int(p > 0.5)] for p in expected]


def check_predict(out, sequences, expected):
    """Compare the columns of `carbon predict` with predictions and their SD over members."""
    fasta = write_fasta(out.parent / "new.fa", {f"s{n}": s for n, s in enumerate(sequences)})
    table = out.parent / "new.tsv"
    assert main(["predict", "--model", str(out), str(fasta), "--output", str(table)]) == 0
    rows = list(csv.DictReader(table.read_text().splitlines()[1:], delimiter="\t"))
    assert list(rows[0]) == ["name", "bases", "predicted", "predicted_1", "sd_1"]
    shown = [[float(row[name]) for row in rows] for name in ("predicted_1", "sd_1")]
    np.testing.assert_allclose(shown, expected, atol=1e-6)


@pytest.mark.parametrize("processes", [None, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_search_runs_the_best_combination(folder, no_pages, processes):
    config = run_config(folder, name="probe") | {"search": {"method.layer": [1, 2]}}
    results = carbon.finetune.run(None, config, processes=processes)
    found = [(trial["values"]["method.layer"], trial["score"]) for trial in results["search"]]
    expected = []
    for layer in (1, 2):
        alone = run_config(folder, name="probe", layer=layer) | {"output": f"{folder}/{layer}"}
        (seed,) = carbon.finetune.run(None, alone)["seeds"]
        expected.append((layer, seed["score"]))
    assert found == expected
    best = max(expected, key=lambda trial: trial[1])
    assert results["seeds"][0]["score"] == best[1] > min(score for _, score in expected)
    saved = job.FinetuneConfig.load(folder / "out" / "config.toml")
    assert saved.method.layer == best[0] and saved.search == {}
    lines = (folder / "out" / "search.tsv").read_text().splitlines()
    assert lines[1].split("\t") == ["method.layer", "score", "seconds"]
    written = [float(line.split("\t")[1]) for line in lines[2:]]
    assert written == pytest.approx([score for _, score in expected])
    assert not list(folder.glob(".out*"))


def test_trials_detect_homology_as_the_search_does(folder, monkeypatch):
    """`auto` could be another method where a trial runs, and other splits."""
    config = run_config(folder, name="probe") | {"search": {"method.layer": [1, 2]}}
    searched = []
    monkeypatch.setattr(job, "run_search", lambda config, *_: searched.append(config))
    carbon.finetune.run(None, config)
    homologies = [each.trial({"method.layer": 1}).data.homology for each in searched]
    assert homologies == ["kmers"]  # conftest.py hides MMseqs2


def test_searches_that_cannot_start(folder, monkeypatch):
    config = run_config(folder, name="lora") | {"search": {"method.rank": [4, 0]}}
    with pytest.raises(UserError, match=r"method\.rank: expected 1 or more, got 0"):
        carbon.finetune.run(None, config)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="start it without torchrun"):
        carbon.finetune.run(None, config | {"search": {"method.rank": [4, 2]}})
    assert not list(folder.glob("*out*"))


def test_a_stopped_search_goes_on_with_the_trials_that_are_missing(folder, monkeypatch, no_pages):
    config = run_config(folder, name="probe") | {"search": {"method.layer": [1, 2]}}
    trained = []

    def fit_until(stop):
        def fit(config, prepared, seed, folder, *, resume=False):
            if len(trained) == stop:
                raise KeyboardInterrupt
            trained.append(config.method.layer)
            return as_before(config, prepared, seed, folder, resume=resume)

        return fit

    as_before = job.fit
    monkeypatch.setattr(job, "fit", fit_until(1))
    with pytest.raises(KeyboardInterrupt):
        carbon.finetune.run(None, config)
    monkeypatch.setattr(job, "fit", fit_until(None))
    with pytest.raises(UserError, match="--resume"):
        carbon.finetune.run(None, config)
    results = carbon.finetune.run(None, config, resume=True)
    assert trained[:2] == [1, 2] and len(trained) == 3  # and the best one, for the folder
    assert len(results["search"]) == 2


@pytest.mark.filterwarnings("error::FutureWarning")  # of peft about transformers
def test_the_saved_configuration_is_resolved_and_runs_again(folder, no_pages):
    config = run_config(folder, name="lora", epochs=0.2) | {"output": f"{folder}/first"}
    results = carbon.finetune.run(None, config)
    saved = folder / "first" / "config.toml"
    table = tomllib.loads(saved.read_text())
    assert table["method"] | {
        "learning_rate": 3e-4, "batch": 8, "micro_batch": 8, "alpha": 16.0, "epochs": 0.2,
        "targets": list(LINEAR),
    } == table["method"]  # fmt: skip
    assert table["task"]["names"] == ["0", "1"] and table["task"]["loss"] == "binary_cross_entropy"
    assert table["data"]["format"] == "csv"
    assert table["data"]["homology"] in ("kmers", "mmseqs2")
    # Only a layer may be absent: the last one, with the final norm.
    assert set(job.MethodConfig.model_fields) - set(table["method"]) == {"layer"}
    again = carbon.finetune.run(None, saved, overrides=(f"output={folder}/second",))
    assert again == results


def test_a_dry_run_learns_nothing(folder, capsys):
    config = job.FinetuneConfig.from_table(run_config(folder, name="lora", batch=32), "config")
    (folder / "c.toml").write_text(config.to_toml())
    command = ["finetune", "--config", str(folder / "c.toml"), "--dry-run"]
    assert main([*command, "--set", "method.epochs=2"]) == 0
    notes = json.loads(capsys.readouterr().out)
    assert sum(notes["examples"].values()) == 80 and "calibration" not in notes["task"]
    assert notes["most_steps"] == 2 * -(-notes["examples"]["train"] // 32)
    assert notes["config"]["method"]["learning_rate"] == 3e-4 and notes["trials"] == 0
    assert main([*command, "--seeds", "2", "--set", "search={'method.rank'=[2, 4]}"]) == 0
    notes = json.loads(capsys.readouterr().out)
    assert notes["config"]["seeds"] == [0, 1] and notes["trials"] == 2
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


def test_workers_without_a_search_are_refused(folder, capsys):
    config = job.FinetuneConfig.from_table(run_config(folder, name="probe"), "config")
    (folder / "c.toml").write_text(config.to_toml())
    for options in (["--processes", "2"], ["--ray", "host:1", "--dry-run"]):
        assert main(["finetune", "--config", str(folder / "c.toml"), *options]) == 2
        assert "--processes and --ray: are for the trials of a search" in capsys.readouterr().err
    assert not list(folder.glob("*out*"))


def test_a_search_of_bases_keeps_the_bases_that_are_scored(folder):
    config = run_config(folder, "bases", name="probe")
    search = {"search": {"method.too_long": ["truncate", "tile"]}}
    with pytest.raises(UserError, match=r"search\.method\.too_long.*selects the bases"):
        job.FinetuneConfig.from_table(config | search, "config")
    job.FinetuneConfig.from_table(run_config(folder, name="probe") | search, "config")

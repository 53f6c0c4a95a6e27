"""`carbon adapt` from a table to a folder, and what is wrong said in one line."""

import csv
import hashlib
import json

import numpy as np
import pytest

import carbon
from carbon.adapt import job, six_mers, tuning
from carbon.adapt.metrics import first_score
from carbon.cli import main
from carbon.errors import UserError
from tests.helpers.adapt import base_folder
from tests.helpers.files import random_bases


@pytest.fixture
def table(tmp_path):
    """Sequences of 40 bp with a motif or without, and its count."""
    rng = np.random.default_rng(0)
    with (tmp_path / "data.csv").open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(["id", "sequence", "label", "count"])
        for n in range(80):
            bases = "".join(rng.choice(list("ACGT"), 40))
            has = n % 2
            if has:
                bases = bases[:12] + "TATAAATATAAA" + bases[24:]
            writer.writerow([f"s{n}", bases, has, bases.count("A")])
    return tmp_path / "data.csv"


def config(tmp_path, table, **way):
    return {
        "model": str(tmp_path / "base"),
        "output": str(tmp_path / "out"),
        "data": {
            "path": str(table),
            "name": "id",
            "split": {"validation_share": 0.25, "test_share": 0.25},
        },
        "question": {"kind": "binary"},
        "way": {"dropout": 0.0, "epochs": 2.0, "batch": 8, **way},
        "baselines": ["constant", "composition"],
    }


@pytest.mark.parametrize("name", ["probe", "lora", "full"])
def test_a_run_from_table_to_predictions(tmp_path, network, table, name):
    base_folder(tmp_path, network)
    results = carbon.adapt(config(tmp_path, table, name=name))
    out = tmp_path / "out"
    assert json.loads((out / "results.json").read_text()) == results
    assert set(results["test"]) == {"model", "constant", "composition"}
    assert set(results["model_minus"]) == {"constant", "composition"}
    for score in results["test"]["model"].values():
        assert score["low"] <= score["value"] <= score["high"]
    lines = (out / "predictions.tsv").read_text().splitlines()[1:]
    rows = [dict(zip(lines[0].split("\t"), x.split("\t"), strict=True)) for x in lines[1:]]
    test = [row for row in rows if row["part"] == "test"]
    assert len(test) == results["examples"]["test"]
    said = np.array([[float(row["predicted_1"])] for row in test], dtype=np.float32)
    labels = np.array([[float(row["label"])] for row in test], dtype=np.float32)
    chosen_by = results["test"]["model"][results["chosen_by"]]["value"]
    assert first_score("binary", ("0", "1"), said, labels) == pytest.approx(chosen_by)
    sequences = {r["id"]: r["sequence"] for r in csv.DictReader(table.open())}
    again = carbon.load_adapted(out).predict([sequences[row["name"]] for row in test])
    np.testing.assert_allclose(np.stack(list(again)), said, atol=1e-6)
    assert [path.name for path in tmp_path.glob(".*")] == []  # nothing is left of the checkpoints
    chosen = f"{results['test']['model'][results['chosen_by']]['value']:.3f}"
    assert chosen in (out / "report.html").read_text() and chosen in (out / "README.md").read_text()
    if name == "lora":
        card = (out / "adapter" / "README.md").read_text()
        assert "AutoModel.from_pretrained" in card and "library_name: peft" in card
        assert "`AutoModel`" in (out / "README.md").read_text()
    sha256 = hashlib.sha256(table.read_bytes()).hexdigest()
    assert results["files"] == [{"role": "data", "name": "data.csv", "sha256": sha256}]
    (seed,) = results["seeds"]
    if name == "probe":
        sizes = [size["examples"] for size in seed["sizes"]]
        assert sizes == sorted(sizes) and sizes[-1] == results["examples"]["train"]
        assert len(sizes) > 2 and seed["sizes"][-1]["score"] == seed["score"]


@pytest.mark.parametrize("name", ["probe", "lora"])
def test_a_label_of_every_base(tmp_path, network, table, monkeypatch, name):
    monkeypatch.setattr(six_mers, "MOST_SIX_MERS", 300)
    base_folder(tmp_path, network)
    rows = list(csv.DictReader(table.open()))
    with table.open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(["id", "sequence", "label"])
        letters = str.maketrans("ACGT", "w.gw")
        writer.writerows([r["id"], (s := r["sequence"]), s.translate(letters)] for r in rows)
    plain = config(tmp_path, table, name=name, epochs=1.0) | {"question": {"kind": "bases"}}
    plain["data"] |= {"unknown": ["."]}
    results = carbon.adapt(plain)
    drawn = [line for line in results["told"] if line.startswith("The probe learned from 300 of ")]
    assert len(drawn) == (name == "probe")
    page = (tmp_path / "out" / "report.html").read_text()
    assert ("By 6-mers learned from" in page) == (name == "probe")
    again = carbon.load_adapted(tmp_path / "out")
    (said,) = again.predict([rows[0]["sequence"]])
    assert said.shape == (40, 2)
    assert "calls.vcf" in (tmp_path / "out" / "README.md").read_text()
    assert not (tmp_path / "out" / "predictions.tsv").exists()


def test_seeds_that_ended_are_not_learned_again(tmp_path, network, table, monkeypatch):
    base_folder(tmp_path, network)
    learned = []

    def tune_until(stop):
        def tuned(adapted, train, validation, way, seed, folder, *, resume):
            if seed == stop:
                raise KeyboardInterrupt
            began = tuning.restore_finished(adapted.network, folder)
            learned.append(seed) if began is None else None
            return tuning.tune(adapted, train, validation, way, seed, folder, resume=resume)

        return tuned

    plain = config(tmp_path, table, name="lora", epochs=1.0) | {"seeds": [0, 1], "baselines": []}
    monkeypatch.setattr(job, "tune", tune_until(1))
    with pytest.raises(KeyboardInterrupt):
        carbon.adapt(plain)
    with pytest.raises(UserError, match="go on with --resume"):
        carbon.adapt(plain)
    monkeypatch.setattr(job, "tune", tune_until(None))
    results = carbon.adapt(plain, resume=True)
    assert learned == [0, 1] and [seed["seed"] for seed in results["seeds"]] == [0, 1]
    assert (tmp_path / "out" / "report.html").is_file() and not list(tmp_path.glob(".out*"))


def test_three_seeds_and_the_best_is_kept(tmp_path, network, table):
    base_folder(tmp_path, network)
    results = carbon.adapt(config(tmp_path, table, name="lora") | {"seeds": [0, 1, 2]})
    scores = [seed["score"] for seed in results["seeds"]]
    kept = results["validation"][results["chosen_by"]]["value"]
    assert kept == pytest.approx(max(scores), abs=1e-6) and len(scores) == 3


def write_toml(tmp_path, table):
    text = f"""
model = "{tmp_path / "base"}"
output = "{tmp_path / "out"}"
baselines = []
[data]
path = "{table}"
name = "id"
[question]
kind = "binary"
[way]
name = "lora"
"""
    (tmp_path / "c.toml").write_text(text)
    return str(tmp_path / "c.toml")


def test_a_dry_run_learns_nothing(tmp_path, network, table, capsys):
    base_folder(tmp_path, network)
    path = write_toml(tmp_path, table)
    assert main(["adapt", "--config", path, "--dry-run", "--set", "way.epochs=2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told["examples"].values()) == 80
    assert told["most_steps"] == 6  # two readings of 65 by 32
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("overrides", "wrong"),
    [
        (["data.labels=['no']"], "no"),
        (["way.targets=['query']"], "no module is called 'query'"),
        (["way.name=probe", "way.layer=9"], "the model has 2"),
        (["way.name=sft"], "one of 'probe', 'lora', 'full'"),
        (["question.kind=binary", "data.labels=['count']"], "has"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, network, table, capsys, overrides, wrong):
    base_folder(tmp_path, network)
    path = write_toml(tmp_path, table)
    more = [word for each in overrides for word in ("--set", each)]
    assert main(["adapt", "--config", path, *more]) == 2
    assert wrong in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_a_sequence_that_does_not_fit(tmp_path, network, table, capsys):
    base_folder(tmp_path, network)
    with table.open("a") as sink:
        sink.write(f"long,{random_bases(500)},1,3\n")
    path = write_toml(tmp_path, table)
    assert main(["adapt", "--config", path]) == 2
    assert "1 sequences are longer than the 282 bp" in capsys.readouterr().err
    assert main(["adapt", "--config", path, "--set", "way.too_long=cut", "--dry-run"]) == 0

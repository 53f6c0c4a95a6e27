"""A stopped run resumes with the settings, the data and the model that it began with, or not."""

import csv
import json

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import carbon
from carbon.adapt import job
from carbon.errors import UserError
from tests.helpers.adapt import base_folder


class Kill(BaseException):
    pass


def write_table(path, seed, *, inverted=False):
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(["id", "sequence", "label"])
        for n in range(40):
            bases = "".join(rng.choice(list("ACGT"), 30))
            writer.writerow([f"s{n}", bases, (n + inverted) % 2])


@pytest.fixture
def config(tmp_path, network):
    base_folder(tmp_path, network)
    write_table(tmp_path / "data.csv", 0)
    return {
        "model": str(tmp_path / "base"),
        "output": str(tmp_path / "out"),
        "data": {
            "path": str(tmp_path / "data.csv"),
            "name": "id",
            "split": {"validation_share": 0.25, "test_share": 0.25},
        },
        "question": {"kind": "binary"},
        "way": {"name": "lora"},
        "baselines": [],
    }


def stop(config, monkeypatch, *, resume=False):
    """Begin a run that dies with a checkpoint; return whether it was asked to resume."""
    asked = []

    def tune_and_die(adapted, train, validation, way, seed, folder, *, resume):
        asked.append(resume)
        (folder / "checkpoint-1").mkdir(parents=True, exist_ok=True)
        raise Kill

    monkeypatch.setattr(job, "tune", tune_and_die)
    with pytest.raises(Kill):
        carbon.adapt(config, resume=resume)
    return asked[0]


def test_the_same_run_resumes(config, monkeypatch):
    assert not stop(config, monkeypatch)
    assert stop(config, monkeypatch, resume=True)


def another_label(config, folder):
    write_table(folder / "data.csv", 0, inverted=True)


def another_sequence(config, folder):
    write_table(folder / "data.csv", 1)


def another_seed(config, folder):
    config["seeds"] = [3]


def another_rank(config, folder):
    config["way"]["rank"] = 3


def other_weights(config, folder):
    path = folder / "base" / "model.safetensors"
    save_file({name: x + 0.01 for name, x in load_file(path).items()}, path)


def another_config(config, folder):
    path = folder / "base" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rms_norm_eps": 1e-3}))


def no_identity(config, folder):
    (folder / ".out.progress" / "identity.json").unlink()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (another_label, r"the data \(data\.csv\) has changed\. "),
        (another_sequence, r"the data \(data\.csv\) has changed\. "),
        (another_seed, r"seeds was \[0\] and is \[3\]"),
        (another_rank, r"way\.rank was 8 and is 3"),
        (other_weights, r"the base model \(model\.safetensors\) has changed\. "),
        (another_config, r"the base model \(config\.json\) has changed\. "),
        (no_identity, r"identity\.json cannot be read"),
    ],
)
def test_another_run_is_refused_by_name(config, monkeypatch, tmp_path, change, named):
    stop(config, monkeypatch)
    change(config, tmp_path)
    with pytest.raises(UserError, match=rf"out: cannot resume: .*{named}"):
        carbon.adapt(config, resume=True)
    assert (tmp_path / ".out.progress" / "seed-0" / "checkpoint-1").is_dir()


def test_labels_in_a_table_beside_a_fasta_count_too(config, monkeypatch, tmp_path):
    rows = list(csv.DictReader((tmp_path / "data.csv").open()))
    fasta = "".join(f">{row['id']}\n{row['sequence']}\n" for row in rows)
    (tmp_path / "data.fa").write_text(fasta)
    config["data"] |= {"path": str(tmp_path / "data.fa"), "table": str(tmp_path / "data.csv")}
    stop(config, monkeypatch)
    write_table(tmp_path / "data.csv", 0, inverted=True)
    with pytest.raises(UserError, match=r"the table \(data\.csv\) has changed\. "):
        carbon.adapt(config, resume=True)

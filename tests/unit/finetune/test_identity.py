"""A stopped run resumes with the settings, the data and the model that it began with, or not."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from carbon.errors import UserError
from carbon.finetune.data import prepare
from carbon.finetune.job import as_config, check_identity, run_identity, write_identity
from tests.helpers.files import random_bases
from tests.helpers.finetune import base_folder, run_config, write_rows


def write_table(path, seed, *, inverted=False):
    rows = [(f"s{n}", random_bases(30, seed + n), (n + inverted) % 2) for n in range(40)]
    return write_rows(path, rows)


def identity_of(config):
    config = as_config(config)
    return run_identity(config, prepare(config.data, config.task, 6))


@pytest.fixture
def config(tmp_path, network):
    """A run, whose identity is written."""
    base_folder(tmp_path, network)
    write_table(tmp_path / "data.csv", 0)
    config = run_config(tmp_path, name="lora")
    write_identity(tmp_path, identity_of(config))
    return config


METHOD = run_config(Path(), name="lora")["method"]


def other_weights(folder):
    path = folder / "base" / "model.safetensors"
    save_file({name: x + 0.01 for name, x in load_file(path).items()}, path)


def another_config(folder):
    path = folder / "base" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rms_norm_eps": 1e-3}))


@pytest.mark.parametrize(
    ("change", "options", "named"),
    [
        (lambda folder: write_table(folder / "data.csv", 0, inverted=True), {},
         r"data\.csv\) has changed\. "),
        (lambda folder: write_table(folder / "data.csv", 1), {}, r"data\.csv\) has changed\. "),
        (None, {"seeds": [3]}, r"seeds was \[0\] and is \[3\]"),
        (None, {"method": METHOD | {"rank": 3}}, r"method\.rank was 8 and is 3"),
        (other_weights, {}, r"model\.safetensors\) has changed\. "),
        (another_config, {}, r"config\.json\) has changed\. "),
        (lambda folder: (folder / "identity.json").write_text("{"), {},
         r"identity\.json cannot be read"),
    ],
)  # fmt: skip
def test_another_run_is_refused_by_name(config, tmp_path, change, options, named):
    check_identity(tmp_path, identity_of(config), "out")
    if change:
        change(tmp_path)
    with pytest.raises(UserError, match=rf"out: cannot resume: .*{named}"):
        check_identity(tmp_path, identity_of(config | options), "out")


def test_labels_in_a_table_beside_a_fasta_count_too(config, tmp_path):
    fasta = "".join(f">s{n}\n{random_bases(30, n)}\n" for n in range(40))
    (tmp_path / "data.fa").write_text(fasta)
    config["data"] |= {"path": str(tmp_path / "data.fa"), "table": str(tmp_path / "data.csv")}
    write_identity(tmp_path, identity_of(config))
    write_table(tmp_path / "data.csv", 0, inverted=True)
    with pytest.raises(UserError, match=r"the table \(data\.csv\) has changed"):
        check_identity(tmp_path, identity_of(config), "out")

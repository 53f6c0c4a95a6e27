"""Every pair of options of a run is run once, on a tiny model, unless it is refused."""

import itertools
import random
from functools import cache

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import carbon
from carbon.model import save_model
from tests.conftest import small_config
from tests.helpers.files import random_bases
from tests.helpers.finetune import strict_json, write_rows

pytestmark = pytest.mark.usefixtures("few_resamples")
OPTIONS = {
    "task": [
        {"type": "binary"}, {"type": "classes"}, {"type": "labels"}, {"type": "bases"},
        {"type": "numbers", "loss": "mse"}, {"type": "numbers", "loss": "huber"},
        {"type": "numbers", "loss": "correlation"},
        {"type": "numbers", "loss": "correlation_huber"},
        {"type": "tracks", "loss": "mse"}, {"type": "tracks", "loss": "huber"},
    ],
    "calibration": ["none", "temperature", "platt", "isotonic"],
    "class_weights": ["none", "balanced"],
    "transform": ["z_score", "none", "log1p", "log1p_z_score", "asinh_z_score"],
    "split": ["random", "group", "contig", "column", "files", "homology"],
    "folds": [0, 3],
    "leaks": ["report", "refuse", "drop"],
    "baselines": [[], ["constant"], ["composition"], ["kmers"], ["cnn"]],
    "seeds": [[0], [0, 1]],
    "name": ["lora", "probe", "full"],
    "layer": [None, 1, 2],
    "pool": ["mean", "last", "end"],
    "too_long": ["refuse", "truncate", "tile"],
    "strands": ["both", "forward", "reverse"],
    "batch": [(None, None), (8, None), (8, 3)],
    "epochs": [1.0, 0.4],
    "validations_per_epoch": [2, 1],
    "patience": [5, 1],
    "dropout": [0.05, 0.0],
    "targets": [[], ["q_proj", "down_proj"]],
    "alpha": [None, 4.0],
    "augment": [True, False],
    "warmup_share": [0.06, 0.0],
}  # fmt: skip
OF_A_METHOD = ("name", "layer", "pool", "too_long", "strands", "epochs", "patience",
               "validations_per_epoch", "dropout", "targets", "alpha", "augment",
               "warmup_share")  # fmt: skip


def is_refused(row):
    """Tell whether options do not go together; other tests have the messages."""
    is_probe, task = row["name"] == "probe", row["task"]
    weighted = (row["class_weights"], row["calibration"]) != ("none", "none")
    return (
        (task["type"] in ("numbers", "tracks") and weighted)
        or (row["folds"] and row["split"] in ("column", "files"))
        or (row["too_long"] == "tile" and not is_probe)
        or ("correlation" in task.get("loss", "") and row["batch"] == (8, 3) and not is_probe)
    )


NAMES = tuple(OPTIONS)


def values_of(numbers):
    return {name: OPTIONS[name][i] for name, i in zip(NAMES, numbers, strict=True)}


def pairs_of(numbers):
    """Return the pairs of a row, each option as its place and the number of its value."""
    return set(itertools.combinations(enumerate(numbers), 2))


def completed(fixed, missing, draws):
    """Return the row that holds most missing pairs, of some drawn ones that hold fixed values."""
    best, most = None, -1
    for _ in range(30):
        row = [fixed.get(n, draws.randrange(len(OPTIONS[name]))) for n, name in enumerate(NAMES)]
        if not is_refused(values_of(row)) and (number := len(pairs_of(row) & missing)) > most:
            best, most = row, number
    return best


@cache
def covering():
    """Return rows that hold every pair that some row may hold."""
    draws = random.Random(0)
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(range(len(NAMES)), 2)
        for i, j in itertools.product(range(len(OPTIONS[NAMES[a]])), range(len(OPTIONS[NAMES[b]])))
    }
    rows = []
    while missing:
        pair = min(missing)
        if (row := completed(dict(pair), missing, draws)) is None:
            missing.remove(pair)
        else:
            rows.append(values_of(row))
            missing -= pairs_of(row)
    return rows


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model that reads 42 bp, or 36 with the token that closes them."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("pairs") / "base"
    save_model(LlamaForCausalLM(small_config(context_tokens=8)), folder)
    return folder


COLUMNS = {"binary": ["class"], "classes": ["class"], "bases": ["track"], "labels": ["x", "y"],
           "numbers": ["u", "v"], "tracks": ["t", "w"]}  # fmt: skip


def write_tables(folder, kind, *, long):
    """Write 36 sequences of 30 bp, four of them longer if asked, in one table and in three."""
    rows = []
    for n in range(36):
        bases = random_bases(30, n)
        if long and n % 9 == 0:  # of its windows of 36 or 42 bp one or more know nothing
            bases = bases[:18] + "N" * 66 + random_bases(30, 100 + n)
        row = {
            "id": f"s{n}", "sequence": bases, "group": f"g{n % 6}", "contig": f"c{n % 6}",
            "class": "abc"[n // 6 % (2 if kind == "binary" else 3)], "x": n // 6 % 2,
            "y": n // 12 % 2, "u": bases.count("A") + n, "v": "" if n % 7 == 0 else n % 5,
            "track": "".join("ab"[b in "GC"] for b in bases),
            "t": " ".join(str("ACGTN".index(b)) for b in bases),
            "w": " ".join("01"[b in "GC"] for b in bases),
            "split": {0: "validation", 1: "test"}.get(n % 4, "train"),
        }  # fmt: skip
        rows.append(row)
    for split in ("", "train", "validation", "test"):
        some = [row.values() for row in rows if split in ("", row["split"])]
        write_rows(folder / f"data{split}.csv", some, rows[0])


def config_of(row, folder, base):
    kind, split = row["task"]["type"], row["split"]
    files = {split: str(folder / f"data{split}.csv") for split in ("train", "validation", "test")}
    where = {"files": files} if split == "files" else {"path": str(folder / "data.csv")}
    column = {"group": "group", "contig": "contig", "column": "split"}.get(split, "")
    batch, micro_batch = row["batch"]
    method = {name: row[name] for name in OF_A_METHOD}
    method |= {"batch": batch, "micro_batch": micro_batch, "rank": 2}
    return {
        "model": str(base),
        "output": str(folder / "out"),
        "seeds": row["seeds"],
        "baselines": row["baselines"],
        "data": where | {
            "name": "id", "labels": COLUMNS[kind], "leaks": row["leaks"],
            "split": {"by": split, "column": column, "folds": row["folds"],
                      "validation_share": 0.3, "test_share": 0.3},
        },
        "task": row["task"]
        | {name: row[name] for name in ("class_weights", "calibration", "transform")},
        "method": {name: value for name, value in method.items() if value is not None},
    }  # fmt: skip


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.nightly), 60])
def test_every_pair_that_is_accepted_runs(tmp_path, base, no_pages, every):
    """All 59 rows take about 100 s; three of them stand for the others otherwise."""
    wrong = []
    for number, row in enumerate(covering()[::every]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_tables(folder, row["task"]["type"], long=row["too_long"] != "refuse")
        try:
            results = carbon.finetune.run(None, config_of(row, folder, base))
            assert strict_json(folder / "out" / "results.json") == results
            (found,) = carbon.load_finetuned(folder / "out").predict([random_bases(30, 0)])
            assert np.isfinite(found).all()
        except Exception as error:  # all of them are told at once
            wrong.append((row, repr(error)))
    assert not wrong, "\n".join(map(str, wrong))

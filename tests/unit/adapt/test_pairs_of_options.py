"""Every pair of options of a run is either run once, on a tiny model, or refused in one line."""

import csv
import itertools
import json
import random
import re

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import carbon
from carbon.adapt import outcome
from carbon.errors import UserError
from carbon.model import save_model
from tests.conftest import small_config
from tests.helpers.files import random_bases

CORRELATION = {"kind": "numbers", "loss": "correlation"}
OPTIONS = {
    "question": [
        {"kind": "binary"}, {"kind": "classes"}, {"kind": "labels"}, {"kind": "bases"},
        {"kind": "numbers", "loss": "mse"}, {"kind": "numbers", "loss": "huber"},
        CORRELATION,
        {"kind": "numbers", "loss": "correlation_huber"},
    ],
    "class_weights": ["none", "balanced"],
    "transform": ["z_score", "none", "log1p", "log1p_z_score", "asinh_z_score"],
    "split": ["random", "group", "contig", "column", "files"],
    "folds": [0, 3],
    "leaks": ["tell", "refuse", "drop"],
    "baselines": [[], ["constant"], ["composition"], ["kmers"], ["cnn"]],
    "seeds": [[0], [0, 1]],
    "name": ["lora", "probe", "full"],
    "layer": [None, 1, 2],
    "pool": ["mean", "last", "end"],
    "too_long": ["refuse", "cut", "tile"],
    "strands": ["both", "forward", "reverse"],
    "batch": [(None, None), (8, None), (8, 3)],
    "epochs": [1.0, 0.4],
    "looks_per_epoch": [2, 1],
    "patience": [5, 1],
    "dropout": [0.05, 0.0],
    "targets": [[], ["q_proj", "down_proj"]],
    "alpha": [None, 4.0],
    "augment": [True, False],
    "warmup_share": [0.06, 0.0],
}  # fmt: skip
OF_A_WAY = ("name", "layer", "pool", "too_long", "strands", "epochs", "looks_per_epoch", "patience",
            "dropout", "targets", "alpha", "augment", "warmup_share")  # fmt: skip


def is_number(row):
    return row["question"]["kind"] == "numbers"


# What belongs together, and the line that says so.
REFUSED = {
    "numbers have no classes": lambda row: is_number(row) and row["class_weights"] != "none",
    "folds: not with by = ": lambda row: row["folds"] and row["split"] in ("column", "files"),
    "learns from what is cut, `probe` tiles": lambda row: (
        row["too_long"] == "tile" and row["name"] != "probe"
    ),
    "loss 'correlation.*' is of a whole batch": lambda row: (
        "correlation" in row["question"].get("loss", "")
        and row["batch"] == (8, 3)
        and row["name"] != "probe"
    ),
}


def is_refused(row):
    return any(refuses(row) for refuses in REFUSED.values())


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


def covering():
    """Return rows that hold every pair that some row may hold, and the pairs that none may."""
    draws = random.Random(0)
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(range(len(NAMES)), 2)
        for i, j in itertools.product(range(len(OPTIONS[NAMES[a]])), range(len(OPTIONS[NAMES[b]])))
    }
    rows, impossible = [], set()
    while missing:
        pair = min(missing)
        if (row := completed(dict(pair), missing, draws)) is None:
            impossible.add(pair)
            missing.remove(pair)
        else:
            rows.append(values_of(row))
            missing -= pairs_of(row)
    return rows, impossible


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model that reads 42 bp, or 36 with the token that closes them."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("pairs") / "base"
    save_model(LlamaForCausalLM(small_config(context_tokens=8)), folder)
    return folder


COLUMNS = {"binary": ["class"], "classes": ["class"], "bases": ["track"], "labels": ["x", "y"],
           "numbers": ["u", "v"]}  # fmt: skip


def write_tables(folder, kind, *, long):
    """Write 36 sequences of 30 bp, four of them longer if asked, in one table and in three."""
    rows = []
    for n in range(36):
        bases = random_bases(30, n)
        if long and n % 9 == 0:  # of its windows of 36 or 42 bp one or more know nothing
            bases = bases[:18] + "N" * 66 + random_bases(30, 100 + n)
        row = {"id": f"s{n}", "sequence": bases, "group": f"g{n % 6}", "contig": f"c{n % 6}"}
        row |= {"class": "abc"[n // 6 % (2 if kind == "binary" else 3)], "x": n // 6 % 2}
        row |= {"y": n // 12 % 2, "u": bases.count("A") + n, "v": "" if n % 7 == 0 else n % 5}
        row |= {"track": "".join("ab"[b in "GC"] for b in bases)}
        row |= {"part": {0: "validation", 1: "test"}.get(n % 4, "train")}
        rows.append(row)
    for part in ("", "train", "validation", "test"):
        with (folder / f"data{part}.csv").open("w", newline="") as sink:
            writer = csv.DictWriter(sink, rows[0])
            writer.writeheader()
            writer.writerows(row for row in rows if part in ("", row["part"]))


def config_of(row, folder, base):
    kind, split = row["question"]["kind"], row["split"]
    files = {part: str(folder / f"data{part}.csv") for part in ("train", "validation", "test")}
    where = {"files": files} if split == "files" else {"path": str(folder / "data.csv")}
    column = {"group": "group", "contig": "contig", "column": "part"}.get(split, "")
    batch, micro_batch = row["batch"]
    way = {name: row[name] for name in OF_A_WAY}
    way |= {"batch": batch, "micro_batch": micro_batch, "rank": 2}
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
        "question": row["question"]
        | {"class_weights": row["class_weights"], "transform": row["transform"]},
        "way": {name: value for name, value in way.items() if value is not None},
    }  # fmt: skip


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.nightly), 10])
def test_every_pair_that_is_accepted_runs(tmp_path, base, monkeypatch, every):
    """All 59 rows take about 100 s; every tenth stands for them otherwise."""
    # The pages are drawn in tests of their own, and take most of the time.
    monkeypatch.setattr(outcome, "write_report", lambda *_: None)
    monkeypatch.setattr(outcome, "write_card", lambda *_: None)
    rows, _ = covering()
    wrong = []
    for number, row in enumerate(rows[::every]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_tables(folder, row["question"]["kind"], long=row["too_long"] != "refuse")
        try:
            results = carbon.adapt(config_of(row, folder, base))
            assert strict((folder / "out" / "results.json").read_text()) == results
            (found,) = carbon.load_adapted(folder / "out").predict([random_bases(30, 0)])
            assert np.isfinite(found).all()
        except Exception as error:  # all of them are told at once
            wrong.append((row, repr(error)))
    assert not wrong, "\n".join(map(str, wrong))


def test_every_pair_that_is_not_accepted_is_refused_in_one_line(tmp_path, base):
    _, impossible = covering()
    rows = [values_of([dict(pair).get(n, 0) for n in range(len(NAMES))]) for pair in impossible]
    rows.append(values_of([0] * len(NAMES)) | {"batch": (8, 3), "question": CORRELATION})
    seen = set()
    for number, row in enumerate(rows):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_tables(folder, row["question"]["kind"], long=row["too_long"] != "refuse")
        with pytest.raises(UserError) as error:
            carbon.adapt(config_of(row, folder, base))
        (line,) = [line for line, refuses in REFUSED.items() if refuses(row)]
        assert re.search(line, str(error.value)) and "\n" not in str(error.value)
        assert not (folder / "out").exists() and not list(folder.glob(".out*"))
        seen.add(line)
    assert seen == set(REFUSED)

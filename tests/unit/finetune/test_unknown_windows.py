"""Windows of unknown bases: left out of means, never NaN in what is learned from."""

import math
from functools import partial

import numpy as np
import pytest

import carbon
from carbon.errors import UserError
from carbon.finetune import baselines, train
from carbon.finetune.baselines import CnnSettings
from carbon.finetune.config import MethodConfig
from carbon.finetune.predict import ValidationScore
from tests.helpers.files import random_bases
from tests.helpers.finetune import (
    BASES,
    NUMBERS,
    base_folder,
    finetuned_of,
    run_config,
    strict_json,
    write_rows,
)

# The small model reads 282 bp whole. Windows of 500 bp are [0, 282), [138, 420) and [276, 500).
ROOM = 282
GAP = random_bases(138, 1) + "N" * 282 + random_bases(80, 2)  # the second window knows nothing


@pytest.mark.parametrize("pool", ["mean", "last", "end"])
def test_the_mean_is_over_windows_with_known_bases(base, pool):
    finetuned, _ = finetuned_of(base, NUMBERS, MethodConfig(name="full", pool=pool))
    room = finetuned.room_bp  # 276 if the model reads `</dna>` too
    bases = random_bases(room // 12 * 6, 1) + "N" * room + random_bases(80, 2)
    (found,) = finetuned.predict([bases], too_long="tile")
    first, last = bases[:room], bases[2 * (room // 12 * 6) :]
    one, other = finetuned.predict([first, last])
    by_hand = (len(first) * one + len(last) * other) / (len(first) + len(last))
    np.testing.assert_allclose(found, by_hand, atol=1e-5)

    for bases in ("n" * 500, "RYK", ""):
        assert np.isnan(next(finetuned.predict([bases], too_long="tile"))).all()
    assert np.isfinite(next(finetuned.predict(["nnnnacgt"]))).all()


def test_bases_are_of_windows_with_known_bases(base):
    finetuned, _ = finetuned_of(base, BASES, MethodConfig(name="full"))
    (found,) = finetuned.predict([GAP], too_long="tile")
    first, last = finetuned.predict([GAP[:282], GAP[276:]])
    np.testing.assert_allclose(found[:276], first[:276], atol=1e-5)
    np.testing.assert_allclose(found[282:], last[6:], atol=1e-5)
    # Of 700 bp the windows are [0, 282), [138, 420), [276, 558) and [414, 696) and [552, 700).
    (found,) = finetuned.predict([GAP[:138] + "N" * 420 + GAP[:142]], too_long="tile")
    assert np.isnan(found[282:414]).all()
    assert np.isfinite(found[:282]).all() and np.isfinite(found[414:]).all()


@pytest.fixture
def run(tmp_path, network, monkeypatch):
    """Learn rows in a way; return the results, which are JSON without NaN."""
    monkeypatch.setattr(baselines, "CnnSettings", partial(CnnSettings, most_epochs=1))

    def run(rows, kind, baselines=(), **method):
        base_folder(tmp_path, network)
        write_rows(tmp_path / "data.csv", rows)
        config = run_config(tmp_path, kind, **method) | {"baselines": list(baselines)}
        results = carbon.finetune.run(None, config)
        assert strict_json(tmp_path / "out" / "results.json") == results
        return results

    return run


def short_rows(*others):
    """Return 40 rows of 40 bp, each tenth of them another sequence."""
    bases = [random_bases(40, n) for n in range(40)]
    bases[::10] = others or bases[::10]
    return [(f"s{n}", b, n % 2) for n, b in enumerate(bases)]


def test_a_probe_learns_from_tiles_with_known_bases(tmp_path, run, no_pages):
    rows = short_rows(*[GAP] * 4)  # in each part
    results = run(rows, "binary", ("constant", "composition"), name="probe", too_long="tile")
    assert any("4 windows of 4 sequences" in line for line in results["notes"])
    text = (tmp_path / "out" / "predictions.tsv").read_text()
    assert "\t.\t.\t" not in text and "nan" not in text


# 12 sequences of 700 bp: [0, 138) and [558, 700) known; the windows leave [282, 414) out, 132
# bases. The first 282 of 700 are read where the rest is cut off, so 418 are not.
@pytest.mark.parametrize(
    ("name", "too_long", "unread"), [("probe", "tile", 132), ("lora", "truncate", 418)]
)
def test_labels_of_bases_that_are_not_read(tmp_path, run, no_pages, name, too_long, unread):
    rows = []
    for n in range(12):
        bases = random_bases(138, n) + "N" * 420 + random_bases(142, 100 + n)
        rows.append((f"s{n}", bases, bases.translate(str.maketrans("ACGTN", "ababa"))))
    results = run(rows, "bases", ("constant", "cnn"), name=name, too_long=too_long, epochs=0.5)
    assert any(f"{12 * unread:,} labels" in line for line in results["notes"])
    counted = sum(sum(labels.values()) for labels in results["labels"].values())
    assert counted == 12 * (700 - unread)
    assert not (tmp_path / "out" / "predictions.tsv").exists()


@pytest.mark.parametrize(
    ("bases", "name", "too_long", "wrong"),
    [
        ("N" * ROOM + random_bases(60), "lora", "truncate", "no known base in its first 282"),
        ("N" * 300, "probe", "tile", r"'s0': has no known base \("),
    ],
)
def test_what_is_cut_off_is_not_known(run, bases, name, too_long, wrong):
    with pytest.raises(UserError, match=wrong):
        run(short_rows(bases, *["ACGT"] * 3), "binary", name=name, too_long=too_long)


def test_a_validation_without_a_score_is_null_in_json(tmp_path, run, monkeypatch):
    found = [(0.6, 0.7), (math.nan, math.nan), *[(0.5, math.inf)] * 9]
    validations = iter(ValidationScore(*each) for each in found)
    monkeypatch.setattr(train, "validate", lambda *_: next(validations))
    results = run(short_rows(), "binary", name="lora")
    first, second, *rest = results["seeds"][0]["validations"]
    assert first["score"] == 0.6 and second["score"] is None and second["validation_loss"] is None
    assert all(each["validation_loss"] is None for each in rest)
    assert (tmp_path / "out" / "report.html").is_file()

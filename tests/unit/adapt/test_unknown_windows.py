"""Windows of unknown bases: left out of means, never NaN in what is learned from."""

import csv
import json

import numpy as np
import pytest

import carbon
from carbon.adapt import tuning
from carbon.adapt.config import WayConfig
from carbon.adapt.measuring import Measured
from carbon.errors import UserError
from tests.helpers.adapt import BASES, NUMBERS, adapted_of, base_folder
from tests.helpers.files import random_bases

# The small model reads 282 bp whole. Windows of 500 bp are [0, 282), [138, 420) and [276, 500).
ROOM = 282
GAP = random_bases(138, 1) + "N" * 282 + random_bases(80, 2)  # the second window knows nothing


@pytest.mark.parametrize("pool", ["mean", "last", "end"])
def test_the_mean_is_over_windows_with_known_bases(tmp_path, network, pool):
    adapted, _ = adapted_of(
        base_folder(tmp_path, network), NUMBERS, WayConfig(name="full", pool=pool)
    )
    room = adapted.room_bp  # 276 if the model reads `</dna>` too
    bases = random_bases(room // 12 * 6, 1) + "N" * room + random_bases(80, 2)
    (found,) = adapted.predict([bases], too_long="tile")
    first, last = bases[:room], bases[2 * (room // 12 * 6) :]
    one, other = adapted.predict([first, last])
    by_hand = (len(first) * one + len(last) * other) / (len(first) + len(last))
    np.testing.assert_allclose(found, by_hand, atol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "last", "end"])
def test_a_sequence_without_a_known_base_has_no_prediction(tmp_path, network, pool):
    adapted, _ = adapted_of(
        base_folder(tmp_path, network), NUMBERS, WayConfig(name="full", pool=pool)
    )
    for bases in ("N" * 60, "n" * 500, "RYK"):
        assert np.isnan(next(adapted.predict([bases], too_long="tile"))).all()
    assert np.isfinite(next(adapted.predict(["nnnnacgt"]))).all()


def test_bases_are_of_windows_with_known_bases(tmp_path, network):
    adapted, _ = adapted_of(base_folder(tmp_path, network), BASES, WayConfig(name="full"))
    (found,) = adapted.predict([GAP], too_long="tile")
    first, last = adapted.predict([GAP[:282], GAP[276:]])
    np.testing.assert_allclose(found[:276], first[:276], atol=1e-5)
    np.testing.assert_allclose(found[282:], last[6:], atol=1e-5)
    # Of 700 bp the windows are [0, 282), [138, 420), [276, 558) and [414, 696) and [552, 700).
    (found,) = adapted.predict([GAP[:138] + "N" * 420 + GAP[:142]], too_long="tile")
    assert np.isnan(found[282:414]).all()
    assert np.isfinite(found[:282]).all() and np.isfinite(found[414:]).all()


def test_embed_passes_over_a_window_of_unknown_bases(model):
    gap = random_bases(138, 1) + "N" * 700 + random_bases(80, 2)
    for pool in ("mean", "last", "end"):
        assert np.isfinite(next(model.embed([gap], pool=pool))).all()


def write(path, rows):
    with path.open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(["id", "sequence", "label"])
        writer.writerows(rows)


def config(tmp_path, network, kind, **way):
    base_folder(tmp_path, network)
    return {
        "model": str(tmp_path / "base"),
        "output": str(tmp_path / "out"),
        "data": {
            "path": str(tmp_path / "data.csv"),
            "name": "id",
            "split": {"validation_share": 0.25, "test_share": 0.25},
        },
        "question": {"kind": kind},
        "way": {"epochs": 1.0, "batch": 8, "dropout": 0.0, **way},
        "baselines": ["constant", "composition", "kmers", "cnn"],
    }


def strict(path):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_a_probe_learns_from_tiles_with_known_bases(tmp_path, network):
    bases = [random_bases(40, n) for n in range(40)]
    bases[::10] = [GAP] * 4  # in each part
    write(tmp_path / "data.csv", [(f"s{n}", b, n % 2) for n, b in enumerate(bases)])
    results = carbon.adapt(config(tmp_path, network, "binary", name="probe", too_long="tile"))
    assert "4 windows of 4 sequences have no known base, and are left out." in results["told"]
    assert strict(tmp_path / "out" / "results.json") == results
    text = (tmp_path / "out" / "predictions.tsv").read_text()
    assert "\t.\t.\t" not in text and "nan" not in text


# 12 sequences of 700 bp: [0, 138) and [558, 700) known; the windows leave [282, 414) out, 132
# bases. The first 282 of 700 are read where the rest is cut off, so 418 are not.
@pytest.mark.parametrize(("name", "too_long", "unread"), [("probe", "tile", 132),
                         ("probe", "cut", 418), ("lora", "cut", 418)])  # fmt: skip
def test_labels_of_bases_that_are_not_read(tmp_path, network, name, too_long, unread):
    rows = []
    for n in range(12):
        bases = random_bases(138, n) + "N" * 420 + random_bases(142, 100 + n)
        rows.append((f"s{n}", bases, bases.translate(str.maketrans("ACGTN", "ababa"))))
    write(tmp_path / "data.csv", rows)
    run = config(tmp_path, network, "bases", name=name, too_long=too_long)
    run["baselines"] = ["constant", "cnn"]
    results = carbon.adapt(run)
    told = f"{12 * unread:,} labels are of bases that are not read, and are left out."
    assert told in results["told"]
    assert strict(tmp_path / "out" / "results.json") == results
    counted = sum(sum(labels.values()) for labels in results["labels"].values())
    assert counted == 12 * (700 - unread)
    if name == "lora":
        assert all(np.isfinite(look["validation_loss"]) for look in results["seeds"][0]["looks"])


def test_what_is_cut_off_is_not_known(tmp_path, network):
    rows = [(f"s{n}", random_bases(40, n), n % 2) for n in range(40)]
    rows[3] = ("behind", "N" * ROOM + random_bases(60), 1)
    write(tmp_path / "data.csv", rows)
    with pytest.raises(UserError, match=r"'behind': has no known base in its first 282 bp \(1 seq"):
        carbon.adapt(config(tmp_path, network, "binary", name="lora", too_long="cut"))
    rows[4] = ("nothing", "N" * 300, 1)
    write(tmp_path / "data.csv", rows)
    with pytest.raises(UserError, match=r"'nothing': has no known base \(1 sequences"):
        carbon.adapt(config(tmp_path, network, "binary", name="probe", too_long="tile"))


def test_a_look_without_a_score_is_null_in_json(tmp_path, network, monkeypatch):
    write(tmp_path / "data.csv", [(f"s{n}", random_bases(40, n), n % 2) for n in range(40)])
    nan = float("nan")
    looks = iter([Measured(0.6, 0.7), Measured(nan, nan), *[Measured(0.5, float("inf"))] * 9])
    monkeypatch.setattr(tuning, "measured", lambda *_: next(looks))
    run = config(tmp_path, network, "binary", name="lora") | {"baselines": []}
    results = carbon.adapt(run)
    assert strict(tmp_path / "out" / "results.json") == results
    first, second, *rest = results["seeds"][0]["looks"]
    assert first["score"] == 0.6 and second["score"] is None and second["validation_loss"] is None
    assert all(look["validation_loss"] is None for look in rest)
    assert (tmp_path / "out" / "report.html").is_file()

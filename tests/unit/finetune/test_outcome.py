"""What lies behind the scores, against plain loops."""

import math

import numpy as np
import pytest

from carbon.finetune.calibration import odds_of
from carbon.finetune.results import calibration, certainties, confusion, details_of, losses_of
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask

BINARY = LabelTask("binary", ("no", "yes"), "binary_cross_entropy")
CLASSES = LabelTask("classes", ("a", "b", "c"), "cross_entropy")
LABELS = LabelTask("labels", ("x", "y"), "binary_cross_entropy")
NUMBERS = LabelTask("numbers", ("n", "m"), "mse")
BASES = LabelTask("bases", ("a", "b"), "cross_entropy")


def examples_of(labels, lengths=None, groups=None):
    labels = np.array(labels, dtype=np.float32)
    number = len(lengths or labels)
    return Examples(
        names=tuple(f"s{n}" for n in range(number)),
        sequences=tuple("A" * n for n in (lengths or [4] * number)),
        labels=labels,
        splits=("test",) * number,
        groups=tuple(groups or [""] * number),
        per_base=lengths is not None,
    )


def test_confusion_counts_the_known():
    said = np.array([[0.1], [0.9], [0.5], [0.7]])
    labels = np.array([[0.0], [1.0], [1.0], [np.nan]])
    assert confusion(BINARY, said, labels) == [[1, 0], [1, 1]]  # one half is said to be `no`
    said = np.eye(3)[[0, 1, 2, 2]]
    assert confusion(CLASSES, said, np.array([[0], [1], [1], [2]])) == [
        [1, 0, 0], [0, 1, 1], [0, 0, 1],
    ]  # fmt: skip
    assert confusion(LABELS, np.zeros((2, 2)), np.zeros((2, 2))) is None


def test_certainties_are_of_what_is_said():
    said = np.array([[0.2, 0.8], [0.6, 0.4]])
    labels = np.array([[0.0, np.nan], [1.0, 1.0]])
    probabilities, holds = certainties(LABELS, said, labels)
    assert list(zip(probabilities, holds, strict=True)) == [(0.2, False), (0.6, True), (0.4, True)]
    said = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]])
    probabilities, holds = certainties(CLASSES, said, np.array([[1.0], [2.0]]))
    assert list(zip(probabilities, holds, strict=True)) == [(0.5, True), (0.7, False)]
    assert not len(certainties(NUMBERS, said[:, :2], said[:, :2])[0])


def test_calibration_of_what_holds_as_often_as_is_said():
    random = np.random.default_rng(0)
    probabilities = random.random(50_000)
    found = calibration(probabilities, random.random(50_000) < probabilities)
    assert [each["num_samples"] for each in found["bins"]] == [5000] * 10
    middles = [each["predicted"] for each in found["bins"]]
    np.testing.assert_allclose(middles, np.arange(0.05, 1, 0.1), atol=0.01)
    assert found["error"] < 0.01
    # Said with 0.9, true of half: 0.4 apart.
    wrong = calibration(np.full(100, 0.9), np.arange(100) % 2 == 0)
    assert wrong["error"] == pytest.approx(0.4)
    assert calibration(np.zeros(0), np.zeros(0, dtype=bool)) is None


def test_losses_by_hand():
    test = examples_of([[1.0], [0.0], [np.nan]])
    found = losses_of(BINARY, np.array([[0.25], [0.5], [0.5]]), test)
    np.testing.assert_allclose(found, [math.log(4), math.log(2), np.nan])
    test = examples_of([[1.0, 0.0], [np.nan, 1.0]])
    found = losses_of(LABELS, np.array([[0.5, 0.75], [0.1, 0.5]]), test)
    np.testing.assert_allclose(found, [(math.log(2) + math.log(4)) / 2, math.log(2)])
    # Variances of the columns: 1 and 4; errors 1 and 4.
    test = examples_of([[0.0, 0.0], [2.0, 4.0]])
    found = losses_of(NUMBERS, np.array([[1.0, 4.0], [2.0, 4.0]]), test)
    np.testing.assert_allclose(found, [(1 / 1 + 16 / 4) / 2, 0])
    test = examples_of([[0.0], [1.0], [1.0]], lengths=[2, 1])
    found = losses_of(BASES, np.array([[0.5, 0.5], [0.75, 0.25], [0.5, 0.5]]), test)
    np.testing.assert_allclose(found, [(math.log(2) + math.log(4)) / 2, math.log(2)])


def test_groups_are_the_large_ones_and_the_worst_come_first():
    labels = [[float(n % 2)] for n in range(40)]
    groups = ["chr1"] * 20 + ["chr2"] * 15 + ["chr3"] * 5
    test = examples_of(labels, groups=groups)
    said = np.array([[0.9 if n % 2 else 0.1] for n in range(40)])
    said[3] = 0.01
    tested = {"model": odds_of(said), "constant": np.zeros((40, 1))}
    found = details_of(BINARY, tested, said, test)
    assert [(g["group"], g["examples"]) for g in found["groups"]] == [("chr1", 20), ("chr2", 15)]
    # Of chr1 one of ten positives is below all ten negatives: 90 of 100 pairs.
    scores = found["groups"][0]["scores"]
    assert scores["model"]["value"] == pytest.approx(0.9)
    assert scores["constant"]["value"] == 0.5 and scores["model"]["low"] < 0.9
    assert found["worst"][0]["name"] == "s3" and len(found["worst"]) == 20
    assert found["worst"][0]["label"] == [1.0] and found["worst"][0]["begins"] == "AAAA"
    one_group = details_of(BINARY, tested, said, examples_of(labels, groups=["g"] * 40))
    assert one_group["groups"] == []


def test_the_unit_of_the_bootstrap_is_that_of_its_groups():
    """Twelve groups of two, of which the first has the name of its first example."""
    labels = [[float(n % 2)] for n in range(24)]
    groups = ["s0" if n < 2 else f"g{n // 2}" for n in range(24)]
    assert examples_of(labels, groups=groups).drawn_together == "groups"
    assert examples_of(labels, groups=["a", "b"] * 12).drawn_together == "examples"
    assert examples_of(labels, groups=[f"g{n}" for n in range(24)]).drawn_together == "examples"

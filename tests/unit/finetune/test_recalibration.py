"""Recalibrations against scikit-learn, arithmetic and a search over a grid."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss

from carbon.errors import ModelError
from carbon.finetune.calibration import Calibration, log_odds
from carbon.finetune.config import CALIBRATIONS, DataConfig, FinetuneConfig, TaskConfig
from carbon.finetune.data import PreparedData
from carbon.finetune.folder import Manifest, read_manifest, write_manifest
from carbon.finetune.results import calibration, certainties, results_of
from carbon.finetune.tasks import LabelTask
from tests.helpers.finetune import examples_of

BINARY = LabelTask("binary", ("no", "yes"), "binary_cross_entropy")
CLASSES = LabelTask("classes", ("a", "b", "c"), "cross_entropy")
LABELS = LabelTask("labels", ("x", "y"), "binary_cross_entropy")


def overconfident(num_outputs, number=400):
    """Return logits that are three times too large, and labels: classes, or 0 and 1."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(number, num_outputs))
    if num_outputs == 1:
        labels = random.random((number, 1)) < 1 / (1 + np.exp(-logits))
    else:
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = np.array([[random.choice(num_outputs, p=p)] for p in shares])
    return 3 * logits, labels.astype(np.float32)


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier of scikit-learn whose features are its scores."""

    def __init__(self, number=2):
        self.number, self.classes_ = number, np.arange(number)

    def fit(self, features, labels):
        return self

    def decision_function(self, features):
        return features[:, 0] if self.number == 2 else features

    def predict(self, features):
        return features.argmax(axis=1)


def by_sklearn(method, scores, labels, others):
    """Return the probabilities of each class of others after scikit-learn's own calibration."""
    number = max(2, scores.shape[1])
    method = {"platt": "sigmoid"}.get(method, method)
    model = CalibratedClassifierCV(FrozenEstimator(Scores(number)), method=method)
    return model.fit(scores, labels[:, 0].astype(int)).predict_proba(others)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_two_classes_as_scikit_learn(method):
    logits, labels = overconfident(1)
    others = logits + 0.01
    found = BINARY.calibrated(method, logits, labels).predictions(others)
    expected = by_sklearn(method, logits, labels, others)[:, 1:]
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_many_classes_as_scikit_learn(method):
    logits, labels = overconfident(3)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(log_odds(logits), np.log(shares / (1 - shares)), atol=1e-6)
    found = CLASSES.calibrated(method, logits, labels).predictions(logits)
    odds = np.log(shares / (1 - shares))
    expected = by_sklearn(method, odds, labels, odds)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(("task", "outputs"), [(BINARY, 1), (CLASSES, 3)])
def test_the_temperature_has_the_smallest_loss_of_a_grid(task, outputs):
    logits, labels = overconfident(outputs)
    fitted = task.calibrated("temperature", logits, labels)
    slopes = np.linspace(0.2, 0.7, 51)
    losses = [log_loss(labels[:, 0], task.predictions(slope * logits)) for slope in slopes]
    best = slopes[int(np.argmin(losses))]
    assert fitted.calibration.slopes[0] == pytest.approx(best, abs=0.01) and 0.2 < best < 0.6


def test_the_temperature_by_hand():
    """Of logits of 2 three in four hold, so the slope s has sigmoid(2 s) = 3/4: s = ln(3) / 2."""
    logits, labels = np.full((4, 1), 2.0), np.array([[1.0], [1.0], [1.0], [0.0]])
    fitted = BINARY.calibrated("temperature", logits, labels)
    assert fitted.calibration.slopes[0] == pytest.approx(math.log(3) / 2, abs=1e-4)
    assert fitted.predictions(np.array([[2.0]]))[0, 0] == pytest.approx(0.75, abs=1e-4)


@pytest.mark.parametrize("method", [name for name in CALIBRATIONS if name != "none"])
def test_the_calibration_error_falls_and_the_fit_survives_a_file(tmp_path, method):
    logits, labels = overconfident(1, 4000)
    fitted = BINARY.calibrated(method, logits[::2], labels[::2])
    manifest = Manifest(method="full", base="b", base_sha256="", task=fitted, k=6)
    write_manifest(tmp_path, manifest)
    task = read_manifest(tmp_path).task
    assert task == fitted
    errors = [
        calibration(*certainties(each, each.predictions(logits[1::2]), labels[1::2]))["error"]
        for each in (BINARY, task)
    ]
    assert errors[0] > 0.1 and errors[1] < 0.04
    path = tmp_path / "finetune.json"
    torn = json.loads(path.read_text())
    torn["task"]["names"] = ["a", "b"]
    torn["task"]["calibration"]["slopes"] = torn["task"]["calibration"]["corner_log_odds"] = []
    path.write_text(json.dumps(torn))
    with pytest.raises(ModelError, match=r"task\.calibration does not fit"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("method", [name for name in CALIBRATIONS if name != "none"])
def test_each_label_has_a_curve_of_its_own_rows(method):
    logits, labels = overconfident(1)
    both, truth = np.column_stack([logits, -logits]), np.column_stack([labels, labels])
    truth[::2, 1] = np.nan
    found = LABELS.calibrated(method, both, truth).predictions(both)
    first = BINARY.calibrated(method, logits, labels).predictions(logits)
    rows = slice(1, None, 2)
    second = BINARY.calibrated(method, -logits[rows], labels[rows]).predictions(-logits)
    np.testing.assert_allclose(found, np.column_stack([first, second]), atol=1e-6)
    nothing = LABELS.calibrated(method, both, np.full_like(truth, np.nan))
    assert nothing.calibration.num_outputs == 2  # no known label: probabilities stay finite
    assert np.isfinite(nothing.predictions(both)).all()


def test_the_recalibration_of_the_model_leaves_the_baselines_as_they_are():
    """A slope of -1 would reverse the order of a baseline."""
    config = FinetuneConfig(
        model="m", output="o", data=DataConfig(path="d"), task=TaskConfig(type="binary"),
        baselines=("constant", "composition"),
    )  # fmt: skip
    examples = examples_of(BINARY, 48)
    logits = {
        split: np.linspace(-3, 3, len(examples.split(split)), dtype=np.float32)[:, None]
        for split in ("validation", "test")
    }
    reversed_task = replace(BINARY, calibration=Calibration("platt", (-1.0,), (0.0,)))
    plain, recalibrated = (
        results_of(config, PreparedData(examples, task, (), ""), logits, [])["test"]
        for task in (BINARY, reversed_task)
    )
    assert plain["composition"]["auroc"]["value"] > 0.8  # the label is the GC content
    assert recalibrated["model"] != plain["model"]
    assert recalibrated | {"model": plain["model"]} == plain


@pytest.mark.parametrize("method", CALIBRATIONS)
@pytest.mark.parametrize("task", [BINARY, CLASSES, LABELS])
def test_scores_take_the_log_odds_of_the_probabilities(task, method):
    logits, labels = overconfident(task.num_outputs)
    if task is LABELS:
        labels = np.eye(2)[labels[:, 0].astype(int)]
    fitted = task.calibrated(method, logits, labels)
    probabilities = fitted.predictions(logits).astype(np.float64)
    found = 1 / (1 + np.exp(-fitted.unsaturated(logits)))
    np.testing.assert_allclose(found, probabilities, rtol=1e-5, atol=1e-7)


def test_saturated_probabilities_keep_their_ranks():
    """Logits around 25, in float32 probabilities of 1; of 16 pairs 15 are in order: 15 / 16."""
    logits = np.array([[24.0], [24.2], [24.4], [25.0], [24.8], [25.2], [25.4], [25.6]])
    labels = np.array([[0.0], [0], [0], [0], [1], [1], [1], [1]])
    assert (BINARY.predictions(logits) == 1).all()
    assert BINARY.score(BINARY.unsaturated(logits), labels) == 15 / 16
    # A monotone recalibration does not change ranks, from any slope.
    for name, slope, offset in (("temperature", 0.05, 0.0), ("platt", 20.0, 3.0)):
        fitted = replace(BINARY, calibration=Calibration(name, (slope,), (offset,)))
        assert fitted.score(fitted.unsaturated(logits), labels) == 15 / 16
    # Of two classes, the difference of logits ranks as the single logit does.
    both = np.hstack([np.zeros_like(logits), logits])
    task = LabelTask("classes", ("no", "yes"), "cross_entropy")
    for each in (task, replace(task, calibration=Calibration("platt", (2.0, 2.0), (0.0, 0.0)))):
        assert each.scores(each.unsaturated(both), labels)["auroc"].value == 15 / 16


@pytest.mark.parametrize(("task", "outputs"), [(BINARY, 1), (CLASSES, 3)])
def test_a_separated_split_bounds_the_temperature_and_is_noted(task, outputs):
    """Every logit has the sign of its label, so the loss falls with the slope without end."""
    labels = np.arange(60)[:, None] % max(2, outputs)
    logits = 2.0 * labels - 1 if outputs == 1 else 2 * np.eye(outputs)[labels[:, 0]]
    fitted = task.calibrated("temperature", logits, labels.astype(np.float32))
    assert fitted.calibration.slopes == pytest.approx([math.exp(3)] * outputs)
    (note,) = fitted.calibration.notes(task.output_names)
    assert f"bound for {', '.join(task.output_names)}: the validation split is separated" in note
    random_logits, random_labels = overconfident(outputs)
    inside = task.calibrated("temperature", random_logits, random_labels)
    assert inside.calibration.notes(task.output_names) == []


def test_an_isotonic_curve_never_makes_an_absent_class_impossible():
    logits, labels = overconfident(3)
    present = labels[:, 0] < 2  # no row of the third class
    fitted = CLASSES.calibrated("isotonic", logits[present], labels[present])
    assert fitted.calibration.corner_log_odds[2] == ()
    certain = np.array([[-5.0, -5.0, 5.0]])
    assert fitted.predictions(certain)[0, 2] > 0.5
    one_valued = LABELS.calibrated("isotonic", logits[:, :2], np.zeros((len(logits), 2)))
    np.testing.assert_allclose(
        one_valued.predictions(logits[:, :2]), LABELS.predictions(logits[:, :2]), atol=1e-6
    )


def test_an_isotonic_curve_orders_logits_whose_probabilities_are_1():
    logits = np.repeat([[38.0], [45.0]], 3, axis=0)
    fitted = BINARY.calibrated("isotonic", logits, (logits > 40).astype(float))
    assert fitted.predictions(np.array([[38.0], [45.0], [50.0]])).tolist() == [[0.0], [1.0], [1.0]]

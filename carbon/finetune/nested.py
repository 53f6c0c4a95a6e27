"""Nested cross-validation of linear probes by chromosome.

Each chromosome is predicted by a probe of all others. Leave-one-chromosome-out among these selects
its regularisation, so that no label of a predicted chromosome has any influence on its prediction.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.baselines import composition, kmers
from carbon.finetune.config import FinetuneConfig
from carbon.finetune.data import PreparedData
from carbon.finetune.network import OpenedModel
from carbon.finetune.probe import LOGISTIC_C, vectors_of
from carbon.finetune.split import Examples
from carbon.inference import load
from carbon.metrics import auroc, average_precision, weighted_average_precision
from carbon.progress import track
from carbon.uncertainty import Estimate, Statistic, bootstrap

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

_LEAST_CHROMOSOMES = 3
"""One to predict, one to fit to and one to select the strength by."""
_MOST_STEPS = 1000


class NestedProbe(NamedTuple):
    """The predictions of nested cross-validation.

    Attributes:
        scores: (rows,) log odds of label 1, each from a probe of other chromosomes.
        strengths: C of the probe that predicts each chromosome.
    """

    scores: Floats
    strengths: dict[str, float]


def why_not_nested(labels: Labels, chromosomes: Sequence[str]) -> str:
    """Return why rows cannot be cross-validated, or an empty string."""
    for label in (0, 1):
        found = {c for c, y in zip(chromosomes, labels, strict=True) if y == label}
        if len(found) < _LEAST_CHROMOSOMES:
            return (
                f"label {label} is on {len(found)} chromosomes; nested cross-validation needs "
                f"{_LEAST_CHROMOSOMES}"
            )
    return ""


def nested_probe(features: NDArray[Any], labels: Labels, chromosomes: Sequence[str]) -> NestedProbe:
    """Predict each chromosome by a logistic regression of the others.

    Args:
        features: (rows, features); they are standardised by the rows of each fit.
        labels: (rows,) 0 or 1.
        chromosomes: (rows,) names.

    Raises:
        UserError: a label is on too few chromosomes.
    """
    if reason := why_not_nested(labels, chromosomes):
        raise UserError(reason)
    names = np.asarray(chromosomes, dtype=str)
    scores, strengths = np.zeros(len(labels)), {}
    each = sorted(set(chromosomes))
    for name in track(each, "fitting probes, chromosomes", len(each)):
        others = names != name
        c = _chosen(features[others], labels[others], names[others])
        strengths[name] = c
        scores[~others] = _log_odds(features[others], labels[others], features[~others], c)
    return NestedProbe(scores, strengths)


def _chosen(features: NDArray[Any], labels: Labels, chromosomes: NDArray[Any]) -> float:
    """Return the strength with the best average precision of left-out chromosomes.

    The strongest regularisation wins ties.
    """
    left_out = np.zeros((len(LOGISTIC_C), len(labels)))
    for name in np.unique(chromosomes):
        others = chromosomes != name
        for row, c in zip(left_out, LOGISTIC_C, strict=True):
            row[~others] = _log_odds(features[others], labels[others], features[~others], c)
    ones = np.ones(len(labels))
    precisions = [
        weighted_average_precision(scores, labels, chromosomes.tolist())(ones)
        for scores in left_out
    ]
    return LOGISTIC_C[int(np.argmax(np.nan_to_num(precisions)))]


def _log_odds(features: NDArray[Any], labels: Labels, others: NDArray[Any], c: float) -> Floats:
    """Return the log odds of other rows; 0 if the fit has one label only."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(labels)) < 2:
        return np.zeros(len(others))
    model = make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=_MOST_STEPS))
    with warnings.catch_warnings():
        # Weak regularisation may not converge; left-out chromosomes decide.
        warnings.simplefilter("ignore")
        model.fit(features, labels)
    log_odds: Floats = model.decision_function(others)
    return log_odds


def cross_validated(config: FinetuneConfig, prepared: PreparedData) -> dict[str, Any]:
    """Return the scores of nested cross-validation over all examples, for `results.json`.

    The base model's delta, where a VCF gives it, and probes on composition and k-mers are measured
    on the same rows. With `data.consequence` each class has a probe of its own too.

    Raises:
        UserError: an example has no chromosome, or a label is on too few of them.
    """
    examples = checked_examples(prepared.examples)
    labels, chromosomes = _labels_of(examples), chromosomes_of(examples)
    features = {
        "probe": _states(config, examples),
        "composition": composition(examples),
        "kmers": kmers(examples),
    }
    whole = _of_rows(features, examples, np.arange(len(labels)))
    classes = Counter(each.consequence for each in examples.variants if each.consequence)
    by_class, left_out = {}, {}
    for name in sorted(classes):
        rows = np.array([n for n, v in enumerate(examples.variants) if v.consequence == name])
        if reason := why_not_nested(labels[rows], [chromosomes[n] for n in rows]):
            left_out[name] = f"{len(rows)} examples: {reason}"
        else:
            by_class[name] = _of_rows(features, examples, rows)
    return {"all": whole, "classes": by_class, "left_out": left_out}


def chromosomes_of(examples: Examples) -> tuple[str, ...]:
    """Return the contig of each variant; of other examples the group."""
    return tuple(each.variant.contig for each in examples.variants) or examples.groups


def checked_examples(examples: Examples) -> Examples:
    """Return the examples with a known label.

    Raises:
        UserError: an example has no chromosome, or a label is on too few of them.
    """
    if "" in chromosomes_of(examples):
        raise UserError(
            "method.cross_validate: examples have no chromosome; give a VCF or BED, or split by "
            "'group'"
        )
    known = examples.subset(np.flatnonzero(~np.isnan(examples.labels[:, 0])))
    if reason := why_not_nested(_labels_of(known), chromosomes_of(known)):
        raise UserError(f"method.cross_validate: {reason}")
    return known


def _labels_of(examples: Examples) -> Labels:
    return examples.labels[:, 0].astype(np.int64)


def _states(config: FinetuneConfig, examples: Examples) -> NDArray[np.float32]:
    """Return the features of the last layer, or of the requested one: (examples, features)."""
    opened = OpenedModel(load(config.model, dtype="float32").model)
    opened.backbone.train(False)
    reads_pairs = examples.inputs is not examples.sequences
    variant_input = config.data.variant_input if reads_pairs else "alt"
    layers = [config.method.layer]
    return vectors_of(opened, layers, examples.inputs, config.method, variant_input)[:, 0]


def _of_rows(
    features: Mapping[str, NDArray[Any]], examples: Examples, rows: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the scores of each predictor on some rows."""
    some = examples.subset(rows)
    labels, chromosomes = _labels_of(some), chromosomes_of(some)
    probes = {name: nested_probe(of[rows], labels, chromosomes) for name, of in features.items()}
    scores = {name: probe.scores for name, probe in probes.items()}
    if some.variants:
        deltas = np.nan_to_num([each.delta for each in some.variants])
        scores |= {"-delta": -deltas, "abs_delta": np.abs(deltas)}
    return {
        "examples": len(labels),
        "positives": int(labels.sum()),
        "strengths": probes["probe"].strengths,
        "scores": {name: _measured(each, labels, chromosomes) for name, each in scores.items()},
    }


def _measured(scores: Floats, labels: Labels, chromosomes: Sequence[str]) -> dict[str, Estimate]:
    """Return the scores of a predictor, with intervals that draw chromosomes whole."""
    statistics: dict[str, Statistic] = {
        "average_precision_by_chromosome": weighted_average_precision(scores, labels, chromosomes),
        "average_precision": average_precision(scores, labels),
        "auroc": auroc(scores, labels),
    }
    return {
        name: bootstrap(statistic, len(labels), clusters=chromosomes)
        for name, statistic in statistics.items()
    }

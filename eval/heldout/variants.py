"""Variant AUROC: do damaging variants get lower deltas than controls?"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_curve

from carbon.errors import GenomeError
from carbon.genome import (
    Interval,
    Reference,
    Variant,
    VcfReader,
    contig_names,
    reverse_complement,
)
from carbon.genome.normalize import normalize_variant
from carbon.metrics import auroc
from carbon.uncertainty import bootstrap
from eval.contract import Estimate
from eval.heldout.markov import MAX_ORDER, Markov

Floats = NDArray[np.float64]


class LabelledScores(NamedTuple):
    """Scored variants; every array has one entry a variant."""

    damaging: NDArray[np.bool_]
    effect: NDArray[np.str_]
    delta: Floats
    markov_delta: Floats


def read_scored(
    path: Path, reference: Reference, markov: Markov, contigs: str | None = None
) -> LabelledScores:
    """Read a VCF with LABEL, EFFECT and CARBON_DELTA, and score it with a Markov model too.

    Raises:
        GenomeError: it is no VCF of this reference, or a record has no LABEL.
    """
    names = contig_names(contigs, reference.contig_lengths_bp)
    vcf = VcfReader(path, reference, contig_names=names)
    columns: list[tuple[bool, str, float, float]] = []
    for number, row in enumerate(vcf, start=1):
        info = dict(part.split("=", 1) for part in row.columns[7].split(";") if "=" in part)
        if info.get("LABEL") not in ("0", "1"):
            raise GenomeError(f"{path} record {number}: needs LABEL=0 or LABEL=1 in its INFO")
        deltas = info.get("CARBON_DELTA", "").split(",")
        for variant, delta in zip(row.variants, deltas, strict=False):
            if delta not in ("", "."):
                reference.check_ref(
                    variant.contig, variant.position, variant.ref, f"{path} record {number}"
                )
                baseline = _markov_delta(reference, markov, variant)
                effect = info.get("EFFECT", "variant")
                columns.append((info["LABEL"] == "1", effect, float(delta), baseline))
    if len({damaging for damaging, *_ in columns}) < 2:
        raise GenomeError(
            f"{path}: needs variants of both labels with a CARBON_DELTA; score it with "
            "`carbon variants`"
        )
    return LabelledScores(*(np.array(column) for column in zip(*columns, strict=True)))


def _markov_delta(reference: Reference, markov: Markov, variant: Variant) -> float:
    """Return the Markov model's delta, the mean of both strands."""
    variant = normalize_variant(reference, variant)
    contig, here = variant.contig, variant.interval
    around = here.widened(2 * MAX_ORDER, reference.contig_lengths_bp[contig])
    left = reference.fetch(Interval(contig, around.start, here.start))
    right = reference.fetch(Interval(contig, here.end, around.end))
    ref, alt = (left + allele + right for allele in (variant.ref, variant.alt))
    forward = _total(markov, alt) - _total(markov, ref)
    reverse = _total(markov, reverse_complement(alt)) - _total(markov, reverse_complement(ref))
    return (forward + reverse) / 2


def _total(markov: Markov, sequence: str) -> float:
    return float(np.nansum(markov.log_likelihoods(sequence)))


def variant_auroc(scores: LabelledScores) -> dict[str, Any]:
    """Measure AUROC and average precision of `-delta`, over all and by effect, with a baseline."""
    effects = sorted(set(scores.effect[scores.damaging]))
    controls = ~scores.damaging
    rates = roc_curve(scores.damaging, -scores.delta)
    return {
        **_auroc(scores.damaging, scores.delta)._asdict(),
        "num_damaging": int(scores.damaging.sum()),
        "num_controls": int(controls.sum()),
        "average_precision": float(average_precision_score(scores.damaging, -scores.delta)),
        "by_effect": {
            effect: _auroc(scores.damaging[chosen], scores.delta[chosen])._asdict()
            for effect in effects
            for chosen in [controls | (scores.effect == effect)]
        },
        "by_control": {
            effect: _auroc(scores.damaging[chosen], scores.delta[chosen])._asdict()
            for effect in sorted(set(scores.effect[controls]))
            for chosen in [scores.damaging | (scores.effect == effect)]
        },
        "markov_6": _auroc(scores.damaging, scores.markov_delta)._asdict(),
        "roc": {"false_positive": rates[0].tolist(), "true_positive": rates[1].tolist()},
    }


def _auroc(damaging: NDArray[np.bool_], delta: Floats) -> Estimate:
    return bootstrap(auroc(-delta, damaging.astype(np.int64)), len(delta))

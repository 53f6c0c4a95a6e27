"""A user's program, for mypy and pyright: `scripts/release` checks it against the wheel."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import carbon


def first_score(sequence: str) -> float:
    model = carbon.load("yeast")
    assert_type(model, carbon.Model)
    (score,) = model.score([sequence])
    assert_type(score, carbon.SequenceScore)
    return score.nats_per_base


def deltas(fasta: str, variants: list[carbon.Variant]) -> list[float | None]:
    model = carbon.load("yeast")
    with carbon.Reference(fasta) as genome:
        return [scored.delta for scored in model.score_variants(genome, variants, strands="both")]


def scanned(fasta: str) -> NDArray[np.float32]:
    model = carbon.load("yeast")
    with carbon.Reference(fasta) as genome:
        where = carbon.Interval("VIII", 0, 600)
        whole = carbon.join_chunks(model.scan(genome, where))
    assert_type(whole, carbon.ScanChunk)
    return whole.log_probabilities


def generated(prompt: str) -> list[str]:
    constraints = carbon.Constraints(forbid=("GAATTC",))
    return carbon.load("yeast").generate([prompt], 60, seed=1, constraints=constraints)


def predicted(folder: str, sequences: list[str]) -> list[float]:
    finetuned = carbon.load_finetuned(folder)
    assert_type(finetuned, carbon.FinetunedModel)
    return [float(prediction[0]) for prediction in finetuned.predict(sequences)]

"""A Markov model that knows codons: a hidden state says which base of a codon stands at a place.

Seven states: the three places of a codon on either strand, and everything else. Each has a mixed
Markov model of its own, and a base is predicted by all, weighted by how likely each state is given
the bases before it (the forward recursion of Rabiner 1989, as in gene finders). No annotation of
what is measured is used.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from eval.heldout.markov import base_codes
from eval.heldout.mixed_markov import (
    Floats,
    Labelled,
    MixedModel,
    pieces_of,
    probabilities_of,
)

NUM_STATES = 7
NONCODING = 6
# The first base of a codon of the forward strand is 0, that of the reverse strand 3.
TURNED = np.array([3, 4, 5, 0, 1, 2, NONCODING], dtype=np.int8)


class CodonPeriodic:
    """The distribution of a base, with the place in a codon inferred from the bases before it."""

    def __init__(self, order: int, sequences: Iterable[Labelled]) -> None:
        """Learn a model a state, and how states follow one another, from both strands.

        Args:
            order: the highest of each state's model.
            sequences: bases with their states, outside of what is measured.
        """
        pieces = pieces_of(sequences, TURNED)
        self._models = [MixedModel(order, pieces, state) for state in range(NUM_STATES)]
        pairs = np.ones((NUM_STATES, NUM_STATES))
        for _, labels in pieces:
            pairs += np.bincount(
                NUM_STATES * labels[:-1].astype(np.int64) + labels[1:], minlength=NUM_STATES**2
            ).reshape(NUM_STATES, NUM_STATES)
        self._transitions = pairs / pairs.sum(axis=1, keepdims=True)
        self._start = pairs.sum(axis=1) / pairs.sum()

    def log_likelihoods(self, sequence: str) -> Floats:
        """Return log p of every base given all before it, NaN where it is unknown: (bases,)."""
        codes = base_codes(sequence)
        rows = probabilities_of(self._models, codes)
        emissions = rows[:, np.arange(len(codes)), codes % 4].T
        emissions[codes > 3] = 1.0
        likelihoods = forward(self._start, self._transitions, emissions)
        result: Floats = np.where(codes < 4, np.log(likelihoods), np.nan)
        return result


def forward(start: Floats, transitions: Floats, emissions: Floats) -> Floats:
    """Return p(base | all before it) of each base of one sequence, (bases,).

    Args:
        start: (states,), before the first base.
        transitions: (states, states), from the first to the second.
        emissions: (bases, states), p(base | state and context), 1 where the base is unknown.
    """
    result = np.empty(len(emissions))
    states = start
    for place, emission in enumerate(emissions):
        joint = (states @ transitions if place else states) * emission
        result[place] = total = joint.sum()
        states = joint / total
    return result


def states_of(
    length_bp: int, coding: Iterable[tuple[str, Sequence[tuple[int, int]], int]]
) -> NDArray[np.int8]:
    """Return the state of every base of a contig, (bases,); of two codons the later one counts.

    Args:
        length_bp: of the contig.
        coding: of each transcript the strand, the ascending coding spans, and how many bases stand
            before the first whole codon as the strand reads them.
    """
    states = np.full(length_bp, NONCODING, dtype=np.int8)
    for strand, spans, phase_bp in coding:
        places = np.concatenate([np.arange(start, end) for start, end in spans]) % length_bp
        places = places if strand == "+" else places[::-1]
        within = (np.arange(len(places)) - phase_bp) % 3
        states[places] = within + (0 if strand == "+" else 3)
    return states

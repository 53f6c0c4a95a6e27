"""Which of the six reading frames of a gene does a model believe in?

Every distribution of the next 6-mer says how likely a stop codon is at each place in it, on either
strand. A model that knows the frame expects stop codons out of it only: the frame in which it
expects the fewest is the one it believes in.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.errors import GenomeError
from carbon.genome import STOP_CODONS, reverse_complement
from carbon.inference import Model, Passage, all_kmers, continuation_of, prefix_of
from carbon.progress import track
from carbon.tokenizer import K
from carbon.uncertainty import wilson
from eval.heldout.genes import CodingGene
from eval.heldout.markov import Markov, base_codes, words_of

Floats = NDArray[np.float64]

NUM_FRAMES = 6
_STARTS = (0, 1, 2)  # so that each place of a codon is met at every place of a 6-mer
_SLOTS = K - 3 + 1  # places of a whole codon in a 6-mer
_SIDES = (frozenset(STOP_CODONS), frozenset(map(reverse_complement, STOP_CODONS)))
LEAST_CODONS = 300


def reading_frame(
    model: Model,
    markov: Markov,
    genes: Sequence[CodingGene],
    least_codons: int = LEAST_CODONS,
) -> dict[str, Any]:
    """Measure the share of long genes whose own frame is the one with the fewest expected stops.

    Returns:
        The share with Wilson's interval, and `by_frame`: how many genes each frame was chosen for,
        the own one first, then shifted by one and two, then those of the other strand; and
        `markov_6`, the same of a Markov model that never looks further back than six bases.
    """
    long = [gene for gene in genes if len(gene.cds) > 3 * least_codons]
    if not long:
        raise GenomeError(
            f"no held-out gene has more than {least_codons} codons to tell a frame of"
        )
    expected = [expected_stops(model, gene.cds) for gene in track(long, "reading frame")]
    counted = [stops_by_counting(markov, gene.cds) for gene in long]
    return {
        **_chosen(expected),
        "least_codons": least_codons,
        "markov_6": _chosen(counted),
    }


def _chosen(expected: Sequence[Floats]) -> dict[str, Any]:
    """Tell how often each frame has the fewest expected stops, and how often it is the own one."""
    chosen = np.array(expected).argmin(axis=1)
    share = wilson(int((chosen == 0).sum()), len(chosen))
    return {**share._asdict(), "by_frame": np.bincount(chosen, minlength=NUM_FRAMES).tolist()}


def stops_by_counting(markov: Markov, cds: str) -> Floats:
    """Return what `expected_stops` does, for a Markov model and codons right behind its context."""
    found = []
    for stops in _SIDES:
        each = np.zeros(len(cds) - markov.order - 2)
        for stop in sorted(stops):
            each += np.exp(_log_probability_of(markov, cds, stop))
        found += [each[(frame - markov.order) % 3 :: 3].mean() for frame in range(3)]
    return np.array(found)


def _log_probability_of(markov: Markov, sequence: str, word: str) -> Floats:
    """Return log p(word) behind each whole context of a known sequence that a word follows."""
    codes = base_codes(sequence)
    contexts, _ = words_of(codes[: len(codes) - len(word)], markov.order)
    total = np.zeros(len(contexts))
    for base in base_codes(word):
        total += markov.log_probability[contexts, base]
        contexts = (4 * contexts + base) % 4**markov.order
    return total


def expected_stops(model: Model, cds: str) -> Floats:
    """Return the mean probability of a stop codon at the codons of each frame, (6,).

    Frames are those that begin 0, 1 and 2 bases into the sequence, first of this strand, then of
    the other, read in the places where this strand's codons lie.
    """
    totals, counts = np.zeros((2, 3)), np.zeros(3)
    for start in _STARTS:
        stops = _stops_by_slot(model, cds[start:])
        for slot in range(_SLOTS):
            frame = (start + slot) % 3
            totals[:, frame] += stops[:, :, slot].sum(axis=0)
            counts[frame] += len(stops)
    return (totals / counts).reshape(-1)


def _stops_by_slot(model: Model, sequence: str) -> Floats:
    """Return the probability of a stop codon at every place of every whole 6-mer: (6-mers, 2, 4).

    A sequence longer than the context is read in parts that follow one another.
    """
    reader = model.runner
    context_bp = (reader.context_tokens - len(reader.vocabulary.prefix(()))) * K
    whole_bp = len(sequence) // K * K
    parts = [sequence[at : min(at + context_bp, whole_bp)] for at in range(0, whole_bp, context_bp)]
    stem = prefix_of("", reader.vocabulary, ())
    passages = [Passage(stem, (continuation_of(part, reader.vocabulary),)) for part in parts]
    measured = [arrays[0] for arrays in reader.measure(passages, _stop_probabilities)]
    return np.concatenate(measured).reshape(-1, 2, _SLOTS).astype(np.float64)


def _stop_probabilities(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
    """Return p(stop codon) at each place, both strands: (N, 4096) to (N, 8)."""
    return torch.softmax(logits, dim=1) @ torch.from_numpy(_has_stop()).to(logits.device)


@cache
def _has_stop() -> NDArray[np.float32]:
    """Tell which 6-mers have a stop codon at each place, on either strand: (4096, 8)."""
    rows = [
        [kmer[slot : slot + 3] in stops for stops in _SIDES for slot in range(_SLOTS)]
        for kmer in all_kmers()
    ]
    return np.array(rows, dtype=np.float32)

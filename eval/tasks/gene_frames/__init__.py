"""Gene frames: in which of the six frames of a gene does a model expect the fewest stop codons?

A distribution of the next bases gives the probability of a stop codon at each place, on either
strand. A model that knows the reading frame of a gene expects stop codons in the other frames.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from carbon.genome import STOP_CODONS, reverse_complement
from carbon.uncertainty import wilson
from eval.contract import Example, Floats, Model, Result, Summary, Task
from eval.metrics import summary_of
from eval.tasks.common.held_out import gene_examples
from eval.tasks.gene_frames.build import build

FRAMES = ("own", "+1", "+2", "other strand", "other strand +1", "other strand +2")
_EQUAL = 1e-9  # relative
_STOPS = sorted(STOP_CODONS)
_WORDS = [*_STOPS, *map(reverse_complement, _STOPS)]


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield for each gene the frame with the fewest expected stop codons."""
    for example in examples:
        stops = model.word_probabilities(example.data["row"].dna("cds"), _WORDS)
        if stops is None:
            yield example.result(skipped="the model has no distribution of the next three bases")
        else:
            frames = fewest_stops(expected_stops(stops))
            score = ("own" in frames) / len(frames)
            yield example.result(score=score, frame=frames[0] if len(frames) == 1 else "several")


def expected_stops(probabilities: Floats) -> Floats:
    """Return the mean probability of a stop codon at the codons of each frame, (6,).

    Frames start 0, 1 and 2 bases into the sequence; first on this strand, then on the other, at the
    places of this strand's codons.

    Args:
        probabilities: (bases, words), of the stop codons and of their reverse complements; NaN
            where unknown.
    """
    strands = probabilities.reshape(len(probabilities), 2, -1).sum(axis=2)
    return np.array([np.nanmean(strands[n::3, strand]) for strand in range(2) for n in range(3)])


def fewest_stops(expected: Floats) -> list[str]:
    """Return the frame with the fewest expected stop codons; all frames that equal it."""
    return [FRAMES[n] for n in np.flatnonzero(expected <= expected.min() * (1 + _EQUAL))]


def _summarise(results: Sequence[Result]) -> Summary:
    shares = {
        frame: wilson(sum(result["frame"] == frame for result in results), len(results))
        for frame in (*FRAMES, "several")
    }
    summary = replace(summary_of(results, "mean", groups=()), groups={"frame": shares})
    if not shares["several"].value:
        summary = replace(summary, value=shares["own"])
    summary.notes.append("`frame` has the share of genes for which each frame was chosen")
    return summary


TASK = Task(
    name="gene_frames",
    axis="your genome",
    measures="share of held-out genes in whose own reading frame the fewest stops are expected",
    metric="mean",
    chance=1 / 6,
    columns={"gene_id": str, "cds": str},
    build=build,
    examples=gene_examples,
    run=_run,
    summarise=_summarise,
)

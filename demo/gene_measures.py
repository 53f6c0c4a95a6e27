"""What the Gene page computes of a region, in rounds that let other visitors take turns."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from carbon.genome import Interval, Reference
from carbon.inference import Model, ScanChunk, join_chunks
from demo.arrays import as_lists
from demo.panel import Progress, Result

# Costly views read less context than the track, and two phases of six.
WINDOW_BP, DOWNSTREAM_BP, MAP_PHASES = 768, 48, (0, 3)
_PIECE_BP = 60  # of a constraint track, in one round
_LN2 = float(np.log(2))

Compute = Callable[[Model, Reference, Interval, Mapping[str, Any]], Iterator[Progress | Result]]
"""Function of a region that yields progress, and at last values that JSON can hold."""


class Measure(NamedTuple):
    """One view of a region.

    Attributes:
        compute: function that computes it.
        caption: what the figure shows.
        most_bp: longest region.
        flank_bp: bases shown on both sides of a gene.
        axis: title of the axis of a track.
    """

    compute: Compute
    caption: str
    most_bp: int
    flank_bp: int
    axis: str = ""


def _predictability(
    model: Model, reference: Reference, place: Interval, options: Mapping[str, Any]
) -> Iterator[Progress | Result]:
    """Scan once for each phase; the bits are log2 of the probability of a base over chance."""
    scans, phases = [], options["offsets"]
    for number, phase in enumerate(phases, start=1):
        scans.append(join_chunks(model.scan(reference, place, **{**options, "offsets": [phase]})))
        yield Progress(number, len(phases), "phases")
    mean = np.mean([scan.log_probabilities for scan in scans], axis=0, dtype=np.float64)
    mean -= np.log(np.exp(mean).sum(axis=1, keepdims=True))
    scanned = scans[0]._replace(log_probabilities=mean.astype(np.float32))
    yield _track(scanned, (np.log(4) + scanned.log_p_ref) / _LN2)


def _constraint(
    model: Model, reference: Reference, place: Interval, options: Mapping[str, Any]
) -> Iterator[Progress | Result]:
    """Scan from both sides piece by piece; the bits are the mean loss of the three changes."""
    chunks: list[ScanChunk] = []
    for start in range(place.start, place.end, _PIECE_BP):
        piece = Interval(place.contig, start, min(start + _PIECE_BP, place.end))
        chunks += model.scan(reference, piece, **options)
        yield Progress(piece.end - place.start, place.length_bp, "bases")
    scanned = join_chunks(chunks)
    yield _track(scanned, -scanned.mean_delta / _LN2)


def _track(scanned: ScanChunk, bits: Any) -> Result:
    return {
        "bases": scanned.bases,
        "bits": as_lists(bits, 3),
        "log_probabilities": as_lists(scanned.log_probabilities, 3),
    }


def _dependency(
    model: Model, reference: Reference, place: Interval, options: Mapping[str, Any]
) -> Iterator[Progress | Result]:
    """Compute a map for each phase; the result is their mean, made symmetric."""
    maps, phases = [], options["offsets"]
    for number, phase in enumerate(phases, start=1):
        one_phase = {**options, "offsets": [phase]}
        maps.append(model.dependency(reference, place, **one_phase).directed)
        yield Progress(number, len(phases), "phases")
    directed = np.mean(maps, axis=0)
    yield {
        "bases": reference.fetch(place).upper(),
        "dependency": as_lists(np.maximum(directed, directed.T), 3),
    }


MEASURES = {
    "predictability": Measure(
        _predictability,
        "Height: how much of each letter the model can predict. 2 bits are certainty, 0 bits a "
        "blind guess. Drag in the figure to zoom in, down to letters.",
        6000,
        100,
        "bits known, of 2",
    ),
    "constraint": Measure(
        _constraint,
        "Height: how much less likely the sequence becomes if this base changes, as the mean of "
        f"its three changes. The model reads the bases before it and {DOWNSTREAM_BP} after it.",
        300,
        100,
        "bits lost by a change",
    ),
    "dependency map": Measure(
        _dependency,
        "Each cell is a pair of bases: how much a change of one changes the odds of the other. "
        "Dark squares on the diagonal are neighbours within a 6-mer.",
        150,
        10,
    ),
}

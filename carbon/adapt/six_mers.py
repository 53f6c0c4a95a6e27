"""What a probe of every base learns from: 6-mers, drawn where there are many, and their labels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.averaging import Averager, Window
from carbon.adapt.config import WayConfig
from carbon.adapt.examples import Examples
from carbon.console import track
from carbon.tokenizer import K

MOST_SIX_MERS = 10_000
"""Of a part, as they are read on either strand; of more so many are drawn by the seed."""

_WINDOWS = 64  # read together; of those that are not drawn nothing is kept

Floats32 = NDArray[np.float32]


def six_mers_of(length_bp: int) -> int:
    """Return the 6-mers of a sequence, the tail included."""
    return -(-length_bp // K)


class SixMers(NamedTuple):
    """6-mers in the order of their examples.

    Attributes:
        vectors: (6-mers, width).
        labels: (6-mers, 6) of their bases, NaN where unknown, and behind the end of a sequence.
        total: that there are, of which these were drawn.
    """

    vectors: Floats32
    labels: Floats32
    total: int


def read_six_mers(averager: Averager, examples: Examples, way: WayConfig, seed: int) -> SixMers:
    """Return 6-mers as each strand reads them, at most `MOST_SIX_MERS`.

    Args:
        averager: gives a vector a 6-mer.
        examples: with a label of every base.
        way: strands that are read, each 6-mer of them a row, and what is done with long sequences.
        seed: of the draw.
    """
    tile = way.too_long == "tile"
    windows = list(averager.windows(examples.sequences, way.strands, tile=tile))
    sizes = [six_mers_of(len(window.bases)) for window in windows]
    kept = _drawn(sizes, seed)
    read = [number for number, which in enumerate(kept) if len(which)]
    vectors, labels = [], []
    blocks = [read[first : first + _WINDOWS] for first in range(0, len(read), _WINDOWS)]
    for block in track(blocks, "reading states", len(blocks)):
        for number, found in zip(block, averager.read([windows[n] for n in block]), strict=True):
            vectors.append(found[kept[number]])
            labels.append(_labels_of(windows[number], examples)[kept[number]])
    return SixMers(np.concatenate(vectors), np.concatenate(labels), sum(sizes))


def _drawn(sizes: list[int], seed: int) -> list[NDArray[np.int64]]:
    """Return which 6-mers of each window are kept, in their order."""
    order = np.random.default_rng(seed).permutation(sum(sizes))
    which = np.sort(order[:MOST_SIX_MERS])
    ends = np.cumsum(sizes)
    parts = np.split(which, np.searchsorted(which, ends[:-1]))
    return [part - (end - size) for part, end, size in zip(parts, ends, sizes, strict=True)]


def _labels_of(window: Window, examples: Examples) -> Floats32:
    first = int(examples.starts[window.sequence]) + window.start
    of_bases = examples.labels[first : first + len(window.bases), 0]
    whole = np.full(K * six_mers_of(len(of_bases)), np.nan, dtype=np.float32)
    whole[: len(of_bases)] = of_bases[::-1] if window.is_turned else of_bases
    return whole.reshape(-1, K)

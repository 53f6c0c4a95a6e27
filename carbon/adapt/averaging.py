"""What a network says of sequences of any length: the mean over strands and windows."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from carbon.adapt.batches import batches, cut, room_bp, tokens_of
from carbon.genome import reverse_complement
from carbon.inference.reading.memory import batch_tokens_of
from carbon.inference.scoring import overlapping_windows
from carbon.options import STRANDS_READ, Pool, Strands
from carbon.tokenizer import Vocabulary


class Window(NamedTuple):
    """A piece of a sequence as it is read.

    Attributes:
        sequence: its number.
        start: of the piece in the sequence.
        bases: that are read.
        is_turned: they are the reverse complement of the piece.
    """

    sequence: int
    start: int
    bases: str
    is_turned: bool


_KNOWN = re.compile("[ACGTacgt]")


def windows_read(sequence: str, room_bp: int, *, tile: bool) -> Iterator[tuple[int, str]]:
    """Yield start and bases of each window of a sequence that has a known base.

    Args:
        sequence: DNA in either case.
        room_bp: bases of the longest window.
        tile: windows that overlap by half; otherwise the first alone.
    """
    starts = [start for start, _ in overlapping_windows(len(sequence), room_bp)] if tile else [0]
    for start in starts:
        bases = sequence[start : start + room_bp]
        if _KNOWN.search(bases):
            yield start, bases


class Averager:
    """A network that gives numbers of a batch, and how its batches are made.

    Attributes:
        network: from a `Batch` to (rows, width), or (of all rows, width) where a row has several.
        room_bp: bases of the longest sequence that is read whole.
        batch_tokens: most tokens of one pass.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        backbone: Any,
        vocabulary: Vocabulary,
        pool: Pool,
        width: int,
        *,
        per_base: bool = False,
        size_of: Callable[[int], int] | None = None,
    ) -> None:
        """Wrap a network, whose decoder is `backbone`.

        Args:
            network: as above.
            backbone: that reads.
            vocabulary: of its rows.
            pool: what makes the vector of a sequence.
            width: numbers of each vector.
            per_base: the other strand is read too, for what is said of every base.
            size_of: from the bases of a row to the vectors of it, if it has several; all of its
                bases if `per_base`, otherwise one.
        """
        self.network = network
        self.room_bp = room_bp(backbone.config.max_position_embeddings, pool)
        self.batch_tokens = batch_tokens_of(backbone)
        self._pool, self._width, self._per_base = pool, width, per_base
        self._size_of = size_of or (lambda bases: bases if per_base else 1)
        self._batch = batches(vocabulary, pool, per_base=per_base)

    def means(
        self, sequences: Sequence[str], strands: Strands, *, tile: bool
    ) -> list[NDArray[np.float64]]:
        """Return the mean over strands and windows: (width,) each, or (bases, width).

        A window without a known base is left out. NaN where no window is left; of bases, where none
        holds the base. Without `tile` what does not fit is cut off behind.
        """
        per_base, width = self._per_base, self._width
        shapes = [(len(s), width) if per_base else (width,) for s in sequences]
        sums = [np.zeros(shape) for shape in shapes]
        counts = [np.zeros((*shape[:-1], 1)) for shape in shapes]
        windows = list(self.windows(sequences, strands, tile=tile))
        for window, found in zip(windows, self.read(windows), strict=True):
            size = len(window.bases)
            at = slice(window.start, window.start + size) if per_base else slice(None)
            turned = found[::-1] if per_base and window.is_turned else found
            # A window counts for its bases; of a label of every base each counts for itself.
            weight = 1 if per_base else size
            sums[window.sequence][at] += weight * turned
            counts[window.sequence][at] += weight
        with np.errstate(invalid="ignore"):
            return [total / count for total, count in zip(sums, counts, strict=True)]

    def windows(
        self, sequences: Sequence[str], strands: Strands, *, tile: bool
    ) -> Iterator[Window]:
        """Yield what is read of each sequence; without `tile` its first bases that fit.

        Windows without a known base are left out.
        """
        for number, sequence in enumerate(sequences):
            for start, bases in windows_read(sequence, self.room_bp, tile=tile):
                for strand in STRANDS_READ[strands]:
                    turned = strand == "-"
                    read = reverse_complement(bases) if turned else bases
                    yield Window(number, start, read, turned)

    @torch.inference_mode()
    def read(self, windows: Sequence[Window]) -> list[NDArray[np.float32]]:
        """Return the vectors of each window, those of one length read together."""
        lengths = [tokens_of(len(w.bases), self._pool) * (1 + self._per_base) for w in windows]
        found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(windows)
        device = next(self.network.parameters()).device
        for group in cut(lengths, self.batch_tokens):
            bases = [windows[n].bases for n in group]
            logits = self.network(self._batch(bases).to(device)).cpu().numpy()
            ends = np.cumsum([self._size_of(len(b)) for b in bases])
            for n, part in zip(group, np.split(logits, ends[:-1]), strict=True):
                found[n] = part if self._per_base else part[0]
        return found

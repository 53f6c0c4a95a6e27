"""Predictions of an adapted model: what `carbon.load_adapted` returns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from carbon.adapt.batches import batches, cut, room_bp, tokens_of
from carbon.adapt.choices import TOO_LONG
from carbon.adapt.folder import Manifest
from carbon.adapt.network import AdaptedNetwork
from carbon.adapt.question import Question
from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.inference.reading.memory import batch_tokens_of
from carbon.inference.scoring import blocks, overlapping_windows
from carbon.options import STRANDS_READ, Strands, check_choice
from carbon.tokenizer import Vocabulary

Floats32 = NDArray[np.float32]


class _Window(NamedTuple):
    sequence: int
    start: int
    bases: str
    is_turned: bool


class Adapted:
    """An adapted model, ready to predict.

    Attributes:
        network: in evaluation mode.
        vocabulary: of its rows.
        manifest: what its folder says.
        room_bp: bases of the longest sequence that it reads whole.
        batch_tokens: most tokens of one pass.
    """

    def __init__(
        self, network: AdaptedNetwork, vocabulary: Vocabulary, manifest: Manifest
    ) -> None:
        """Wrap a network; most users call `carbon.load_adapted`."""
        self.network, self.vocabulary, self.manifest = network, vocabulary, manifest
        backbone = _plain(network.backbone)
        self.room_bp = room_bp(backbone.config.max_position_embeddings, manifest.pool)
        self.batch_tokens = batch_tokens_of(backbone)
        self._batch = batches(vocabulary, manifest.pool, per_base=self.question.per_base)

    @property
    def question(self) -> Question:
        """What is asked."""
        return self.manifest.question

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the predictions are of."""
        return self.question.output_names

    def predict(
        self,
        sequences: Iterable[str],
        *,
        strands: Strands | None = None,
        too_long: str | None = None,
    ) -> Iterator[Floats32]:
        """Yield the prediction of each sequence, in order: probabilities, or numbers in their unit.

        Args:
            sequences: DNA of any case; memory does not grow with their number.
            strands: read the sequence, its reverse complement, or `both`: then logits are averaged,
                and a sequence and its reverse complement are predicted the same. As learned if
                None, which is both unless it was asked otherwise.
            too_long: `refuse`, `cut` or `tile` what the context does not hold; as learned if None.

        Yields:
            (outputs,) float32 of each sequence, or (bases, outputs) of a label of every base. NaN
            where no base is known, and for the bases that were cut off.

        Raises:
            UserError: a choice is not possible, or a sequence is too long.
        """
        strands = strands or self.manifest.strands
        too_long = too_long or self.manifest.too_long
        check_choice("strands", strands, STRANDS_READ)
        check_choice("too_long", too_long, TOO_LONG)
        return self._predicted(sequences, strands, too_long)

    def _predicted(
        self, sequences: Iterable[str], strands: Strands, too_long: str
    ) -> Iterator[Floats32]:
        num_done = 0
        for block in blocks(sequences):
            names = [f"sequence {num_done + n}" for n in range(1, len(block) + 1)]
            yield from self.predict_block(block, names, strands, too_long)
            num_done += len(block)

    def predict_block(
        self, sequences: Sequence[str], names: Sequence[str], strands: Strands, too_long: str
    ) -> list[Floats32]:
        """Predict some sequences at once, as `predict` does; a message has the name of one."""
        if too_long == "refuse":
            self.check_lengths(sequences, names)
        logits = self.logits(sequences, strands, tile=too_long == "tile")
        per_base = self.question.per_base
        return [
            self.question.predictions(each if per_base else each[None])[slice(None) if per_base else 0]
            for each in logits
        ]

    def check_lengths(self, sequences: Sequence[str], names: Sequence[str]) -> None:
        """Raise UserError if one does not fit into the context."""
        for name, sequence in zip(names, sequences, strict=True):
            if len(sequence) > self.room_bp:
                raise UserError(
                    f"{name}: has {len(sequence)} bp, the model reads {self.room_bp}; shorten the "
                    "sequence, or let it be cut or tiled (too_long)"
                )

    def logits(
        self, sequences: Sequence[str], strands: Strands = "both", *, tile: bool = False
    ) -> list[NDArray[np.float64]]:
        """Return the mean logits over strands and windows, as `predict` has its shapes.

        Without `tile` what does not fit is cut off behind.
        """
        per_base, width = self.question.per_base, self.question.num_outputs
        shapes = [(len(s), width) if per_base else (width,) for s in sequences]
        sums = [np.zeros(shape) for shape in shapes]
        counts = [np.zeros(shape[:-1]) for shape in shapes]
        windows = list(self._windows(sequences, strands, tile=tile))
        for window, found in zip(windows, self._read(windows), strict=True):
            size = len(window.bases)
            at = slice(window.start, window.start + size) if per_base else ()
            # A window counts for its bases; of bases each for itself.
            weight = 1 if per_base else size
            sums[window.sequence][at] += weight * (found[::-1] if per_base and window.is_turned else found)
            counts[window.sequence][at] += weight
        with np.errstate(invalid="ignore"):
            return [total / count[..., None] for total, count in zip(sums, counts, strict=True)]

    def _windows(
        self, sequences: Sequence[str], strands: Strands, *, tile: bool
    ) -> Iterator[_Window]:
        for number, sequence in enumerate(sequences):
            starts = (
                [start for start, _ in overlapping_windows(len(sequence), self.room_bp)]
                if tile
                else [0]
            )
            for start in starts if sequence else ():
                bases = sequence[start : start + self.room_bp]
                for strand in STRANDS_READ[strands]:
                    turned = strand == "-"
                    read = reverse_complement(bases) if turned else bases
                    yield _Window(number, start, read, turned)

    @torch.inference_mode()
    def _read(self, windows: Sequence[_Window]) -> list[NDArray[np.float32]]:
        """Return the logits of each window, those of one length read together."""
        per_base = self.question.per_base
        lengths = [tokens_of(len(w.bases), self.manifest.pool) * (1 + per_base) for w in windows]
        found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(windows)
        device = next(self.network.parameters()).device
        for group in cut(lengths, self.batch_tokens):
            bases = [windows[n].bases for n in group]
            logits = self.network(self._batch(bases).to(device)).cpu().numpy()
            ends = np.cumsum([len(b) if per_base else 1 for b in bases])
            for n, part in zip(group, np.split(logits, ends[:-1]), strict=True):
                found[n] = part if per_base else part[0]
        return found


def _plain(backbone: torch.nn.Module) -> "torch.nn.Module":
    """Return the stock decoder inside an adapter of peft."""
    inside = getattr(backbone, "get_base_model", None)
    return inside() if inside else backbone

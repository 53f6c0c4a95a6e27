"""Predictions of a fine-tuned model: the class that `carbon.load_finetuned` returns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.config import TOO_LONG, MethodConfig
from carbon.finetune.data import Examples
from carbon.finetune.folder import Manifest
from carbon.finetune.network import Averager, FinetunedNetwork
from carbon.finetune.tasks import LabelTask
from carbon.inference.checks import checked_dna
from carbon.inference.options import STRANDS_READ, Strands, check_choice
from carbon.inference.score import blocks
from carbon.tokenizer import Vocabulary

Floats32 = NDArray[np.float32]


class FinetunedModel:
    """A fine-tuned model, ready to predict.

    Attributes:
        network: in evaluation mode.
        vocabulary: vocabulary of the embedding rows.
        manifest: content of `finetune.json`.
        room_bp: bases of the longest sequence that it reads whole.
        averager: reads sequences in batches.
    """

    def __init__(
        self, network: FinetunedNetwork, vocabulary: Vocabulary, manifest: Manifest
    ) -> None:
        """Wrap a network; use `carbon.load_finetuned` to load one."""
        self.network, self.vocabulary, self.manifest = network, vocabulary, manifest
        task = manifest.task
        self.averager = Averager(
            network,
            _plain(network.backbone),
            vocabulary,
            manifest.pool,
            task.num_outputs,
            per_base=task.per_base,
        )
        self.room_bp = self.averager.room_bp

    @property
    def task(self) -> LabelTask:
        """The task."""
        return self.manifest.task

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the predictions."""
        return self.task.output_names

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
                and a sequence and its reverse complement have the same prediction. None takes the
                recipe's setting, `both` by default.
            too_long: `refuse`, `cut` or `tile` sequences longer than the context. None takes the
                recipe's setting.

        Yields:
            (outputs,) float32 for each sequence, or (bases, outputs) for a label of every base. NaN
            if no base is known, and for bases that were cut off.

        Raises:
            TypeError: `sequences` is a single string or a file name, or an item is not a string.
            UserError: an option is invalid, a sequence is too long, or it has a letter that is not
                DNA.
        """
        strands = strands or self.manifest.strands
        too_long = too_long or self.manifest.too_long
        check_choice("strands", strands, STRANDS_READ)
        check_choice("too_long", too_long, TOO_LONG)
        return self._predicted(checked_dna(sequences), strands, too_long)

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
        """Predict a list of sequences like `predict`; names appear in messages."""
        if too_long == "refuse":
            self.check_lengths(sequences, names)
        logits = self.logits(sequences, strands, tile=too_long == "tile")
        per_base = self.task.per_base
        return [
            self.task.predictions(each if per_base else each[None])[slice(None) if per_base else 0]
            for each in logits
        ]

    def check_lengths(self, sequences: Sequence[str], names: Sequence[str]) -> None:
        """Raise UserError if a sequence does not fit into the context."""
        for name, sequence in zip(names, sequences, strict=True):
            if len(sequence) > self.room_bp:
                raise UserError(
                    f"{name}: has {len(sequence)} bp, the model reads {self.room_bp}; shorten the "
                    "sequence, or set too_long to cut or tile"
                )

    def logits(
        self, sequences: Sequence[str], strands: Strands = "both", *, tile: bool = False
    ) -> list[NDArray[np.float64]]:
        """Return mean logits, (outputs,) each or (bases, outputs); truncate without `tile`."""
        return self.averager.means(sequences, strands, tile=tile)


def _plain(backbone: Any) -> Any:
    """Return the stock decoder inside a peft adapter."""
    inside = getattr(backbone, "get_base_model", None)
    return inside() if inside else backbone


class ValidationScore(NamedTuple):
    """Score and loss on a set of examples.

    Attributes:
        score: selects checkpoints; higher is better.
        loss: the training loss.
    """

    score: float
    loss: float


def validate(
    finetuned: FinetunedModel, examples: Examples, method: MethodConfig
) -> ValidationScore:
    """Score predictions over all processes, as `carbon predict` makes them."""
    task = finetuned.task
    logits = logits_of(finetuned, examples, method)
    score = task.score(task.predictions(logits), examples.labels)
    known = ~np.isnan(examples.labels).all(axis=1)  # bases that are not read have no logits
    targets = torch.from_numpy(task.targets(examples.labels[known]))
    loss = task.loss_of(torch.from_numpy(logits[known]), targets, alone=True)
    return ValidationScore(score, float(loss))


def predictions_of(
    finetuned: FinetunedModel, examples: Examples, method: MethodConfig
) -> NDArray[np.float32]:
    """Return predictions of examples, (rows, outputs)."""
    return finetuned.task.predictions(logits_of(finetuned, examples, method))


def logits_of(
    finetuned: FinetunedModel, examples: Examples, method: MethodConfig
) -> NDArray[np.float64]:
    """Return logits of examples, (rows, outputs), on every process."""
    is_shared = dist.is_available() and dist.is_initialized()
    rank, number = (dist.get_rank(), dist.get_world_size()) if is_shared else (0, 1)
    was_training = finetuned.network.training
    finetuned.network.eval()
    share = finetuned.logits(
        examples.sequences[rank::number],
        method.strands,
        tile=method.too_long == "tile",
    )
    finetuned.network.train(was_training)
    shares: list[Any] = [share]
    if is_shared:
        shares = [None] * number
        dist.all_gather_object(shares, share)
    width = finetuned.task.num_outputs
    rows = [shares[n % number][n // number].reshape(-1, width) for n in range(len(examples))]
    return np.concatenate([np.zeros((0, width)), *rows])

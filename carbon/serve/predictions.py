"""The endpoint of fine-tuned models: labels of sequences."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from carbon.errors import UserError
from carbon.finetune.network import tokens_of
from carbon.finetune.predict import FinetunedModel
from carbon.inference.checks import NotFinite
from carbon.inference.options import STRANDS_READ
from carbon.serve.endpoints import Emit, Endpoint, Float32s, num_windows
from carbon.serve.schemas import Prediction
from carbon.serve.worker import ModelJob


class Predictions(Endpoint[Prediction]):
    """Predict labels with a fine-tuned model."""

    path = "/predict"
    request = Prediction
    entries = "predictions"
    example: ClassVar = {"sequences": ["ATGGCCAAGTAA"]}

    @property
    def model_names(self) -> Sequence[str]:
        """Names of the fine-tuned models."""
        return list(self.options.finetuned)

    def job(self, request: Prediction, emit: Emit | None = None) -> ModelJob:
        """Run the sequences through the fine-tuned model."""
        finetuned, sequences = self._finetuned(request), request.sequences
        strands = request.strands or finetuned.manifest.strands
        too_long = request.too_long or finetuned.manifest.too_long
        if too_long == "refuse":
            names = [f"sequences.{number}" for number in range(len(sequences))]
            finetuned.check_lengths(sequences, names)

        def run(batch: list[str]) -> list[Any]:
            with_sd = finetuned.num_networks > 1
            return list(
                finetuned.predict(batch, strands=strands, too_long=too_long, with_sd=with_sd)
            )

        num_rows = len(STRANDS_READ[strands]) * (1 + finetuned.task.per_base)
        num_rows *= finetuned.num_networks
        tokens = [
            num_rows * _tokens(finetuned, len(each), tile=too_long == "tile") for each in sequences
        ]
        return ModelJob(self._batch_key(request), sequences, tokens, run)

    def head(self, request: Prediction) -> dict[str, Any]:
        """Return the model, and its task."""
        return {**super().head(request), "task": self._finetuned(request).task.type}

    def entry(self, request: Prediction, index: int, result: Float32s) -> dict[str, Any]:
        """Return the predicted class, if the task has classes, and the value of each output.

        An ensemble also has the SD of each output over its members. A label of every base has
        lists, with an item for each base.

        Raises:
            NotFinite: a value is infinite; NaN means that no base is known.
        """
        if np.isinf(result).any():
            raise NotFinite(f"sequences.{index}")
        task = self._finetuned(request).task
        values = result.astype(object)
        values[np.isnan(result)] = None
        columns, width = values.T.tolist(), task.num_outputs
        numbers = {"predicted": dict(zip(task.output_names, columns[:width], strict=True))}
        if len(columns) > width:
            numbers["sd"] = dict(zip(task.output_names, columns[width:], strict=True))
        if not task.task_type.one_column:
            return numbers
        classes = task.classes_of(np.atleast_2d(result)[:, :width])
        return {"class": classes if task.per_base else classes[0], **numbers}

    def _finetuned(self, request: Prediction) -> FinetunedModel:
        if request.model is None and len(self.model_names) > 1:
            raise UserError(f"model: give one of {', '.join(self.model_names)}")
        return self.options.finetuned[request.model or self.model_names[0]]


def _tokens(finetuned: FinetunedModel, length_bp: int, *, tile: bool) -> int:
    """Return the maximum tokens of one strand of a sequence."""
    room_bp, vocabulary = finetuned.room_bp, finetuned.vocabulary
    longest = tokens_of(min(length_bp, room_bp), finetuned.manifest.pool, vocabulary)
    return longest * (num_windows(length_bp, room_bp, vocabulary.k) if tile else 1)

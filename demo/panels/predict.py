"""Predict: a fine-tuned model's predictions for pasted sequences, and for a variant."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.folder import content_of, read_manifest
from carbon.finetune.predict import FinetunedModel, load_finetuned
from carbon.finetune.readers import alleles_of, fits_window
from carbon.finetune.tasks import LabelTask
from carbon.genome import Reference, Variant, fasta_text
from demo.arrays import as_lists
from demo.fields import Field, Values
from demo.folders import folder_named
from demo.lab import Lab
from demo.lru_cache import LruCache
from demo.panel import Example, Panel, Progress, Result, View
from demo.pieces import pieces_of_kinds
from demo.prediction_views import prediction_facts, prediction_figure, prediction_tables
from demo.uploads import printed_vcf, sequences_in_text, shown_reference, without_folders

_NEWEST = "newest"
_PASTED, _VCF = "sequences.fa", "variant.vcf"
_MOST_LETTERS = 12_000
_MOST_SEQUENCES = 50
_MOST_WINDOW_BP = 6000
_EXAMPLE_BP, _NUM_EXAMPLES, _EXAMPLE_WINDOW_BP = 240, 3, 200
_CACHED_MODELS = 2


class Predict(Panel):
    """Opens a folder that `carbon finetune` wrote, and predicts."""

    sentence = (
        "What a model that learned labels with `carbon finetune` predicts for your sequences, and "
        "how a variant of the open genome changes the prediction."
    )
    switches_model = False
    views: ClassVar[tuple[View, ...]] = (
        View("facts"),
        View("figure", "figure", "Predictions of each sequence"),
        View("tables"),
    )

    @classmethod
    def is_available(cls, lab: Lab) -> bool:
        """Return whether there is a fine-tuned model."""
        return bool(lab.finetuned)

    def __init__(self, lab: Lab) -> None:
        self._pieces = _pieces(lab)
        super().__init__(lab)
        self._models: LruCache[FinetunedModel] = LruCache(_CACHED_MODELS)

    def make_fields(self) -> tuple[Field, ...]:
        return (
            Field("model", "Model", _NEWEST, "choice", (_NEWEST, *self.lab.finetuned),
                  info="the folders of `carbon finetune` on this machine"),
            Field("sequences", "Sequences", self._pieces, "lines", most=_MOST_LETTERS,
                  info=f"FASTA, or one on each line; {_MOST_SEQUENCES} at most"),
            Field("variant", "Variant", "",
                  info="such as GENE:c.28A>T or contig:position REF>ALT; may be empty"),
            Field("window_bp", "Bases around the variant", 0, "integer", most=_MOST_WINDOW_BP,
                  info="0 for as learned", more=True),
            Field("strands", "Strands", "as learned", "choice",
                  ("as learned", "both", "forward", "reverse"), more=True),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return models, and a variant."""
        names = self.fields[0].choices[1:3]
        variant = self.lab.example.first_variant().to_text()
        changed = {"variant": variant, "window_bp": _EXAMPLE_WINDOW_BP}
        return (
            *(Example(f"Model {name}", {"model": name}) for name in names),
            *([Example("A variant", changed)] if names else []),
        )

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the predictions of all sequences, and of the variant with REF and ALT."""
        name, folder = self._folder(values["model"])
        try:
            yield from self._answered(values, name, self._finetuned(folder))
        except UserError as error:
            message = str(error).replace(str(folder), name)
            error.args = (without_folders(message, [_base_of(folder)]),)
            raise

    def _answered(
        self, values: Values, name: str, finetuned: FinetunedModel
    ) -> Iterator[Progress | Result]:
        named = sequences_in_text(values["sequences"], _MOST_SEQUENCES)
        variant = self._variant(values, finetuned)
        alleles = (
            [(f"allele {n}", bases) for n, bases in enumerate(variant[1], 1)] if variant else []
        )
        if not named + alleles:
            raise UserError("no sequence is given; paste one, or give a variant")
        strands = _strands(values) or finetuned.manifest.strands
        predictions: list[NDArray[np.float32]] = []
        for title, bases in named + alleles:
            predictions += finetuned.predict_block(
                [bases], [title], strands, finetuned.manifest.too_long
            )
            yield Progress(len(predictions), len(named + alleles), "sequences")
        yield {
            "model": name,
            "method": finetuned.manifest.method,
            "task": finetuned.task.type,
            "per_base": finetuned.task.per_base,
            "strands": strands,
            "outputs": list(finetuned.output_names),
            "names": [title for title, _ in named],
            "sequences": [bases for _, bases in named],
            "predictions": [as_lists(each) for each in predictions[: len(named)]],
            "classes": [_classes(finetuned.task, each) for each in predictions[: len(named)]],
            "variant": variant[0] | _compared(*predictions[-2:]) if variant else None,
        }

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        return {
            "facts": prediction_facts(result),
            "figure": prediction_figure(result),
            "tables": prediction_tables(result, _PASTED),
        }

    def code(self, values: Values) -> Mapping[str, Any]:
        _, folder = self._folder(values["model"])
        strands = _strands(values)
        variant = self._typed(values) if values["variant"] else None
        return {
            **shown_reference(self.lab.genome),
            "folder": str(folder),
            "options": {"strands": strands} if strands else {},
            "fasta": _PASTED,
            "has_sequences": bool(values["sequences"]),
            "variant": variant.to_text() if variant else "",
            "vcf": _VCF,
            "printed": printed_vcf([variant], _VCF) if variant else "",
            "window_bp": values["window_bp"],
            "learned_window_bp": read_manifest(folder).window_bp,
        }

    def _folder(self, name: str) -> tuple[str, Path]:
        """Return the name and path of a model folder that exists now."""
        folders = self.lab.finetuned
        if not folders:
            raise UserError(
                "there is no model with labels under the demo's --runs yet; make one with `carbon "
                "finetune --config FILE --set output=RUNS/mine`, where RUNS is that folder"
            )
        chosen = next(iter(folders)) if name == _NEWEST else name
        return chosen, folder_named(chosen, folders)

    def _finetuned(self, folder: Path) -> FinetunedModel:
        """Load a model, or return the cached model if its folder has not changed."""
        key = (folder, *content_of(folder))
        device = self.lab.model.model.network.device.type
        return self._models.get(key, lambda: load_finetuned(folder, device=device))

    def _typed(self, values: Values) -> Variant:
        lab = self.lab
        return lab.variant_in(lab.genome, values["variant"], lab.example.gene)

    def _variant(
        self, values: Values, finetuned: FinetunedModel
    ) -> tuple[dict[str, Any], tuple[str, str]] | None:
        """Return a variant with its window, and the bases with REF and with ALT; None if none.

        Raises:
            UserError: the variant cannot be predicted; the message gives the reason.
        """
        if not values["variant"]:
            return None
        variant, reference = self._typed(values), self.lab.genome.reference
        if finetuned.task.per_base:
            raise UserError("this model labels every base; give a VCF to `carbon predict`")
        window_bp = values["window_bp"] or finetuned.manifest.window_bp
        if not 2 <= window_bp <= finetuned.room_bp:
            raise UserError(
                f"Bases around the variant: {window_bp:,}; give 2 to {finetuned.room_bp:,}"
            )
        shown = {"variant": variant.to_text(), "window_bp": window_bp}
        return shown, _checked_alleles_of(reference, variant, window_bp)


def _classes(task: LabelTask, predicted: NDArray[np.float32]) -> list[str | None]:
    """Return the predicted class of a sequence or of each base; nothing without classes."""
    return task.classes_of(np.atleast_2d(predicted)) if task.task_type.one_column else []


def _strands(values: Values) -> Any:
    return None if values["strands"] == "as learned" else values["strands"]


def _compared(ref: NDArray[np.float32], alt: NDArray[np.float32]) -> dict[str, list[Any]]:
    return {"ref": as_lists(ref), "alt": as_lists(alt), "delta": as_lists(alt - ref)}


def _base_of(folder: Path) -> str:
    try:
        return read_manifest(folder).base
    except UserError:
        return str(folder)


def _pieces(lab: Lab) -> str:
    """Return one sequence of each kind from the genome as FASTA."""
    genome = lab.genome
    pieces = pieces_of_kinds(genome.reference, genome.annotation, 1, _EXAMPLE_BP)
    named = ((f"{piece.name} {piece.description}", piece.bases) for piece in pieces)
    return fasta_text(islice(named, _NUM_EXAMPLES)).strip()


def _checked_alleles_of(reference: Reference, variant: Variant, window_bp: int) -> tuple[str, str]:
    """Return `alleles_of` for a variant that a user typed.

    Raises:
        UserError: REF disagrees with the reference, or the alleles cannot be predicted.
    """
    disagreement = reference.disagreement(variant.contig, variant.position, variant.ref)
    reason = disagreement.reason if disagreement else variant.why_unscorable()
    if reason:
        shown = reason.replace("_", " ")
        raise UserError(f"variant {variant.to_text()} cannot be predicted: {shown}")
    if not fits_window(reference, variant, window_bp):
        raise UserError(f"an allele is longer than half of the window of {window_bp} bases")
    return alleles_of(reference, variant, window_bp)

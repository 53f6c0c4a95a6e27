"""The endpoint of variants: deltas, consequences and percentiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from carbon.errors import UserError
from carbon.genome import Consequences, Reference, Variant
from carbon.genome.normalize import other_form
from carbon.inference import VariantScore
from carbon.inference.identity import settings_of
from carbon.inference.options import STRANDS_READ, VARIANT_SCORES
from carbon.inference.variants.annotate import (
    Columns,
    VariantAnnotator,
    percentile_meaning,
    why_no_percentile,
)
from carbon.inference.variants.windows import Method, room_bp
from carbon.serve.endpoints import Emit, Endpoint
from carbon.serve.schemas import VariantScoring
from carbon.serve.worker import ModelJob

_NOT_OF_METHOD = {"model", "stream", "variants", "scores"}
_NO_BACKGROUND = "the server has no background; `carbon background` writes one"


@dataclass(frozen=True)
class Variants(Endpoint[VariantScoring]):
    """Score variants; with consequences and percentiles if the server has their files."""

    path = "/variants"
    request = VariantScoring
    entries = "variants"
    example: ClassVar = {"variants": ["VIII:451496 G>A"]}

    consequences: Consequences | None = None  # of all requests, as it indexes every gene
    other_genomes: Mapping[str, str] = field(default_factory=dict)  # from `other_genome`

    def job(self, request: VariantScoring, emit: Emit | None = None) -> ModelJob:
        """Score the variants; one that contradicts the reference gets a reason instead."""
        reference, calibration = self.options.reference, self.options.calibration
        if reference is None:
            raise UserError("there is no reference: start carbon serve with --reference FASTA")
        options = request.model_dump(exclude=_NOT_OF_METHOD)
        has_calibrated = "calibrated_delta" in request.scores
        if has_calibrated and calibration is None:
            raise UserError("there is no calibration: start carbon serve with --calibration FILE")
        chosen: Any = {
            "scores": request.scores,
            "calibration": calibration if has_calibrated else None,
        }
        model = self.model
        model.score_variants(reference, [], **chosen, **options)  # checks them
        method = self._method(request)
        background = None if self._why_no_percentile(method) else self.options.background
        annotate = VariantAnnotator(reference, self.consequences, background)
        added = [name for name in VARIANT_SCORES if name in request.scores and name != "delta"]
        percentile = {"percentile": None, "percentile_of": None} if background else {}

        def run(variants: list[Variant]) -> list[Any]:
            # Scoring itself reports unknown bases.
            wrong = [reference.disagreement(v.contig, v.position, v.ref) for v in variants]
            reasons = [each.reason if each and each.is_contradiction else None for each in wrong]
            fitting = [v for v, reason in zip(variants, reasons, strict=True) if not reason]
            scores = model.score_variants(reference, fitting, **chosen, **options)
            results = []
            for variant, each, reason in zip(variants, wrong, reasons, strict=True):
                score = VariantScore(variant, None, reason) if reason else next(scores)
                columns = _columns(reference, score, added) | percentile
                results.append(annotate(variant, columns, agrees=each is None))
            return results

        variants = [Variant.parse(text) for text in request.variants]
        num_alleles = 4 if "allele_entropy" in request.scores else 2
        num_rows = num_alleles * len(STRANDS_READ[method.strands]) * len(method.offsets)
        context_bp = room_bp(model.runner, method.tags)
        tokens = [
            # A row for each allele; an allele that exceeds the context is not scored.
            num_rows * self._tokens(min(method.window_bp + len(v.alt), context_bp), method.tags)
            for v in variants
        ]
        return ModelJob(self._batch_key(request), variants, tokens, run)

    def head(self, request: VariantScoring) -> dict[str, Any]:
        """Return what the percentiles mean or why there are none, and files of other genomes."""
        background = self.options.background
        why = self._why_no_percentile(self._method(request))
        if background is None or why:
            meaning = f"none: {why}"
        else:
            meaning = percentile_meaning(background, self.model.dtype)
        return {**super().head(request), "percentile": meaning, **self.other_genomes}

    def entry(self, request: VariantScoring, index: int, result: Columns) -> dict[str, Any]:
        """Return the columns of a variant."""
        return result

    def _method(self, request: VariantScoring) -> Method:
        return self.model.variant_method(**request.model_dump(exclude=_NOT_OF_METHOD))

    def _why_no_percentile(self, method: Method) -> str | None:
        background = self.options.background
        if background is None:
            return _NO_BACKGROUND
        scored_by = settings_of(self.model.runner, method)
        is_annotated = self.options.annotation is not None
        return why_no_percentile(background, scored_by, annotated=is_annotated)


def _columns(reference: Reference, score: VariantScore, added: Sequence[str]) -> Columns:
    """Return the scores of a variant under the names of a scored table."""
    return {
        "variant": score.variant.to_text(),
        "delta": score.delta,
        "forward": score.forward,
        "reverse": score.reverse,
        "spread": score.spread,
        "unsure": score.unsure,
        **{name: getattr(score, name) for name in added},
        "scored_as": None if score.reason else other_form(reference, score.variant),
        "strand_left_out": score.strand_left_out,
        "strand_masked": score.strand_masked,
        "reason": score.reason,
    }

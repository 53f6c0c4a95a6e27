"""Annotate variant scores with what needs an annotation or scores of other variants."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from carbon.errors import UserError
from carbon.genome import (
    Annotation,
    Consequence,
    Consequences,
    Reference,
    Variant,
    read_gene_file,
)
from carbon.genome.annotation import cds_of_unknown_code, unknown_code_warnings
from carbon.inference.options import AnnotationOptions
from carbon.inference.variants.background import Background
from carbon.inference.variants.background_file import BackgroundFile
from carbon.inference.variants.calibration import Calibration
from carbon.io.files import sha256_of_file
from carbon.progress import say

Columns = dict[str, Any]
"""Values of an ALT by column; see `carbon.inference.variants.formats.COLUMNS`."""


class Genes(NamedTuple):
    """An annotation, and counts of its CDS with an unknown genetic code, by reason."""

    annotation: Annotation | None
    unknown_codes: dict[str, int]


def read_genes(options: AnnotationOptions, reference: Reference, names: Mapping[str, str]) -> Genes:
    """Read an annotation, if there is one; `names` are other names of the reference's contigs."""
    if options.annotation is None:
        return Genes(None, {})
    annotation = read_gene_file(options.annotation, reference, names, options.genetic_code)
    return Genes(annotation, cds_of_unknown_code(reference, annotation))


def warn_of_unknown_codes(options: AnnotationOptions, genes: Genes) -> None:
    """Report the CDS whose genetic code is unknown."""
    for line in unknown_code_warnings(options.annotation, genes.unknown_codes):
        say(f"warning: {line}")


class VariantAnnotator:
    """Adds to a variant's scores what needs an annotation or the scores of other variants."""

    def __init__(
        self,
        reference: Reference,
        consequences: Consequences | None,
        background: Background | None,
        calibration: Calibration | None = None,
    ) -> None:
        """Take the sources of consequences, percentiles and calibrated deltas, each or None."""
        self._reference, self._consequences = reference, consequences
        self._background, self._calibration = background, calibration

    def __call__(self, variant: Variant, scores: Columns, *, agrees: bool) -> Columns:
        """Return scores with more columns; a REF that disagrees has no consequence."""
        consequence: Columns = {}
        if self._consequences:
            effect = self._consequences.of(variant) if agrees else Consequence()
            consequence = effect._asdict()
        rank = self._rank(variant, scores["delta"], consequence.get("consequence"))
        return scores | consequence | rank | self._calibrated(variant, scores["delta"])

    def _rank(self, variant: Variant, delta: float | None, consequence: str | None) -> Columns:
        """Return the percentile of a delta, and the kind of random variants it is compared with."""
        if self._background is None or delta is None:
            return {}
        kind = self._background.kind_of(self._reference, variant, consequence)
        if kind is None:
            return {}
        percentile = self._background.percentile_in(kind, delta)
        return {"percentile": percentile, "percentile_of": kind}

    def _calibrated(self, variant: Variant, delta: float | None) -> Columns:
        if self._calibration is None:
            return {}
        return {"calibrated_delta": self._calibration.calibrated(self._reference, variant, delta)}


ANNOTATION = "annotation"  # the setting that is present if consequences are written
BACKGROUND = "background"  # the setting that is present if percentiles are written


def other_genome(
    name: str, drawn: BackgroundFile | None, reference: Reference, genetic_code: str | None
) -> dict[str, str]:
    """Return the setting that a background or calibration is of another genome, and warn of it.

    Args:
        name: `background` or `calibration`, for the setting and the warning.
        drawn: the file; None if there is none.
        reference: reference of the scoring.
        genetic_code: `--genetic-code` of the scoring, or None.
    """
    lengths_bp = reference.contig_lengths_bp
    why = drawn.why_other_genome(lengths_bp, genetic_code) if drawn else None
    if why is None:
        return {}
    say(f"warning: the {name} is of another genome ({why}); make one with `carbon background`")
    return {f"{name}_genome": f"another: {why}"}


class BackgroundChoice(NamedTuple):
    """A background and its entries in the settings; without a background, the reason."""

    background: Background | None
    settings: dict[str, Any]


def background_for(
    scored_by: Mapping[str, Any], chosen: Path | None, own: Path | None, *, annotated: bool
) -> BackgroundChoice:
    """Return the background the user chose, or else the model's own.

    If the model's own background does not fit, there are no percentiles; the returned settings and
    a line on stderr state the reason.

    Args:
        scored_by: settings that deltas depend on, from `settings_of`; used only if there is a file.
        chosen: path from the user.
        own: where the model's own may be; None if no percentiles are requested.
        annotated: whether consequences are known.

    Raises:
        UserError: a file is missing or torn, or the chosen one has another model or other settings.
    """
    path = chosen or own
    if path is None:
        return _without("not requested")
    if not chosen and not path.is_file():
        return _without(f"the model has no {path.name}; `carbon background` creates one")
    background = Background.read(path)
    if not (why := why_no_percentile(background, scored_by, annotated=annotated)):
        return BackgroundChoice(background, _about(path, background, scored_by["dtype"]))
    if chosen:
        raise UserError(f"{path}: {why}")
    say(f"no percentiles: {path} {why}")
    return _without(f"{path.name} {why}")


def _without(why: str) -> BackgroundChoice:
    return BackgroundChoice(None, {"percentile": f"none: {why}"})


def _about(path: Path, background: Background, dtype: str) -> dict[str, Any]:
    return {
        BACKGROUND: path.name,
        "background_sha256": sha256_of_file(path),
        "percentile": percentile_meaning(background, dtype),
    }


def percentile_meaning(background: Background, dtype: str) -> str:
    """Return what a percentile among a background's variants means for scores of a dtype."""
    meaning = "percent of the random variants of percentile_of with a lower delta"
    if dtype != background.settings["dtype"]:
        points = background.tolerances[dtype]["percentile"]
        meaning += (
            f"; the background is of {background.settings['dtype']}: of percentiles by {dtype} "
            f"95 % lie within {points:g} points of those"
        )
    return meaning


def why_no_percentile(
    background: Background, scored_by: Mapping[str, Any], *, annotated: bool
) -> str | None:
    """Return why scores have no percentile among a background's variants, or None if they do.

    Args:
        background: the background.
        scored_by: as for `background_for`.
        annotated: whether consequences are known.
    """
    if why := background.why_other(scored_by):
        return why
    if background.needs_consequence and not annotated:
        return "has kinds by consequence; also give --annotation"
    return None


def calibration_for(
    scored_by: Mapping[str, Any], chosen: Path | None
) -> tuple[Calibration | None, dict[str, Any]]:
    """Return the calibration the user chose, if any, and its entries in the settings.

    Args:
        scored_by: as for `background_for`.
        chosen: path from the user.

    Raises:
        UserError: the file is missing or torn, or has another model or other settings.
    """
    if chosen is None:
        return None, {}
    calibration = Calibration.read(chosen)
    calibration.check(scored_by, str(chosen))
    about = {"calibration": chosen.name, "calibration_sha256": sha256_of_file(chosen)}
    return calibration, about

"""Annotate variant scores with what needs an annotation or scores of other variants."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from carbon.errors import UserError
from carbon.genome import (
    Annotation,
    Consequence,
    Consequences,
    Reference,
    Variant,
    VcfRow,
    read_gene_file,
)
from carbon.genome.annotation import cds_of_unknown_code, unknown_code_warnings
from carbon.inference.options import AnnotationOptions
from carbon.inference.variants.background import Background
from carbon.inference.variants.calibration import Calibration
from carbon.io.files import sha256_of_file
from carbon.progress import say

Columns = dict[str, Any]
"""Values of an ALT by column; see `carbon.inference.variants.formats.COLUMNS`."""
Annotate = Callable[[VcfRow, Sequence[Columns]], Sequence[Columns]]


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


def annotator(annotation: Annotation | None, reference: Reference) -> Annotate:
    """Return a function that adds consequences to a record's scores, given an annotation."""
    if annotation is None:
        return lambda _, scores: scores
    consequences = Consequences(reference, annotation)

    def annotated(row: VcfRow, scores: Sequence[Columns]) -> list[Columns]:
        # A REF that contradicts the reference has no consequence.
        effects = (Consequence() if row.disagreement else consequences.of(v) for v in row.variants)
        return [score | each._asdict() for score, each in zip(scores, effects, strict=True)]

    return annotated


ANNOTATION = "annotation"  # the setting that is present if consequences are written
BACKGROUND = "background"  # the setting that is present if percentiles are written


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
    if not (why := _why_not(background, scored_by, annotated)):
        return BackgroundChoice(background, _about(path, background, scored_by["dtype"]))
    if chosen:
        raise UserError(f"{path}: {why}")
    say(f"no percentiles: {path} {why}")
    return _without(f"{path.name} {why}")


def _without(why: str) -> BackgroundChoice:
    return BackgroundChoice(None, {"percentile": f"none: {why}"})


def _about(path: Path, background: Background, dtype: str) -> dict[str, Any]:
    meaning = "percent of the random variants of percentile_of with a lower delta"
    if dtype != background.settings["dtype"]:
        points = background.tolerances[dtype]["percentile"]
        meaning += (
            f"; the background is of {background.settings['dtype']}: of percentiles by {dtype} "
            f"95 % lie within {points:g} points of those"
        )
    return {
        BACKGROUND: path.name,
        "background_sha256": sha256_of_file(path),
        "percentile": meaning,
    }


def _why_not(background: Background, settings: Mapping[str, Any], annotated: bool) -> str | None:
    if why := background.why_other(settings):
        return f"{why}; use its settings, or create a background with these settings"
    if background.needs_consequence and not annotated:
        return "has kinds by consequence; also give --annotation"
    return None


def ranker(background: Background | None, reference: Reference) -> Annotate:
    """Return a function that adds percentiles to a record's scores, given a background."""
    if background is None:
        return lambda _, scores: scores

    def ranked(row: VcfRow, scores: Sequence[Columns]) -> list[Columns]:
        return [
            score | _rank(background, reference, variant, score)
            for variant, score in zip(row.variants, scores, strict=True)
        ]

    return ranked


def _rank(
    background: Background, reference: Reference, variant: Variant, score: Columns
) -> Columns:
    """Return the percentile of a score, and the kind of random variants it is compared with."""
    if score["delta"] is None:
        return {}
    kind = background.kind_of(reference, variant, score.get("consequence"))
    if kind is None:
        return {}
    return {
        "percentile": background.percentile_in(kind, score["delta"]),
        "percentile_of": kind,
    }


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


def calibrator(calibration: Calibration | None, reference: Reference) -> Annotate:
    """Return a function that adds calibrated deltas to a record's scores, given a calibration."""
    if calibration is None:
        return lambda _, scores: scores

    def calibrated(row: VcfRow, scores: Sequence[Columns]) -> list[Columns]:
        return [
            score | {"calibrated_delta": calibration.calibrated(reference, variant, score["delta"])}
            for variant, score in zip(row.variants, scores, strict=True)
        ]

    return calibrated

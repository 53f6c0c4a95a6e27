"""What is written beside the scores of a variant: its most severe consequence for a gene."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from carbon.errors import UserError
from carbon.genome import Annotation, Consequence, Consequences, Reference, Variant, VcfRow
from carbon.inference.variants.background import Background
from carbon.io.files import sha256_of_file
from carbon.progress import say

Kind = type[str] | type[float] | type[int] | type[bool]
ANNOTATION = "annotation"  # the setting that is there where consequences are written

MEANINGS = {
    "gene": "Gene of CARBON_CONSEQUENCE",
    "transcript": "Transcript of CARBON_CONSEQUENCE",
    "consequence": "Most severe consequence for any transcript, as the Sequence Ontology names it",
    "codon": "Number of the first codon that changes, from 1",
    "codons": "Codons before and after, as the transcript reads them",
    "amino_acids": "Amino acids before and after, or the one that stays",
}
KINDS: dict[str, Kind] = {name: int if name == "codon" else str for name in MEANINGS}


class Score(NamedTuple):
    """What is written of one ALT: its `VariantScore`, its percentile, and among which variants."""

    delta: float | None
    reason: str | None
    forward: float | None = None
    reverse: float | None = None
    spread: float | None = None
    strand_left_out: str | None = None
    unsure: bool | None = None
    percentile: float | None = None
    percentile_of: str | None = None
    scored_as: str | None = None


class AnnotatedScore(NamedTuple):
    """What is written of one ALT; the fields are those of `Score` and of `Consequence`."""

    delta: float | None
    reason: str | None
    forward: float | None
    reverse: float | None
    spread: float | None
    strand_left_out: str | None
    unsure: bool | None
    percentile: float | None
    percentile_of: str | None
    scored_as: str | None
    gene: str | None
    transcript: str | None
    consequence: str | None
    codon: int | None
    codons: str | None
    amino_acids: str | None


Annotated = Callable[[VcfRow, Sequence[Score]], Sequence[Score | AnnotatedScore]]


def annotator(annotation: Annotation | None, reference: Reference) -> Annotated:
    """Return what adds consequences to the scores of a record; without an annotation, nothing."""
    if annotation is None:
        return lambda _, scores: scores
    consequences = Consequences(reference, annotation)

    def annotated(row: VcfRow, scores: Sequence[Score]) -> list[AnnotatedScore]:
        # Of a base that the reference has not, nothing is known.
        found = (Consequence() if row.disagreement else consequences.of(v) for v in row.variants)
        return [
            AnnotatedScore(**score._asdict(), **each._asdict())
            for score, each in zip(scores, found, strict=True)
        ]

    return annotated


BACKGROUND = "background"  # the setting that is there where percentiles are written


class Found(NamedTuple):
    """A background, and what is written of it among the settings: without one, the reason."""

    background: Background | None
    settings: dict[str, Any]


Scores = Sequence[Score | AnnotatedScore]


def background_for(
    scored_by: Mapping[str, Any], given: Path | None, own: Path | None, *, annotated: bool
) -> Found:
    """Return the background that is given, or else the one that the model brings with it.

    If the model's own does not fit, there are no percentiles; the settings that are returned say
    why, and so does a line on stderr.

    Args:
        scored_by: what deltas follow from, as `settings_of` returns it; read if there is a file.
        given: by the user.
        own: where the model's own may lie; None if no percentiles are wanted.
        annotated: whether consequences are known.

    Raises:
        UserError: a file is absent or torn, or the given one of another model or other settings.
    """
    path = given or own
    if path is None:
        return _without("not asked for")
    if not given and not path.is_file():
        return _without(f"the model has no {path.name}; `carbon background` makes one")
    background = Background.read(path)
    if not (why := _why_not(background, scored_by, annotated)):
        return Found(background, _about(path, background, scored_by["dtype"]))
    if given:
        raise UserError(f"{path}: {why}")
    say(f"no percentiles: {path} {why}")
    return _without(f"{path.name} {why}")


def _without(why: str) -> Found:
    return Found(None, {"percentile": f"none: {why}"})


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
        return f"{why}; score as it was made, or make one that is like this run"
    if background.needs_consequence and not annotated:
        return "tells variants by consequence; give --annotation too"
    return None


def ranker(
    background: Background | None, reference: Reference
) -> Callable[[VcfRow, Scores], Scores]:
    """Return what adds percentiles to the scores of a record; without a background, nothing."""
    if background is None:
        return lambda _, scores: scores

    def ranked(row: VcfRow, scores: Scores) -> Scores:
        return [
            score._replace(**_rank(background, reference, variant, score))
            for variant, score in zip(row.variants, scores, strict=True)
        ]

    return ranked


def _rank(
    background: Background, reference: Reference, variant: Variant, score: Score | AnnotatedScore
) -> dict[str, Any]:
    """Return the percentile of a score and the kind of random variants that it is among."""
    consequence = getattr(score, "consequence", None)
    if score.delta is None or not (kind := background.kind_of(reference, variant, consequence)):
        return {}
    percentile = background.percentile_in(kind, score.delta)
    return {"percentile": percentile, "percentile_of": kind}

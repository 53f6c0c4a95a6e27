"""What is written beside a score: where it stands among those of random variants."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from carbon.console import say
from carbon.errors import UserError
from carbon.files import sha256_of_file
from carbon.genome import Reference, Variant, VcfRow
from carbon.inference.background.identity import settings_of
from carbon.inference.background.quantiles import FILE_NAME, OWN_FILES, Background
from carbon.inference.reading import Reader
from carbon.inference.variants.consequences import AnnotatedScore, Score
from carbon.inference.variants.method import Method

BACKGROUND = "background"  # the setting that is there where percentiles are written


class Found(NamedTuple):
    """A background, and what is written of it among the settings: without one, the reason."""

    background: Background | None
    settings: dict[str, Any]


Scores = Sequence[Score | AnnotatedScore]


def background_for(
    reader: Reader, method: Method, given: Path | None, own: Path | None, *, annotated: bool
) -> Found:
    """Return the background that is given, or else the one in the model's folder that fits.

    A folder may hold several, such as one a dtype. If none fits, there are no percentiles, and the
    settings that are returned say why; so does a line on stderr.

    Args:
        reader: of the model.
        method: how variants are scored.
        given: by the user.
        own: the model's folder; None if no percentiles are wanted.
        annotated: whether consequences are known.

    Raises:
        UserError: a file is absent or torn, or the given one of another model or other settings.
    """
    if given is None and own is None:
        return _without("not asked for")
    paths = [given] if given else _own_backgrounds(own)
    if not paths:
        return _without(f"the model has no {FILE_NAME}; `carbon background` makes one")
    settings, reasons = settings_of(reader, method), []
    for path in paths:
        background = Background.read(path)
        if not (why := _why_not(background, settings, annotated)):
            return Found(background, _about(path))
        reasons.append(why)
    path, why = paths[0], reasons[0]
    if given:
        raise UserError(f"{path}: {why}")
    say(f"no percentiles: {path} {why}")
    return _without(f"{path.name} {why}")


def _own_backgrounds(folder: Path | None) -> list[Path]:
    return sorted(folder.glob(OWN_FILES)) if folder else []


def _without(why: str) -> Found:
    return Found(None, {"percentile": f"none: {why}"})


def _about(path: Path) -> dict[str, Any]:
    return {
        BACKGROUND: path.name,
        "background_sha256": sha256_of_file(path),
        "percentile": "percent of the random variants of percentile_of with a lower delta",
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

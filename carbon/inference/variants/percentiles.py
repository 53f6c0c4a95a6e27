"""What is written beside a score: where it stands among those of random variants."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from carbon.console import say
from carbon.errors import UserError
from carbon.files import sha256_of_file
from carbon.genome import Reference, VcfRow
from carbon.inference.background.identity import settings_of
from carbon.inference.background.quantiles import Background
from carbon.inference.reading import Reader
from carbon.inference.variants.consequences import AnnotatedScore, Score
from carbon.inference.variants.method import Method

BACKGROUND = "background"  # the setting that is there where percentiles are written


class Found(NamedTuple):
    """A background, and what is written of it among the settings."""

    background: Background | None
    settings: dict[str, Any]


Scores = Sequence[Score | AnnotatedScore]


def background_for(
    reader: Reader, method: Method, given: Path | None, own: Path | None, *, annotated: bool
) -> Found:
    """Return the background that is given, or else the one that the model brings with it.

    The model's own is left out, with a word why, where it does not fit.

    Args:
        reader: of the model.
        method: how variants are scored.
        given: by the user.
        own: where the model's own may lie; None where it is not wanted.
        annotated: whether consequences are known.

    Raises:
        UserError: a file is absent or torn, or the given one of another model or other settings.
    """
    path = given or (own if own and own.is_file() else None)
    if path is None:
        return Found(None, {})
    background = Background.read(path)
    if why := _why_not(background, settings_of(reader, method), annotated):
        if given:
            raise UserError(f"{path}: {why}")
        say(f"no percentiles: {path} {why}")
        return Found(None, {})
    about = {
        BACKGROUND: path.name,
        "background_sha256": sha256_of_file(path),
        "percentile": "percent of random variants of the same kind with a lower delta",
    }
    return Found(background, about)


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
            score._replace(
                percentile=background.percentile(
                    reference, variant, score.delta, getattr(score, "consequence", None)
                )
            )
            for variant, score in zip(row.variants, scores, strict=True)
        ]

    return ranked

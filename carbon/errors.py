"""What can go wrong by the user's hand.

UserError
  ConfigError      a TOML file or a --set that does not fit
  GenomeError      FASTA, GFF3/GTF, VCF, coordinates
    TypedError     what was typed for one of them, wrong at a letter
  CorpusError      a corpus folder that is absent, torn or of another shape
  ModelError       a model folder or checkpoint that cannot be used

A message is one line: where, what is wrong, what to do; of a recipe, a line for each mistake.
Commands print it and exit with 2.
Anything else that escapes is our fault and keeps its traceback.
"""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement


class UserError(ValueError):
    """A mistake in what the user gave; its message says how to mend it, in a line."""


class ConfigError(UserError):
    """A configuration with unknown keys, wrong types or impossible values, a line for each."""


class GenomeError(UserError):
    """A sequence, annotation or variant file that is malformed or does not fit the others."""


class TypedError(GenomeError):
    """What was typed is wrong at a letter.

    Attributes:
        text: the line as it was typed.
        at: where in it the first wrong letter stands, from 0; its length where one is missing.
        wrong: the word there that is unknown; empty where a letter is the trouble.
        near: names that may have been meant for that word.
    """

    def __init__(
        self, message: str, text: str, at: int, wrong: str = "", near: tuple[str, ...] = ()
    ) -> None:
        """Keep them."""
        super().__init__(message)
        self.text, self.at, self.wrong, self.near = text, at, wrong, near


class CorpusError(UserError):
    """A training corpus that is missing, incomplete or not in the documented layout."""


class ModelError(UserError):
    """A model folder or checkpoint that is missing, torn or of another kind."""


PACKAGE = "carbon-dna"
TOLD = ("scan", "serve", "finetune", "design", "rl", "demo", "data", "eval", "umap", "track",
        "gguf", "gpu", "all")  # fmt: skip


def extras_told() -> dict[str, str]:
    """Return a word for each extra: `ok`, what it lacks, or that Carbon itself is not installed."""
    try:
        offered = distribution(PACKAGE).metadata.get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return dict.fromkeys(TOLD, f"not known: {PACKAGE} is not installed here")
    return {extra: _told(extra) for extra in TOLD if extra in offered}


def _told(extra: str) -> str:
    missing = sorted({each.name for each in packages_of(extra) if not _is_met(each)})
    return f"lacks {', '.join(missing)}" if missing else "ok"


def packages_of(extra: str) -> Iterator[Requirement]:
    """Yield what an extra asks for on this machine, through the extras that it consists of."""
    for text in distribution(PACKAGE).requires or []:
        asked = Requirement(text)
        is_of_extra = asked.marker and not asked.marker.evaluate({"extra": ""})
        if not is_of_extra or not asked.marker.evaluate({"extra": extra}):  # type: ignore[union-attr]
            continue
        if asked.name == PACKAGE:
            for inner in sorted(asked.extras):
                yield from packages_of(inner)
        else:
            yield asked


def _is_met(asked: Requirement) -> bool:
    try:
        return asked.specifier.contains(distribution(asked.name).version, prereleases=True)
    except PackageNotFoundError:
        return False

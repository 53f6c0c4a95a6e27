"""Errors that the user can correct, and missing optional packages.

UserError
  ConfigError      invalid TOML file or `--set`
  GenomeError      invalid FASTA, GFF3/GTF, VCF or coordinates
    TypedError     invalid variant, region or sequence as text, with the first wrong letter
  CorpusError      missing, damaged or malformed corpus folder
  ModelError       unusable model folder or checkpoint

A message is one line: place, problem and remedy; for a recipe, a line for each mistake. Commands
print it and exit with 2. All other exceptions are defects and keep their traceback.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement


class UserError(ValueError):
    """A mistake of the user; the message names the problem and the remedy in one line."""


def abridged(text: str, most: int = 40) -> str:
    """Return text for a message: its beginning if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[:most]}..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known one, if one is close.

    >>> did_you_mean("--modle", ["--model", "--output"])
    '; did you mean --model?'
    """
    return "".join(f"; did you mean {near}?" for near in get_close_matches(name, known, 1))


def reason_of(error: BaseException) -> str:
    r"""Return what an error of another library says, for a message in one line.

    It is the first line, with the second if the first announces it by a colon.

    >>> reason_of(ValueError("invalid field:\n  width is 0.\nsee the manual"))
    'invalid field: width is 0'
    """
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    said = f"{first.rstrip()} {more[0].strip()}" if more and first.rstrip().endswith(":") else first
    return said.rstrip(" .,")


class ConfigError(UserError):
    """A configuration with unknown keys, wrong types or invalid values, a line for each."""


class GenomeError(UserError):
    """A sequence, annotation or variant file that is malformed or disagrees with another file."""


class TypedError(GenomeError):
    """A variant, region or sequence as text that is wrong at a letter.

    Attributes:
        text: the text.
        at: index of the first wrong letter; the length of the text if a letter is missing.
        wrong: unknown word at that place; empty if a letter is wrong.
        near: names that are similar to that word.
    """

    def __init__(
        self, message: str, text: str, at: int, wrong: str = "", near: tuple[str, ...] = ()
    ) -> None:
        """Store message and place."""
        super().__init__(message)
        self.text, self.at, self.wrong, self.near = text, at, wrong, near


class CorpusError(UserError):
    """A training corpus that is missing, incomplete or in another layout."""


class ModelError(UserError):
    """A model folder or checkpoint that is missing, damaged or of another type."""


PACKAGE = "carbon-dna"
EXTRAS = ("scan", "serve", "finetune", "design", "rl", "ray", "demo", "data", "eval", "umap",
          "track", "gguf", "gpu", "all")  # fmt: skip


def extras_status() -> dict[str, str]:
    """Return the status of each extra: `ok`, its missing packages, or that it is not known."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        provided = distribution(PACKAGE).metadata.get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return dict.fromkeys(EXTRAS, f"not known: {PACKAGE} is not installed here")
    return {extra: _status(extra) for extra in EXTRAS if extra in provided}


def _status(extra: str) -> str:
    missing = sorted({each.name for each in packages_of(extra) if not _is_met(each)})
    return f"lacks {', '.join(missing)}" if missing else "ok"


def packages_of(extra: str) -> "Iterator[Requirement]":
    """Yield the packages that an extra requires on this machine, including nested extras."""
    from importlib.metadata import distribution  # here, as only few commands need it

    from packaging.requirements import Requirement

    for text in distribution(PACKAGE).requires or []:
        required = Requirement(text)
        is_of_extra = required.marker and not required.marker.evaluate({"extra": ""})
        if not is_of_extra or not required.marker.evaluate({"extra": extra}):  # type: ignore[union-attr]
            continue
        if required.name == PACKAGE:
            for inner in sorted(required.extras):
                yield from packages_of(inner)
        else:
            yield required


def _is_met(required: "Requirement") -> bool:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return required.specifier.contains(distribution(required.name).version, prereleases=True)
    except PackageNotFoundError:
        return False

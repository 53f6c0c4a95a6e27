"""The extras of `pip install 'carbon-dna[...]'`: which are whole, and what the others lack."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement

PACKAGE = "carbon-dna"
TOLD = ("scan", "serve", "adapt", "design", "tune", "demo", "data", "eval", "umap", "track", "gguf",
        "gpu", "all")  # fmt: skip


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

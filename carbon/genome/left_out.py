"""What an annotation reader leaves out: where it lies, whose it is, and why."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from carbon.console import say
from carbon.genome.interval import Interval


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A gene, a transcript or another feature that the reader leaves out.

    Attributes:
        name: its identifier, as the file has it.
        reason: a word such as `no_strand`.
        intervals: the bases that it covers; none where it lies on no contig of the reference. On a
            circular contig one may end past the contig, as it does for a gene.
        gene: name of its gene; None where the file does not state it.
    """

    name: str
    reason: str
    intervals: tuple[Interval, ...] = ()
    gene: str | None = None


def report_left_out(path: Path, left_out: Sequence[LeftOut]) -> None:
    """Print one line to stderr that counts by reason what was left out; nothing if all was read."""
    if left_out:
        say(f"{path}: annotation: left out {len(left_out):,}: {_by_reason(left_out)}")


def _by_reason(left_out: Sequence[LeftOut]) -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for each in left_out:
        names[each.reason].append(each.name)
    return ", ".join(
        f"{len(found):,} {reason} (e.g. {found[0]})" for reason, found in sorted(names.items())
    )


def on_contig(contig: str, start: int, end: int, length_bp: int) -> tuple[Interval, ...]:
    """Return the part of a span that lies on its contig; nothing where no base of it does."""
    first, last = max(0, start), min(end, length_bp)
    return (Interval(contig, first, last),) if first < last else ()

"""The constraints of a design, measured on its bases one by one, as columns of the output."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from carbon.design.rules import Rules, both_strands, has_repeat, least_fold_kcal
from carbon.genome.alphabet import IUPAC_BASES, STOP_CODONS, gc_share, translate
from carbon.inference.options import Constraints

_LEAST_REPEAT_BP, _LONGEST_REPEAT_BP = 5, 31


class Measured(NamedTuple):
    """A design to measure.

    Attributes:
        bases: A, C, G and T.
        prompt: DNA before it.
        rules: rules of the run.
    """

    bases: str
    prompt: str
    rules: Rules

    @property
    def constraints(self) -> Constraints:
        """The constraints on generation."""
        return self.rules.constraints


class Measure(NamedTuple):
    """A column about a constraint.

    Attributes:
        kind: type of the values.
        value: function from a design to its value.
        is_for: whether a run with these rules has the column.
    """

    kind: type[str] | type[int] | type[float]
    value: Callable[[Measured], Any]
    is_for: Callable[[Rules], bool] = lambda rules: True


def occurrences(motif: str, bases: str) -> list[int]:
    """Return the starts of an IUPAC motif in bases of A, C, G and T, overlapping ones too.

    >>> occurrences("RA", "GAAA")
    [0, 1, 2]
    """
    letters = "".join(f"[{IUPAC_BASES.get(letter, letter)}]" for letter in motif.upper())
    return [match.start() for match in re.finditer(f"(?={letters})", bases)]


def _window_shares(design: Measured) -> list[float]:
    size = design.constraints.gc_window_bp or len(design.bases)
    starts = range(0, len(design.bases) - size + 1, size)
    return [gc_share(design.bases[at : at + size]) for at in starts] or [gc_share(design.bases)]


def _longest_run_bp(design: Measured) -> int:
    return max(sum(1 for _ in run) for _, run in groupby(design.bases))


def _longest_repeat_bp(design: Measured) -> int:
    """Return the bases of the longest repeat, at most 31; 0 if it is shorter than 5."""
    longest_bp = 0
    for length_bp in range(_LEAST_REPEAT_BP, _LONGEST_REPEAT_BP + 1):
        if not has_repeat(design.bases, length_bp):
            break
        longest_bp = length_bp
    return longest_bp


def _num_sites(design: Measured) -> int:
    """Count the sites on both strands; a palindrome, which stands on both, is one site."""
    motifs = both_strands(design.rules.sites)
    return sum(len(occurrences(motif, design.bases)) for motif in motifs)


def _num_forbidden(design: Measured) -> int:
    """Count the forbidden motifs that overlap the design; they may begin in the prompt."""
    whole, first = design.prompt.upper() + design.bases, len(design.prompt)
    return sum(
        start + len(motif) > first
        for motif in design.constraints.forbid
        for start in occurrences(motif, whole)
    )


def _required_at(design: Measured) -> str:
    places = required_places(design.constraints.require, design.bases)
    return ",".join(f"{motif}:{start + 1}" for motif, start in places)


def required_places(motifs: Iterable[str], bases: str) -> Iterator[tuple[str, int]]:
    """Yield each required motif with its 0-based starts in a design; repeated motifs count once."""
    for motif in dict.fromkeys(motifs):
        for start in occurrences(motif, bases):
            yield motif, start


def _num_stops(design: Measured) -> int:
    """Count the stop codons in the frame that overlap the design."""
    whole, first = design.prompt.upper() + design.bases, len(design.prompt)
    frame = design.constraints.no_stop_frame or 0
    starts = range(frame, len(whole) - 2, 3)
    return sum(whole[at : at + 3] in STOP_CODONS for at in starts if at + 3 > first)


MEASURES: dict[str, Measure] = {
    "gc_content": Measure(float, lambda design: gc_share(design.bases)),
    "lowest_window_gc": Measure(
        float,
        lambda design: min(_window_shares(design)),
        lambda rules: bool(rules.constraints.gc_window_bp),
    ),
    "highest_window_gc": Measure(
        float,
        lambda design: max(_window_shares(design)),
        lambda rules: bool(rules.constraints.gc_window_bp),
    ),
    "longest_run_bp": Measure(int, _longest_run_bp),
    "longest_repeat_bp": Measure(int, _longest_repeat_bp),
    "lowest_fold_kcal": Measure(
        float,
        lambda design: least_fold_kcal(design.bases),
        lambda rules: rules.least_kcal is not None,
    ),
    "num_sites": Measure(int, _num_sites, lambda rules: bool(rules.sites)),
    "num_forbidden": Measure(int, _num_forbidden, lambda rules: bool(rules.constraints.forbid)),
    "required_at": Measure(str, _required_at, lambda rules: bool(rules.constraints.require)),
    "num_stops": Measure(
        int, _num_stops, lambda rules: rules.constraints.no_stop_frame is not None
    ),
    "translation": Measure(
        str,
        lambda design: translate(design.bases),
        lambda rules: rules.constraints.protein is not None,
    ),
}
"""Columns about constraints, in the order of the output. GC content and the longest run and repeat
are always reported, the others if the run has the constraint. Positions are 1-based."""

EDITS_TO_OTHERS = "edits_to_others"
"""Column of the least edit distance to another design; None for a single design."""


def measures_for(rules: Rules) -> dict[str, Measure]:
    """Return the measures that a run with these rules reports."""
    return {name: measure for name, measure in MEASURES.items() if measure.is_for(rules)}


def columns_for(rules: Rules) -> dict[str, Any]:
    """Return name and type of the columns about constraints."""
    columns: dict[str, Any] = {name: each.kind for name, each in measures_for(rules).items()}
    return columns | ({EDITS_TO_OTHERS: int} if rules.least_edits else {})


def measured(designs: Sequence[str], prompt: str, rules: Rules) -> list[dict[str, Any]]:
    """Return the values of the columns of `columns_for`, for each design."""
    measures = measures_for(rules)
    rows = [
        {name: each.value(Measured(bases, prompt, rules)) for name, each in measures.items()}
        for bases in designs
    ]
    if rules.least_edits:
        for row, edits in zip(rows, edits_to_others(designs), strict=True):
            row[EDITS_TO_OTHERS] = edits
    return rows


def edits_to_others(designs: Sequence[str]) -> list[int | None]:
    """Return the least edit distance of each design to another one; None for a single design."""
    from carbon.design.distances import edits_between

    return [
        min((edits_between(a, b) for m, b in enumerate(designs) if m != n), default=None)
        for n, a in enumerate(designs)
    ]

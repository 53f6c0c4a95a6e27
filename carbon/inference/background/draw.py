"""Random variants of every kind, uniform over the known bases of a reference."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from carbon.errors import UserError
from carbon.genome import Consequences, Interval, Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference.background.kinds import INDELS, KINDS, LONGEST_INDEL_BP, Path

_TRIES_A_VARIANT = 1000  # after so many without a kind, the contigs count as having none of it
_MOST_TRIES_A_VARIANT = 10_000  # a kind rarer than that among draws has fewer variants than wanted
_BASES = "ACGT"


class Drawn(NamedTuple):
    """A variant that was drawn.

    Attributes:
        variant: what to score.
        path: its kinds, the narrowest first.
        weight: its share of the broadest of them: of a kind that is rare in the genome as many are
            drawn as of another, and each of them weighs less.
    """

    variant: Variant
    path: Path
    weight: float


class Drawing(NamedTuple):
    """How variants are drawn.

    Attributes:
        variants_per_kind: how many of every narrowest kind.
        seed: of the random numbers, 0 or more; the same gives the same variants.
        contigs: where places are; all if none is named.
    """

    variants_per_kind: int = 200
    seed: int = 0
    contigs: tuple[str, ...] = ()


def draw_variants(
    reference: Reference, kinds: str, drawing: Drawing, consequences: Consequences | None = None
) -> list[Drawn]:
    """Draw variants until there are enough of every narrowest kind, or a kind is too rare.

    Places are uniform over the known bases of the contigs, ALTs of SNVs over the three other bases;
    what is inserted stands elsewhere in the contigs. All lengths of indels weigh the same. Indels
    are left-aligned, as every variant is before it is scored.

    Args:
        reference: where they are drawn.
        kinds: a name of `KINDS`.
        drawing: how many, and where.
        consequences: that kinds by consequence are told by.

    Raises:
        UserError: a number is not possible, there is no such contig, or the contigs have next to
            no known bases.
    """
    if drawing.variants_per_kind < 1 or drawing.seed < 0:
        raise UserError(
            f"variants per kind {drawing.variants_per_kind}, seed {drawing.seed}: give 1 or more, "
            "and a seed of 0 or more"
        )
    table = KINDS[kinds]
    places = Places(reference, drawing.contigs, np.random.default_rng(drawing.seed))

    def path_of(variant: Variant) -> Path:
        term = consequences.of(variant).consequence if consequences else None
        return table.path_of(reference, variant, term)

    def some(propose: Callable[[], Variant | None], narrowest: Sequence[str]) -> Iterator[Drawn]:
        return _some(propose, path_of, narrowest, drawing.variants_per_kind)

    drawn = list(some(places.snv, table.narrowest_snvs))
    for name in INDELS:
        for length_bp in range(1, LONGEST_INDEL_BP + 1):
            narrowest = table.narrowest_indels(name, length_bp)
            drawn += some(lambda: places.indel(name, length_bp), narrowest)  # noqa: B023
    if not drawn:
        raise UserError(f"{reference.path}: no variants can be drawn; has it known bases?")
    return drawn


def _some(
    propose: Callable[[], Variant | None],
    path_of: Callable[[Variant], Path],
    narrowest: Sequence[str],
    wanted: int,
) -> Iterator[Drawn]:
    """Keep the first variants of every kind, and count all to know how common the kind is."""
    kept: dict[Path, list[Variant]] = defaultdict(list)
    seen: Counter[Path] = Counter()
    missing = set(narrowest)
    for number in range(_MOST_TRIES_A_VARIANT * wanted):
        if number == _TRIES_A_VARIANT * wanted:
            missing &= {path[0] for path in seen}
        if not missing:
            break
        if (variant := propose()) is None or not (path := path_of(variant)):
            continue
        seen[path] += 1
        if len(kept[path]) < wanted:
            kept[path].append(variant)
        if len(kept[path]) == wanted:
            missing.discard(path[0])
    for path, variants in kept.items():
        weight = seen[path] / seen.total() / len(variants)
        yield from (Drawn(variant, path, weight) for variant in variants)


class Places:
    """Draws variants at random places of some contigs."""

    def __init__(
        self, reference: Reference, contigs: Sequence[str], numbers: np.random.Generator
    ) -> None:
        lengths_bp = reference.contig_lengths_bp
        if missing := [name for name in contigs if name not in lengths_bp]:
            raise UserError(f"{reference.path}: {reference.explain_missing(missing)}")
        self._reference, self._numbers = reference, numbers
        self._contigs = list(contigs or lengths_bp)
        self._ends = list(accumulate(lengths_bp[name] for name in self._contigs))

    def snv(self) -> Variant | None:
        """Draw an SNV; None where the reference has no known base."""
        contig, position = self._place()
        ref = self._known(contig, position, position + 1)
        if not ref:
            return None
        return Variant(contig, position, ref, self._one_of(_BASES.replace(ref, "")))

    def indel(self, name: str, length_bp: int) -> Variant | None:
        """Draw a deletion or an insertion of a length; it is returned left-aligned."""
        found = self._indel(name, length_bp)
        return normalize_variant(self._reference, found) if found else None

    def _indel(self, name: str, length_bp: int) -> Variant | None:
        """Draw an indel after the base that VCF puts before it, in a repeat at any copy."""
        contig, position = self._place()
        if name == "deletion":
            ref = self._known(contig, position, position + 1 + length_bp)
            return Variant(contig, position, ref, ref[0]) if ref else None
        ref = self._known(contig, position, position + 1)
        elsewhere, start = self._place()
        inserted = self._known(elsewhere, start, start + length_bp)
        return Variant(contig, position, ref, ref + inserted) if ref and inserted else None

    def _place(self) -> tuple[str, int]:
        number = int(self._numbers.integers(self._ends[-1]))
        index = int(np.searchsorted(self._ends, number, side="right"))
        return self._contigs[index], number - (self._ends[index - 1] if index else 0)

    def _one_of(self, bases: str) -> str:
        return bases[int(self._numbers.integers(len(bases)))]

    def _known(self, contig: str, start: int, end: int) -> str:
        """Return bases in upper case; nothing if one is unknown or past the contig's end."""
        if end > self._reference.contig_lengths_bp[contig]:
            return ""
        bases = self._reference.fetch(Interval(contig, start, end)).upper()
        return bases if set(bases) <= set(_BASES) else ""

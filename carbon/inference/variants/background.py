"""Backgrounds: score quantiles of random variants of every kind, for percentiles.

The kinds of a variant form a path, the narrowest first. With the scheme `change` a kind depends on
the bases alone, so that a percentile still separates harmful from harmless variants. With the
scheme `consequence` it depends on the consequence for a gene, so that a percentile compares
variants of one consequence.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import Consequences, Interval, Reference, Variant, reverse_complement
from carbon.genome.consequence_terms import TERMS, VOCABULARY_VERSION, is_coding
from carbon.genome.consequences import trimmed
from carbon.genome.normalize import normalize_variant
from carbon.inference.options import BackgroundOptions
from carbon.inference.variants.background_file import BackgroundFile

LONGEST_INDEL_BP = 12
INDELS = ("deletion", "insertion")
KindPath = tuple[str, ...]

_BASES = "ACGT"
_PYRIMIDINES = "CT"


class KindScheme(NamedTuple):
    """A scheme that assigns kinds to variants.

    Attributes:
        path_of: function from reference, variant and its consequence to the kinds of a variant, the
            narrowest first; empty if it has none.
        narrowest_snvs: kinds of SNVs that variants are drawn for.
        narrowest_indels: function from `deletion` or `insertion` and a length in bp to their kinds.
        needs_consequence: whether the consequence is used.
    """

    path_of: Callable[[Reference, Variant, str | None], KindPath]
    narrowest_snvs: tuple[str, ...]
    narrowest_indels: Callable[[str, int], tuple[str, ...]]
    needs_consequence: bool


def _change(reference: Reference, variant: Variant, consequence: str | None) -> KindPath:
    """Classify SNVs by their change and the base on either side, indels by their length."""
    return _indel(variant) or _snv_in_context(reference, variant)


def _consequence(reference: Reference, variant: Variant, consequence: str | None) -> KindPath:
    """Classify SNVs by their consequence, indels by their length and whether they are in a CDS."""
    if broad := _indel(variant):
        return (_indel_where(broad[0], consequence), *broad) if consequence in TERMS else broad
    if not _is_snv(variant):
        return ()
    term = TERMS.get(consequence or "")
    return (f"snv {term.snv_kind}", "snv") if term and term.snv_kind else ("snv",)


def _is_snv(variant: Variant) -> bool:
    start, end, alt = trimmed(variant)
    return not variant.why_unscorable() and end - start == len(alt) == 1


def _indel(variant: Variant) -> KindPath:
    """Return the kinds of a short insertion or deletion that replaces no bases; otherwise none."""
    if variant.why_unscorable():
        return ()
    start, end, alt = trimmed(variant)
    lengths_bp = end - start, len(alt)
    if min(lengths_bp) or max(lengths_bp) > LONGEST_INDEL_BP:
        return ()
    name = "deletion" if lengths_bp[0] else "insertion"
    return f"{name} {max(lengths_bp)}", name


def _indel_where(kind: str, consequence: str | None) -> str:
    return f"{kind} {'coding' if is_coding(consequence) else 'noncoding'}"


def _snv_in_context(reference: Reference, variant: Variant) -> KindPath:
    """Return the kinds of an SNV, on the strand where REF is C or T."""
    if not _is_snv(variant):
        return ()
    start, end, alt = trimmed(variant)
    length_bp = reference.contig_lengths_bp[variant.contig]
    around = Interval(variant.contig, max(0, start - 1), min(end + 1, length_bp))
    left, right = start - around.start, around.end - end
    bases = reference.fetch(around).upper()
    # The reference may have an ambiguity code at REF.
    bases = bases[:left] + variant.ref[start - variant.position].upper() + bases[left + 1 :]
    if bases[left] not in _PYRIMIDINES:
        bases, alt, left = reverse_complement(bases), reverse_complement(alt), right
    change = f"{bases[left]}>{alt}"
    broad = (f"snv {change}", "snv")
    if len(bases) != 3 or not set(bases) <= set(_BASES):
        return broad
    return f"snv {bases[0]}[{change}]{bases[2]}", *broad


_CONTEXTS = tuple(
    f"snv {left}[{ref}>{alt}]{right}"
    for ref, alt, left, right in product(_PYRIMIDINES, _BASES, _BASES, _BASES)
    if ref != alt
)

KIND_SCHEMES: dict[str, KindScheme] = {
    "change": KindScheme(
        _change,
        narrowest_snvs=_CONTEXTS,
        narrowest_indels=lambda name, bp: (f"{name} {bp}",),
        needs_consequence=False,
    ),
    "consequence": KindScheme(
        _consequence,
        narrowest_snvs=tuple(
            dict.fromkeys(f"snv {term.snv_kind}" for term in TERMS.values() if term.snv_kind)
        ),
        narrowest_indels=lambda name, bp: (f"{name} {bp} coding", f"{name} {bp} noncoding"),
        needs_consequence=True,
    ),
}


_TRIES_A_VARIANT = 1000  # tries without a kind after which it counts as absent from the contigs
_MOST_TRIES_A_VARIANT = 10_000  # tries after which a rare kind keeps too few variants


class RandomVariant(NamedTuple):
    """A random variant.

    Attributes:
        variant: the variant to score.
        path: its kinds, the narrowest first.
        weight: its share of the broadest kind. A rare kind gets as many variants as a common one,
            so each of its variants weighs less.
    """

    variant: Variant
    path: KindPath
    weight: float


def draw_variants(
    reference: Reference,
    kinds: str,
    drawing: BackgroundOptions,
    consequences: Consequences | None = None,
) -> list[RandomVariant]:
    """Draw variants until every narrowest kind has enough, or is too rare.

    Positions are uniform over the known bases of the contigs, ALTs of SNVs over the three other
    bases; inserted bases are copied from elsewhere in the contigs. All lengths of indels have equal
    weight. Indels are left-aligned, as every variant is before scoring. A kind that does not occur
    in 1,000 draws for each wanted variant counts as absent.

    Args:
        reference: reference to draw from.
        kinds: a name of `KIND_SCHEMES`.
        drawing: number of variants, and contigs.
        consequences: source of consequences, for kinds by consequence.

    Raises:
        UserError: a number is out of range, a contig does not exist, or the contigs have almost no
            known bases.
    """
    if drawing.num_variants < 1 or drawing.seed < 0:
        raise UserError(
            f"variants per kind {drawing.num_variants}, seed {drawing.seed}: give 1 or more, "
            "and a seed of 0 or more"
        )
    table = KIND_SCHEMES[kinds]
    sampler = VariantSampler(reference, drawing.draw_from, np.random.default_rng(drawing.seed))

    def path_of(variant: Variant) -> KindPath:
        term = consequences.of(variant).consequence if consequences else None
        return table.path_of(reference, variant, term)

    def draw(
        propose: Callable[[], Variant | None], narrowest: Sequence[str]
    ) -> Iterator[RandomVariant]:
        return _draw_kinds(propose, path_of, narrowest, drawing.num_variants)

    drawn = list(draw(sampler.snv, table.narrowest_snvs))
    for name in INDELS:
        for length_bp in range(1, LONGEST_INDEL_BP + 1):
            narrowest = table.narrowest_indels(name, length_bp)
            drawn += draw(lambda: sampler.indel(name, length_bp), narrowest)  # noqa: B023
    if not drawn:
        raise UserError(f"{reference.path}: no variants can be drawn; has it known bases?")
    return drawn


def _draw_kinds(
    propose: Callable[[], Variant | None],
    path_of: Callable[[Variant], KindPath],
    narrowest: Sequence[str],
    num_wanted: int,
) -> Iterator[RandomVariant]:
    """Yield the first variants of every kind, weighted by the frequency of the kind."""
    variants: dict[KindPath, list[Variant]] = defaultdict(list)
    seen: Counter[KindPath] = Counter()
    missing = set(narrowest)
    for number in range(_MOST_TRIES_A_VARIANT * num_wanted):
        if number == _TRIES_A_VARIANT * num_wanted:
            missing &= {path[0] for path in seen}
        if not missing:
            break
        if (variant := propose()) is None or not (path := path_of(variant)):
            continue
        seen[path] += 1
        if len(variants[path]) < num_wanted:
            variants[path].append(variant)
        if len(variants[path]) == num_wanted:
            missing.discard(path[0])
    for path, of_path in variants.items():
        weight = seen[path] / seen.total() / len(of_path)
        yield from (RandomVariant(variant, path, weight) for variant in of_path)


class VariantSampler:
    """Draws variants at random positions of some contigs."""

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
        """Draw an SNV; None if the reference base is unknown."""
        contig, position = self._place()
        ref = self._known(contig, position, position + 1)
        if not ref:
            return None
        return Variant(contig, position, ref, self._one_of(_BASES.replace(ref, "")))

    def indel(self, name: str, length_bp: int) -> Variant | None:
        """Draw a left-aligned deletion or insertion of a length."""
        variant = self._indel(name, length_bp)
        return normalize_variant(self._reference, variant) if variant else None

    def _indel(self, name: str, length_bp: int) -> Variant | None:
        """Draw an indel with the preceding base that VCF requires, in a repeat at any copy."""
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
        """Return bases in upper case; empty if one is unknown or past the contig's end."""
        if end > self._reference.contig_lengths_bp[contig]:
            return ""
        bases = self._reference.fetch(Interval(contig, start, end)).upper()
        return bases if set(bases) <= set(_BASES) else ""


FILE_NAME = "background.json"
"""Name of a model's own background in its folder."""

LEAST_VARIANTS = 100
"""With fewer variants a kind has no quantiles, and the next broader kind is used."""

_VOCABULARY = "consequence_terms"
# Percent. The tails are where a reader looks, so that they are finer.
_PERCENTS = (0, 0.2, 0.5, *range(1, 100), 99.5, 99.8, 100)
_DIGITS = 4

Float64s = NDArray[np.float64]


class _Steps(NamedTuple):
    """A piecewise linear curve from strictly increasing deltas to percentiles."""

    deltas: Float64s
    percents: Float64s


class Background(BackgroundFile):
    """Quantiles of the deltas of random variants of every kind.

    Attributes:
        kinds: name of the scheme, `change` or `consequence`.
        table: entry by kind: `variants`, the number of variants, and `quantiles` in nats at
            `percents`, or else `instead`, the broader kind to use.
    """

    made_by = "carbon background"
    format_name = "carbon background 1"

    def __init__(self, content: Mapping[str, Any]) -> None:
        """Take the content of a file, without its checksum."""
        super().__init__(content)
        self.kinds: str = content["kinds_by"]
        self.table: dict[str, dict[str, Any]] = content["kinds"]

    @classmethod
    def _check(cls, path: str | Path, content: Mapping[str, Any]) -> None:
        if (version := content.get(_VOCABULARY)) != VOCABULARY_VERSION:
            uses = f"version {version} of" if version else "an unnumbered version of"
            raise UserError(
                f"{path}: uses {uses} the consequence terms, and this Carbon version "
                f"{VOCABULARY_VERSION}; make it again with `carbon background`"
            )

    @property
    def needs_consequence(self) -> bool:
        """Whether kinds depend on an annotation."""
        return KIND_SCHEMES[self.kinds].needs_consequence

    def with_tolerance(self, dtype: str, tolerance: Mapping[str, Any]) -> "Background":
        """Return a background that also accepts deltas of another dtype."""
        return Background({**self._content, "tolerances": {**self.tolerances, dtype: tolerance}})

    def kind_of(
        self, reference: Reference, variant: Variant, consequence: str | None = None
    ) -> str | None:
        """Return the kind that a variant is compared with; None if it has no kind.

        Args:
            reference: the reference sequence.
            variant: a variant whose alleles are bases.
            consequence: from `carbon.genome.Consequences`, if kinds depend on it.
        """
        path = KIND_SCHEMES[self.kinds].path_of(reference, variant, consequence)
        return next((kind for kind in path if "quantiles" in self.table.get(kind, ())), None)

    def percentile(
        self,
        reference: Reference,
        variant: Variant,
        delta: float | None,
        consequence: str | None = None,
    ) -> float | None:
        """Return the percentage of random variants of the same kind with a lower delta.

        Half of those with an equal delta are counted.

        Args:
            reference: the reference sequence.
            variant: a variant whose alleles are bases.
            delta: from the same model and settings, in nats.
            consequence: from `carbon.genome.Consequences`, if kinds depend on it.

        Returns:
            0 to 100; None without a delta, or if the variant has no kind.
        """
        kind = None if delta is None else self.kind_of(reference, variant, consequence)
        return None if kind is None or delta is None else self.percentile_in(kind, delta)

    def percentile_in(self, kind: str, delta: float) -> float:
        """Return the percentile of a delta within a kind that has quantiles."""
        curve = self._curves[kind]
        return float(np.interp(delta, curve.deltas, curve.percents))

    @cached_property
    def _curves(self) -> dict[str, _Steps]:
        percents = np.array(self._content["percents"], np.float64)
        return {
            kind: _curve(np.array(known["quantiles"], np.float64), percents)
            for kind, known in self.table.items()
            if "quantiles" in known
        }


def background_of(
    drawn: Iterable[RandomVariant], deltas: Iterable[float | None], about: Mapping[str, Any]
) -> Background:
    """Compute a background from variants and their scores.

    Args:
        drawn: variants with kinds and weights.
        deltas: delta of each in nats, None without a score.
        about: `kinds_by`, `settings` and `drawn` of the file.
    """
    values: dict[str, list[tuple[float, float]]] = {}
    broader: dict[str, str] = {}
    for each, delta in zip(drawn, deltas, strict=True):
        broader.update(zip(each.path, each.path[1:], strict=False))
        for kind in each.path:
            values.setdefault(kind, [])
            if delta is not None:
                values[kind].append((delta, each.weight))
    enough = {kind for kind, deltas in values.items() if len(deltas) >= LEAST_VARIANTS}
    table = {
        kind: {"variants": len(values[kind])}
        | (
            {"quantiles": quantiles(values[kind])}
            if kind in enough
            else {"instead": _instead(kind, broader, enough)}
        )
        for kind in sorted(values)
    }
    vocabulary = {_VOCABULARY: VOCABULARY_VERSION}
    content = {
        "format": Background.format_name,
        **vocabulary,
        **about,
        "percents": _PERCENTS,
        "kinds": table,
    }
    return Background(json.loads(json.dumps(content)))  # as it would be read


def quantiles(weighted: Iterable[tuple[float, float]]) -> list[float]:
    """Return the weighted quantiles of deltas at `_PERCENTS`, to four digits.

    Each sorted delta is placed at the middle of its own weight, with linear interpolation between
    them (Hazen's plotting positions); the first and last quantiles are the minimum and maximum.

    Args:
        weighted: deltas and weights.
    """
    values, weights = np.array(sorted(weighted), np.float64).T
    at = (np.cumsum(weights) - weights / 2) / weights.sum() * 100
    return [float(f"{value:.{_DIGITS}g}") for value in np.interp(_PERCENTS, at, values)]


def _instead(kind: str, broader: Mapping[str, str], enough: set[str]) -> str | None:
    wider = broader.get(kind)
    return wider if wider is None or wider in enough else _instead(wider, broader, enough)


def _curve(deltas: Float64s, percents: Float64s) -> _Steps:
    """Merge equal quantiles: a delta that many variants share is placed at their middle."""
    values = np.unique(deltas)
    first = np.searchsorted(deltas, values, side="left")
    last = np.searchsorted(deltas, values, side="right") - 1
    return _Steps(values, (percents[first] + percents[last]) / 2)

"""Zero-shot variant scoring: how much less likely is ALT than REF?

A variant is trimmed and left-aligned first, so that it has one score however it is written. Both
protocols read the bases before the variant and compare the same number of bases from the variant
on, with ALT and with REF. What lies before is the same for both and is not compared. A strand on
which the contig ends before the alleles differ cannot tell them apart; it is left out and named.

An indel moves the 6-mers of all that follows, and the same bases in other 6-mers have another
likelihood. So `centered` leaves out more or fewer bases at the start of ALT's window than of REF's:
behind the variant the 6-mers of both begin at the same bases of the reference. What lies before is
read once for all alleles of a place that leave out as many.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference.checks import check_finite
from carbon.inference.options import PROTOCOLS, STRANDS_READ
from carbon.inference.passages import Passage, branch_of, stem_of
from carbon.inference.variants.windows import (
    Fork,
    Method,
    Place,
    fork_at,
    in_frame,
    needed_bp,
    place_of,
    room_bp,
    skipped_bp,
)
from carbon.tokenizer import K

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

STRAND_NAMES = {"+": "forward", "-": "reverse"}
_VARIANTS_AT_ONCE = 512


class VariantScore(NamedTuple):
    """A variant's score.

    Attributes:
        variant: as it was given.
        delta: log-likelihood(ALT) - log-likelihood(REF) in nats, the mean of the strands that can
            tell the alleles apart; None where there is a reason.
        reason: why the variant has no score; None where it has one.
        forward: the delta of the forward strand; None if it was not read, or is left out.
        reverse: the delta of the reverse strand; None if it was not read, or is left out.
        spread: standard deviation of the deltas of all offsets and strands that were read
            (the root of the mean square about their mean); None where only one was.
        strand_left_out: `forward` or `reverse` where `delta` is that of the other strand alone,
            because this one cannot tell the alleles apart; None otherwise.
    """

    variant: Variant
    delta: float | None
    reason: str | None
    forward: float | None = None
    reverse: float | None = None
    spread: float | None = None
    strand_left_out: str | None = None

    @property
    def unsure(self) -> bool | None:
        """Whether the delta lies inside its spread; None where there is no spread.

        Of two offsets or strands that is: they disagree about the sign.
        """
        if self.delta is None or self.spread is None:
            return None
        return abs(self.delta) < self.spread


class AlleleComparison(NamedTuple):
    """What one strand says of the bases from a variant on, behind what is the same before it.

    The rows of `ref` and `alt` have one length, that of the window; behind an insertion or deletion
    they do not end with the same base of the contig. A row of `alt` is read in the offset in which
    6-mers behind the variant begin where those of the same row of `ref` do.

    Attributes:
        ref_bp: length of REF, trimmed and left-aligned, with which the rows of `ref` begin.
        alt_bp: length of ALT, likewise, with which the rows of `alt` begin.
        ref: (offsets, bases) float32, log-likelihoods in nats with REF, along the strand.
        alt: (offsets, bases) float32, with ALT.
    """

    ref_bp: int
    alt_bp: int
    ref: NDArray[np.float32]
    alt: NDArray[np.float32]

    @property
    def offset_deltas(self) -> list[float]:
        """Log-likelihood(ALT) - log-likelihood(REF) of all the bases, by offset."""
        return [
            float((of_alt.astype(np.float64) - of_ref).sum())
            for of_ref, of_alt in zip(self.ref, self.alt, strict=True)
        ]

    @property
    def delta(self) -> float:
        """The mean over offsets."""
        deltas = self.offset_deltas
        return sum(deltas) / len(deltas)

    @property
    def allele_delta(self) -> float:
        """The part of the alleles' own bases."""
        ref, alt = self._means
        return float(alt[: self.alt_bp].sum() - ref[: self.ref_bp].sum())

    @property
    def downstream_deltas(self) -> NDArray[np.float64]:
        """The part of each base that both windows have behind the variant, the nearest first."""
        ref, alt = self._means
        behind_ref, behind_alt = ref[self.ref_bp :], alt[self.alt_bp :]
        shared_bp = min(len(behind_ref), len(behind_alt))
        return behind_alt[:shared_bp] - behind_ref[:shared_bp]

    @property
    def length_delta(self) -> float:
        """The part of the last bases, which only the window of the shorter allele reaches."""
        ref, alt = self._means
        shared_bp = len(self.downstream_deltas)
        return float(alt[self.alt_bp + shared_bp :].sum() - ref[self.ref_bp + shared_bp :].sum())

    @property
    def _means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.ref.mean(axis=0, dtype=np.float64), self.alt.mean(axis=0, dtype=np.float64)


Compared = tuple[VariantScore, dict[str, AlleleComparison]]
"""A variant's score and what it sums up, by strand (`+`, `-`); nothing where there is a reason."""

_Steps = dict[tuple[Place, int], dict[str, NDArray[np.float32]]]
"""Log-likelihoods of the bases from the variant on, by place and bases left out, then by allele."""


def score_variants(
    runner: "ModelRunner", reference: Reference, variants: Iterable[Variant], method: Method
) -> Iterator[VariantScore]:
    """Yield scores in the order of the variants; a block of them is in memory at a time."""
    stream = iter(variants)
    while block := list(islice(stream, _VARIANTS_AT_ONCE)):
        yield from (score for score, _ in compare_block(runner, reference, block, method))


def compare_block(
    runner: "ModelRunner", reference: Reference, block: list[Variant], method: Method
) -> Iterator[Compared]:
    """Yield the scores of some variants, each with what it sums up, by strand (`+`, `-`)."""
    # The last 6-mer of a window is predicted and never read.
    readable_bp = room_bp(runner, method.tags) + K
    asked = [_asked(reference, variant, method, readable_bp) for variant in block]
    comparisons = _comparisons(runner, reference, asked, method)
    for variant, question, by_strand in zip(block, asked, comparisons, strict=True):
        if question.reason:
            yield VariantScore(variant, None, question.reason), by_strand
            continue
        deltas = {strand: comparison.delta for strand, comparison in by_strand.items()}
        mean = sum(deltas.values()) / len(deltas)
        check_finite(mean, f"variant {variant.to_text()}")
        both = deltas.get("+"), deltas.get("-")
        left_out = next((STRAND_NAMES[s] for s in question.left_out), None)
        score = VariantScore(variant, mean, None, *both, spread_of(by_strand), left_out)
        yield score, by_strand


def spread_of(by_strand: Mapping[str, AlleleComparison]) -> float | None:
    """Return how far offsets and strands disagree, in nats; None where there is but one of them."""
    deltas = [delta for compared in by_strand.values() for delta in compared.offset_deltas]
    return float(np.std(deltas)) if len(deltas) > 1 else None


class _Asked(NamedTuple):
    """A variant to score: trimmed and left-aligned, where each strand reads it, or why none does.

    Attributes:
        variant: as `normalize_variant` writes it.
        reason: why it has no score, or None.
        places: by strand that can tell the alleles apart.
        left_out: the strands that cannot.
    """

    variant: Variant
    reason: str | None
    places: dict[str, Place]
    left_out: tuple[str, ...]


def _asked(reference: Reference, variant: Variant, method: Method, readable_bp: int) -> _Asked:
    if reason := _why_no_bases(reference, variant):
        return _Asked(variant, reason, {}, ())
    plain, protocol = normalize_variant(reference, variant), PROTOCOLS[method.protocol]
    most_bp = protocol.most_needed_bp(method.window_bp, readable_bp)
    needed = {
        strand: needed_bp(reference, plain, strand, most_bp)
        for strand in STRANDS_READ[method.strands]
    }
    if any(bp is not None and bp > most_bp for bp in needed.values()):
        return _Asked(plain, protocol.too_long, {}, ())
    places = {
        strand: place_of(plain, strand, protocol.counted_bp(bp, strand, method.window_bp))
        for strand, bp in needed.items()
        if bp is not None
    }
    left_out = tuple(strand for strand, bp in needed.items() if bp is None)
    return _Asked(plain, None if places else "contig_edge", places, left_out)


def _why_no_bases(reference: Reference, variant: Variant) -> str | None:
    """Return why a variant, as it was given, does not say which bases to read, or None.

    Raises:
        GenomeError: REF does not stand in the reference where it should.
    """
    contig, position = variant.contig, variant.position
    if reason := reference.check_ref(contig, position, variant.ref, f"variant {variant.to_text()}"):
        return reason
    if reason := variant.why_unscorable():
        return reason
    is_there = 0 <= position < reference.contig_lengths_bp[contig]
    return None if is_there else "telomere"


def _comparisons(
    runner: "ModelRunner", reference: Reference, asked: Sequence[_Asked], method: Method
) -> Iterator[dict[str, AlleleComparison]]:
    """Yield the comparison by strand of each variant; none where there is a reason."""
    alleles: dict[Place, dict[str, None]] = {}  # in the order they come, as a set does not keep it
    for variant, _, places, _ in asked:
        for place in places.values():
            alleles.setdefault(place, {}).update(dict.fromkeys(_pair(variant)))
    forks = {
        place: fork_at(reference, place, some, method.protocol, method.window_bp)
        for place, some in alleles.items()
    }
    steps = _measured(runner, forks, method)
    for variant, _, places, _ in asked:
        yield {
            strand: _compared(variant, place, forks[place], steps, method)
            for strand, place in places.items()
        }


def _pair(variant: Variant) -> tuple[str, str]:
    return variant.ref.upper(), variant.alt.upper()


def _compared(
    variant: Variant, place: Place, fork: Fork, steps: _Steps, method: Method
) -> AlleleComparison:
    """Return what one strand says of a variant, up to the length that the texts of both have."""
    pair = _pair(variant)
    counted_bp = min(len(fork.rights[allele]) for allele in pair)
    of_ref, of_alt = (
        np.stack(
            [
                steps[place, skipped_bp(place, allele, offset, method.protocol)][allele][
                    :counted_bp
                ]
                for offset in method.offsets
            ]
        )
        for allele in pair
    )
    return AlleleComparison(len(pair[0]), len(pair[1]), of_ref, of_alt)


def _measured(runner: "ModelRunner", forks: dict[Place, Fork], method: Method) -> _Steps:
    """Return the log-likelihood of every base from the variant on.

    Alleles that leave out as many bases at the window's start share what is before them.
    """
    vocabulary = runner.vocabulary
    jobs: dict[tuple[Place, int], dict[str, str]] = {}
    for place, fork in forks.items():
        for offset, (allele, right) in product(method.offsets, fork.rights.items()):
            skip_bp = skipped_bp(place, allele, offset, method.protocol)
            jobs.setdefault((place, skip_bp), {})[allele] = right
    passages, tails_bp = [], []
    for (place, skip_bp), rights in jobs.items():
        left = in_frame(forks[place].left, skip_bp, method.protocol)
        # A token that begins before the variant and ends in it belongs to the branches.
        whole_bp = len(left) // K * K
        stem = stem_of(left[:whole_bp], vocabulary, method.tags)
        branches = (branch_of(left[whole_bp:] + right, vocabulary) for right in rights.values())
        passages.append(Passage(stem, tuple(branches), is_fork=True))
        tails_bp.append(len(left) - whole_bp)
    measured = runner.likelihoods(passages, method.by)
    return {
        job: {
            allele: steps.reshape(-1)[tail_bp : tail_bp + len(right)]
            for (allele, right), steps in zip(rights.items(), arrays, strict=True)
        }
        for (job, rights), tail_bp, arrays in zip(jobs.items(), tails_bp, measured, strict=True)
    }

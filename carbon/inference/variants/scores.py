"""Zero-shot variant scoring: how much less likely is ALT than REF?

Both protocols read the bases before the variant and compare the same number of bases from the
variant on, with ALT and with REF. What lies before is the same for both and is not compared.

An indel moves the 6-mers of all that follows, and the same bases in other 6-mers have another
likelihood. So `centered` leaves out more or fewer bases at the start of ALT's window than of REF's:
behind the variant the 6-mers of both begin at the same bases of the reference. What lies before is
read once for all alleles of a place that leave out as many.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Reference, Variant
from carbon.inference.reading import Passage, Reader, branch_of, check_finite, stem_of
from carbon.inference.scoring import MEASURES
from carbon.inference.variants.method import Method, room_bp
from carbon.inference.variants.windows import (
    Fork,
    Place,
    fork_at,
    in_frame,
    place_of,
    skipped_bp,
)
from carbon.options import PROTOCOLS, STRANDS_READ
from carbon.tokenizer import K

_VARIANTS_AT_ONCE = 512


class VariantScore(NamedTuple):
    """A variant's score.

    Attributes:
        variant: as it was given.
        delta: log-likelihood(ALT) - log-likelihood(REF) in nats, the mean of the strands that were
            read; None where there is a reason.
        reason: why the variant has no score; None where it has one.
        forward: the delta of the forward strand; None if it was not read.
        reverse: the delta of the reverse strand; None if it was not read.
        spread_nats: standard deviation of the deltas of all frames and strands that were read
            (the root of the mean square about their mean); None where only one was.
    """

    variant: Variant
    delta: float | None
    reason: str | None
    forward: float | None = None
    reverse: float | None = None
    spread_nats: float | None = None

    @property
    def is_unsure(self) -> bool | None:
        """Whether the delta lies inside its spread; None where there is no spread.

        Of two frames or strands that is: they disagree about the sign.
        """
        if self.delta is None or self.spread_nats is None:
            return None
        return abs(self.delta) < self.spread_nats


class AlleleComparison(NamedTuple):
    """What one strand says of the bases from a variant on, behind what is the same before it.

    The rows of `ref` and `alt` have one length, that of the window; behind an insertion or deletion
    they do not end with the same base of the contig. A row of `alt` is read in the frame in which
    6-mers behind the variant begin where those of the same row of `ref` do.

    Attributes:
        ref_bp: length of REF, with which the rows of `ref` begin.
        alt_bp: length of ALT, with which the rows of `alt` begin.
        ref: (frames, bases) float32, log-likelihoods in nats with REF, along the strand.
        alt: (frames, bases) float32, with ALT.
    """

    ref_bp: int
    alt_bp: int
    ref: NDArray[np.float32]
    alt: NDArray[np.float32]

    @property
    def frame_deltas(self) -> list[float]:
        """Log-likelihood(ALT) - log-likelihood(REF) of all the bases, by frame."""
        return [
            float((of_alt.astype(np.float64) - of_ref).sum())
            for of_ref, of_alt in zip(self.ref, self.alt, strict=True)
        ]

    @property
    def delta(self) -> float:
        """The mean over frames."""
        deltas = self.frame_deltas
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
    reader: Reader, reference: Reference, variants: Iterable[Variant], method: Method
) -> Iterator[VariantScore]:
    """Yield scores in the order of the variants; a block of them is in memory at a time."""
    stream = iter(variants)
    while block := list(islice(stream, _VARIANTS_AT_ONCE)):
        yield from (score for score, _ in compare_block(reader, reference, block, method))


def compare_block(
    reader: Reader, reference: Reference, block: list[Variant], method: Method
) -> Iterator[Compared]:
    """Yield the scores of some variants, each with what it sums up, by strand (`+`, `-`)."""
    most_bp = room_bp(reader, method.tags)
    reasons = [
        reference.check_ref(v.contig, v.position, v.ref, f"variant {v.to_text()}")
        or why_no_score(v, method, most_bp, reference.contig_lengths_bp[v.contig])
        for v in block
    ]
    scored = [variant for variant, reason in zip(block, reasons, strict=True) if reason is None]
    comparisons = _comparisons(reader, reference, scored, method)
    for variant, reason in zip(block, reasons, strict=True):
        by_strand = next(comparisons) if reason is None else {}
        if not by_strand:
            yield VariantScore(variant, None, reason or "contig_edge"), by_strand
            continue
        deltas = {strand: comparison.delta for strand, comparison in by_strand.items()}
        mean = sum(deltas.values()) / len(deltas)
        check_finite(mean, f"variant {variant.to_text()}")
        both = deltas.get("+"), deltas.get("-")
        yield VariantScore(variant, mean, None, *both, spread_of(by_strand)), by_strand


def spread_of(by_strand: Mapping[str, AlleleComparison]) -> float | None:
    """Return how far frames and strands disagree, in nats; None where there is but one of them."""
    deltas = [delta for compared in by_strand.values() for delta in compared.frame_deltas]
    return float(np.std(deltas)) if len(deltas) > 1 else None


def why_no_score(variant: Variant, method: Method, context_bp: int, contig_bp: int) -> str | None:
    """Say why a variant cannot be scored by this method, or None."""
    longest = max(len(variant.ref), len(variant.alt))
    if reason := variant.why_unscorable():
        return reason
    if variant.position < 0 or variant.position >= contig_bp:
        return "telomere"
    # The last 6-mer of a window is predicted and never read.
    return PROTOCOLS[method.protocol].why_too_long(longest, method.window_bp, context_bp + K)


def _comparisons(
    reader: Reader, reference: Reference, variants: list[Variant], method: Method
) -> Iterator[dict[str, AlleleComparison]]:
    """Yield the comparison by strand of each variant.

    A strand on which the contig ends before the alleles differ says nothing, and is left out.
    """
    strands = STRANDS_READ[method.strands]
    alleles: dict[Place, dict[str, None]] = {}  # in the order they come, as a set does not keep it
    for variant in variants:
        for strand in strands:
            pair = dict.fromkeys(_pair(variant))
            alleles.setdefault(place_of(variant, strand), {}).update(pair)
    forks = {
        place: fork_at(reference, place, some, method.protocol, method.window_bp)
        for place, some in alleles.items()
    }
    steps = _measured(reader, forks, method)
    for variant in variants:
        by_strand = {strand: _compared(variant, strand, forks, steps, method) for strand in strands}
        yield {strand: found for strand, found in by_strand.items() if found is not None}


def _pair(variant: Variant) -> tuple[str, str]:
    return variant.ref.upper(), variant.alt.upper()


def _compared(
    variant: Variant, strand: str, forks: dict[Place, Fork], steps: _Steps, method: Method
) -> AlleleComparison | None:
    """Return what one strand says of a variant, None if the contig ends before alleles differ."""
    pair, place = _pair(variant), place_of(variant, strand)
    ref, alt = (forks[place].rights[allele] for allele in pair)
    wanted_bp = PROTOCOLS[method.protocol].counted_bp(pair, strand, method.window_bp)
    # Both are counted up to the same length, that of the shorter one at most.
    counted_bp = min(wanted_bp, len(ref), len(alt))
    if counted_bp < wanted_bp and ref[:counted_bp].upper() == alt[:counted_bp].upper():
        return None
    of_ref, of_alt = (
        np.stack(
            [
                steps[place, skipped_bp(place, allele, frame, method.protocol)][allele][:counted_bp]
                for frame in method.frames
            ]
        )
        for allele in pair
    )
    return AlleleComparison(len(pair[0]), len(pair[1]), of_ref, of_alt)


def _measured(reader: Reader, forks: dict[Place, Fork], method: Method) -> _Steps:
    """Return the log-likelihood of every base from the variant on.

    Alleles that leave out as many bases at the window's start share what is before them.
    """
    vocabulary = reader.vocabulary
    jobs: dict[tuple[Place, int], dict[str, str]] = {}
    for place, fork in forks.items():
        for frame, (allele, right) in product(method.frames, fork.rights.items()):
            skip_bp = skipped_bp(place, allele, frame, method.protocol)
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
    measured = reader.measure(passages, MEASURES[method.by])
    return {
        job: {
            allele: steps.reshape(-1)[tail_bp : tail_bp + len(right)]
            for (allele, right), steps in zip(rights.items(), arrays, strict=True)
        }
        for (job, rights), tail_bp, arrays in zip(jobs.items(), tails_bp, measured, strict=True)
    }

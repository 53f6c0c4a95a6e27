"""Zero-shot variant scoring: how much less likely is ALT than REF?

Both protocols read the bases before the variant and compare the same number of bases from the
variant on, with ALT and with REF. What lies before is read once for REF and all ALTs of a place,
which is exact: it is the same for all of them, and so are its own likelihoods.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.inference.reading.reader import Passage, Reader, branch_of, stem_of
from carbon.inference.scoring.sequences import MEASURES, STRANDS_READ, By, Strands
from carbon.tokenizer import K

ProtocolName = Literal["centered", "right_end"]
_VARIANTS_AT_ONCE = 512
_ROOM_BP = 300
_DEFAULT_WINDOW_BP = {"centered": 8192, "right_end": 24_000}

Place = tuple[str, int, int, str]
"""Contig, start and end of REF, strand: variants of one place share what is before them."""


class Method(NamedTuple):
    """How variants are scored.

    Attributes:
        protocol: `centered` compares the second half of a window around the variant, `right_end`
            the alleles alone, behind a window that ends where they begin.
        window_bp: of the whole window; for `right_end` what is read before the variant.
        by: likelihoods by the chain or by marginals.
        strands: read the forward strand, the reverse strand, or the mean of both.
        frames: how many bases at the window's start are left out, which shifts the 6-mers; the
            score is the mean over the frames.
        tags: metadata tags to condition on.
    """

    protocol: ProtocolName
    window_bp: int
    by: By
    strands: Strands
    frames: tuple[int, ...]
    tags: tuple[str, ...]


class VariantScore(NamedTuple):
    """A variant's score.

    Attributes:
        variant: as it was given.
        delta: log-likelihood(ALT) - log-likelihood(REF) in nats, the mean of the strands that were
            read; None where there is a reason.
        reason: why the variant has no score; None where it has one.
        forward: the delta of the forward strand; None if it was not read.
        reverse: the delta of the reverse strand; None if it was not read.
    """

    variant: Variant
    delta: float | None
    reason: str | None
    forward: float | None = None
    reverse: float | None = None


class AlleleComparison(NamedTuple):
    """What one strand says of the bases from a variant on, behind what is the same before it.

    The rows of `ref` and `alt` have one length, that of the window; behind an insertion or deletion
    they do not end with the same base of the contig.

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
    def delta(self) -> float:
        """Log-likelihood(ALT) - log-likelihood(REF) of all the bases, the mean over frames."""
        deltas = [
            float((of_alt.astype(np.float64) - of_ref).sum())
            for of_ref, of_alt in zip(self.ref, self.alt, strict=True)
        ]
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


def method_for(
    reader: Reader,
    protocol: ProtocolName,
    window_bp: int | None,
    by: By,
    strands: Strands,
    frames: Iterable[int],
    tags: tuple[str, ...],
) -> Method:
    """Return a method whose window fits into the model's context.

    Raises:
        UserError: the window or a frame is not possible, or the vocabulary has no such tag.
    """
    frames = tuple(sorted(set(frames)))
    if not frames or not set(frames) <= set(range(K)):
        raise UserError(
            f"frames {', '.join(map(str, frames)) or 'none'}: give some of 0 to {K - 1}"
        )
    most_bp = (reader.context_tokens - len(reader.vocabulary.prefix(tags))) * K
    if window_bp is None:
        # What is read before the alleles of `right_end` leaves room for long ones.
        room_bp = min(_ROOM_BP, most_bp // 4) if protocol == "right_end" else 0
        window_bp = min(_DEFAULT_WINDOW_BP[protocol], most_bp - room_bp)
    if not 2 * K <= window_bp <= most_bp:
        raise UserError(
            f"a window of {window_bp} bp does not fit: give {2 * K} to {most_bp} bp for this model"
        )
    return Method(protocol, window_bp, by, strands, frames, tags)


def score_variants(
    reader: Reader, reference: Reference, variants: Iterable[Variant], method: Method
) -> Iterator[VariantScore]:
    """Yield scores in the order of the variants; a block of them is in memory at a time."""
    stream = iter(variants)
    while block := list(islice(stream, _VARIANTS_AT_ONCE)):
        yield from score_block(reader, reference, block, method)


def score_block(
    reader: Reader, reference: Reference, block: list[Variant], method: Method
) -> Iterator[VariantScore]:
    """Yield the scores of some variants; those that stand together share the most if near."""
    return (score for score, _ in compare_block(reader, reference, block, method))


def compare_block(
    reader: Reader, reference: Reference, block: list[Variant], method: Method
) -> Iterator[Compared]:
    """Yield the scores of some variants, each with what it sums up, by strand (`+`, `-`)."""
    for variant in block:
        where = f"variant {variant.to_text()}"
        reference.check_ref(variant.contig, variant.position, variant.ref, where)
    most_bp = (reader.context_tokens - len(reader.vocabulary.prefix(method.tags))) * K
    reasons = [
        why_no_score(variant, method, most_bp, reference.contig_lengths_bp[variant.contig])
        for variant in block
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
        yield VariantScore(variant, mean, None, deltas.get("+"), deltas.get("-")), by_strand


def why_no_score(variant: Variant, method: Method, context_bp: int, contig_bp: int) -> str | None:
    """Say why a variant cannot be scored by this method, or None."""
    longest = max(len(variant.ref), len(variant.alt))
    if reason := variant.why_unscorable():
        return reason
    if variant.position < 0 or variant.position >= contig_bp:
        return "telomere"
    if method.protocol == "centered" and longest > method.window_bp // 2:
        return "allele_longer_than_half_window"
    if method.protocol == "right_end" and method.window_bp + longest > context_bp + K:
        return "allele_longer_than_context"
    return None


class Fork(NamedTuple):
    """What is read at a place: bases before the variant, and the alleles with what follows.

    Both run in the direction of the strand, in the case of the reference.
    """

    left: str
    rights: dict[str, str]  # by allele


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
            pair = variant.ref.upper(), variant.alt.upper()
            alleles.setdefault(_place(variant, strand), {}).update(dict.fromkeys(pair))
    forks = {
        place: fork_at(reference, place, some, method.protocol, method.window_bp)
        for place, some in alleles.items()
    }
    steps = _measured(reader, forks, method)
    for variant in variants:
        pair = variant.ref.upper(), variant.alt.upper()
        result = {}
        for strand in strands:
            place = _place(variant, strand)
            ref, alt = (forks[place].rights[allele] for allele in pair)
            wanted_bp = _counted_bp(pair, strand, method.protocol, method.window_bp)
            # Both are counted up to the same length, that of the shorter one at most.
            counted_bp = min(wanted_bp, len(ref), len(alt))
            if counted_bp < wanted_bp and ref[:counted_bp].upper() == alt[:counted_bp].upper():
                continue
            of_ref, of_alt = (
                np.stack([steps[place, frame][allele][:counted_bp] for frame in method.frames])
                for allele in pair
            )
            result[strand] = AlleleComparison(len(pair[0]), len(pair[1]), of_ref, of_alt)
        yield result


def _place(variant: Variant, strand: str) -> Place:
    return variant.contig, variant.position, variant.interval.end, strand


def _before_bp(strand: str, protocol: ProtocolName, window_bp: int) -> int:
    """Return the bases of the window before the variant.

    An even window cannot have its middle in the middle of an SNV; on the reverse strand it is the
    very same window.
    """
    if protocol == "right_end":
        return window_bp
    return (window_bp if strand == "+" else window_bp - 1) // 2


def _counted_bp(alleles: Iterable[str], strand: str, protocol: ProtocolName, window_bp: int) -> int:
    """Return how many bases from the variant on are compared."""
    if protocol == "right_end":
        return max(map(len, alleles))
    return window_bp - _before_bp(strand, protocol, window_bp)


def fork_at(
    reference: Reference,
    place: Place,
    alleles: Iterable[str],
    protocol: ProtocolName,
    window_bp: int,
) -> Fork:
    """Return what a protocol reads at a place, whatever the tokens of the model that reads it.

    A window that reaches past a contig's edge is cut there; so rights may differ in length.

    Args:
        reference: the sequence.
        place: where REF lies, and the strand that is read.
        alleles: on the forward strand, REF among them.
        protocol: `centered` or `right_end`.
        window_bp: of the protocol.
    """
    contig, first, last, strand = place
    counted_bp = _counted_bp(alleles, strand, protocol, window_bp)
    sides = Interval(contig, 0, first), Interval(contig, last, reference.contig_lengths_bp[contig])
    before, after = sides if strand == "+" else sides[::-1]
    before_bp = min(_before_bp(strand, protocol, window_bp), before.length_bp)
    after_bp = min(counted_bp - min(map(len, alleles)), after.length_bp)
    if strand == "+":
        left = reference.fetch(Interval(contig, first - before_bp, first))
        rest = reference.fetch(Interval(contig, last, last + after_bp))
        return Fork(left, {allele: (allele + rest)[:counted_bp] for allele in alleles})
    left = reverse_complement(reference.fetch(Interval(contig, last, last + before_bp)))
    rest = reverse_complement(reference.fetch(Interval(contig, first - after_bp, first)))
    turned = {allele: reverse_complement(allele) for allele in alleles}
    return Fork(left, {allele: (read + rest)[:counted_bp] for allele, read in turned.items()})


def _in_frame(left: str, frame: int, protocol: ProtocolName) -> str:
    """Leave out the first bases: for `right_end` so many that the variant begins a token."""
    return left[frame + (len(left) % K if protocol == "right_end" else 0) :]


def _measured(
    reader: Reader, forks: dict[Place, Fork], method: Method
) -> dict[tuple[Place, int], dict[str, NDArray[np.float32]]]:
    """Return the log-likelihood of every base from the variant on, by place, frame and allele."""
    vocabulary = reader.vocabulary
    passages, tails_bp = [], []
    jobs = [(place, frame) for place in forks for frame in method.frames]
    for place, frame in jobs:
        left = _in_frame(forks[place].left, frame, method.protocol)
        # A token that begins before the variant and ends in it belongs to the branches.
        whole_bp = len(left) // K * K
        stem = stem_of(left[:whole_bp], vocabulary, method.tags)
        rights = forks[place].rights.values()
        branches = (branch_of(left[whole_bp:] + right, vocabulary) for right in rights)
        passages.append(Passage(stem, tuple(branches)))
        tails_bp.append(len(left) - whole_bp)
    measured = reader.measure(passages, MEASURES[method.by])
    return {
        (place, frame): {
            allele: steps.reshape(-1)[tail_bp : tail_bp + len(right)]
            for (allele, right), steps in zip(forks[place].rights.items(), arrays, strict=True)
        }
        for (place, frame), tail_bp, arrays in zip(jobs, tails_bp, measured, strict=True)
    }

"""Deltas of variants for models of any kind, by the same windows as Carbon's own scoring.

`centered`: windows of one length with REF and with ALT, the variant in the middle. `right_end`: the
bases before the variant, and the alleles alone behind them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from carbon.genome import Interval, Reference, Variant, reverse_complement
from eval.contract import Model, ProtocolName, Strands

_STRANDS: dict[Strands, str] = {"forward": "+", "reverse": "-", "both": "+-"}
_AT_ONCE = 64

T = TypeVar("T")


def in_blocks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into blocks of so many."""
    for at in range(0, len(items), size):
        yield items[at : at + size]


class Window(NamedTuple):
    """What is read of a variant on one strand: bases before it, and both alleles with their rest.

    The two alleles' texts are of one length.
    """

    left: str
    ref: str
    alt: str


def alleles_at(
    reference: Reference,
    variant: Variant,
    protocol: ProtocolName,
    window_bp: int,
    strand: str,
) -> Window:
    """Return the window of a variant; it is cut where the contig ends.

    On the reverse strand it is the very same window, so that an even one has a base less before
    an SNV than on the forward strand.
    """
    here = variant.interval
    length_bp = reference.contig_lengths_bp[variant.contig]
    sides = Interval(variant.contig, 0, here.start), Interval(variant.contig, here.end, length_bp)
    ref, alt = variant.ref.upper(), variant.alt.upper()
    if protocol == "right_end":
        before_bp, counted_bp = window_bp, max(len(ref), len(alt))
    else:
        before_bp = (window_bp if strand == "+" else window_bp - 1) // 2
        counted_bp = window_bp - before_bp
    after_bp = counted_bp - min(len(ref), len(alt))
    if strand == "+":
        left, rest = _end(reference, sides[0], before_bp), _start(reference, sides[1], after_bp)
    else:
        left = reverse_complement(_start(reference, sides[1], before_bp))
        rest = reverse_complement(_end(reference, sides[0], after_bp))
        ref, alt = reverse_complement(ref), reverse_complement(alt)
    texts = (ref + rest)[:counted_bp], (alt + rest)[:counted_bp]
    both_bp = min(map(len, texts))
    return Window(left, texts[0][:both_bp], texts[1][:both_bp])


def _start(reference: Reference, side: Interval, length_bp: int) -> str:
    end = min(side.start + length_bp, side.end)
    return reference.fetch(Interval(side.contig, side.start, end)).upper()


def _end(reference: Reference, side: Interval, length_bp: int) -> str:
    start = max(side.end - length_bp, side.start)
    return reference.fetch(Interval(side.contig, start, side.end)).upper()


def deltas_by_windows(
    model: Model,
    reference: Reference,
    variants: Sequence[Variant],
    protocol: ProtocolName,
    window_bp: int,
    strands: Strands,
) -> list[float | None]:
    """Return log-likelihood(ALT) - log-likelihood(REF), the mean of the strands, of each variant.

    None where no sequence follows from the variant, or an allele is longer than half a window.

    Raises:
        GenomeError: a REF does not stand in the reference where it should.
    """
    results: list[float | None] = []
    for block in in_blocks(variants, _AT_ONCE):
        for variant in block:
            where = f"variant {variant.to_text()}"
            reference.check_ref(variant.contig, variant.position, variant.ref, where)
        scored = [v for v in block if not v.why_unscorable() and _fits(v, window_bp)]
        windows = [
            alleles_at(reference, variant, protocol, window_bp, strand)
            for strand in _STRANDS[strands]
            for variant in scored
        ]
        by_strand = _window_deltas(model, windows, protocol)
        means = np.reshape(by_strand, (len(_STRANDS[strands]), len(scored))).mean(axis=0)
        deltas = dict(zip(scored, means.tolist(), strict=True))
        results += [deltas.get(variant) for variant in block]
    return results


def _fits(variant: Variant, window_bp: int) -> bool:
    return max(len(variant.ref), len(variant.alt)) <= window_bp // 2


def _window_deltas(model: Model, windows: Sequence[Window], protocol: ProtocolName) -> list[float]:
    """Return a delta a window; a single base at the right end needs its prompt read but once."""
    deltas = [0.0] * len(windows)
    single = [n for n, w in enumerate(windows) if protocol == "right_end" and len(w.ref) == 1]
    rest = sorted(set(range(len(windows))) - set(single))
    if single:
        rows = np.log(model.next_base([windows[n].left for n in single]))
        for row, n in zip(rows, single, strict=True):
            deltas[n] = float(row["ACGT".index(windows[n].alt)] - row["ACGT".index(windows[n].ref)])
    if rest:
        pairs = [(w.left + w.alt, w.left + w.ref) for w in (windows[n] for n in rest)]
        for n, delta in zip(rest, model.differences(pairs).tolist(), strict=True):
            deltas[n] = delta
    return deltas

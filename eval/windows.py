"""Deltas of variants for models of any kind, by the same windows as Carbon's own scoring.

Carbon's `centered` also leaves out bases at the start of one window, so that behind an indel the
6-mers of both alleles begin at the same bases. Where tokens of another model begin is not known.

`centered`: windows of one length with REF and with ALT, the variant in the middle. `right_end`: the
bases before the variant, and the alleles alone behind them.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from carbon.genome import Reference, Variant
from carbon.inference.variants import fork_at
from carbon.options import PROTOCOLS, STRANDS_READ
from eval.contract import Model, Reading

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
    reference: Reference, variant: Variant, reading: Reading, strand: str
) -> Window | None:
    """Return the window of a variant, as Carbon reads it; it is cut where the contig ends.

    None where that is before the alleles differ, so that the strand says nothing.
    """
    here = variant.interval
    pair = variant.ref.upper(), variant.alt.upper()
    place = (variant.contig, here.start, here.end, strand)
    left, rights = fork_at(reference, place, pair, reading.protocol, reading.window_bp)
    ref, alt = (rights[allele].upper() for allele in pair)
    both_bp = min(len(ref), len(alt))
    # Texts of two lengths are cut by the contig's end, and not by the window's.
    if len(ref) != len(alt) and ref[:both_bp] == alt[:both_bp]:
        return None
    return Window(left.upper(), ref[:both_bp], alt[:both_bp])


def deltas_by_windows(
    model: Model, reference: Reference, variants: Sequence[Variant], reading: Reading
) -> list[float | None]:
    """Return log-likelihood(ALT) - log-likelihood(REF), the mean of the strands, of each variant.

    None where no sequence follows from the variant, the reference has N for a base of REF, an
    allele is longer than half a window, or the contig ends before the alleles differ on every
    strand that is read.

    Raises:
        GenomeError: a REF does not stand in the reference where it should.
    """
    results: list[float | None] = []
    for block in in_blocks(variants, _AT_ONCE):
        known = [
            v
            for v in dict.fromkeys(block)
            if not reference.check_ref(v.contig, v.position, v.ref, f"variant {v.to_text()}")
        ]
        asked = [
            (variant, window)
            for variant in known
            if not variant.why_unscorable() and _fits(variant, reading.window_bp)
            for strand in STRANDS_READ[reading.strands]
            if (window := alleles_at(reference, variant, reading, strand)) is not None
        ]
        by_strand: dict[Variant, list[float]] = defaultdict(list)
        deltas = _window_deltas(model, [window for _, window in asked], reading)
        for (variant, _), delta in zip(asked, deltas, strict=True):
            by_strand[variant].append(delta)
        means = {variant: sum(found) / len(found) for variant, found in by_strand.items()}
        results += [means.get(variant) for variant in block]
    return results


def _fits(variant: Variant, window_bp: int) -> bool:
    return max(len(variant.ref), len(variant.alt)) <= window_bp // 2


def _window_deltas(model: Model, windows: Sequence[Window], reading: Reading) -> list[float]:
    """Return a delta a window; a single base at the right end needs its prompt read but once."""
    deltas = [0.0] * len(windows)
    alleles_alone = PROTOCOLS[reading.protocol].alleles_alone
    single = [n for n, w in enumerate(windows) if alleles_alone and len(w.ref) == 1]
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

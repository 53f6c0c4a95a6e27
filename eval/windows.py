"""Deltas of variants for models of any kind, by the same windows as Carbon's own scoring.

Carbon's `centered` also leaves out bases at the start of one window, so that after an indel the
k-mers of both alleles begin at the same bases. Where tokens of another model begin is not known.

`centered`: windows of one length with REF and with ALT, the variant in the middle. `right_end`: the
bases before the variant, and after them the alleles up to at least the first base that differs.
`tiled`: the bases of the tile before the first difference, and from there on both texts.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from carbon.batching import in_blocks
from carbon.genome import Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference.options import PROTOCOLS, STRANDS_READ, WINDOW_PROTOCOLS
from carbon.inference.variants import allele_windows, needed_bp, site_of
from carbon.inference.variants.tiles import fetch_along, tiled_site
from carbon.inference.variants.windows import tile_grid
from carbon.tokenizer import NATIVE
from eval.contract import Model, Reading

_AT_ONCE = 64


class Window(NamedTuple):
    """The bases of a variant on one strand: bases before it, and both alleles with their rest.

    The two alleles' texts are of one length.
    """

    left: str
    ref: str
    alt: str


def windows_of(
    reference: Reference, variant: Variant, reading: Reading, most_needed_bp: int
) -> list[Window]:
    """Return the window of each strand that distinguishes the alleles, as Carbon reads it.

    The variant is trimmed and left-aligned first. A window is cut where the contig ends.

    Args:
        reference: of the variant.
        variant: with bases for alleles.
        reading: of the task.
        most_needed_bp: bases, from the variant on, that may be needed to distinguish the alleles;
            for `tiled` the longest allele.

    Returns:
        None of a strand on which the contig ends before the alleles differ; no window at all if a
        strand needs more bases than it may.
    """
    plain = normalize_variant(reference, variant)
    if reading.protocol not in WINDOW_PROTOCOLS:
        return _on_tiles(reference, plain, reading, most_needed_bp)
    needed = {
        strand: needed_bp(reference, plain, strand, most_needed_bp)
        for strand in STRANDS_READ[reading.strands]
    }
    if any(bp is not None and bp > most_needed_bp for bp in needed.values()):
        return []
    return [_window(reference, plain, reading, s, bp) for s, bp in needed.items() if bp is not None]


def _on_tiles(
    reference: Reference, variant: Variant, reading: Reading, most_allele_bp: int
) -> list[Window]:
    grid = tile_grid(reading.window_bp, k=NATIVE.k)  # the tiles of Carbon's own models
    windows = []
    for strand in STRANDS_READ[reading.strands]:
        site = tiled_site(reference, variant, strand, grid.downstream_bp)
        if site is None:
            continue
        if max(site.allele_bp) > most_allele_bp:
            return []
        start = grid.tile_of(site.first) * grid.step_bp
        left = fetch_along(reference, site.contig, start, site.first, strand)
        windows.append(Window(left.upper(), site.ref.upper(), site.alt.upper()))
    return windows


def _window(
    reference: Reference, variant: Variant, reading: Reading, strand: str, needed: int
) -> Window:
    pair = variant.ref.upper(), variant.alt.upper()
    counted_bp = WINDOW_PROTOCOLS[reading.protocol].counted_bp(needed, strand, reading.window_bp)
    place = site_of(variant, strand, counted_bp)
    left, rights = allele_windows(reference, place, pair, reading.protocol, reading.window_bp)
    ref, alt = (rights[allele].upper() for allele in pair)
    both_bp = min(len(ref), len(alt))
    return Window(left.upper(), ref[:both_bp], alt[:both_bp])


def deltas_by_windows(
    model: Model,
    reference: Reference,
    variants: Sequence[Variant],
    reading: Reading,
    most_needed_bp: int | None = None,
    left_bp: int | None = None,
) -> list[float | None]:
    """Return log-likelihood(ALT) - log-likelihood(REF), the mean of the strands, of each variant.

    None where no sequence follows from the variant, the reference has N for a base of REF, more
    bases are needed to distinguish the alleles than allowed, or the contig ends before the alleles
    differ on every strand that is read.

    Args:
        model: that reads the windows.
        reference: of the variants.
        variants: written in any way.
        reading: of the task.
        most_needed_bp: bases, from the variant on, that may be needed to distinguish the alleles;
            half of the window if None, for `tiled` the part of the context outside the window.
        left_bp: bases of a window before the variant that the model reads; all if None.

    Raises:
        GenomeError: a REF disagrees with the reference.
    """
    reading = reading.fitting(model.context_bp)
    most_bp = _most_needed_bp(model, reading) if most_needed_bp is None else most_needed_bp
    results: list[float | None] = []
    for block in in_blocks(variants, _AT_ONCE):
        asked = [
            (variant, window)
            for variant in dict.fromkeys(block)
            if not reference.check_ref(
                variant.contig, variant.position, variant.ref, f"variant {variant.to_text()}"
            )
            and not variant.why_unscorable()
            for window in windows_of(reference, variant, reading, most_bp)
        ]
        windows = [window for _, window in asked]
        if left_bp is not None:
            windows = [w._replace(left=w.left[max(0, len(w.left) - left_bp) :]) for w in windows]
        by_strand: dict[Variant, list[float]] = defaultdict(list)
        deltas = _window_deltas(model, windows)
        for (variant, _), delta in zip(asked, deltas, strict=True):
            by_strand[variant].append(delta)
        means = {variant: sum(found) / len(found) for variant, found in by_strand.items()}
        results += [means.get(variant) for variant in block]
    return results


def _most_needed_bp(model: Model, reading: Reading) -> int:
    protocol = PROTOCOLS[reading.protocol]
    if reading.protocol in WINDOW_PROTOCOLS:
        return reading.window_bp // 2
    if model.context_bp is None:
        return protocol.spare_bp
    return model.context_bp - reading.window_bp


def _window_deltas(model: Model, windows: Sequence[Window]) -> list[float]:
    """Return a delta a window; if one base is compared, its prompt is read but once."""
    deltas = [0.0] * len(windows)
    single = [n for n, w in enumerate(windows) if len(w.ref) == 1]
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

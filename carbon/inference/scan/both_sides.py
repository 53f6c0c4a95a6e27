"""Bases scored by both sides: each of A, C, G and T with the bases downstream of it, in tiles.

Tiles, continuations and compared bases are those of the protocol `tiled` of variants, with every
base of the region as a site of three SNVs. So the difference of two log-probabilities is the delta
of that SNV.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Reference
from carbon.genome.interval import BASES
from carbon.inference.passages import padded_length, prefix_of
from carbon.inference.scan.method import ScanMethod
from carbon.inference.scan.windows import ScanWindow, passes
from carbon.inference.variants.tiles import TiledSite, fetch_along, tiled_readings

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

Float32s = NDArray[np.float32]

_ALLELES = "ACGT"  # its complement is itself in reverse


def score_tile(
    runner: "ModelRunner", reference: Reference, window: ScanWindow, method: ScanMethod
) -> Float32s:
    """Return the log-probabilities of the four bases at each scored position of a tile.

    They are the log softmax of the log-likelihoods of the base and `downstream_bp` bases after it,
    given the tile's bases before it.

    Returns:
        (scored bases, 4) in nats, as `ScanChunk.log_probabilities`; NaN for an unknown base.
    """
    _, offset = passes(method)[window.number]
    tiled = method.tiled(offset)
    sites = list(_sites(reference, window, tiled.grid.downstream_bp))
    readings = tiled_readings(runner, reference, sites, tiled)
    scored_bp = window.scored_to - window.scored_from
    # Relative to the reference, because the softmax ignores what all four have in common.
    deltas = np.full((scored_bp, len(_ALLELES)), np.nan)
    for site, ((ref,), (alt,)) in zip(sites, readings, strict=True):
        row = site.first - window.scored_from
        deltas[row, _ALLELES.index(site.ref[0].upper())] = 0
        nats = alt.likelihoods.astype(np.float64) - ref.likelihoods
        deltas[row, _ALLELES.index(site.alt[0])] = nats.sum()
    with np.errstate(invalid="ignore"):  # rows of unknown bases are NaN
        log_total = np.logaddexp.reduce(deltas, axis=1, keepdims=True)
    values = (deltas - log_total).astype(np.float32)
    return values if window.strand == "+" else values[::-1, ::-1]


def _sites(reference: Reference, window: ScanWindow, downstream_bp: int) -> Iterator[TiledSite]:
    """Yield the three SNVs of every known base that a tile scores."""
    end = min(window.scored_to + downstream_bp, window.contig_bp)
    bases = fetch_along(reference, window.contig, window.scored_from, end, window.strand)
    for row in range(window.scored_to - window.scored_from):
        text = bases[row : row + 1 + downstream_bp]
        if text[0].upper() not in BASES:
            continue
        for allele in _ALLELES:
            if allele != text[0].upper():
                yield TiledSite(
                    window.strand, window.contig, window.scored_from + row, text,
                    allele + text[1:], (1, 1), 0, True,
                )  # fmt: skip


def num_tile_tokens(
    runner: "ModelRunner", reference: Reference, window: ScanWindow, method: ScanMethod
) -> int:
    """Return the tokens, with padding, that `score_tile` runs."""
    _, offset = passes(method)[window.number]
    grid = method.grid
    span = window.contig, window.scored_from, window.scored_to
    bases = fetch_along(reference, *span, window.strand).upper()
    letters = np.frombuffer(bases.encode(), dtype=np.uint8)
    places = np.flatnonzero(np.isin(letters, np.frombuffer(_ALLELES.encode(), dtype=np.uint8)))
    if not len(places):
        return 0
    first = window.scored_from + places
    before = first - window.start - offset
    compared_bp = np.minimum(1 + grid.downstream_bp, window.contig_bp - first)
    kmers = -(-(before % grid.k + compared_bp) // grid.k)
    # The tile lacks the bases before its first k-mer, and then REF continues it too, once an ALT.
    continued = 3 * np.where(before < 0, 2, 1)
    prefix_tokens = len(prefix_of("", runner.vocabulary, method.tags))
    tile_tokens = padded_length(prefix_tokens + -(-grid.window_bp // grid.k))
    rows = np.bincount(kmers, weights=continued).astype(np.int64)
    # The last k-mer is only predicted.
    padded = [padded_length(int(length) - 1) for length in np.flatnonzero(rows)]
    return tile_tokens + int(rows[rows > 0] @ np.array(padded))

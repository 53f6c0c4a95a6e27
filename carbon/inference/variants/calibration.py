"""Calibrations: the mean delta of neutral sites for each change and its neighbouring bases.

A delta depends on the bases around an SNV even where the change has no effect, mostly because of
CpG. A calibrated delta is the delta minus the mean delta of neutral sites with the same bases
around them and the same change.

A cell is a change within its context, such as `AA[C>T]GT`. If both strands are scored, a context
and its reverse complement are one, written with REF C or T.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.genome.normalize import normalize_variant
from carbon.inference.options import STRANDS_READ, BackgroundOptions
from carbon.inference.variants.background_file import BackgroundFile

if TYPE_CHECKING:
    from carbon.inference.variants.score import VariantScore

LEAST_SITES = 20
"""With fewer sites a cell has the mean of the narrower context of `NARROW_BP`."""
NARROW_BP = 3

_BASES = "ACGT"
_CODES = np.full(256, len(_BASES), np.int64)  # unknown bases
_CODES[np.frombuffer(b"ACGTacgt", np.uint8)] = [0, 1, 2, 3] * 2
_CHUNK_BP = 2**20
_MOST_CANDIDATES = 2**20

Int64s = NDArray[np.int64]


class NeutralSite(NamedTuple):
    """A site that is drawn.

    Attributes:
        contig: contig of the reference.
        position: position of the site.
        ref: its base, in upper case.
    """

    contig: str
    position: int
    ref: str

    @property
    def snvs(self) -> list[Variant]:
        """The three SNVs at the site."""
        alts = _BASES.replace(self.ref, "")
        return [Variant(self.contig, self.position, self.ref, alt) for alt in alts]


class NeutralSites(NamedTuple):
    """Drawn sites in the order of the reference, and how many there are of each context.

    Attributes:
        sites: the drawn sites.
        num_by_context: number of neutral sites, drawn or not, by context.
    """

    sites: list[NeutralSite]
    num_by_context: dict[str, int]


def folds(strands: str) -> bool:
    """Return whether a context and its reverse complement have one score."""
    return len(STRANDS_READ[strands]) > 1  # type: ignore[index]


def cell_of(
    reference: Reference, variant: Variant, neighbour_bp: int, *, is_folded: bool
) -> str | None:
    """Return the cell of a variant; None unless it is an SNV with known bases around it."""
    plain = normalize_variant(reference, variant)
    if plain.why_unscorable() or len(plain.ref) != 1 or len(plain.alt) != 1:
        return None
    side_bp = neighbour_bp // 2
    start, end = plain.position - side_bp, plain.position + side_bp + 1
    if start < 0 or end > reference.contig_lengths_bp[plain.contig]:
        return None
    around = reference.fetch(Interval(plain.contig, start, end)).upper()
    context = around[:side_bp] + plain.ref.upper() + around[side_bp + 1 :]
    if not set(context) <= set(_BASES):
        return None
    return _cell(context, plain.alt.upper(), is_folded=is_folded)


def _cell(context: str, alt: str, *, is_folded: bool) -> str:
    middle = len(context) // 2
    if is_folded and context[middle] not in "CT":
        context, alt = reverse_complement(context), reverse_complement(alt)
    return f"{context[:middle]}[{context[middle]}>{alt}]{context[middle + 1 :]}"


def draw_neutral_sites(
    reference: Reference,
    neutral: Iterable[Interval],
    drawing: BackgroundOptions,
    *,
    is_folded: bool,
) -> NeutralSites:
    """Draw sites of every context, uniformly and without replacement.

    Args:
        reference: the reference sequence.
        neutral: intervals that do not overlap.
        drawing: `neighbour_bp`, `sites_per_context`, `seed` and the contigs `draw_from`.
        is_folded: whether a context and its reverse complement are one.

    Raises:
        UserError: a contig does not exist, or no site has known bases around it.
    """
    lengths_bp = reference.contig_lengths_bp
    if missing := [name for name in drawing.draw_from if name not in lengths_bp]:
        raise UserError(f"{reference.path}: {reference.explain_missing(missing)}")
    width_bp = drawing.neighbour_bp or 0
    contigs = list(drawing.draw_from or lengths_bp)
    numbers = {contig: number for number, contig in enumerate(contigs)}
    drawn = _Drawn(4**width_bp, drawing.num_sites, drawing.seed)
    for interval in neutral:
        if interval.contig in numbers:
            number = numbers[interval.contig]
            for positions, contexts in _contexts(reference, interval, width_bp, is_folded):
                drawn.add(contexts, np.full(len(positions), number), positions)
    places = drawn.places()
    if not len(places):
        raise UserError(f"{reference.path}: no neutral site has {width_bp} known bases around it")
    sites = []
    for number, position in places.tolist():
        contig = contigs[number]
        ref = reference.fetch(Interval(contig, position, position + 1)).upper()
        sites.append(NeutralSite(contig, position, ref))
    present = drawn.num_by_context.nonzero()[0].tolist()
    counts = {_text(code, width_bp): int(drawn.num_by_context[code]) for code in present}
    return NeutralSites(sites, counts)


def _contexts(
    reference: Reference, interval: Interval, width_bp: int, is_folded: bool
) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield positions and codes of the contexts whose bases are known."""
    side_bp, length_bp = width_bp // 2, reference.contig_lengths_bp[interval.contig]
    first, last = max(interval.start, side_bp), min(interval.end, length_bp - side_bp)
    places = 4 ** np.arange(width_bp - 1, -1, -1)
    for start in range(first, last, _CHUNK_BP):
        end = min(start + _CHUNK_BP, last)
        bases = reference.fetch(Interval(interval.contig, start - side_bp, end + side_bp))
        codes = _CODES[np.frombuffer(bases.encode(), np.uint8)]
        around = np.lib.stride_tricks.sliding_window_view(codes, width_bp)
        known = (around < len(_BASES)).all(axis=1)
        around = around[known]
        contexts = around @ places
        if is_folded:
            reverse = (3 - around)[:, ::-1] @ places
            is_purine = around[:, side_bp] % 2 == 0  # A and G
            contexts = np.where(is_purine, reverse, contexts)
        yield np.flatnonzero(known) + start, contexts


def _text(code: int, width_bp: int) -> str:
    return "".join(_BASES[code // 4**place % 4] for place in range(width_bp - 1, -1, -1))


class _Drawn:
    """The sites of each context with the smallest random keys.

    Attributes:
        num_by_context: sites that were added, by context.
    """

    def __init__(self, num_contexts: int, most_sites: int, seed: int) -> None:
        """Draw at most `most_sites` of each context."""
        self.num_by_context = np.zeros(num_contexts, np.int64)
        self._most_sites = most_sites
        self._numbers = np.random.default_rng(seed)
        self._largest = np.ones(num_contexts)  # keys of full contexts are below
        self._waiting = [np.empty((4, 0))]  # context, key, contig and position
        self._num_waiting = 0

    def add(self, contexts: Int64s, contigs: Int64s, positions: Int64s) -> None:
        """Add sites."""
        self.num_by_context += np.bincount(contexts, minlength=len(self.num_by_context))
        keys = self._numbers.random(len(contexts))
        candidates = keys < self._largest[contexts]
        self._waiting.append(np.stack([contexts, keys, contigs, positions])[:, candidates])
        self._num_waiting += int(candidates.sum())
        if self._num_waiting > _MOST_CANDIDATES:
            self._keep_smallest()

    def places(self) -> Int64s:
        """Return the numbers of contigs and the positions of the drawn sites, in order: (N, 2)."""
        self._keep_smallest()
        places = self._waiting[0][2:].astype(np.int64)
        return places[:, np.lexsort(places[::-1])].T

    def _keep_smallest(self) -> None:
        rows = np.concatenate(self._waiting, axis=1)
        rows = rows[:, np.lexsort(rows[1::-1])]
        contexts = rows[0].astype(np.int64)
        rank = np.arange(len(contexts)) - np.searchsorted(contexts, contexts)
        is_last = rank == self._most_sites - 1
        self._largest[contexts[is_last]] = rows[1, is_last]
        self._waiting = [rows[:, rank < self._most_sites]]
        self._num_waiting = 0


class Calibration(BackgroundFile):
    """Mean deltas of neutral sites by cell.

    Attributes:
        neighbour_bp: bases of a context, the site in the middle.
        is_folded: whether a context and its reverse complement are one.
        cells: entry by cell: `sites`, the number of drawn sites; `context_bp`, the bases of the
            context of which `delta`, in nats, is the mean; both None if even the narrower context
            has too few sites.
    """

    made_by = "carbon background --neighbour-bp"
    format_name = "carbon calibration 1"

    def __init__(self, content: Mapping[str, Any]) -> None:
        """Take the content of a file, without its checksum."""
        super().__init__(content)
        self.neighbour_bp: int = content["neighbour_bp"]
        self.is_folded: bool = content["is_folded"]
        self.cells: dict[str, dict[str, Any]] = content["cells"]

    def calibrated(
        self, reference: Reference, variant: Variant, delta: float | None
    ) -> float | None:
        """Return the delta minus the mean of the variant's cell, in nats.

        Args:
            reference: the reference sequence.
            variant: the variant.
            delta: its delta in nats.

        Returns:
            None without a delta, unless the variant is an SNV with known bases around it, or if
            its cell has too few sites.
        """
        if delta is None:
            return None
        cell = cell_of(reference, variant, self.neighbour_bp, is_folded=self.is_folded)
        mean = self.cells[cell]["delta"] if cell else None
        return None if mean is None else delta - mean


def calibrated_scores(
    calibration: Calibration, reference: Reference, scores: Iterable["VariantScore"]
) -> Iterator["VariantScore"]:
    """Yield scores with their calibrated deltas."""
    for score in scores:
        calibrated = calibration.calibrated(reference, score.variant, score.delta)
        yield score._replace(calibrated_delta=calibrated)


def calibration_of(
    reference: Reference,
    drawn: NeutralSites,
    deltas: Sequence[float | None],
    about: Mapping[str, Any],
) -> Calibration:
    """Compute a calibration from the deltas of all SNVs of the sites.

    The mean of a narrower context weights its contexts by their numbers of neutral sites.

    Args:
        reference: the reference sequence.
        drawn: the sites.
        deltas: in nats, of the three SNVs of each site.
        about: `settings`, `drawn`, `neighbour_bp` and `is_folded` of the file.
    """
    width_bp, is_folded = about["neighbour_bp"], about["is_folded"]
    by_cell: dict[str, list[float]] = {}
    snvs = (snv for site in drawn.sites for snv in site.snvs)
    for snv, delta in zip(snvs, deltas, strict=True):
        cell = cell_of(reference, snv, width_bp, is_folded=is_folded)
        if cell is not None and delta is not None:
            by_cell.setdefault(cell, []).append(delta)
    narrow = _narrow_means(by_cell, drawn.num_by_context, width_bp)
    cells = {}
    for cell in _all_cells(width_bp, is_folded):
        own = by_cell.get(cell, [])
        entry: dict[str, Any] = {"sites": len(own), "context_bp": None, "delta": None}
        if len(own) >= LEAST_SITES:
            entry |= {"context_bp": width_bp, "delta": float(np.mean(own))}
        elif (mean := narrow.get(_narrow(cell, width_bp))) is not None:
            entry |= {"context_bp": NARROW_BP, "delta": mean}
        cells[cell] = entry
    content = {"format": Calibration.format_name, **about, "cells": cells}
    return Calibration(json.loads(json.dumps(content)))  # as it would be read


def _narrow_means(
    by_cell: Mapping[str, list[float]], num_by_context: Mapping[str, int], width_bp: int
) -> dict[str, float]:
    """Return the weighted mean of the narrower contexts with enough sites."""
    members: dict[str, list[str]] = {}
    for cell in by_cell:
        members.setdefault(_narrow(cell, width_bp), []).append(cell)
    means = {}
    for narrow, cells in members.items():
        if sum(len(by_cell[cell]) for cell in cells) >= LEAST_SITES:
            weights = [num_by_context[_context(cell)] for cell in cells]
            means[narrow] = float(np.average([np.mean(by_cell[c]) for c in cells], weights=weights))
    return means


def _narrow(cell: str, width_bp: int) -> str:
    """Return the cell of the narrower context: `A[C>T]G` for `AA[C>T]GT`."""
    outer_bp = (width_bp - NARROW_BP) // 2
    return cell[outer_bp : len(cell) - outer_bp]


def _context(cell: str) -> str:
    """Return the bases of a cell with REF: `AACGT` for `AA[C>T]GT`."""
    left, _, rest = cell.partition("[")
    return left + rest[0] + rest.partition("]")[2]


def _all_cells(width_bp: int, is_folded: bool) -> list[str]:
    contexts = map("".join, product(_BASES, repeat=width_bp))
    cells = (
        _cell(context, alt, is_folded=is_folded)
        for context in contexts
        for alt in _BASES.replace(context[width_bp // 2], "")
    )
    return sorted(set(cells))

"""Pieces of a genome by kind (coding, intron and intergenic), and a map of their embeddings."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from carbon.genome.alphabet import reverse_complement
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, intergenic
from carbon.genome.interval import Interval, Strand
from carbon.genome.sequences import SequenceRecord
from demo.figures import BLUE, GREY, Figure, figure, plain
from demo.lab import Lab

T = TypeVar("T")
_Site = tuple[Interval, Strand]


def pieces_of_kinds(
    reference: Reference, annotation: Annotation | None, per_kind: int, piece_bp: int
) -> Iterator[SequenceRecord]:
    """Yield coding, intron and intergenic sequences across the genome; genes along their strand.

    Args:
        reference: the reference sequence.
        annotation: its genes, whose first transcripts provide the sequences; without genes, the
            kinds are the contigs.
        per_kind: maximum number of sequences of each kind.
        piece_bp: length of a sequence; shorter regions are skipped.

    Yields:
        Records named by region and strand, with the kind as description. Sequences without a
        known base are omitted.
    """
    for kind, sites in _sites_of_kinds(reference, annotation).items():
        for interval, strand in _windows(sites, per_kind, piece_bp):
            bases = reference.fetch(interval)
            if any(letter in "ACGTacgt" for letter in bases):
                name = f"{interval.to_region()}({strand})"
                yield SequenceRecord(
                    name, kind, bases if strand == "+" else reverse_complement(bases)
                )


def _sites_of_kinds(reference: Reference, annotation: Annotation | None) -> dict[str, list[_Site]]:
    """Return coding spans, introns and intergenic regions; contigs if no gene is known."""
    lengths_bp = reference.contig_lengths_bp
    if annotation is None:
        return {name: [(Interval(name, 0, bp), "+")] for name, bp in lengths_bp.items()}
    genes = annotation.genes
    transcripts = [gene.transcripts[0] for gene in genes if gene.transcripts]
    spans = {
        "coding": [(t, span) for t in transcripts for span in t.cds],
        "intron": [(t, span) for t in transcripts for span in t.introns],
    }
    sites: dict[str, list[_Site]] = {
        kind: [
            (Interval(t.contig, start, end), t.strand)
            for t, (start, end) in kind_spans
            if end <= lengths_bp[t.contig]  # a span of a circular contig may pass its end
        ]
        for kind, kind_spans in spans.items()
    }
    return sites | {"intergenic": [(gap, "+") for gap in intergenic(annotation, lengths_bp)]}


def _windows(sites: Iterable[_Site], number: int, piece_bp: int) -> list[_Site]:
    """Return `number` sites of length `piece_bp`, from as many of the given sites as possible."""
    sites = _evenly([site for site in sites if site[0].length_bp >= piece_bp], number)
    per_site = -(-number // max(len(sites), 1))
    windows = [
        (Interval(site.contig, start, start + piece_bp), strand)
        for site, strand in sites
        for start in _evenly(range(site.start, site.end - piece_bp + 1, piece_bp), per_site)
    ]
    return _evenly(windows, number)


def _evenly(items: Sequence[T], number: int) -> list[T]:
    """Return `number` evenly spaced items, or all items if there are fewer."""
    if len(items) <= number:
        return list(items)
    return [items[n * len(items) // number] for n in range(number)]


_PER_KIND, _PIECE_BP = 24, 120
_LEAST_PIECES = 3
_MARKS = ((BLUE, "circle"), (GREY, "diamond"), (GREY, "square-open"))


class EmbeddingMap(NamedTuple):
    """Pieces of a genome on the two axes along which their embeddings differ most.

    Attributes:
        names: name of each piece.
        kinds: kind of each piece: coding, intron or intergenic.
        places: (pieces, 2), principal components.
        explained: share of the variance of both axes, 0 to 1.
    """

    names: list[str]
    kinds: list[str]
    places: NDArray[np.float64]
    explained: NDArray[np.float64]


def embedding_map(lab: Lab) -> EmbeddingMap | None:
    """Return the map of the genome's pieces; None if it has too few."""
    genome = lab.genome
    pieces = list(pieces_of_kinds(genome.reference, genome.annotation, _PER_KIND, _PIECE_BP))
    if len(pieces) < _LEAST_PIECES:
        return None
    vectors = np.stack(list(lab.model.embed([piece.bases for piece in pieces]))).astype(float)
    pca = PCA(2, svd_solver="full").fit(vectors)
    names, kinds = [p.name for p in pieces], [p.description for p in pieces]
    return EmbeddingMap(names, kinds, pca.transform(vectors), pca.explained_variance_ratio_)


def map_figure(mapped: EmbeddingMap | None) -> Figure | None:
    """Return the map as a figure, with a mark for each kind."""
    if mapped is None:
        return None
    traces: list[dict[str, Any]] = []
    for (color, symbol), kind in zip(_MARKS, dict.fromkeys(mapped.kinds), strict=False):
        chosen = [n for n, own in enumerate(mapped.kinds) if own == kind]
        traces.append({
            "type": "scatter", "mode": "markers", "name": plain(kind),
            "x": mapped.places[chosen, 0].round(4).tolist(),
            "y": mapped.places[chosen, 1].round(4).tolist(),
            "text": [plain(mapped.names[n]) for n in chosen], "hoverinfo": "text",
            "marker": {"color": color, "size": 9, "opacity": 0.8, "symbol": symbol},
        })  # fmt: skip
    first, second = (f"{100 * share:.0f} %" for share in mapped.explained)
    return figure(
        traces,
        height=400,
        showlegend=True,
        xaxis={"title": {"text": f"first axis, {first} of the variance"}, "fixedrange": True},
        yaxis={"title": {"text": f"second axis, {second}"}, "fixedrange": True},
    )

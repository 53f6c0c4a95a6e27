"""A map of pieces of the genome by their embeddings."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from demo.figures import BLUE, GREY, Figure, figure, plain
from demo.lab import Lab
from demo.pieces import pieces_of_kinds

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

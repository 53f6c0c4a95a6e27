"""Vectors in a plane: principal components, and UMAP where umap-learn is installed.

A map is for inspection; classification is measured on the vectors themselves.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from carbon.progress import say

Plane = Callable[[NDArray[Any], int], NDArray[Any]]
"""From standardised vectors, (windows, width), and a seed to (windows, 2)."""

_MOST_NEIGHBOURS = 100  # as in the Carbon report, section 7


def _pca(vectors: NDArray[Any], seed: int) -> NDArray[Any]:
    found: NDArray[Any] = PCA(2, svd_solver="full", random_state=seed).fit_transform(vectors)
    # The sign of a component is arbitrary: its largest coordinate is made positive.
    largest = np.abs(found).argmax(axis=0)
    turned: NDArray[Any] = found * np.sign(found[largest, [0, 1]])
    return turned


def _umap(vectors: NDArray[Any], seed: int) -> NDArray[Any]:
    import umap

    neighbours = min(_MOST_NEIGHBOURS, len(vectors) - 1)
    reducer = umap.UMAP(n_neighbors=neighbours, metric="cosine", random_state=seed)
    found: NDArray[Any] = reducer.fit_transform(vectors)
    return found


def planes() -> dict[str, Plane]:
    """Return the kinds of maps that can be made; report a missing package."""
    if find_spec("umap") is None:
        say("umap-learn is not installed, so there is no UMAP; pip install 'carbon-dna[umap]'")
        return {"PCA": _pca}
    return {"PCA": _pca, "UMAP": _umap}


def map_of(vectors: NDArray[Any], plane: Plane, seed: int) -> list[list[float]]:
    """Return a point of each vector, rounded for a figure."""
    points = plane(StandardScaler().fit_transform(vectors.astype(np.float64)), seed)
    rounded: list[list[float]] = np.round(points.astype(np.float64), 4).tolist()
    return rounded

"""The first two principal components of vectors."""

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from carbon.errors import UserError


def principal_components(
    vectors: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the first two principal components (N, 2), and the shares of variance they explain.

    Raises:
        UserError: all vectors are the same.
    """
    values = vectors.astype(float)
    if (values == values[0]).all():
        raise UserError("all sequences have the same vector; give sequences that differ")
    pca = PCA(2, svd_solver="full").fit(values)
    return pca.transform(values), pca.explained_variance_ratio_

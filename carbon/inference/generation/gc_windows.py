"""Windows of generated bases whose share of G and C is held."""

from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from carbon.inference.generation.constraints import Constraints

Bools = NDArray[np.bool_]

_ROUNDING = 1e-9  # of a share times a length


class GcWindows:
    """The windows whose G and C are counted.

    Attributes:
        are_counted: whether a share is asked for.
        most: what counts are cut off at: more than any window may hold.
    """

    def __init__(self, constraints: Constraints, length_bp: int) -> None:
        self._gc = constraints.gc or (0.0, 1.0)
        self._window_bp = constraints.gc_window_bp or length_bp
        self._length_bp = length_bp
        self.are_counted = constraints.gc is not None
        longest_bp = min(self._window_bp, length_bp)
        self.most = floor(self._gc[1] * longest_bp) + 2 if self.are_counted else 0

    def end_at(self, position_bp: int) -> bool:
        """Tell whether a window ends behind so many generated bases."""
        is_end = position_bp == self._length_bp or position_bp % self._window_bp == 0
        return self.are_counted and is_end

    def holds(self, end_bp: int) -> Bools:
        """Tell which counts the window that ends here may have: (most + 1,)."""
        bases = end_bp % self._window_bp or self._window_bp
        least, most = (share * bases for share in self._gc)
        counts = np.arange(self.most + 1)
        if bases < self._window_bp:
            return (counts >= floor(least + _ROUNDING)) & (counts <= ceil(most - _ROUNDING))
        return (counts >= ceil(least - _ROUNDING)) & (counts <= floor(most + _ROUNDING))

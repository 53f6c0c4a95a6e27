"""Generated bases that code for a protein: which states of the automaton may be where."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome.alphabet import GENETIC_CODE
from carbon.inference.generation.constraints import Constraints
from carbon.inference.generation.motifs import MotifState

Bools = NDArray[np.bool_]


class Codons:
    """The codons that a protein allows, each where it ends.

    Attributes:
        are_fixed: whether a protein is asked for.
    """

    def __init__(
        self, constraints: Constraints, length_bp: int, states: Iterable[MotifState]
    ) -> None:
        """Take the states in the order of their numbers; behind them is that of no return.

        Raises:
            UserError: the protein is of another length.
        """
        self.are_fixed = constraints.protein is not None
        self._protein = constraints.protein or ""
        if self.are_fixed and length_bp != 3 * len(self._protein):
            raise UserError(
                f"a protein of {len(self._protein)} amino acids has {3 * len(self._protein)} "
                f"bases: give that length, not {length_bp}"
            )
        coded = np.array([*(GENETIC_CODE.get(state.codon, "") for state in states), ""])
        self._coding_for = {each: coded == each for each in set(self._protein)}

    def end_at(self, position_bp: int) -> bool:
        """Tell whether a codon ends behind so many generated bases."""
        return self.are_fixed and position_bp % 3 == 0

    def hold(self, end_bp: int) -> Bools:
        """Tell which states have the amino acid whose codon ends here: (states + 1,)."""
        held: Bools = self._coding_for[self._protein[end_bp // 3 - 1]]
        return held

"""Forbidden and required motifs, read base by base: Shift-And, made deterministic.

The bits of one number tell which motifs the last bases begin (Baeza-Yates and Gonnet 1992).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import IUPAC_DNA, STOP_CODONS
from carbon.genome.alphabet import IUPAC_BASES
from carbon.inference.generation.constraints import Constraints
from carbon.tokenizer import BASES

Bools = NDArray[np.bool_]

_MOST_STATES = 20_000


class MotifState(NamedTuple):
    """Bit i of `active`: the last bases are the beginning of a pattern, up to its letter at i."""

    active: int
    phase: int  # of the codon that the next base is in; 0 where frames do not matter
    found: int  # a bit for each required motif
    codon: str = ""  # the generated bases of the running codon; empty where no protein is fixed


class Patterns:
    """All motifs and stop codons, letter by letter in the bits of one number."""

    def __init__(self, constraints: Constraints) -> None:
        self._frame = constraints.no_stop_frame
        self._reads_codons = constraints.protein is not None
        codons = sorted(STOP_CODONS) if self._frame is not None else []
        self._longest_bp = max(map(len, (*constraints.forbid, *codons)), default=1)
        self._match = dict.fromkeys(IUPAC_DNA, 0)
        self._size = 0
        motifs = [self._add(motif) for motif in constraints.forbid]
        stops = [self._add(codon) for codon in codons]
        self._required = [self._add(motif) for motif in constraints.require]
        self._first = sum(bits & -bits for bits in motifs + self._required)
        self._first_of_stop = sum(bits & -bits for bits in stops)
        self._bad = sum(_last(bits) for bits in motifs + stops)

    def _add(self, motif: str) -> int:
        """Give a motif its bits, one a letter, and return them."""
        for letter in motif.upper():
            for read in IUPAC_DNA:
                if set(IUPAC_BASES[letter]) & set(IUPAC_BASES[read]):
                    self._match[read] |= 1 << self._size
            self._size += 1
        return (1 << self._size) - (1 << self._size - len(motif))

    def after_prompt(self, prompt: str) -> MotifState:
        """Return the state at the end of a prompt; no required motif begins in it."""
        active = 0
        for place in range(max(0, len(prompt) - self._longest_bp + 1), len(prompt)):
            active = self._go_on(active, self._phase(place), prompt[place].upper()) & ~self._bad
        return MotifState(active & ~sum(self._required), self._phase(len(prompt)), 0)

    def step(self, state: MotifState, base: str) -> MotifState | None:
        """Return the state one base on, or None where a forbidden motif is complete."""
        active, found = self._go_on(state.active, state.phase, base), state.found
        if active & self._bad:
            return None
        for number, bits in enumerate(self._required):
            found |= bool(active & _last(bits)) << number
            if found >> number & 1:
                active &= ~bits
        phase = (state.phase + 1) % 3 if self._frame is not None else 0
        codon = state.codon[: len(state.codon) % 3] + base if self._reads_codons else ""
        return MotifState(active, phase, found, codon)

    def ends_well(self, state: MotifState, right: str) -> bool:
        """Tell whether all is found, and nothing forbidden is completed by what stands behind."""
        active = state.active
        for letter in right.upper()[: self._longest_bp - 1]:
            active = active << 1 & self._match[letter] & ~(self._first | self._first_of_stop)
            if active & self._bad:
                return False
        return state.found == (1 << len(self._required)) - 1

    def _go_on(self, active: int, phase: int, letter: str) -> int:
        first = self._first | (self._first_of_stop if phase == 0 else 0)
        # What would move from the last letter of one motif to the first of the next is none.
        moved = active << 1 & ~(self._first | self._first_of_stop)
        return (moved | first) & self._match[letter]

    def _phase(self, position_bp: int) -> int:
        return 0 if self._frame is None else (position_bp - self._frame) % 3


def _last(bits: int) -> int:
    return 1 << bits.bit_length() - 1


def deterministic(
    patterns: Patterns, starts: Sequence[MotifState], right: str
) -> tuple[NDArray[np.int64], dict[MotifState, int], Bools]:
    """Walk over all states that can be reached.

    Returns:
        The state after each base, (states + 1, 4), the last state being that of no return; the
        states' numbers; which of them are a good end, (states + 1,).
    """
    numbers = {state: number for number, state in enumerate(dict.fromkeys(starts))}
    waiting = list(numbers)
    following: list[list[MotifState | None]] = []
    for state in waiting:  # which grows
        steps = [patterns.step(state, base) for base in BASES]
        following.append(steps)
        for step in steps:
            if step is not None and step not in numbers:
                numbers[step] = len(numbers)
                waiting.append(step)
        if len(numbers) > _MOST_STATES:
            raise UserError(
                "the motifs are too many, or have too many ambiguous letters, to be kept track of; "
                "give fewer or plainer ones"
            )
    dead = len(numbers)
    table = [[dead if step is None else numbers[step] for step in steps] for steps in following]
    accepts = [patterns.ends_well(state, right) for state in waiting]
    return np.array([*table, [dead] * 4]), numbers, np.array([*accepts, False])

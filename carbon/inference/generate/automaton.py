"""Constraints as a deterministic automaton over bases, with tables of which 6-mers may follow.

Motifs are matched by Shift-And (Baeza-Yates and Gonnet 1992): each bit of a number marks a motif
prefix that the last bases match. The reachable states are numbered, and a backward pass marks the
states from which every constraint can still be satisfied.
"""

from collections.abc import Iterable, Sequence
from math import ceil, floor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import IUPAC_DNA, STOP_CODONS
from carbon.genome.alphabet import GENETIC_CODE, IUPAC_BASES
from carbon.inference.options import Constraints
from carbon.tokenizer import BASES, KMER_DIGITS, K, encode_kmers

Bools = NDArray[np.bool_]

_MOST_STATES = 20_000


class MotifState(NamedTuple):
    """Bit i of `active`: the last bases match a motif up to its letter at i."""

    active: int
    phase: int  # of the next base in its codon; 0 unless frames matter
    required: int  # a bit for each required motif that has occurred
    codon: str = ""  # the generated bases of the current codon; empty without a protein


class Patterns:
    """All motifs and stop codons, with one bit for each letter."""

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
        """Assign bits to a motif, one a letter, and return them."""
        for letter in motif.upper():
            for code in IUPAC_DNA:
                if set(IUPAC_BASES[letter]) & set(IUPAC_BASES[code]):
                    self._match[code] |= 1 << self._size
            self._size += 1
        return (1 << self._size) - (1 << self._size - len(motif))

    def after_prompt(self, prompt: str) -> MotifState:
        """Return the state at the end of a prompt; required motifs cannot begin in the prompt."""
        active = 0
        for place in range(max(0, len(prompt) - self._longest_bp + 1), len(prompt)):
            active = self._shifted(active, self._phase(place), prompt[place].upper()) & ~self._bad
        return MotifState(active & ~sum(self._required), self._phase(len(prompt)), 0)

    def step(self, state: MotifState, base: str) -> MotifState | None:
        """Return the state after one more base, or None if it completes a forbidden motif."""
        active, required = self._shifted(state.active, state.phase, base), state.required
        if active & self._bad:
            return None
        for number, bits in enumerate(self._required):
            required |= bool(active & _last(bits)) << number
            if required >> number & 1:
                active &= ~bits
        phase = (state.phase + 1) % 3 if self._frame is not None else 0
        codon = state.codon[: len(state.codon) % 3] + base if self._reads_codons else ""
        return MotifState(active, phase, required, codon)

    def ends_well(self, state: MotifState, right: str) -> bool:
        """Return whether all required motifs occur, and `right` completes no forbidden one."""
        active = state.active
        for letter in right.upper()[: self._longest_bp - 1]:
            active = active << 1 & self._match[letter] & ~(self._first | self._first_of_stop)
            if active & self._bad:
                return False
        return state.required == (1 << len(self._required)) - 1

    def _shifted(self, active: int, phase: int, letter: str) -> int:
        first = self._first | (self._first_of_stop if phase == 0 else 0)
        # The last letter of one motif must not shift into the first letter of the next.
        moved = active << 1 & ~(self._first | self._first_of_stop)
        return (moved | first) & self._match[letter]

    def _phase(self, position_bp: int) -> int:
        return 0 if self._frame is None else (position_bp - self._frame) % 3


def _last(bits: int) -> int:
    return 1 << bits.bit_length() - 1


def deterministic(
    patterns: Patterns, starts: Sequence[MotifState], right: str
) -> tuple[NDArray[np.int64], dict[MotifState, int], Bools]:
    """Enumerate all reachable states.

    Returns:
        The state after each base, (states + 1, 4), the last one a dead state; the number of each
        state; which states are accepting, (states + 1,).
    """
    numbers = {state: number for number, state in enumerate(dict.fromkeys(starts))}
    waiting = list(numbers)
    following: list[list[MotifState | None]] = []
    for state in waiting:  # the list grows during iteration
        steps = [patterns.step(state, base) for base in BASES]
        following.append(steps)
        for step in steps:
            if step is not None and step not in numbers:
                numbers[step] = len(numbers)
                waiting.append(step)
        if len(numbers) > _MOST_STATES:
            raise UserError(
                "the motifs are too many, or have too many ambiguous letters, for the automaton; "
                "give fewer or plainer ones"
            )
    dead = len(numbers)
    table = [[dead if step is None else numbers[step] for step in steps] for steps in following]
    accepts = [patterns.ends_well(state, right) for state in waiting]
    return np.array([*table, [dead] * 4]), numbers, np.array([*accepts, False])


_ROUNDING = 1e-9  # of a share times a length


class GcWindows:
    """The windows in which GC content is constrained.

    Attributes:
        are_counted: whether the constraints bound the GC content.
        most: cap on counts, above the maximum of any window.
    """

    def __init__(self, constraints: Constraints, length_bp: int) -> None:
        self._gc = constraints.gc or (0.0, 1.0)
        self._window_bp = constraints.gc_window_bp or length_bp
        self._length_bp = length_bp
        self.are_counted = constraints.gc is not None
        longest_bp = min(self._window_bp, length_bp)
        self.most = floor(self._gc[1] * longest_bp) + 2 if self.are_counted else 0

    def end_at(self, position_bp: int) -> bool:
        """Return whether a window ends after this many generated bases."""
        is_end = position_bp == self._length_bp or position_bp % self._window_bp == 0
        return self.are_counted and is_end

    def holds(self, end_bp: int) -> Bools:
        """Return which counts the window that ends here may have: (most + 1,)."""
        bases = end_bp % self._window_bp or self._window_bp
        least, most = (share * bases for share in self._gc)
        counts = np.arange(self.most + 1)
        if bases < self._window_bp:
            return (counts >= floor(least + _ROUNDING)) & (counts <= ceil(most - _ROUNDING))
        return (counts >= ceil(least - _ROUNDING)) & (counts <= floor(most + _ROUNDING))


class Codons:
    """The codons that a protein allows, each where it ends.

    Attributes:
        are_fixed: whether the constraints include a protein.
    """

    def __init__(
        self, constraints: Constraints, length_bp: int, states: Iterable[MotifState]
    ) -> None:
        """Take the states in order of their numbers; the dead state follows them.

        Raises:
            UserError: the length is not three bases for each amino acid.
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
        """Return whether a codon ends after this many generated bases."""
        return self.are_fixed and position_bp % 3 == 0

    def hold(self, end_bp: int) -> Bools:
        """Return which states encode the amino acid whose codon ends here: (states + 1,)."""
        held: Bools = self._coding_for[self._protein[end_bp // 3 - 1]]
        return held


_MOST_CELLS = 250_000_000  # of the table, one byte a cell
_LEAST_CELLS = 64  # minimum count for a base: the overhead of its array
_IS_GC = np.array([base in "GC" for base in BASES]).astype(np.int64)


class AutomatonState(NamedTuple):
    """State of the automaton after a number of bases.

    Attributes:
        position_bp: generated bases.
        motifs: number of the motif state.
        gc: number of G and C in the current window.
    """

    position_bp: int
    motifs: int
    gc: int


class Automaton:
    """Constraints for some prompts and one length: see `automaton_for`."""

    def __init__(
        self, constraints: Constraints, prompts: Sequence[str], length_bp: int, right: str
    ) -> None:
        """Build the tables."""
        self._length_bp = length_bp
        self._windows = GcWindows(constraints, length_bp)
        patterns = Patterns(constraints)
        starts = [patterns.after_prompt(prompt) for prompt in prompts]
        self._next, numbers, accepts = deterministic(patterns, starts, right)
        self._codons = Codons(constraints, length_bp, numbers)
        self._starts = [AutomatonState(0, numbers[start], 0) for start in starts]
        self._alive = self._reach_backwards(accepts)

    def is_possible(self, prompt: int) -> bool:
        """Return whether any continuation of a prompt satisfies all constraints."""
        return bool(self._alive_at(0)[self._starts[prompt].motifs, 0])

    def start(self, prompt: int) -> AutomatonState:
        """Return the state at the end of a prompt."""
        return self._starts[prompt]

    def advance(self, state: AutomatonState, digits: Iterable[int]) -> AutomatonState:
        """Return the state after more bases, given as digits; bases past the end are ignored."""
        position_bp, motifs, gc = state
        for digit in digits:
            if position_bp == self._length_bp:
                break
            position_bp += 1
            motifs = int(self._next[motifs, digit])
            gc = min(gc + int(_IS_GC[digit]), self._windows.most)
            if self._windows.end_at(position_bp):
                gc = 0
        return AutomatonState(position_bp, motifs, gc)

    def allowed(self, state: AutomatonState, tail_bp: int = 0) -> Bools:
        """Return which 6-mers may come next: (4096,).

        Args:
            state: current state.
            tail_bp: number of leading bases of the 6-mer that belong to the prompt.
        """
        motifs = np.full(4**tail_bp, state.motifs)
        gc = np.full(4**tail_bp, state.gc)
        position_bp = state.position_bp
        dead = len(self._next) - 1
        for _ in range(min(K - tail_bp, self._length_bp - position_bp)):
            position_bp += 1
            motifs = self._next[motifs].reshape(-1)
            gc = np.minimum((gc[:, None] + _IS_GC).reshape(-1), self._windows.most)
            if self._windows.end_at(position_bp):
                motifs = np.where(self._windows.holds(position_bp)[gc], motifs, dead)
                gc = np.zeros_like(gc)
            if self._codons.end_at(position_bp):
                motifs = np.where(self._codons.hold(position_bp)[motifs], motifs, dead)
        alive: Bools = self._alive_at(position_bp)[motifs, gc]
        return np.repeat(alive, 4**K // len(alive))

    def keeps(self, prompt: int, bases: str) -> bool:
        """Return whether ACGT bases after a prompt satisfy all constraints."""
        state = self.start(prompt)
        kmers = encode_kmers(bases.ljust(-(-len(bases) // K) * K, "A")).indices
        for kmer in kmers.tolist():
            if not self.allowed(state)[kmer]:
                return False
            state = self.advance(state, KMER_DIGITS[kmer].tolist())
        return True

    def _alive_at(self, position_bp: int) -> Bools:
        """Return which states can reach an accepting end: (states, G and C in the window)."""
        return self._alive[min(self._length_bp - position_bp, len(self._alive) - 1)]

    def _reach_backwards(self, accepts: Bools) -> list[Bools]:
        """Return which states can reach an accepting end, by the number of remaining bases.

        Each array is (states, G and C in the window). Without windows and codons the list ends
        where it no longer changes; its last array then holds for all greater numbers.
        """
        cells = max(len(accepts) * (self._windows.most + 1), _LEAST_CELLS) * self._length_bp
        changes = self._windows.are_counted or self._codons.are_fixed
        if changes and cells > _MOST_CELLS:
            raise UserError(
                f"{self._length_bp} bases with these constraints need too large a table; give a "
                "shorter GC window, fewer bases or fewer motifs"
            )
        last = np.repeat(accepts[:, None], self._windows.most + 1, axis=1)
        alive = [last]
        counts = np.arange(self._windows.most + 1)
        counted = [np.minimum(counts + is_gc, self._windows.most) for is_gc in _IS_GC]
        for position_bp in range(self._length_bp, 0, -1):
            after = alive[-1]
            if self._windows.end_at(position_bp):
                after = self._windows.holds(position_bp) & after[:, :1]
            if self._codons.end_at(position_bp):
                after = after & self._codons.hold(position_bp)[:, None]
            before = np.logical_or.reduce(
                [after[self._next[:, digit]][:, counted[digit]] for digit in range(4)]
            )
            if not changes and np.array_equal(before, after):
                break
            alive.append(before)
        return alive


def automaton_for(
    constraints: Constraints, prompts: Sequence[str], length_bp: int, right: str = ""
) -> Automaton:
    """Return the automaton of constraints.

    Args:
        constraints: the constraints.
        prompts: the bases before the generated ones; their numbers are arguments of `start`.
        length_bp: bases to generate.
        right: the bases after the generated ones; no forbidden motif may extend into them.

    Raises:
        UserError: the constraints cannot be satisfied, or need too much memory.
    """
    automaton = Automaton(constraints, prompts, length_bp, right)
    for number, prompt in enumerate(prompts):
        if not automaton.is_possible(number):
            impossible = _impossible_alone(constraints, prompt, length_bp, right)
            raise UserError(
                f"prompt {number + 1}: no {length_bp} bases behind it can keep to "
                f"{' or '.join(impossible) or 'all constraints at once'}; give more bases or "
                "constraints that leave room"
            )
    return automaton


def _impossible_alone(
    constraints: Constraints, prompt: str, length_bp: int, right: str
) -> list[str]:
    """Return which types of constraints cannot be satisfied even without the others."""
    alone = {
        "the forbidden motifs": Constraints(forbid=constraints.forbid),
        "the required motifs": Constraints(require=constraints.require),
        "the GC share": Constraints(gc=constraints.gc, gc_window_bp=constraints.gc_window_bp),
        "the open reading frame": Constraints(no_stop_frame=constraints.no_stop_frame),
        "the protein": Constraints(protein=constraints.protein),
    }
    return [
        name
        for name, single in alone.items()
        if not Automaton(single, [prompt], length_bp, right).is_possible(0)
    ]

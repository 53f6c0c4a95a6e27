"""What generated DNA must keep to, as an automaton that never lets a sequence run into a dead end.

The motifs are read base by base by one automaton (Shift-And, Baeza-Yates and Gonnet 1992, made
deterministic), and the G and C of the running window are counted beside it. A table tells from
which state at which base the end can still be reached; a 6-mer is allowed if it leads to such one.
What is allowed at every step is then exact: a 6-mer that is masked could not have been completed,
and one that is not can be.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.inference.generation.codons import Codons
from carbon.inference.generation.constraints import Constraints
from carbon.inference.generation.gc_windows import GcWindows
from carbon.inference.generation.motifs import Patterns, deterministic
from carbon.tokenizer import BASES, KMER_DIGITS, K, encode_kmers

Bools = NDArray[np.bool_]

_MOST_CELLS = 250_000_000  # of the table, one byte each
_LEAST_CELLS = 64  # that a base counts for: its array takes as much beside what it holds
_IS_GC = np.array([base in "GC" for base in BASES]).astype(np.int64)


class AutomatonState(NamedTuple):
    """What the automaton knows of a sequence.

    Attributes:
        position_bp: bases that are generated.
        motifs: number of the state of the motifs.
        gc: G and C in the running window.
    """

    position_bp: int
    motifs: int
    gc: int


class Automaton:
    """Constraints for a number of prompts and one length: see `automaton_for`."""

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
        """Tell whether any sequence behind a prompt keeps to all."""
        return bool(self._alive_at(0)[self._starts[prompt].motifs, 0])

    def start(self, prompt: int) -> AutomatonState:
        """Return the state behind a prompt."""
        return self._starts[prompt]

    def advance(self, state: AutomatonState, digits: Iterable[int]) -> AutomatonState:
        """Return the state some bases on, given by their digits; what is past the end is left."""
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
        """Tell which 6-mers may come next: (4096,).

        Args:
            state: of the sequence.
            tail_bp: so many of the 6-mer's first bases are those of the prompt.
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
        """Tell whether bases behind a prompt, all of A, C, G and T, keep to everything."""
        state = self.start(prompt)
        kmers = encode_kmers(bases.ljust(-(-len(bases) // K) * K, "A")).indices
        for kmer in kmers.tolist():
            if not self.allowed(state)[kmer]:
                return False
            state = self.advance(state, KMER_DIGITS[kmer].tolist())
        return True

    def _alive_at(self, position_bp: int) -> Bools:
        """Tell which states reach a good end from here: (states, G and C in the window)."""
        return self._alive[min(self._length_bp - position_bp, len(self._alive) - 1)]

    def _reach_backwards(self, accepts: Bools) -> list[Bools]:
        """Return for each number of bases still to come, from 0, which states reach a good end.

        Each is (states, G and C in the window). Without windows and codons the list ends where it
        no longer changes: what holds for its last number holds for all greater ones.
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
        constraints: what to keep to.
        prompts: what stands before the generated bases; their numbers are those of `start`.
        length_bp: bases to generate.
        right: what stands behind them; no forbidden motif may reach into it.

    Raises:
        UserError: the constraints cannot be kept, or they take too much memory.
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
    """Return which kinds of constraints cannot even be kept without the others."""
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

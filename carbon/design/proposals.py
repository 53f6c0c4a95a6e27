"""Proposals of the model: whole sequences after a prompt, and sequences with one window redrawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from carbon.errors import UserError
from carbon.inference.generate.generate import generate
from carbon.inference.generate.infill import infill
from carbon.inference.generate.prompts import Task
from carbon.inference.options import Constraints, SamplingRule
from carbon.inference.runner import ModelRunner
from carbon.inference.score import base_log_likelihoods
from carbon.tokenizer import K

_DRAWS_PER_COPY = 4  # of a window that must fit the bases after it


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposer:
    """Draws sequences of a fixed length within constraints.

    Attributes:
        runner: runs the network.
        prompt: DNA before every design, which conditions it.
        length_bp: of a design.
        rule: how 6-mers are drawn; windows are drawn at other temperatures.
        constraints: satisfied by every design.
        seed: of the random numbers.
        tags: metadata tags to condition on.
    """

    runner: ModelRunner
    prompt: str
    length_bp: int
    rule: SamplingRule
    constraints: Constraints
    seed: int
    tags: tuple[str, ...]

    def fresh(self, samples: Sequence[int]) -> list[str]:
        """Return whole sequences; each depends only on the seed and its sample number."""
        task = Task(self.length_bp, self.rule, self.seed, self.tags, self.constraints)
        prompts = [self.prompt] * len(samples)
        return generate(self.runner, prompts, task, samples=list(samples))

    def regrown(
        self, bases: str, count: int, turn: tuple[int, int], most_bp: float, temperature: float
    ) -> list[str]:
        """Return copies of a sequence with one window redrawn, conditioned on the bases before it.

        The logarithm of the window's length is uniform. The bases after the window matter only for
        motifs that would span its end.

        Args:
            bases: a sequence that satisfies the constraints.
            count: number of copies.
            turn: round and lineage, which seed the random numbers.
            most_bp: longest window.
            temperature: for sampling.
        """
        left, task = self._gap(bases, turn, most_bp, temperature)
        drawn = generate(self.runner, [self.prompt + left] * count, task)
        return [left + each + task.right for each in drawn]

    def filled(
        self, bases: str, count: int, turn: tuple[int, int], most_bp: float, temperature: float
    ) -> list[str]:
        """Return copies like `regrown`, with windows that also fit the bases after them.

        Draws four windows per copy and keeps the distinct ones that give the highest likelihood
        together with the bases after the window.
        """
        left, task = self._gap(bases, turn, most_bp, temperature)
        fillings = infill(self.runner, self.prompt + left, task, _DRAWS_PER_COPY * count)
        return [left + filling.bases + task.right for filling in fillings[:count]]

    def check_both_sides(self) -> None:
        """Raise UserError unless a sequence fits into the model's context, as `filled` requires."""
        prefix = len(self.runner.six_mers.prefix(self.tags))
        # Up to five bases before a window may not fill a whole 6-mer.
        tokens = prefix - 1 + math.ceil((self.length_bp + K - 1) / K)
        if tokens > self.runner.context_tokens:
            raise UserError(
                f"--strategy infill reads whole designs: {self.length_bp} bases take {tokens} "
                f"tokens, the model has {self.runner.context_tokens}; give a shorter length, or "
                "--strategy beam"
            )

    def _gap(
        self, bases: str, turn: tuple[int, int], most_bp: float, temperature: float
    ) -> tuple[str, Task]:
        """Return the bases before a random window, and the task to redraw it."""
        seed = _seed_of(self.seed, *turn)
        start, end = self._window(np.random.default_rng(seed), most_bp)
        rule = replace(self.rule, temperature=temperature)
        constraints = within(self.constraints, bases, start, end)
        return bases[:start], Task(end - start, rule, seed, self.tags, constraints, bases[end:])

    def _window(self, random: np.random.Generator, most_bp: float) -> tuple[int, int]:
        """Return start and end of a window of whole units: bases, codons or GC windows."""
        unit_bp = _unit_bp(self.constraints)
        num_units = math.ceil(self.length_bp / unit_bp)
        most = min(max(most_bp / unit_bp, 1), num_units)
        size = round(math.exp(random.uniform(0, math.log(most))))
        first = int(random.integers(num_units - size + 1))
        return first * unit_bp, min((first + size) * unit_bp, self.length_bp)

    def nats_per_base(self, designs: Sequence[str]) -> list[float]:
        """Return the mean negative log-likelihood per base of each design after the prompt."""
        whole = [self.prompt + bases for bases in designs]
        skip = len(self.prompt)
        return [
            -float(values[skip:].sum(dtype=np.float64)) / self.length_bp
            for values in base_log_likelihoods(self.runner, whole, self.tags)
        ]


def _seed_of(*numbers: int) -> int:
    digest = blake2b(",".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest)


def _unit_bp(constraints: Constraints) -> int:
    """Return the unit of window boundaries, so that a constraint on the whole holds in a window."""
    codon_bp = 3 if constraints.protein is not None else 1
    return math.lcm(codon_bp, constraints.gc_window_bp or 1)


def within(constraints: Constraints, bases: str, start: int, end: int) -> Constraints:
    """Return constraints on a window that make the whole sequence satisfy its constraints.

    Required motifs are left out: they may occur elsewhere, and the whole is checked afterwards.
    """
    protein, gc = constraints.protein, constraints.gc
    if gc is not None and constraints.gc_window_bp is None:
        outside = sum(map((bases[:start] + bases[end:]).count, "GC"))
        least = math.ceil(gc[0] * len(bases) - 1e-9) - outside
        most = math.floor(gc[1] * len(bases) + 1e-9) - outside
        size = end - start
        gc = (max(least, 0) / size, min(most, size) / size)
    if protein is not None:
        protein = protein[start // 3 : end // 3]
    return replace(constraints, require=(), gc=gc, protein=protein)

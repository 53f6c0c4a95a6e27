"""What the model proposes: whole sequences behind a prompt, and windows of one drawn anew."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from carbon.errors import UserError
from carbon.inference.generate.constraints import Constraints
from carbon.inference.generate.generate import generate
from carbon.inference.generate.infill import infill
from carbon.inference.generate.prompts import SamplingRule, Task
from carbon.inference.runner import ModelRunner
from carbon.inference.score import base_log_likelihoods
from carbon.tokenizer import K

_DRAWS_A_COPY = 4  # of a window that is to fit what stands behind it


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposer:
    """A model that draws sequences of one length within constraints.

    Attributes:
        reader: runs the network.
        prompt: DNA that stands before every design, and conditions it.
        length_bp: of a design.
        rule: how 6-mers are drawn; `regrown` has temperatures of its own.
        constraints: that every design keeps to.
        seed: of the random numbers.
        tags: metadata tags to condition on.
    """

    reader: ModelRunner
    prompt: str
    length_bp: int
    rule: SamplingRule
    constraints: Constraints
    seed: int
    tags: tuple[str, ...]

    def fresh(self, samples: Sequence[int]) -> list[str]:
        """Return samples of whole sequences; each follows from the seed and its number."""
        task = Task(self.length_bp, self.rule, self.seed, self.tags, self.constraints)
        prompts = [self.prompt] * len(samples)
        return generate(self.reader, prompts, task, samples=list(samples))

    def regrown(
        self, bases: str, count: int, turn: tuple[int, int], most_bp: float, temperature: float
    ) -> list[str]:
        """Return copies of a sequence with one window of it drawn anew from what stands before.

        The window has as many bases as chance gives, short ones as often as long ones by their
        logarithm. What stands behind it is not looked at, but for motifs that would reach into it.

        Args:
            bases: a sequence that keeps to the constraints.
            count: of copies.
            turn: round and lineage, from which the random numbers follow.
            most_bp: of the window.
            temperature: to draw at.
        """
        left, task = self._gap(bases, turn, most_bp, temperature)
        drawn = generate(self.reader, [self.prompt + left] * count, task)
        return [left + each + task.right for each in drawn]

    def filled(
        self, bases: str, count: int, turn: tuple[int, int], most_bp: float, temperature: float
    ) -> list[str]:
        """Return copies as `regrown`, but with regard to what stands behind the window too.

        Of four draws a copy those stay that the model finds likeliest together with what stands
        behind, each once.
        """
        left, task = self._gap(bases, turn, most_bp, temperature)
        found = infill(self.reader, self.prompt + left, task, _DRAWS_A_COPY * count)
        return [left + filling.bases + task.right for filling in found[:count]]

    def check_both_sides(self) -> None:
        """Raise UserError unless a sequence fits into the model's context, which `filled` reads."""
        prefix = len(self.reader.vocabulary.prefix(self.tags))
        # What stands before a window may begin with up to five bases that are no whole 6-mer.
        tokens = prefix - 1 + math.ceil((self.length_bp + K - 1) / K)
        if tokens > self.reader.context_tokens:
            raise UserError(
                f"--way infill reads whole designs: {self.length_bp} bases take {tokens} tokens, "
                f"the model has {self.reader.context_tokens}; give a lesser length, or --way beam"
            )

    def _gap(
        self, bases: str, turn: tuple[int, int], most_bp: float, temperature: float
    ) -> tuple[str, Task]:
        """Return what stands before a window that chance chooses, and the task to draw it anew."""
        seed = _seed_of(self.seed, *turn)
        start, end = self._window(np.random.default_rng(seed), most_bp)
        rule = replace(self.rule, temperature=temperature)
        constraints = within(self.constraints, bases, start, end)
        return bases[:start], Task(end - start, rule, seed, self.tags, constraints, bases[end:])

    def _window(self, random: np.random.Generator, most_bp: float) -> tuple[int, int]:
        """Return a window of whole units: bases, codons or GC windows."""
        unit_bp = _unit_bp(self.constraints)
        num_units = math.ceil(self.length_bp / unit_bp)
        most = min(max(most_bp / unit_bp, 1), num_units)
        size = round(math.exp(random.uniform(0, math.log(most))))
        first = int(random.integers(num_units - size + 1))
        return first * unit_bp, min((first + size) * unit_bp, self.length_bp)

    def nats_per_base(self, designs: Sequence[str]) -> list[float]:
        """Return the mean surprise of the bases of each design behind the prompt."""
        whole = [self.prompt + bases for bases in designs]
        found = base_log_likelihoods(self.reader, whole, self.tags)
        skip = len(self.prompt)
        return [-float(values[skip:].sum(dtype=np.float64)) / self.length_bp for values in found]


def _seed_of(*numbers: int) -> int:
    digest = blake2b(",".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest)


def _unit_bp(constraints: Constraints) -> int:
    """Return what windows are cut in, so that what holds for the whole holds for the window."""
    codon_bp = 3 if constraints.protein is not None else 1
    return math.lcm(codon_bp, constraints.gc_window_bp or 1)


def within(constraints: Constraints, bases: str, start: int, end: int) -> Constraints:
    """Return what a window must keep to, so that the whole sequence keeps to its constraints.

    Required motifs are left out: they may stand elsewhere, and the whole is looked at afterwards.
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

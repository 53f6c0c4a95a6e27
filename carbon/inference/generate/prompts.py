"""Settings of generation, and rows that grow by 6-mers: prompt, constraints, random stream."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome.alphabet import checked_sequence
from carbon.inference.generate.automaton import Automaton, AutomatonState, automaton_for
from carbon.inference.options import Constraints, SamplingRule
from carbon.tokenizer import (
    KMER_DIGITS,
    NUM_KMERS,
    K,
    Kmers,
    decode_kmers,
    encode_kmers,
    known_bases,
)

if TYPE_CHECKING:
    from torch import Tensor

_MOST_TEXTS = 10**6  # of one call, each with its own random stream
_MOST_BP = 10**9  # of all texts


@dataclass(frozen=True, slots=True)
class Task:
    """Generation settings of every prompt.

    Attributes:
        length_bp: bases to add.
        rule: sampling rule.
        seed: seed of the random numbers.
        tags: metadata tags to condition on.
        constraints: constraints on the bases.
        right: the bases after the generated ones, for motifs that would extend into them.
    """

    length_bp: int
    rule: SamplingRule
    seed: int = 0
    tags: tuple[str, ...] = ()
    constraints: Constraints | None = None
    right: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise UserError(f"seed {self.seed}: give 0 to 2**64 - 1")
        if self.length_bp < 1:
            raise UserError(f"length {self.length_bp}: give at least one base")


class DrawnKmer(NamedTuple):
    """A drawn 6-mer and the logits that it was drawn from.

    Attributes:
        row: its row, which already includes it.
        kmer: 0 to 4,095.
        new: which of its bases are new, excluding the prompt's tail and bases past the length.
        logits: (4096,) fp32, the network's own, before any rule or constraint.
    """

    row: "GeneratedRow"
    kmer: int
    new: slice
    logits: "Tensor"


@dataclass(eq=False, slots=True)
class GeneratedRow:
    """A prompt and its continuation so far.

    Attributes:
        number: number of the prompt, from 1.
        prompt: DNA of any length.
        task: generation settings.
        automaton: automaton of the constraints, if there are any.
        random: random stream of this row.
        states: states of the automaton, at the start and after each 6-mer.
        kmers: drawn 6-mers.
    """

    number: int
    prompt: str
    task: Task
    automaton: Automaton | None
    random: np.random.Generator
    states: list[AutomatonState]
    kmers: list[int] = field(default_factory=list)

    @property
    def tail_bp(self) -> int:
        """Bases of the prompt after its last whole 6-mer, with which the first 6-mer begins."""
        return len(self.prompt) % K

    @property
    def tokens_left(self) -> int:
        """6-mers that remain to be drawn."""
        return -(-(self.tail_bp + self.task.length_bp) // K) - len(self.kmers)

    @property
    def whole_kmers(self) -> int:
        """6-mers of the prompt and its complete continuation."""
        return len(self.prompt) // K + len(self.kmers) + self.tokens_left

    @property
    def text(self) -> str:
        """The generated bases so far, at most `length_bp`."""
        return self.text_from(0)

    def text_from(self, start_bp: int) -> str:
        """Return the generated bases from `start_bp` on, without decoding the 6-mers before."""
        first = (self.tail_bp + start_bp) // K
        kmers = np.array(self.kmers[first:], dtype=np.int64)
        text = decode_kmers(Kmers(kmers, np.full(len(kmers), 2**K - 1, dtype=np.uint8)))
        shift_bp = self.tail_bp - first * K
        return text[shift_bp + start_bp : shift_bp + self.task.length_bp]

    def push(self, kmer: int) -> slice:
        """Append a 6-mer; return which of its bases are new."""
        before_bp = K * len(self.kmers) - self.tail_bp
        new = slice(max(0, -before_bp), min(K, self.task.length_bp - before_bp))
        self.kmers.append(kmer)
        if self.automaton:
            digits = KMER_DIGITS[kmer, new].tolist()
            self.states.append(self.automaton.advance(self.states[-1], digits))
        return new

    def pop(self, num_kmers: int) -> None:
        """Remove the last 6-mers."""
        del self.kmers[len(self.kmers) - num_kmers :]
        if self.automaton:
            del self.states[len(self.states) - num_kmers :]

    def allowed(self) -> NDArray[np.bool_] | None:
        """Return which 6-mers may come next, (4096,), or None if all may."""
        tail_bp = 0 if self.kmers else self.tail_bp
        masks = []
        if tail_bp:
            tail = encode_kmers(self.prompt[-tail_bp:])
            unknown = ~known_bases(tail.known)[0]
            masks.append(((KMER_DIGITS[tail.indices[0]] == KMER_DIGITS) | unknown).all(axis=1))
        if self.automaton:
            masks.append(self.automaton.allowed(self.states[-1], tail_bp))
        return np.logical_and.reduce(masks) if masks else None

    def recent_digits(self, num_bp: int) -> NDArray[np.int8]:
        """Return the last bases of prompt and continuation as digits; -1 where unknown."""
        num_kmers = -(-num_bp // K)
        drawn = KMER_DIGITS[np.array(self.kmers[-num_kmers:], dtype=np.int64)]
        whole_bp = len(self.prompt) // K * K
        before = encode_kmers(self.prompt[max(0, whole_bp - K * num_kmers) : whole_bp])
        digits = KMER_DIGITS[before.indices].astype(np.int8)
        digits[~known_bases(before.known)] = -1
        return np.concatenate([digits, drawn.astype(np.int8)]).reshape(-1)[-num_bp:]


def check_amount(num_texts: int, length_bp: int) -> None:
    """Raise UserError if the texts exceed the limits on their number or total bases."""
    if num_texts > _MOST_TEXTS or num_texts * length_bp > _MOST_BP:
        raise UserError(
            f"{num_texts:,} sequences of {length_bp:,} bases: give {_MOST_TEXTS:,} sequences and "
            f"{_MOST_BP:,} bases in all at most"
        )


def samples_of(prompts: Sequence[str]) -> list[int]:
    """Return for each prompt how often it occurs earlier in the list.

    >>> samples_of(["AC", "G", "ac", "AC"])
    [0, 0, 1, 2]
    """
    seen: Counter[str] = Counter()
    samples = []
    for prompt in prompts:
        samples.append(seen[prompt.upper()])
        seen[prompt.upper()] += 1
    return samples


def rows_for_prompts(
    prompts: Sequence[str], task: Task, samples: Sequence[int] | None = None
) -> list[GeneratedRow]:
    """Return an empty row for each prompt.

    The random numbers of a row depend on the seed, the prompt and the number of earlier occurrences
    of the same prompt, not on other prompts.

    Args:
        prompts: DNA.
        task: generation settings.
        samples: sample number of each prompt; `samples_of` if None.

    Raises:
        UserError: a prompt is not DNA, its constraints cannot be satisfied, or the amount is too
            large.
    """
    check_amount(len(prompts), task.length_bp)
    prompts = [checked_sequence(prompt, f"prompt {n}") for n, prompt in enumerate(prompts, start=1)]
    automaton = None
    if task.constraints:
        automaton = automaton_for(task.constraints, prompts, task.length_bp, task.right)
    rows = []
    for n, (prompt, sample) in enumerate(zip(prompts, samples or samples_of(prompts), strict=True)):
        states = [automaton.start(n)] if automaton else []
        random = _random_stream(task.seed, prompt.upper(), sample)
        rows.append(GeneratedRow(n + 1, prompt, task, automaton, random, states))
    return rows


def _random_stream(seed: int, prompt: str, sample: int) -> np.random.Generator:
    """Return the random stream of a sample; counter-based, so that streams cannot overlap."""
    digest = int.from_bytes(blake2b(prompt.encode(), digest_size=8).digest())
    return np.random.Generator(np.random.Philox(key=[seed, digest], counter=[0, 0, 0, sample]))


def repetitions(digits: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Count the occurrences of each 6-mer in a sequence, at any offset: (4096,).

    Args:
        digits: (bases,), 0 to 3; negative where unknown. 6-mers with an unknown base do not count.
    """
    if len(digits) < K:
        return np.zeros(NUM_KMERS, dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(digits, K)
    known = windows[(windows >= 0).all(axis=1)]
    return np.bincount(known @ 4 ** np.arange(K - 1, -1, -1), minlength=NUM_KMERS)

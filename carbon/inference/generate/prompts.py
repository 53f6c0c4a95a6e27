"""Settings of generation, and rows that grow by 6-mers: prompt, constraints, random stream."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome.alphabet import DNA_LETTERS
from carbon.inference.generate.automaton import Automaton, AutomatonState, automaton_for
from carbon.inference.generate.constraints import Constraints
from carbon.inference.options import MODES, Mode
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


_LEAST_TEMPERATURE = 1e-6  # much smaller values have no finite inverse in fp32


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """How the next 6-mer is sampled from its distribution.

    The fields apply in this order: penalty, mask of constraints, temperature, top-k, top-p of the
    remaining choices, min-p. Choices as likely as the last one that passes a cut also pass.

    Attributes:
        mode: unit of sampling: a 6-mer (`token`), a base by its marginal (`base`), or a base given
            the bases before it (`chain`).
        temperature: 0 takes the most likely, 1 samples from the model; otherwise 1e-6 to 100.
        top_k: sample only from the `k` most likely choices.
        top_p: sample only from the fewest choices that together have probability `p` (Holtzman et
            al. 2020, arXiv 1904.09751); 1 cuts nothing.
        min_p: sample only from choices at least `p` times as likely as the most likely (Nguyen et
            al. 2024, arXiv 2407.01082).
        repetition_penalty: nats subtracted from a 6-mer's log-probability for each occurrence in
            the last `repetition_window_bp` bases, at any offset.
        repetition_window_bp: bases in which repetitions count, the prompt included.

    Raises:
        UserError: a value is out of range.
    """

    mode: Mode = "token"
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 0.0
    repetition_window_bp: int = 1200

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UserError(f"mode '{self.mode}': give {', '.join(MODES)}")
        if self.temperature != 0 and not _LEAST_TEMPERATURE <= self.temperature <= 100:
            raise UserError(f"temperature {self.temperature}: give 0 (greedy) or 1e-6 to 100")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k {self.top_k}: give 1 or more")
        for name, share in (("top_p", self.top_p), ("min_p", self.min_p)):
            if share is not None and not 0 < share <= 1:
                raise UserError(f"{name} {share}: give a probability above 0, at most 1")
        if not 0 <= self.repetition_penalty <= 100:
            raise UserError(f"repetition_penalty {self.repetition_penalty}: give 0 to 100 nats")
        if self.repetition_window_bp < K:
            raise UserError(f"repetition_window_bp {self.repetition_window_bp}: give {K} or more")

    @property
    def draws_kmers(self) -> bool:
        """Whether 6-mers are sampled, not bases."""
        return MODES[self.mode].whole_kmers

    @property
    def draws_by_marginals(self) -> bool:
        """Whether bases are sampled independently, by their marginals."""
        return MODES[self.mode].by_marginals

    @property
    def cuts(self) -> bool:
        """Whether some choices are excluded by top-k, top-p or min-p."""
        return not (self.top_k is None and self.top_p in (None, 1) and self.min_p is None)


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
        kmers = np.array(self.kmers, dtype=np.int64)
        text = decode_kmers(Kmers(kmers, np.full(len(kmers), 2**K - 1, dtype=np.uint8)))
        return text[self.tail_bp : self.tail_bp + self.task.length_bp]

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
    for n, prompt in enumerate(prompts, start=1):
        if wrong := set(prompt) - DNA_LETTERS:
            raise UserError(
                f"prompt {n}: {min(wrong)!r} is not a DNA letter (ACGT, N, IUPAC codes)"
            )
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

"""Baselines of every model: chance, GC, Markov models, and simple scores of variants.

A model that does not exceed these has not learned the ability that a task measures.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference.options import WINDOW_PROTOCOLS, Mode
from eval.contract import Example, Floats, Model, Reading, Result, Task
from eval.markov import (
    MAX_ORDER,
    CodonPeriodic,
    Contexts,
    Int64s,
    Interpolated,
    Labelled,
    Training,
    base_codes,
    contexts_of,
)
from eval.windows import deltas_by_windows

_BLOCK_BP = 1_000_000
_PROMPT_BP = 3000  # after this many bases the place in a codon is known or cannot be
_LOT_NATS = 1e-6
_TRANSITIONS = frozenset({("A", "G"), ("G", "A"), ("C", "T"), ("T", "C")})


class UniformModel(Model):
    """Knows nothing: every base is as likely as another.

    Ties are broken by lot, so that strict comparisons and rankings come out at chance. The lot
    follows from the question alone.
    """

    name = "chance"
    context_bp = None

    def log_likelihoods(self, sequences: Sequence[str]) -> Floats:
        """Return -log 4 for every known base, and a lot of a millionth of a nat."""
        return np.array(
            [-np.log(4) * _known_bases(s) + _LOT_NATS * _lot(s).random() for s in sequences]
        )

    def base_log_likelihoods(self, sequences: Sequence[str]) -> list[Floats]:
        """Return -log 4 for every known base."""
        return [np.where(base_codes(sequence) < 4, -np.log(4), 0.0) for sequence in sequences]

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return a quarter each."""
        return np.full((len(prompts), 4), 0.25)

    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Draw bases."""
        return ["".join(_lot(prompt).choice(list("ACGT"), length_bp)) for prompt in prompts]

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Return `delta` of each variant, trimmed and left-aligned."""
        return [
            None if v.why_unscorable() else self.delta(reference, normalize_variant(reference, v))
            for v in variants
        ]

    def delta(self, reference: Reference, variant: Variant) -> float:
        """Return a lot for a variant, which is trimmed and left-aligned."""
        return _LOT_NATS * (_lot(variant.to_text()).random() - 0.5)


def _lot(text: str) -> np.random.Generator:
    digest = hashlib.blake2b(text.upper().encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def _known_bases(sequence: str) -> int:
    return sum(map(sequence.upper().count, "ACGT"))


class LocalModel(Model):
    """A model that reads the last few bases only.

    Attributes:
        order: how many.
    """

    context_bp = None
    order: int

    def probabilities(self, contexts: Contexts) -> Floats:
        """Return p(A, C, G, T) after each context: (contexts, 4)."""
        raise NotImplementedError

    def base_log_likelihoods(self, sequences: Sequence[str]) -> list[Floats]:
        """Return log p of every base, 0 where unknown: (bases,) a sequence."""
        return [self._of_one(base_codes(sequence)) for sequence in sequences]

    def _of_one(self, codes: Int64s) -> Floats:
        contexts, result = contexts_of(codes), np.zeros(len(codes))
        for start in range(0, len(codes), _BLOCK_BP):
            at = np.arange(start, min(start + _BLOCK_BP, len(codes)))
            at = at[codes[at] < 4]
            rows = self.probabilities(contexts.at(at))
            result[at] = np.log(rows[np.arange(len(at)), codes[at]])
        return result

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return the distribution after the last bases of each prompt."""
        tails = [_last(prompt, self.order) for prompt in prompts]
        # An unknown base ends each, and no context reaches across it.
        codes = base_codes("".join(f"{tail}N" for tail in tails))
        ends = np.cumsum([len(tail) + 1 for tail in tails], dtype=np.int64) - 1
        return self.probabilities(contexts_of(codes).at(ends))

    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Append the most likely base repeatedly; the first of the alphabet on a tie."""
        texts = [_last(prompt, self.order) for prompt in prompts]
        for _ in range(length_bp):
            best = self.next_base(texts).argmax(axis=1)
            texts = [text + "ACGT"[code] for text, code in zip(texts, best, strict=True)]
        return [text[-length_bp:] for text in texts]

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Return deltas of windows of a few bases: the rest cancels, except for an indel."""
        reading = reading.fitting(None)
        if reading.protocol not in WINDOW_PROTOCOLS:
            return deltas_by_windows(self, reference, variants, reading, left_bp=self.order)
        alleles_alone = WINDOW_PROTOCOLS[reading.protocol].alleles_alone
        most_needed_bp = reading.window_bp // 2
        plain = [normalize_variant(reference, variant) for variant in variants]
        if alleles_alone or all(len(v.ref) == len(v.alt) for v in plain):
            longest = max((len(allele) for v in plain for allele in (v.ref, v.alt)), default=1)
            enough_bp = min(reading.window_bp, 2 * (self.order + longest + 1))
            reading = reading._replace(window_bp=enough_bp)
        return deltas_by_windows(self, reference, variants, reading, most_needed_bp)

    def recall(self, prompt: str, length_bp: int, endings: Sequence[str]) -> tuple[str, Floats]:
        """Read the end of the prompt only."""
        return super().recall(_last(prompt, self.order), length_bp, endings)

    def word_probabilities(self, sequence: str, words: Sequence[str]) -> Floats:
        """Return p(word | the bases before it) at every place of a sequence: (bases, words)."""
        contexts = contexts_of(base_codes(sequence))
        return np.stack([self._of_word(contexts, word) for word in words], axis=1)

    def _of_word(self, contexts: Contexts, word: str) -> Floats:
        result = np.ones(len(contexts.keys))
        for code in base_codes(word).tolist():
            result *= self.probabilities(contexts)[:, code]
            contexts = contexts.followed_by(code)
        return result


def _last(text: str, length: int) -> str:
    return text[max(len(text) - length, 0) :]


class GcModel(LocalModel):
    """Draws every base by itself, G and C with their share in the training sequences."""

    name = "GC"
    order = 0

    def __init__(self, training: Training) -> None:
        """Take the counts of single bases, and one more of each."""
        a, c, g, t = training.counts.of_bases().astype(np.float64) + 1
        gc = (g + c) / (a + c + g + t)
        self._row = np.array([1 - gc, gc, gc, 1 - gc]) / 2

    def probabilities(self, contexts: Contexts) -> Floats:
        """Return the same row for every context."""
        return np.tile(self._row, (len(contexts.keys), 1))


class MarkovModel(LocalModel):
    """The interpolated Markov model of an order."""

    def __init__(self, order: int, training: Training) -> None:
        """Fit the weights of the order."""
        self.order, self.name = order, f"Markov {order}"
        self._model = Interpolated(order, training)

    def probabilities(self, contexts: Contexts) -> Floats:
        """Return the interpolation of all orders up to this one."""
        return self._model.probabilities(contexts)


class CodonPeriodicModel(Model):
    """The codon-periodic Markov model; it reads the last 3,000 bases of a prompt."""

    name = "codon-periodic Markov"
    context_bp = None

    def __init__(self, order: int, sequences: Sequence[Labelled]) -> None:
        """Fit it on training bases with their places in codons."""
        self._model = CodonPeriodic(order, sequences)

    def base_log_likelihoods(self, sequences: Sequence[str]) -> list[Floats]:
        """Return log p of every base, 0 where unknown: (bases,) a sequence."""
        return [self._model.base_log_likelihoods(base_codes(sequence)) for sequence in sequences]

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return the mean over states, by their probabilities after each prompt."""
        rows = [self._next(*self._begun(prompt)) for prompt in prompts]
        return np.array(rows).reshape(-1, 4)

    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Append the most likely base repeatedly; the first of the alphabet on a tie."""
        return [self._continued(prompt, length_bp) for prompt in prompts]

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Compare whole windows."""
        return deltas_by_windows(self, reference, variants, reading.fitting(None))

    def _begun(self, prompt: str) -> tuple[Floats, Floats]:
        """Return the probabilities of states after a prompt, and rows of bases by state."""
        codes = base_codes(_last(prompt, _PROMPT_BP))
        return self._model.states_after(codes), self._rows(codes)

    def _rows(self, codes: Int64s) -> Floats:
        last = contexts_of(np.append(codes[-MAX_ORDER:], 4)).at(slice(-1, None))
        return self._model.by_state(last)[:, 0]

    @staticmethod
    def _next(states: Floats, rows: Floats) -> Floats:
        return states @ rows

    def _continued(self, prompt: str, length_bp: int) -> str:
        text = prompt
        states, rows = self._begun(prompt)
        for _ in range(length_bp):
            best = int(self._next(states, rows).argmax())
            joint = states * rows[:, best]
            states = joint / joint.sum() @ self._model.transitions
            text += "ACGT"[best]
            rows = self._rows(base_codes(_last(text, MAX_ORDER)))
        return text[len(prompt) :]


class LikelyKinds(UniformModel):
    """Finds variants of some kinds likelier than all others, and knows nothing else."""

    def __init__(self, name: str, is_likely: Callable[[Reference, Variant], bool]) -> None:
        """Take a function that tells whether a variant, trimmed and left-aligned, is likely."""
        self.name, self._is_likely = name, is_likely

    def delta(self, reference: Reference, variant: Variant) -> float:
        """Return 0 for a likely variant, -1 for another."""
        return float(self._is_likely(reference, variant)) - 1


def _is_transition(reference: Reference, variant: Variant) -> bool:
    """Return whether A and G, or C and T, are exchanged."""
    del reference
    return (variant.ref.upper(), variant.alt.upper()) in _TRANSITIONS


def _is_cpg_transition(reference: Reference, variant: Variant) -> bool:
    """Return whether it is C>T before a G or G>A after a C.

    There methylated C turns into T ten times as often.
    """
    here = variant.interval
    around = here.widened(1, reference.contig_lengths_bp[variant.contig])
    before = reference.fetch(Interval(variant.contig, around.start, here.start)).upper()
    after = reference.fetch(Interval(variant.contig, here.end, around.end)).upper()
    in_cpg = "CG" in (variant.ref.upper() + after, before + variant.ref.upper())
    return in_cpg and _is_transition(reference, variant)


_LIKELY = {"transition/transversion": _is_transition, "CpG": _is_cpg_transition}
VARIANT_BASELINES = {name: partial(LikelyKinds, name, of) for name, of in _LIKELY.items()}
"""Further baselines of tasks of variants: by name a function that makes each."""


class ColumnModel(Model):
    """Takes the value of a column as the score of each variant: the higher, the more damaging."""

    context_bp = None

    def __init__(self, column: str) -> None:
        """Take the name of a column of the datasets of variants."""
        self.name, self._column = f"column {column}", column

    def answer(self, task: Task, examples: Sequence[Example]) -> Iterator[Result]:
        """Yield a result for each variant; a variant without a value is skipped.

        Raises:
            UserError: the dataset has no such column, or it is not of numbers.
        """
        for example in examples:
            row = example.data["row"]
            if self._column not in row:
                raise UserError(f"the dataset has no column '{self._column}'; see --columns")
            value = row[self._column]
            found = example.result(**example.data["columns"])
            if example.data["skip"] is not None:
                yield {**found, "skipped": example.data["skip"]}
            elif value is None:
                yield {**found, "skipped": "the column has no value"}
            elif not isinstance(value, int | float):
                raise UserError(f"column '{self._column}' has {value!r}, which is not a number")
            else:
                yield {**found, "label": example.data["label"], "score": float(value)}

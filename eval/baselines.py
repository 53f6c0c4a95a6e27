"""What stands beside every model: chance, GC, Markov models, and simple scores of variants.

A model that is not above these has not learned what a task asks for.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference.options import WINDOW_PROTOCOLS, Mode
from eval.contract import Floats, Model, Reading
from eval.markov import base_codes, count_words
from eval.windows import deltas_by_windows

MAX_ORDER = 12
_STRENGTH = 4.0  # counts that the next lower order is worth; at order 0 it is one more a base
_BLOCK_BP = 1_000_000
_LOT_NATS = 1e-6
_TRANSITIONS = frozenset({("A", "G"), ("G", "A"), ("C", "T"), ("T", "C")})


class UniformModel(Model):
    """Knows nothing: every base is as likely as another.

    Ties are broken by lot, so that strict comparisons and rankings come out at chance. The lot
    follows from what is asked, and not from when.
    """

    name = "chance"
    context_bp = None

    def log_likelihoods(self, sequences: Sequence[str]) -> Floats:
        """Return -log 4 for every known base, and a lot of a millionth of a nat."""
        return np.array(
            [-np.log(4) * _known_bases(s) + _LOT_NATS * _lot(s).random() for s in sequences]
        )

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return a quarter each."""
        return np.full((len(prompts), 4), 0.25)

    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Draw bases."""
        return ["".join(_lot(prompt).choice(list("ACGT"), length_bp)) for prompt in prompts]

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Return lots."""
        return [
            None
            if v.why_unscorable()
            else _LOT_NATS * (_lot(normalize_variant(reference, v).to_text()).random() - 0.5)
            for v in variants
        ]


def _lot(text: str) -> np.random.Generator:
    digest = hashlib.blake2b(text.upper().encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def _known_bases(sequence: str) -> int:
    return sum(map(sequence.upper().count, "ACGT"))


class LocalModel(Model):
    """A model that looks at the last few bases only.

    Attributes:
        order: how many.
    """

    context_bp = None
    order: int

    def probabilities(self, codes: NDArray[np.int64], at: NDArray[np.int64]) -> Floats:
        """Return p(A, C, G, T) of the base at each index, given those before it: (indices, 4).

        Args:
            codes: (bases,), A=0 C=1 G=2 T=3, 4 where unknown.
            at: indices of `codes`; `len(codes)` is the base after the last.
        """
        raise NotImplementedError

    def base_log_likelihoods(self, sequence: str) -> Floats:
        """Return log p of every base, 0 where unknown: (bases,)."""
        codes = base_codes(sequence)
        result = np.zeros(len(codes))
        for start in range(0, len(codes), _BLOCK_BP):
            at = np.arange(start, min(start + _BLOCK_BP, len(codes)))
            at = at[codes[at] < 4]
            result[at] = np.log(self.probabilities(codes, at)[np.arange(len(at)), codes[at]])
        return result

    def log_likelihoods(self, sequences: Sequence[str]) -> Floats:
        """Return the sums over known bases."""
        return np.array([self.base_log_likelihoods(s).sum() for s in sequences], dtype=np.float64)

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return the distribution after the last bases of each prompt."""
        tails = [_last(prompt, self.order) for prompt in prompts]
        # An unknown base ends each, beyond which no context reaches.
        codes = base_codes("".join(f"{tail}N" for tail in tails))
        ends = np.cumsum([len(tail) + 1 for tail in tails], dtype=np.int64) - 1
        return self.probabilities(codes, ends)

    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Append the most likely base, again and again; the first of the alphabet on a tie."""
        texts = [_last(prompt, self.order) for prompt in prompts]
        for _ in range(length_bp):
            best = self.next_base(texts).argmax(axis=1)
            texts = [text + "ACGT"[code] for text, code in zip(texts, best, strict=True)]
        return [text[-length_bp:] for text in texts]

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Return what windows of a few bases say: what is beyond cancels, but for an indel."""
        alleles_alone = WINDOW_PROTOCOLS[reading.protocol].alleles_alone
        most_needed_bp = reading.window_bp // 2
        plain = [normalize_variant(reference, variant) for variant in variants]
        if alleles_alone or all(len(v.ref) == len(v.alt) for v in plain):
            longest = max((len(allele) for v in plain for allele in (v.ref, v.alt)), default=1)
            enough_bp = min(reading.window_bp, 2 * (self.order + longest + 1))
            reading = reading._replace(window_bp=enough_bp)
        return deltas_by_windows(self, reference, variants, reading, most_needed_bp)

    def recall(self, prompt: str, length_bp: int, endings: Sequence[str]) -> tuple[str, Floats]:
        """Look at the end of the prompt only."""
        return super().recall(_last(prompt, self.order), length_bp, endings)


def _last(text: str, length: int) -> str:
    return text[max(len(text) - length, 0) :]


WordCounts = NDArray[np.uint32]
"""(contexts, 4): how often each base follows each context."""


def word_tables(order: int, sequences: Iterable[str]) -> list[WordCounts]:
    """Count words of `order + 1` bases and return the tables of order 0 to `order`.

    Those of lower orders are sums of these, so that a sequence is read once; the first few bases of
    each are in the highest only. All take 358 MB at order 12.

    Raises:
        UserError: the order is not 0 to 12, or the sequences have no word of that length.
    """
    if not 0 <= order <= MAX_ORDER:
        raise UserError(f"Markov order {order}: give 0 to {MAX_ORDER}")
    counts = count_words(sequences, order + 1)
    if not counts.any():
        raise UserError(f"no {order + 1} known bases in a row to fit a Markov model on")
    tables = [counts.reshape(-1, 4)]
    while len(tables) <= order:
        counts = counts.reshape(4, -1).sum(axis=0, dtype=np.uint32)
        tables.insert(0, counts.reshape(-1, 4))
    return tables


class GcModel(LocalModel):
    """Bases are drawn alone, G and C with the share that they have in the training sequences."""

    name = "GC"
    order = 0

    def __init__(self, tables: Sequence[WordCounts]) -> None:
        """Take the counts of `word_tables`."""
        a, c, g, t = tables[0][0].astype(np.float64) + 1
        gc = (g + c) / (a + c + g + t)
        self._row = np.array([1 - gc, gc, gc, 1 - gc]) / 2

    def probabilities(self, codes: NDArray[np.int64], at: NDArray[np.int64]) -> Floats:
        """Return the same row for every index."""
        return np.tile(self._row, (len(at), 1))


class MarkovModel(LocalModel):
    """The distribution of a base given the `order` bases before it, smoothed by lower orders.

    `p_k(b) = (count(context b) + 4 p_{k-1}(b)) / (count(context) + 4)`, from `p_{-1} = 1/4` up: the
    hierarchical Dirichlet language model of MacKay and Peto (1995) with one strength for all
    orders. Where fewer bases are known before a base, the order that they allow is the last.
    """

    def __init__(self, order: int, tables: Sequence[WordCounts]) -> None:
        """Take the counts of `word_tables`, of this order at least."""
        self.order = order
        self.name = f"Markov {order}"
        self._tables = tables[: order + 1]

    def probabilities(self, codes: NDArray[np.int64], at: NDArray[np.int64]) -> Floats:
        """Blend the orders from the lowest up."""
        rows = np.full((len(at), 4), 0.25)
        context = np.zeros(len(at), dtype=np.int64)
        known = np.ones(len(at), dtype=bool)
        for depth, counts in enumerate(self._tables):
            if depth:
                before = codes[np.maximum(at - depth, 0)]
                known &= (at >= depth) & (before < 4)
                context += (before % 4) << 2 * (depth - 1)
            found = counts[context[known]]
            total = found.sum(axis=1, dtype=np.float64, keepdims=True)
            rows[known] = (found + _STRENGTH * rows[known]) / (total + _STRENGTH)
        return rows


class LikelyKinds(UniformModel):
    """Finds variants of some kinds likelier than all others, and knows nothing else."""

    def is_likely(self, reference: Reference, variant: Variant) -> bool:
        """Tell whether a variant, trimmed and left-aligned, is of these kinds."""
        raise NotImplementedError

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Return 0 for what is likely, -1 for everything else."""
        return [
            None
            if v.why_unscorable()
            else float(self.is_likely(reference, normalize_variant(reference, v))) - 1
            for v in variants
        ]


class TransitionModel(LikelyKinds):
    """Finds transitions (A and G, C and T exchanged) more likely than other variants."""

    name = "transition/transversion"

    def is_likely(self, reference: Reference, variant: Variant) -> bool:
        """Tell whether it is a transition."""
        return _is_transition(variant)


class CpgModel(LikelyKinds):
    """Finds transitions at CpG likely: there methylated C turns into T ten times as often."""

    name = "CpG"

    def is_likely(self, reference: Reference, variant: Variant) -> bool:
        """Tell whether it is C>T before a G or G>A behind a C."""
        return _is_transition(variant) and _in_cpg(reference, variant)


def _is_transition(variant: Variant) -> bool:
    return (variant.ref.upper(), variant.alt.upper()) in _TRANSITIONS


def _in_cpg(reference: Reference, variant: Variant) -> bool:
    here = variant.interval
    around = here.widened(1, reference.contig_lengths_bp[variant.contig])
    before = reference.fetch(Interval(variant.contig, around.start, here.start)).upper()
    after = reference.fetch(Interval(variant.contig, here.end, around.end)).upper()
    return "CG" in (variant.ref.upper() + after, before + variant.ref.upper())

"""Predict the 6-mer that follows a context, with or without some of its bases fixed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from carbon.errors import TypedError, UserError
from carbon.genome import short
from carbon.genome.alphabet import checked_sequence
from carbon.inference.checks import check_finite, check_string
from carbon.inference.passages import prefix_of
from carbon.inference.runner import ModelRunner
from carbon.losses import marginals
from carbon.tokenizer import BASES, KMER_DIGITS, K, encode_kmers, kmer_texts

Float32s = NDArray[np.float32]

FREE = "." * K


@dataclass(frozen=True, slots=True, eq=False)
class NextToken:
    """A distribution over the 4,096 6-mers, ordered by index: A=0, T=1, C=2, G=3.

    Attributes:
        context: the preceding bases, a whole number of 6-mers.
        fixed: the fixed bases of the 6-mer, `.` where a base is free.
        log_probabilities: (4096,) float32, log p(6-mer | context, fixed bases); -inf for 6-mers
            that contradict the fixed bases.
    """

    context: str
    fixed: str
    log_probabilities: Float32s

    @property
    def probabilities(self) -> Float32s:
        """p(6-mer | context, fixed bases), (4096,) float32."""
        return np.exp(self.log_probabilities)

    @property
    def marginals(self) -> Float32s:
        """P_j(b), the marginal distribution of each base: (6, 4) float32, bases in order ATCG."""
        return np.exp(self._log_marginals)

    @property
    def cross_entropy_nats(self) -> Float32s:
        """The cross-entropy loss for each 6-mer as the true one: (4096,) float32, per token."""
        return -self.log_probabilities

    @property
    def fns_nats(self) -> Float32s:
        """The FNS loss for each 6-mer as the true one: (4096,) float32, mean of six bases."""
        losses: Float32s = -self._log_marginals[np.arange(K), KMER_DIGITS].mean(axis=1)
        return losses

    def given(self, fixed: str) -> "NextToken":
        """Return the distribution over the 6-mers that have these bases.

        Args:
            fixed: six letters, one of ACGT where the base is fixed and `.` where it is free.

        Raises:
            UserError: not six such letters, or every 6-mer that has them is excluded already.
        """
        fixed = fixed.upper()
        _check_six(
            fixed, BASES + ".", "fixed bases",
            "A, C, G or T where a base is fixed and . where it is free, such as A..T..",
        )  # fmt: skip
        digits = np.array([BASES.find(base) for base in fixed])
        agrees = ((digits == KMER_DIGITS) | (digits < 0)).all(axis=1)
        inside = torch.from_numpy(np.where(agrees, self.log_probabilities, -np.inf))
        if not bool(inside.isfinite().any()):
            raise UserError(f"fixed bases {fixed}: no 6-mer agrees with them and with {self.fixed}")
        pairs = zip(self.fixed, fixed, strict=True)
        both = "".join(old if new == "." else new for old, new in pairs)
        return NextToken(self.context, both, inside.log_softmax(dim=0).numpy())

    def ranked(self) -> list[tuple[str, float]]:
        """Return the 6-mers with their probabilities, most likely first, without excluded ones."""
        kmers, p = all_kmers(), self.probabilities
        best = np.argsort(-self.log_probabilities, kind="stable")
        possible = int(np.isfinite(self.log_probabilities).sum())
        return [(kmers[v], float(p[v])) for v in best[:possible]]

    @property
    def _log_marginals(self) -> Float32s:
        log_marginals: Float32s = marginals(torch.from_numpy(self.log_probabilities)).numpy()
        return log_marginals


@torch.inference_mode()
def next_token(runner: ModelRunner, context: str, tags: Sequence[str] = ()) -> NextToken:
    """Return the distribution of the 6-mer that follows a context.

    The 6-mer grid is counted from the context's end. The context's first one to five bases are left
    out if its length is not a multiple of six, and leading whole 6-mers if it exceeds the model's
    context.

    Raises:
        UserError: the context is not DNA, or the vocabulary lacks a tag.
    """
    check_string("context", context)
    context = checked_sequence(context, "context")
    vocabulary = runner.six_mers
    room_kmers = runner.context_tokens - len(vocabulary.prefix(tuple(tags)))
    used_bp = K * min(len(context) // K, max(room_kmers, 0))
    used = context.upper()[len(context) - used_bp :]
    [(_, states)] = runner.states([prefix_of(used, vocabulary, tuple(tags))])
    log_p = torch.log_softmax(runner.logits(states[-1:])[0], dim=0)
    log_probabilities = log_p.cpu().numpy()
    check_finite(log_probabilities, f"context '{short(used)}'")
    return NextToken(used, FREE, log_probabilities)


def all_kmers() -> list[str]:
    """Return the 4,096 6-mers as text, ordered by index."""
    return kmer_texts(K)


def kmer_index(kmer: str) -> int:
    """Return the index of a 6-mer, 0 to 4,095.

    Raises:
        UserError: `kmer` is not six letters of ACGT.
    """
    _check_six(kmer.upper(), BASES, "6-mer", "each one of ACGT")
    return int(encode_kmers(kmer).indices[0])


def _check_six(text: str, letters: str, name: str, allowed: str) -> None:
    """Check that a text has six of the letters.

    Raises:
        TypedError: it has others, more or fewer.
    """
    wrong = (at for at, letter in enumerate(text[:K]) if letter not in letters)
    at = next(wrong, min(len(text), K))
    if at < K or len(text) > K:
        raise TypedError(f"{name} '{short(text)}': give six letters, {allowed}", text, at)


def near_misses(kmer: str) -> Iterator[str]:
    """Yield the 18 6-mers that differ in a single base, from the first position to the last.

    Raises:
        UserError: `kmer` is not six letters of ACGT.
    """
    kmer_index(kmer)
    for place, true in enumerate(kmer.upper()):
        for base in BASES:
            if base != true:
                yield f"{kmer[:place]}{base}{kmer[place + 1 :]}".upper()

"""What is read: a stem of tokens, and the branches that may follow it, as rows of a batch."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.tokenizer import K, Vocabulary, encode

Int64s = NDArray[np.int64]

STEP_TOKENS = 32  # a row is padded to whole steps


class Branch(NamedTuple):
    """Tokens to measure: ids as the network reads them, and what they stand for, all (tokens,).

    Attributes:
        ids: int64 token ids.
        kmers: int64, the true 6-mers, 0 to 4,095.
        known: uint8, six bits a token: which of its bases count.
    """

    ids: Int64s
    kmers: Int64s
    known: NDArray[np.uint8]


class Passage(NamedTuple):
    """A stem of token ids, and the branches that are measured after it.

    Attributes:
        stem: token ids.
        branches: what is measured.
        is_fork: a single branch is read as one of several, stem first, so that its numbers do not
            change in their last bits where others stand beside it.
    """

    stem: Int64s
    branches: tuple[Branch, ...]
    is_fork: bool = False


class Row(NamedTuple):
    """A stem and a branch, or all branches of one token, which the end of the stem predicts.

    Its shape follows from the whole passage and not from the rows that are read beside it.

    Attributes:
        passage: number of the passage; rows of one share their stem.
        stem: token ids.
        branches: what is measured.
        shared_tokens: of the stem, that are read once for all rows of the passage.
        padded_tokens: of stem and branch.
    """

    passage: int
    stem: Int64s
    branches: tuple[Branch, ...]
    shared_tokens: int
    padded_tokens: int

    @property
    def ids(self) -> Int64s:
        """What is read: of the branch all but the last token, which is only predicted."""
        return np.concatenate([self.stem, *(branch.ids[:-1] for branch in self.branches)])


def branch_of(sequence: str, vocabulary: Vocabulary) -> Branch:
    """Cut a sequence into 6-mers from its first base."""
    encoding = encode(sequence, vocabulary)
    tokens = slice(encoding.num_prefix, None)
    return Branch(encoding.ids[tokens], encoding.kmers[tokens], encoding.known[tokens])


def stem_of(sequence: str, vocabulary: Vocabulary, tags: tuple[str, ...] = ()) -> Int64s:
    """Return the ids of tags, `<dna>` and a sequence of whole 6-mers."""
    if len(sequence) % K:
        raise ValueError(f"a stem has whole 6-mers; this one has {len(sequence)} bases")
    return encode(sequence, vocabulary, tags=tags).ids


def whole_steps(tokens: int) -> int:
    """Return the tokens of a row with its padding."""
    return tokens + -tokens % STEP_TOKENS


def tokens_of(passage: Passage) -> int:
    """Return the tokens of the longest row of a passage, the last of which is only predicted."""
    longest = max((len(branch.ids) for branch in passage.branches), default=0)
    return len(passage.stem) + max(longest - 1, 0)


def rows_of(number: int, passage: Passage) -> Iterator[Row]:
    """Yield the rows of a passage; of the stem whole steps are shared by several."""
    stem, branches, is_fork = passage
    tokens = tokens_of(passage)
    if not (is_fork or len(branches) > 1) or tokens == len(stem):
        yield Row(number, stem, branches, 0, whole_steps(tokens))
        return
    shared_tokens = len(stem) // STEP_TOKENS * STEP_TOKENS
    for branch in branches:
        longest = tokens if shared_tokens else tokens_of(Passage(stem, (branch,)))
        yield Row(number, stem, (branch,), shared_tokens, whole_steps(longest))

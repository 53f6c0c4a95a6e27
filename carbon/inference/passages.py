"""Rows of a batch: a prefix of tokens, and the continuations that are scored after it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.tokenizer import KmerVocabulary

Int64s = NDArray[np.int64]

STEP_TOKENS = 32  # rows are padded to a multiple of this


class Continuation(NamedTuple):
    """Tokens to score: ids for the network and their bases, each array (tokens,).

    Attributes:
        ids: int64 token ids.
        kmers: int64, the true k-mers, 0 to 4**k - 1.
        known: uint8, k bits a token that mark its known bases; only these are scored.
        pools: ranges of tokens whose mean state is requested; the last token has no state, since
            it is only predicted.
    """

    ids: Int64s
    kmers: Int64s
    known: NDArray[np.uint8]
    pools: tuple[range, ...] = ()


class Passage(NamedTuple):
    """A prefix of token ids, and the continuations that are scored after it.

    Attributes:
        prefix: token ids.
        continuations: tokens to score.
        is_shared: run the prefix separately even for a single continuation, so that its last bits
            do not depend on the presence of others.
    """

    prefix: Int64s
    continuations: tuple[Continuation, ...]
    is_shared: bool = False


class BatchRow(NamedTuple):
    """A prefix and one continuation, or all continuations of one token, which the prefix predicts.

    Its shape depends on its passage only, never on the other rows of a batch.

    Attributes:
        passage: number of the passage; rows of one passage share their prefix.
        prefix: token ids.
        continuations: tokens to score.
        shared_tokens: tokens of the prefix that are computed once for all rows of the passage.
        padded_tokens: length of prefix and continuation with padding.
    """

    passage: int
    prefix: Int64s
    continuations: tuple[Continuation, ...]
    shared_tokens: int
    padded_tokens: int

    @property
    def ids(self) -> Int64s:
        """The input ids: the last token of a continuation is only predicted."""
        return np.concatenate(
            [self.prefix, *(continuation.ids[:-1] for continuation in self.continuations)]
        )


def continuation_of(
    sequence: str, vocabulary: KmerVocabulary, pools: tuple[range, ...] = ()
) -> Continuation:
    """Cut a sequence into k-mers from its first base; `pools` as in `Continuation`."""
    return Continuation(*vocabulary.tokens(sequence), pools)


def prefix_of(sequence: str, vocabulary: KmerVocabulary, tags: tuple[str, ...] = ()) -> Int64s:
    """Return the ids of tags, the begin token and a sequence of whole k-mers."""
    if len(sequence) % vocabulary.k:
        raise ValueError(
            f"a prefix has whole {vocabulary.k}-mers; this one has {len(sequence)} bases"
        )
    begin = np.array(vocabulary.prefix(tags), dtype=np.int64)
    return np.concatenate([begin, vocabulary.tokens(sequence).ids])


def padded_length(tokens: int) -> int:
    """Return the length of a row with padding."""
    return tokens + -tokens % STEP_TOKENS


def longest_row_tokens(passage: Passage) -> int:
    """Return the input tokens of the longest row of a passage; the last token is only predicted."""
    longest = max((len(continuation.ids) for continuation in passage.continuations), default=0)
    return len(passage.prefix) + max(longest - 1, 0)


def batch_rows(number: int, passage: Passage) -> Iterator[BatchRow]:
    """Yield the rows of a passage; several rows share whole steps of the prefix."""
    prefix, continuations, is_shared = passage
    tokens = longest_row_tokens(passage)
    if not (is_shared or len(continuations) > 1) or tokens == len(prefix):
        yield BatchRow(number, prefix, continuations, 0, padded_length(tokens))
        return
    shared_tokens = len(prefix) // STEP_TOKENS * STEP_TOKENS
    for continuation in continuations:
        longest = tokens if shared_tokens else longest_row_tokens(Passage(prefix, (continuation,)))
        yield BatchRow(number, prefix, (continuation,), shared_tokens, padded_length(longest))

"""Read the k-mers of another model from its stock tokenizer, and check them by round trip."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from carbon.errors import ModelError, reason_of
from carbon.tokenizer.kmer import BASES, MOST_K, Int64s, cut_kmers, kmer_texts
from carbon.tokenizer.vocabulary import KmerVocabulary

_PIECE_BP = 840  # a multiple of every k, and short enough for the limits of tokenizers
_SAMPLE_PIECES = 24
_RULE = f"Carbon reads k-mers of A, C, G and T that do not overlap, k from 1 to {MOST_K}"


def read_kmer_vocabulary(tokenizer: Any, source: str) -> KmerVocabulary:
    """Return the k-mers of a stock tokenizer of transformers.

    The begin token is the token that the tokenizer puts before DNA, or else its `bos`, `cls` or
    `eos` token. Text is in capitals if the tokenizer has tokens of capitals, otherwise in lower
    case.

    Args:
        tokenizer: a tokenizer of transformers.
        source: name of the model, for messages.

    Raises:
        ModelError: the tokens of DNA are not k-mers of one length without overlap, or a k-mer has
            no token of its own.
    """
    reader = _Reader(tokenizer, source)
    k = reader.kmer_bp()
    ids = reader.kmer_ids(k)
    kmers = set(ids.tolist())
    begin, other = reader.begin(kmers), reader.other(k, ids)
    vocabulary = KmerVocabulary(k=k, ids=ids, begin=begin, other=other)
    reader.check_round_trip(vocabulary)
    return vocabulary


class _Reader:
    """A tokenizer, and the case of the letters that it has tokens for."""

    def __init__(self, tokenizer: Any, source: str) -> None:
        self._tokenizer, self._source = tokenizer, source
        draw = random.Random(0)
        self._sample = ["".join(draw.choices(BASES, k=_PIECE_BP)) for _ in range(_SAMPLE_PIECES)]
        self._is_lower = False
        self._is_lower = not self._distinguishes_bases()
        if not self._distinguishes_bases():
            raise self._refusal("its tokenizer has no tokens of DNA")

    def _encoded(self, texts: Sequence[str], *, specials: bool = False) -> list[list[int]]:
        cased = [text.lower() for text in texts] if self._is_lower else list(texts)
        try:
            encoded = self._tokenizer(cased, add_special_tokens=specials, verbose=False)
        except Exception as error:  # tokenizers raise errors of several libraries
            raise self._refusal(f"its tokenizer cannot read DNA ({reason_of(error)})") from None
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def _distinguishes_bases(self) -> bool:
        return len(set(self._encoded(self._sample[:1])[0])) > 1

    def _refusal(self, problem: str) -> ModelError:
        return ModelError(f"{self._source}: {problem}; {_RULE}")

    def kmer_bp(self) -> int:
        """Return k, from the number of tokens of random DNA."""
        counts = [len(ids) for ids in self._encoded(self._sample)]
        k = _PIECE_BP // max(counts[0], 1)
        if set(counts) != {_PIECE_BP // max(k, 1)} or k * counts[0] != _PIECE_BP or k > MOST_K:
            raise self._refusal(
                f"its tokenizer cuts {_PIECE_BP} random bases into {counts[0]} tokens, not into "
                "tokens of one length"
            )
        return k

    def kmer_ids(self, k: int) -> Int64s:
        """Return the id of every k-mer: (4**k,) int64."""
        texts = kmer_texts(k)
        per_piece = _PIECE_BP // k
        pieces = ["".join(texts[at : at + per_piece]) for at in range(0, len(texts), per_piece)]
        ids = [token for piece in self._encoded(pieces) for token in piece]
        if len(ids) != len(texts):
            raise self._refusal(
                f"its tokenizer cuts the {len(texts):,} {k}-mers into {len(ids):,} tokens, not "
                "into tokens of one length"
            )
        special = set(self._tokenizer.all_special_ids)
        seen: set[int] = set()
        for text, token in zip(texts, ids, strict=True):
            if token in special or token in seen:
                raise self._refusal(f"its tokenizer has no token of its own for '{text}'")
            seen.add(token)
        return np.array(ids, dtype=np.int64)

    def begin(self, kmers: set[int]) -> int | None:
        """Return the id of the token before DNA."""
        plain, whole = (self._encoded(self._sample[:1], specials=each)[0] for each in (False, True))
        before = whole[: next((n for n, token in enumerate(whole) if token in kmers), 0)]
        if whole[len(before) : len(before) + len(plain)] != plain or len(before) > 1:
            raise self._refusal(f"its tokenizer puts {len(before)} tokens before DNA, not one")
        tokenizer = self._tokenizer
        named = (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id)
        return next((token for token in (*before, *named) if token is not None), None)

    def other(self, k: int, ids: Int64s) -> int | None:
        """Return the id of a chunk of unknown bases."""
        kmers = set(ids.tolist())
        unknown = self._encoded(["A" * k + "N" * k + "C" * k])[0]
        if len(unknown) == 3 and unknown[1] not in kmers:
            return unknown[1]
        token: int | None = self._tokenizer.unk_token_id
        return None if token in kmers else token

    def check_round_trip(self, vocabulary: KmerVocabulary) -> None:
        """Raise ModelError unless random DNA has the same tokens in the tokenizer and here."""
        for text, ids in zip(self._sample, self._encoded(self._sample), strict=True):
            if vocabulary.ids[cut_kmers(text, vocabulary.k).indices].tolist() != ids:
                raise self._refusal("its tokenizer cuts the same bases in several ways")

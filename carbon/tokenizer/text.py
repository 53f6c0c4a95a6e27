"""Tokenize text with regions of DNA, such as `<fungi_species><dna>ACGT</dna>`.

Native text consists of special tokens and DNA. Hybrid text is byte-pair text in which `<dna>` opens
a region that extends to the next `</dna>` or to the end. Where the public implementations of the
released tokenizer differ, this follows the Python one: an end tag without a start tag turns the
text before it, back to the last region, into DNA.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.tokenizer.dna import kmer_ids
from carbon.tokenizer.kmer import K, Kmers, UInt8s, encode_kmers
from carbon.tokenizer.vocabulary import HYBRID, NATIVE, Vocabulary, native_tokens

Int64s = NDArray[np.int64]
DNA_START, DNA_END = "<dna>", "</dna>"

_TAG = re.compile("<[^<>]+>")


class TokenizedText(NamedTuple):
    """Tokens of a text, one entry per token.

    Attributes:
        ids: int64, token ids.
        kmers: int64, as in `Encoding`.
        known: uint8, as in `Encoding`.
        offsets: (tokens, 2) int64, characters of the text that a token covers.
    """

    ids: Int64s
    kmers: Int64s
    known: UInt8s
    offsets: Int64s


BytePairs = Callable[[str], tuple[list[int], list[tuple[int, int]]]]


def tokenize_native(text: str) -> TokenizedText:
    """Tokenize text in which everything except special tokens is DNA."""
    parts: list[TokenizedText] = []
    at = 0
    for tag in _TAG.finditer(text):
        token = _NATIVE_TOKENS.get(tag[0])
        if token is not None:
            parts += [_dna(text, at, tag.start(), NATIVE), _token(token, *tag.span())]
            at = tag.end()
    return _joined([*parts, _dna(text, at, len(text), NATIVE)])


def tokenize_hybrid(text: str, byte_pairs: BytePairs) -> TokenizedText:
    """Tokenize byte-pair text with regions of DNA.

    White space at the ends of a region is dropped; inside a region it is an unknown base.
    """
    parts = []
    for kind, start, end in _hybrid_spans(text):
        if kind == "text":
            ids, offsets = byte_pairs(text[start:end])
            nothing = np.zeros(len(ids), dtype=np.int64)
            places = np.array(offsets, dtype=np.int64).reshape(-1, 2) + start
            parts.append(
                TokenizedText(
                    np.array(ids, dtype=np.int64), nothing, nothing.astype(np.uint8), places
                )
            )
        elif kind == "dna":
            region = text[start:end]
            start += len(region) - len(region.lstrip())
            parts.append(_dna(text, start, start + len(region.strip()), HYBRID))
        else:
            token = HYBRID.begin if kind == DNA_START else HYBRID.dna_end
            parts.append(_token(token, start, end))
    return _joined(parts)


def tokenize_region(text: str) -> TokenizedText:
    """Tokenize text that is one region of DNA without `<dna>` tags."""
    dna = tokenize_hybrid(DNA_START + text + DNA_END, lambda _: ([], []))
    return dna._replace(offsets=(dna.offsets - len(DNA_START)).clip(0, len(text)))


def _hybrid_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield type, start and end of each span; the type is `text`, `dna` or one of the two tags."""
    at = 0
    inside = False
    following = text.find(DNA_START)
    while at < len(text):
        if 0 <= following < at:
            following = text.find(DNA_START, at)
        start = -1 if inside else following
        end = text.find(DNA_END, at)
        if end >= 0 and (start < 0 or end < start):
            yield "dna", at, end
            at = end + len(DNA_END)
            yield DNA_END, end, at
            inside = False
        elif start >= 0:
            yield "text", at, start
            at = start + len(DNA_START)
            yield DNA_START, start, at
            inside = True
        else:
            yield "dna" if inside else "text", at, len(text)
            at = len(text)


def _dna(text: str, start: int, end: int, vocabulary: Vocabulary) -> TokenizedText:
    length_bp = end - start
    kmers: Kmers = encode_kmers(text[start:end])
    first = np.arange(start, end, K)
    offsets = np.stack([first, np.minimum(first + K, end)], axis=1)
    return TokenizedText(kmer_ids(kmers, length_bp, vocabulary), *kmers, offsets)


def _token(token: int, start: int, end: int) -> TokenizedText:
    nothing = np.zeros(1, dtype=np.int64)
    offsets = np.array([[start, end]])
    return TokenizedText(np.array([token]), nothing, nothing.astype(np.uint8), offsets)


def _joined(parts: list[TokenizedText]) -> TokenizedText:
    empty = _dna("", 0, 0, NATIVE)
    return TokenizedText(*(np.concatenate(c) for c in zip(empty, *parts, strict=True)))


_NATIVE_TOKENS = native_tokens()

"""Encode DNA to token ids with a mask of known bases, and decode it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.tokenizer.kmer import (
    ALL_KNOWN,
    NUM_KMERS,
    K,
    Kmers,
    UInt8s,
    as_letters,
    decode_kmers,
    encode_kmers,
)
from carbon.tokenizer.vocabulary import NATIVE, Vocabulary

Int64s = NDArray[np.int64]
Strand = Literal["+", "-"]

_COMPLEMENT = bytes.maketrans(b"ACGTacgt", b"TGCAtgca")


class Encoding(NamedTuple):
    """A tokenized sequence; every array has one entry per token, including tags and `<dna>`.

    Attributes:
        ids: int64, token ids; a 6-mer with an unknown base is `<oov>`.
        kmers: int64, 6-mer index with unknown bases as A; 0 for other tokens.
        known: uint8, bit j is set if base j is present and known; 0 for other tokens.
        num_prefix: number of tokens before the first 6-mer: tags and `<dna>`.
        length_bp: number of bases that were cut into 6-mers, known or not: all but the first
            `offset`.
        offset: number of bases skipped before the first 6-mer.
        strand: strand that was read.
    """

    ids: Int64s
    kmers: Int64s
    known: UInt8s
    num_prefix: int
    length_bp: int
    offset: int = 0
    strand: Strand = "+"

    @property
    def num_known_bases(self) -> int:
        """Number of known bases, which losses and scores count."""
        return int(np.bitwise_count(self.known).sum())

    @property
    def offsets_bp(self) -> Int64s:
        """Span of each token in the input sequence: (tokens, 2), 0-based and half-open.

        On the minus strand spans descend; tokens other than 6-mers have (0, 0).
        """
        first = np.arange(0, self.length_bp, K)
        spans = np.stack([first, np.minimum(first + K, self.length_bp)], axis=1) + self.offset
        if self.strand == "-":
            spans = self.offset + self.length_bp - spans[:, ::-1]
        offsets = np.zeros((len(self.ids), 2), dtype=np.int64)
        offsets[self.num_prefix : self.num_prefix + len(spans)] = spans
        return offsets


def encode(
    sequence: str | bytes | UInt8s,
    vocabulary: Vocabulary = NATIVE,
    *,
    tags: tuple[str, ...] = (),
    close: bool = False,
    offset: int = 0,
    strand: Strand = "+",
) -> Encoding:
    """Tokenize a sequence as `tags <dna> 6-mers`, and `</dna>` if `close`.

    A tail of one to five bases becomes a 6-mer padded on the right with A, and its mask excludes
    the padding. A 6-mer with N or an IUPAC code becomes `<oov>`, and its mask keeps the known
    bases.

    Args:
        sequence: letters in either case; letters other than ACGT are unknown bases.
        vocabulary: vocabulary of the ids.
        tags: metadata tags of the vocabulary.
        close: whether to end with `</dna>`.
        offset: number of bases to skip, 0 to 5: the six offsets of the 6-mer grid.
        strand: `-` reads the reverse complement; the offset counts from its start.

    Raises:
        UserError: the vocabulary has no such tag, or the offset or strand is invalid.

    >>> encode("ACGTACGT").ids.tolist()
    [2, 850, 3456]
    """
    _check(offset, strand)
    prefix = vocabulary.prefix(tags)
    read = _read(sequence, offset, strand)
    inside = slice(len(prefix), len(prefix) - (-len(read) // K))
    indices = np.zeros(inside.stop + close, dtype=np.int64)
    known = np.zeros(inside.stop + close, dtype=np.uint8)
    kmers = encode_kmers(read, out=Kmers(indices[inside], known[inside]))
    ids = indices + vocabulary.first_kmer
    ids[: len(prefix)] = prefix
    ids[inside.stop :] = vocabulary.dna_end
    vocabulary.mark_unknown(ids[inside], kmers.known, len(read))
    return Encoding(ids, indices, known, len(prefix), len(read), offset, strand)


def encode_batch(
    sequences: Sequence[str | bytes | UInt8s],
    vocabulary: Vocabulary = NATIVE,
    *,
    tags: tuple[str, ...] = (),
    close: bool = False,
    offset: int = 0,
    strand: Strand = "+",
) -> list[Encoding]:
    """Tokenize many sequences: a faster `[encode(s, ...) for s in sequences]`.

    The arrays are views into three shared arrays.
    """
    _check(offset, strand)
    prefix = vocabulary.prefix(tags)
    reads = [as_letters(_read(sequence, offset, strand)) for sequence in sequences]
    lengths_bp = np.array([len(read) for read in reads], dtype=np.int64)
    num_kmers = -(-lengths_bp // K)
    kmers = encode_kmers(b"".join(read + b"-" * (-len(read) % K) for read in reads))
    expected = np.full(len(kmers.known), ALL_KNOWN, dtype=np.uint8)
    has_kmers = num_kmers > 0
    expected[np.cumsum(num_kmers)[has_kmers] - 1] = (1 << (lengths_bp[has_kmers] - 1) % K + 1) - 1

    # All sequences are concatenated; `inside` are the positions of their 6-mers.
    sizes = num_kmers + len(prefix) + close
    ends = np.cumsum(sizes)
    moved = ends - sizes + len(prefix) - (np.cumsum(num_kmers) - num_kmers)
    inside = np.arange(len(kmers.indices)) + np.repeat(moved, num_kmers)
    ids = np.full(sizes.sum(), vocabulary.dna_end, dtype=np.int64)
    indices = np.zeros(len(ids), dtype=np.int64)
    known = np.zeros(len(ids), dtype=np.uint8)
    ids[(ends - sizes)[:, None] + np.arange(len(prefix))] = prefix
    gaps = kmers.known != expected
    ids[inside] = np.where(gaps, vocabulary.other, kmers.indices + vocabulary.first_kmer)
    indices[inside], known[inside] = kmers
    spans = zip((ends - sizes).tolist(), ends.tolist(), reads, strict=True)
    return [
        Encoding(ids[a:b], indices[a:b], known[a:b], len(prefix), len(read), offset, strand)
        for a, b, read in spans
    ]


def _check(offset: int, strand: str) -> None:
    if strand not in ("+", "-"):
        raise UserError(f"strand {strand!r}: give '+' or '-'")
    if not 0 <= offset < K:
        raise UserError(f"offset {offset}: give 0 to {K - 1}")


def _read(sequence: str | bytes | UInt8s, offset: int, strand: Strand) -> str | bytes | UInt8s:
    if strand == "-":
        sequence = as_letters(sequence).translate(_COMPLEMENT)[::-1]
    return sequence[offset:] if offset else sequence


def kmer_ids(kmers: Kmers, length_bp: int, vocabulary: Vocabulary) -> Int64s:
    """Return the ids of the 6-mers of `length_bp` bases: `<oov>` for a 6-mer with an unknown base.

    The padding of a tail does not count as unknown.
    """
    ids = kmers.indices + vocabulary.first_kmer
    vocabulary.mark_unknown(ids, kmers.known, length_bp)
    return ids


def decode(encoding: Encoding) -> str:
    """Return the bases of an encoding, in upper case, with N for unknown bases, in full length."""
    kmers = slice(encoding.num_prefix, encoding.num_prefix - (-encoding.length_bp // K))
    return decode_kmers(Kmers(encoding.kmers[kmers], encoding.known[kmers]), encoding.length_bp)


def decode_ids(ids: Int64s, vocabulary: Vocabulary = NATIVE) -> str:
    """Return ids without a mask as bases: `<oov>` is NNNNNN, and a tail keeps its padding.

    Tokens other than 6-mers and `<oov>` are left out.
    """
    indices = ids - vocabulary.first_kmer
    is_kmer = (indices >= 0) & (indices < NUM_KMERS)
    is_dna = is_kmer | (ids == vocabulary.other)
    known = np.where(is_kmer, ALL_KNOWN, 0).astype(np.uint8)
    return decode_kmers(Kmers(np.where(is_kmer, indices, 0)[is_dna], known[is_dna]))

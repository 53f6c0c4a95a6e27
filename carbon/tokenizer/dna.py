"""The native DNA tokenizer: sequences to ids and back, with the mask of known bases."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.tokenizer.kmer import (
    ALL_KNOWN,
    K,
    Kmers,
    UInt8s,
    decode_kmers,
    encode_kmers,
)
from carbon.tokenizer.vocabulary import NATIVE, Vocabulary

Int64s = NDArray[np.int64]


class Encoding(NamedTuple):
    """A tokenized sequence; every array has one entry a token, tags and `<dna>` included.

    Attributes:
        ids: int64, what the model reads; a 6-mer with an unknown base inside is `<oov>`.
        kmers: int64, the 6-mer index with unknown bases as A; 0 where the token is no 6-mer.
        known: uint8, bit j set where base j is real and known; 0 where the token is no 6-mer.
        num_prefix: tokens before the first 6-mer: tags and `<dna>`.
        length_bp: bases of the sequence, known or not.
    """

    ids: Int64s
    kmers: Int64s
    known: UInt8s
    num_prefix: int
    length_bp: int

    @property
    def num_known_bases(self) -> int:
        """Bases that losses and scores count."""
        return int(np.bitwise_count(self.known).sum())


def encode(
    sequence: str | bytes | UInt8s,
    vocabulary: Vocabulary = NATIVE,
    *,
    tags: tuple[str, ...] = (),
    close: bool = False,
) -> Encoding:
    """Tokenize a sequence as `tags <dna> 6-mers`, and `</dna>` if `close`.

    A tail of one to five bases becomes a 6-mer padded on the right with A whose mask leaves the
    padding out. A 6-mer with N or an IUPAC code inside becomes `<oov>`; its mask keeps the bases
    that are known.

    >>> encode("ACGTACGT").ids.tolist()
    [2, 850, 3456]
    """
    indices, known = encode_kmers(sequence)
    length_bp = len(sequence)
    ids = np.where(_has_gap(known, length_bp), vocabulary.oov, indices + vocabulary.first_kmer)
    before = np.array(vocabulary.prefix(tags), dtype=np.int64)
    after = np.array([vocabulary.dna_end] if close else [], dtype=np.int64)
    return Encoding(
        ids=np.concatenate([before, ids, after]),
        kmers=np.pad(indices, (len(before), len(after))),
        known=np.pad(known, (len(before), len(after))),
        num_prefix=len(before),
        length_bp=length_bp,
    )


def _has_gap(known: UInt8s, length_bp: int) -> NDArray[np.bool_]:
    """Tell which 6-mers hold an unknown base, as opposed to the padding of a tail."""
    expected = np.full(len(known), ALL_KNOWN, dtype=np.uint8)
    if tail := length_bp % K:
        expected[-1] = (1 << tail) - 1
    gap: NDArray[np.bool_] = known != expected
    return gap


def decode(encoding: Encoding) -> str:
    """Give back the bases of an encoding, upper-cased, N where unknown, of the exact length."""
    kmers = slice(encoding.num_prefix, encoding.num_prefix - (-encoding.length_bp // K))
    return decode_kmers(Kmers(encoding.kmers[kmers], encoding.known[kmers]), encoding.length_bp)

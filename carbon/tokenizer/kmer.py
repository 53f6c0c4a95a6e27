"""The 6-mer code: six bases in one number, first base most significant, A=0 T=1 C=2 G=3.

In this order of digits the complement is `digit ^ 1`. Everything here is vectorised numpy over the
4,096 6-mers and knows nothing of token ids, which are these numbers plus a constant.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

K = 6
NUM_KMERS = 4**K
BASES = "ATCG"
ALL_KNOWN = 0b111111

UInt8s = NDArray[np.uint8]
Int64s = NDArray[np.int64]

_UNKNOWN = 255
_DIGIT = np.full(256, _UNKNOWN, dtype=np.uint8)
for _digit, _base in enumerate(BASES):
    _DIGIT[ord(_base)] = _DIGIT[ord(_base.lower())] = _digit
_LETTER = np.frombuffer(BASES.encode(), dtype=np.uint8)
_WEIGHTS = 4 ** np.arange(K - 1, -1, -1, dtype=np.int64)
_BITS = 2 ** np.arange(K, dtype=np.uint8)

# KMER_DIGITS[v, j] is the digit of 6-mer v at position j.
KMER_DIGITS: UInt8s = (np.arange(NUM_KMERS)[:, None] // _WEIGHTS % 4).astype(np.uint8)
# REVERSE_COMPLEMENT[v] is the 6-mer on the other strand, read 5' to 3'.
REVERSE_COMPLEMENT: Int64s = (KMER_DIGITS[:, ::-1] ^ 1).astype(np.int64) @ _WEIGHTS


class Kmers(NamedTuple):
    """A sequence as 6-mers; both arrays have shape (ceil(bases / 6),).

    Attributes:
        indices: int64, 0 to 4,095; an unknown or absent base counts as A.
        known: uint8, bit j is set where base j of the 6-mer is real and one of ACGT.
    """

    indices: Int64s
    known: UInt8s


def encode_kmers(sequence: str | bytes | UInt8s) -> Kmers:
    """Cut a sequence into 6-mers from its first base; the last one may be partly known.

    Letters are read in either case. Anything but ACGT is an unknown base.
    """
    if isinstance(sequence, str):
        sequence = sequence.encode("latin-1", errors="replace")
    letters = np.frombuffer(sequence, dtype=np.uint8) if isinstance(sequence, bytes) else sequence
    num_kmers = -(-len(letters) // K)
    flat = np.full(num_kmers * K, _UNKNOWN, dtype=np.uint8)
    np.take(_DIGIT, letters, out=flat[: len(letters)])
    digits = flat.reshape(num_kmers, K)
    known = digits != _UNKNOWN
    indices = np.where(known, digits, 0).astype(np.int64) @ _WEIGHTS
    return Kmers(indices, (known * _BITS).sum(axis=1, dtype=np.uint8))


def decode_kmers(kmers: Kmers, length_bp: int | None = None) -> str:
    """Write 6-mers as bases, N where unknown; `length_bp` cuts the padding of the tail.

    With the length it is the exact inverse of `encode_kmers`, upper-cased.
    """
    letters = _LETTER[KMER_DIGITS[kmers.indices]]
    letters = np.where(known_bases(kmers.known), letters, ord("N")).astype(np.uint8)
    return letters.tobytes()[:length_bp].decode()


def known_bases(known: UInt8s) -> NDArray[np.bool_]:
    """Unpack the bits of a mask (...,) into booleans (..., 6), one for each base."""
    bits: NDArray[np.bool_] = (known[..., None] & _BITS) != 0
    return bits

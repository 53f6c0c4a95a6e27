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
UInt16s = NDArray[np.uint16]
Int64s = NDArray[np.int64]

_UNKNOWN = 4  # as a digit: its low bits read as A, its third bit says that it is none of the four
_DIGIT = bytes(
    BASES.index(letter) if (letter := chr(code).upper()) in BASES else _UNKNOWN
    for code in range(256)
)
_LETTER = np.frombuffer(BASES.encode(), dtype=np.uint8)
_WEIGHTS = 4 ** np.arange(K - 1, -1, -1, dtype=np.int64)
_BITS = 2 ** np.arange(K, dtype=np.uint8)
_BLOCK_BP = K * 32_768  # what is encoded at once stays in the cache

# KMER_DIGITS[v, j] is the digit of 6-mer v at position j.
KMER_DIGITS: UInt8s = (np.arange(NUM_KMERS)[:, None] // _WEIGHTS % 4).astype(np.uint8)
# REVERSE_COMPLEMENT[v] is the 6-mer on the other strand, read 5' to 3'.
REVERSE_COMPLEMENT: Int64s = (KMER_DIGITS[:, ::-1] ^ 1).astype(np.int64) @ _WEIGHTS
# The 6-mers as text, one item of six letters each, so that decoding is one look-up a token.
_KMER_TEXT = _LETTER[KMER_DIGITS].view(f"V{K}")[:, 0]
_MASKS = np.arange(2**K)
_MASK_REVERSED = ((_MASKS[:, None] >> np.arange(K) & 1) * _BITS[::-1]).sum(axis=1, dtype=np.uint8)
_MASK_DIGITS = ((_MASKS[:, None] >> np.arange(K) & 1) * 3) @ _WEIGHTS  # both bits of known digits


# How `_join` makes one number of six values. Two bytes read as one little-endian number are
# first + 256 * second; times the product, the second byte holds 4 * first + second (digits, first
# most significant) or first + 2 * second (bits, first least significant).
_FIRST_MOST = 4 * 256 + 1, (8, 4, 0)
_FIRST_LEAST = 256 + 2, (0, 2, 4)


class Kmers(NamedTuple):
    """A sequence as 6-mers; both arrays have shape (ceil(bases / 6),).

    Attributes:
        indices: int64, 0 to 4,095; an unknown or absent base counts as A.
        known: uint8, bit j is set where base j of the 6-mer is real and one of ACGT.
    """

    indices: Int64s
    known: UInt8s


def encode_kmers(sequence: str | bytes | UInt8s, out: Kmers | None = None) -> Kmers:
    """Cut a sequence into 6-mers from its first base; the last one may be partly known.

    Letters are read in either case. Anything but ACGT is an unknown base.

    Args:
        sequence: letters.
        out: arrays of the right length to write into; fresh pages cost as much as the arithmetic.
    """
    num_kmers = -(-len(sequence) // K)
    if out is None:
        out = Kmers(np.empty(num_kmers, dtype=np.int64), np.empty(num_kmers, dtype=np.uint8))
    indices, known = out
    known.fill(ALL_KNOWN)
    for at in range(0, len(sequence), _BLOCK_BP):
        block = as_letters(sequence[at : at + _BLOCK_BP]).translate(_DIGIT)
        if tail := len(block) % K:
            block += bytes([_UNKNOWN]) * (K - tail)
        digits = np.frombuffer(block, dtype=np.uint8)
        kmers = slice(at // K, at // K + len(digits) // K)
        if digits.max() == _UNKNOWN:
            known[kmers] = _join((digits < _UNKNOWN).view(np.uint8), *_FIRST_LEAST)
            digits = digits & np.uint8(3)
        indices[kmers] = _join(digits, *_FIRST_MOST)
    return out


def as_letters(sequence: str | bytes | UInt8s) -> bytes:
    """Return a sequence as bytes, one a base whatever the letter."""
    if isinstance(sequence, str):
        return sequence.encode("latin-1", errors="replace")
    return sequence if isinstance(sequence, bytes) else sequence.tobytes()


def _join(values: UInt8s, product: int, shifts: tuple[int, int, int]) -> UInt16s:
    """Join six values of two bits or one: pairs by one product, then three pairs by shifts."""
    pairs: UInt16s = values.view("<u2") * np.uint16(product) >> np.uint16(8)
    first, second, third = (pairs[i::3] << np.uint16(shift) for i, shift in enumerate(shifts))
    joined: UInt16s = first | second | third
    return joined


def decode_kmers(kmers: Kmers, length_bp: int | None = None) -> str:
    """Write 6-mers as bases, N where unknown; `length_bp` cuts the padding of the tail.

    With the length it is the exact inverse of `encode_kmers`, upper-cased.
    """
    num_kmers = _BLOCK_BP // K
    blocks = range(0, len(kmers.indices), num_kmers)
    text = "".join(
        _decode_block(kmers.indices[at : at + num_kmers], kmers.known[at : at + num_kmers])
        for at in blocks
    )
    return text[:length_bp]


def _decode_block(indices: Int64s, known: UInt8s) -> str:
    letters = np.take(_KMER_TEXT, indices).view(np.uint8).reshape(-1, K)
    if known.size and known.min() != ALL_KNOWN:
        letters = np.where(known_bases(known), letters, ord("N")).astype(np.uint8)
    return letters.tobytes().decode("ascii")


def reverse_complement_kmers(kmers: Kmers) -> Kmers:
    """Return the other strand, read 5' to 3', by table.

    The frame is kept from the other end: a tail of t bases becomes a head whose first 6 - t bases
    are absent. With a length that is a multiple of six it is what `encode_kmers` gives for the
    reverse complement.
    """
    known = _MASK_REVERSED[kmers.known[::-1]]
    return Kmers(REVERSE_COMPLEMENT[kmers.indices[::-1]] & _MASK_DIGITS[known], known)


def known_bases(known: UInt8s) -> NDArray[np.bool_]:
    """Unpack the bits of a mask (...,) into booleans (..., 6), one for each base."""
    bits: NDArray[np.bool_] = (known[..., None] & _BITS) != 0
    return bits

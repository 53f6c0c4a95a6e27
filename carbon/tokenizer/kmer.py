"""The 6-mer code: six bases in one number, first base most significant, A=0 T=1 C=2 G=3.

With these digits the complement is `digit ^ 1`. Everything here is vectorised numpy over the 4,096
6-mers. Token ids, which are these numbers plus a constant, do not appear here.
"""

import itertools
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

_LETTER = np.frombuffer(BASES.encode(), dtype=np.uint8)
_WEIGHTS = 4 ** np.arange(K - 1, -1, -1, dtype=np.int64)
MOST_K = 8  # bits of a mask
_BITS = 2 ** np.arange(MOST_K, dtype=np.uint8)
_BLOCK_BP = K * 32_768  # size of a block that stays in the cache

# KMER_DIGITS[v, j] is the digit of 6-mer v at position j.
KMER_DIGITS: UInt8s = (np.arange(NUM_KMERS)[:, None] // _WEIGHTS % 4).astype(np.uint8)
# REVERSE_COMPLEMENT[v] is the 6-mer on the other strand, read 5' to 3'.
REVERSE_COMPLEMENT: Int64s = (KMER_DIGITS[:, ::-1] ^ 1).astype(np.int64) @ _WEIGHTS
# The 6-mers as text, one item of six letters each, so that decoding is one look-up per token.
_KMER_TEXT = _LETTER[KMER_DIGITS].view(f"V{K}")[:, 0]
_MASKS = np.arange(2**K)
_MASK_REVERSED = ((_MASKS[:, None] >> np.arange(K) & 1) * _BITS[K - 1 :: -1]).sum(
    axis=1, dtype=np.uint8
)
_MASK_DIGITS = ((_MASKS[:, None] >> np.arange(K) & 1) * 3) @ _WEIGHTS  # both bits of known digits


class Kmers(NamedTuple):
    """A sequence as 6-mers; both arrays have shape (ceil(bases / 6),).

    Attributes:
        indices: int64, 0 to 4,095; an unknown or absent base counts as A.
        known: uint8, bit j is set if base j of the 6-mer is present and one of ACGT.
    """

    indices: Int64s
    known: UInt8s


def encode_kmers(sequence: str | bytes | UInt8s, out: Kmers | None = None) -> Kmers:
    """Cut a sequence into 6-mers from its first base; the last one may be partly known.

    Args:
        sequence: letters in either case; letters other than ACGT are unknown bases.
        out: arrays of the right length to write into; new pages cost as much as the arithmetic.
    """
    num_kmers = -(-len(sequence) // K)
    if out is None:
        out = Kmers(np.empty(num_kmers, dtype=np.int64), np.empty(num_kmers, dtype=np.uint8))
    indices, known = out
    known.fill(ALL_KNOWN)
    for at in range(0, len(sequence), _BLOCK_BP):
        block = as_letters(sequence[at : at + _BLOCK_BP])
        block += b"-" * (-len(block) % K)
        letters = np.frombuffer(block, dtype=np.uint8)
        kmers = slice(at // K, at // K + len(letters) // K)
        is_base = _is_base(letters)
        if not is_base.all():
            known[kmers] = _join_bits(is_base)
            letters = np.where(is_base, letters, np.uint8(ord("A")))
        indices[kmers] = _join_letters(letters)
    return out


def as_letters(sequence: str | bytes | UInt8s) -> bytes:
    """Return a sequence as bytes, one per letter; letters outside of Latin-1 become `?`."""
    if isinstance(sequence, str):
        return sequence.encode("latin-1", errors="replace")
    if isinstance(sequence, np.ndarray) and sequence.dtype != np.uint8:
        raise TypeError(f"letters are uint8, one a base; this array is {sequence.dtype}")
    return sequence if isinstance(sequence, bytes) else bytes(sequence)


# Arithmetic over whole arrays runs at several times the speed of looking up each byte. Two bytes
# read as one little-endian number are first + 256 * second, so that one product joins a pair.


def _is_base(letters: UInt8s) -> NDArray[np.bool_]:
    upper = letters & np.uint8(0xDF)  # a letter less the bit that makes it lower case
    is_base: NDArray[np.bool_] = upper == ord("A")
    for base in b"CGT":
        is_base |= upper == base
    return is_base


def _join_letters(letters: UInt8s) -> UInt16s:
    """Join six bases to a number, first most significant.

    Bits 1 and 2 of an ASCII letter are the two bits of its digit, swapped.
    """
    pairs = (letters.view("<u2") & np.uint16(0x0606)) * np.uint16(4 * 256 + 1) >> np.uint16(9)
    exchanged = _join_pairs(pairs, (8, 4, 0))
    low = np.uint16(0b01_01_01_01_01_01)
    joined: UInt16s = (exchanged & low) << np.uint16(1) | exchanged >> np.uint16(1) & low
    return joined


def _join_bits(bits: NDArray[np.bool_]) -> UInt16s:
    """Join six booleans to a number, first least significant."""
    return _join_pairs(bits.view("<u2") * np.uint16(256 + 2) >> np.uint16(8), (0, 2, 4))


def _join_pairs(pairs: UInt16s, shifts: tuple[int, int, int]) -> UInt16s:
    first, second, third = (pairs[i::3] << np.uint16(shift) for i, shift in enumerate(shifts))
    joined: UInt16s = first | second | third
    return joined


def decode_kmers(kmers: Kmers, length_bp: int | None = None) -> str:
    """Return 6-mers as bases, with N for unknown ones; `length_bp` removes the padding of the tail.

    With the length, this is the exact inverse of `encode_kmers`, in upper case.
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
    """Return the reverse complement of 6-mers by table look-up.

    A tail of t bases becomes a first 6-mer whose first 6 - t bases are absent. If the length is a
    multiple of six, the result equals `encode_kmers` of the reverse complement.
    """
    known = _MASK_REVERSED[kmers.known[::-1]]
    return Kmers(REVERSE_COMPLEMENT[kmers.indices[::-1]] & _MASK_DIGITS[known], known)


def known_bases(known: UInt8s, k: int = K) -> NDArray[np.bool_]:
    """Unpack the bits of a mask (...,) into booleans (..., k), one for each base."""
    bits: NDArray[np.bool_] = (known[..., None] & _BITS[:k]) != 0
    return bits


_UNKNOWN = 4
_DIGIT_OF = np.full(256, _UNKNOWN, dtype=np.uint8)
for _digit, _base in enumerate(BASES):
    _DIGIT_OF[[ord(_base), ord(_base.lower())]] = _digit


def cut_kmers(sequence: str | bytes | UInt8s, k: int) -> Kmers:
    """Cut a sequence into k-mers, k from 1 to 8, as `encode_kmers` does for k = 6."""
    if k == K:
        return encode_kmers(sequence)
    letters = np.frombuffer(as_letters(sequence), dtype=np.uint8)
    digits = np.full((-(-len(letters) // k), k), _UNKNOWN, dtype=np.uint8)
    digits.reshape(-1)[: len(letters)] = _DIGIT_OF[letters]
    is_base = digits != _UNKNOWN
    weights = 4 ** np.arange(k - 1, -1, -1, dtype=np.int64)
    known = (is_base * _BITS[:k]).sum(axis=1, dtype=np.uint8)
    return Kmers(np.where(is_base, digits, 0) @ weights, known)


def kmer_texts(k: int) -> list[str]:
    """Return the k-mers as text, in the order of their indices."""
    return ["".join(bases) for bases in itertools.product(BASES, repeat=k)]

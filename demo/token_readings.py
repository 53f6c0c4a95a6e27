"""Tokens as JSON values: letters, position, known bases, ids in both vocabularies."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome.alphabet import IUPAC_DNA, reverse_complement
from carbon.genome.interval import Strand
from carbon.genome.notation import read_bases
from carbon.genome.sequences import fasta_text
from carbon.tokenizer.dna import Encoding, encode
from carbon.tokenizer.kmer import known_bases
from carbon.tokenizer.text import TokenizedText, tokenize_hybrid
from carbon.tokenizer.vocabulary import HYBRID, NATIVE, Vocabulary


def first_region(text: str) -> str:
    """Return the letters of the first DNA region, as the hybrid tokenizer finds it."""
    tokens = tokenize_hybrid(text, lambda _: ([], []))
    pairs = zip(tokens.ids.tolist(), tokens.offsets.tolist(), strict=True)
    for is_dna, run in groupby(pairs, lambda pair: _is_kmer(pair[0], HYBRID)):
        if is_dna:
            spans = [span for _, span in run]
            return text[spans[0][0] : spans[-1][1]]
    return ""


def _is_kmer(token_id: int, vocabulary: Vocabulary) -> bool:
    return token_id == vocabulary.other or token_id >= vocabulary.first_kmer


def reading(name: str, bases: str, offset: int, strand: Strand) -> dict[str, Any]:
    """Return the tokens of DNA at an offset of a strand, in both vocabularies.

    Args:
        name: name of this reading, included in the result.
        bases: DNA.
        offset: number of bases to skip.
        strand: strand to read.

    Returns:
        `name` and `tokens`, each with `text`, `span` (1-based, None for a prefix), `known` (six
        digits, 1 for a real and known base), `native_id` and `hybrid_id`.
    """
    native = encode(bases, NATIVE, offset=offset, strand=strand)
    hybrid = encode(bases, HYBRID, offset=offset, strand=strand)
    columns = (
        _letters(bases, native),
        _known(native.known),
        native.ids.tolist(),
        hybrid.ids.tolist(),
    )
    return {
        "name": name,
        "tokens": [
            {"text": letters, "span": span, "known": known if span else "",
             "native_id": native_id, "hybrid_id": hybrid_id}
            for (letters, span), known, native_id, hybrid_id in zip(*columns, strict=True)
        ],
    }  # fmt: skip


def _letters(bases: str, encoding: Encoding) -> Iterator[tuple[str, list[int] | None]]:
    """Yield the letters of each token as typed, and their 1-based span."""
    for number, (start, end) in enumerate(encoding.offsets_bp.tolist()):
        if number < encoding.num_prefix:
            yield "<dna>", None
            continue
        letters = bases[start:end]
        yield letters if encoding.strand == "+" else reverse_complement(letters), [start + 1, end]


def readings_of(bases: str, shift: int) -> list[dict[str, Any]]:
    """Return three readings of DNA: at offset 0, at another offset, and of the reverse strand.

    Raises:
        UserError: the offset leaves no bases to read.
    """
    return [reading(name, bases, offset, way) for name, offset, way in ways_to_read(shift, bases)]


def text_reading(
    name: str, text: str, tokens: TokenizedText, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Return the tokens of a text in the format of `reading`, with the ids of one vocabulary."""
    columns = (tokens.offsets.tolist(), _known(tokens.known), tokens.ids.tolist())
    return {
        "name": name,
        "tokens": [
            {"text": text[start:end], "span": None,
             "known": known if _is_kmer(token_id, vocabulary) else "",
             "native_id": None, "hybrid_id": None, f"{vocabulary.name}_id": token_id}
            for (start, end), known, token_id in zip(*columns, strict=True)
        ],
    }  # fmt: skip


def _known(known: NDArray[np.uint8]) -> list[str]:
    """Return six digits a token, 1 for a real and known base."""
    return ["".join(map(str, bits)) for bits in known_bases(known).astype(int).tolist()]


def ways_to_read(shift: int, bases: str) -> list[tuple[str, int, Strand]]:
    """Return the readings of DNA as name, offset and strand.

    Raises:
        UserError: the offset leaves no bases to read.
    """
    if not bases:
        return []
    if shift >= len(bases):
        raise UserError(f"offset {shift} passes over all {len(bases)} bases; choose a lower one")
    shifted: list[tuple[str, int, Strand]] = [(f"offset {shift}", shift, "+")] if shift else []
    return [("offset 0", 0, "+"), *shifted, ("reverse complement", 0, "-")]


def fasta_of_ways(bases: str, shift: int) -> str:
    """Return each reading as a FASTA record, so that a command gives the same ids."""
    bases = "".join(letter if letter.upper() in IUPAC_DNA else "N" for letter in bases)
    records = (
        (name.replace(" ", "_"), (bases if strand == "+" else reverse_complement(bases))[offset:])
        for name, offset, strand in ways_to_read(shift, bases)
    )
    return fasta_text(records)


def dna_of_text(text: str) -> str:
    """Return the DNA of a text: the whole text, or its first DNA region.

    Raises:
        UserError: there is no DNA, or a letter that is not a base.
    """
    if not text:
        raise UserError("nothing is given; type DNA, or text with <dna> tags")
    return first_region(text) if "<" in text else read_bases(text)

"""Tokens told one by one, ready for JSON: letters, place, known bases, ids of both vocabularies."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.genome.alphabet import reverse_complement
from carbon.genome.interval import Strand
from carbon.tokenizer.dna import Encoding, encode
from carbon.tokenizer.kmer import known_bases
from carbon.tokenizer.text import TokenizedText, tokenize_hybrid
from carbon.tokenizer.vocabulary import HYBRID, NATIVE, Vocabulary


def first_region(text: str) -> str:
    """Return the letters of the first region of DNA, as the hybrid tokenizer finds it."""
    tokens = tokenize_hybrid(text, lambda _: ([], []))
    pairs = zip(tokens.ids.tolist(), tokens.offsets.tolist(), strict=True)
    for is_dna, run in groupby(pairs, lambda pair: _is_kmer(pair[0], HYBRID)):
        if is_dna:
            spans = [span for _, span in run]
            return text[spans[0][0] : spans[-1][1]]
    return ""


def _is_kmer(token_id: int, vocabulary: Vocabulary) -> bool:
    return token_id == vocabulary.oov or token_id >= vocabulary.first_kmer


def reading(name: str, bases: str, frame: int, strand: Strand) -> dict[str, Any]:
    """Return the tokens of DNA that is read in a frame of a strand, by both vocabularies.

    Args:
        name: of this reading, which is in what is returned.
        bases: DNA.
        frame: bases that are passed over.
        strand: that is read.

    Returns:
        `name` and `tokens`, each with `text`, `span` (1-based, None for a prefix), `known` (six
        digits, 1 where a base is real and known), `native_id` and `hybrid_id`.
    """
    native = encode(bases, NATIVE, frame=frame, strand=strand)
    hybrid = encode(bases, HYBRID, frame=frame, strand=strand)
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
    """Yield the letters of each token as they were typed, and where they are, 1-based."""
    for number, (start, end) in enumerate(encoding.offsets_bp.tolist()):
        if number < encoding.num_prefix:
            yield "<dna>", None
            continue
        letters = bases[start:end]
        yield letters if encoding.strand == "+" else reverse_complement(letters), [start + 1, end]


def text_reading(
    name: str, text: str, tokens: TokenizedText, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Return the tokens of a text as `reading` does, with the ids of one vocabulary."""
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
    """Return six digits a token, 1 where a base is real and known."""
    return ["".join(map(str, bits)) for bits in known_bases(known).astype(int).tolist()]

"""`carbon tokenize`: convert FASTA to token ids, or back."""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from carbon.commands.shared import File, Natural, Tags


def tokenize(
    source: File = "-",
    /,
    *,
    decode: bool = False,
    vocabulary: Literal["native", "hybrid"] = "native",
    tags: Tags = (),
    piece_tokens: Natural | None = None,
) -> None:
    """Convert FASTA to token ids, or back.

    Writes a line for each chunk: contig, start, end, ids, and the letters of 6-mers with unknown
    bases. Memory use does not depend on the genome size.

    Args:
        source: FASTA; - for standard input.
        decode: read such lines and write FASTA.
        vocabulary: vocabulary of the ids.
        piece_tokens: maximum ids per line; 8192 if not given.
    """
    from carbon.errors import UserError
    from carbon.genome import SequenceChunk, read_chunks
    from carbon.genome.sequences import BROKEN_GZIP, open_text
    from carbon.progress import progress
    from carbon.tokenizer import HYBRID, NATIVE, K
    from carbon.tokenizer.lines import fasta_lines, token_lines

    words = HYBRID if vocabulary == "hybrid" else NATIVE
    shown_as = "standard input" if source == "-" else source
    if decode:
        if tags or piece_tokens is not None:
            unused = "--tag" if tags else "--piece-tokens"
            raise UserError(f"{unused} has no effect with --decode; take it out")
        try:
            with open_text(Path(source)) as lines:
                _write_lines(fasta_lines(lines, shown_as, words))
        except (*BROKEN_GZIP, UnicodeDecodeError) as error:
            raise UserError(f"{shown_as}: is broken ({error}); write it again") from None
        return

    def counted(pieces: Iterator[SequenceChunk]) -> Iterator[SequenceChunk]:
        with progress("bases", None) as advance:
            for piece in pieces:
                yield piece
                advance(len(piece.bases))

    piece_tokens = 8192 if piece_tokens is None else piece_tokens
    num_kmers = piece_tokens - len(words.prefix(tags))
    if num_kmers < 1:
        raise UserError(f"--piece-tokens {piece_tokens}: leaves no room for a 6-mer")
    pieces = counted(read_chunks(source, num_kmers * K))
    first = list(islice(pieces, 1))  # errors are reported before the header line
    _write_lines(token_lines(chain(first, pieces), words, tags))


def _write_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)

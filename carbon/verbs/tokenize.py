"""`carbon tokenize`: FASTA to token ids, or back."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from carbon.console import natural
from carbon.verbs.common import Verbs


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "tokenize",
        help="FASTA to token ids, or back",
        description="Writes a line a piece: contig, start, end, ids, and the letters of 6-mers "
        "that are not six known bases. Memory does not grow with the genome.",
    )
    verb.add_argument("input", nargs="?", default="-", help="FASTA, or - (default) for stdin")
    verb.add_argument("--decode", action="store_true", help="read such lines and write FASTA")
    verb.add_argument("--vocabulary", choices=["native", "hybrid"], default="native")
    verb.add_argument("--tag", action="append", default=[], dest="tags", help="metadata tag")
    verb.add_argument("--piece-tokens", type=natural, default=8192, help="most ids of a line")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.console import progress
    from carbon.errors import UserError
    from carbon.genome import Piece, read_pieces
    from carbon.genome.streams import BROKEN_GZIP, open_text
    from carbon.tokenizer import HYBRID, NATIVE, K
    from carbon.tokenizer.lines import fasta_lines, token_lines

    vocabulary = HYBRID if arguments.vocabulary == "hybrid" else NATIVE
    shown_as = "standard input" if arguments.input == "-" else arguments.input
    if arguments.decode:
        try:
            with open_text(Path(arguments.input)) as lines:
                _write_lines(fasta_lines(lines, shown_as, vocabulary))
        except (*BROKEN_GZIP, UnicodeDecodeError) as error:
            raise UserError(f"{shown_as}: is broken ({error}); write it again") from None
        return

    def counted(pieces: Iterator[Piece]) -> Iterator[Piece]:
        with progress("bases", None) as advance:
            for piece in pieces:
                yield piece
                advance(len(piece.bases))

    tags = tuple(arguments.tags)
    num_kmers = arguments.piece_tokens - len(vocabulary.prefix(tags))
    if num_kmers < 1:
        raise UserError(f"--piece-tokens {arguments.piece_tokens}: leaves no room for a 6-mer")
    pieces = counted(read_pieces(arguments.input, num_kmers * K))
    first = list(islice(pieces, 1))  # what cannot be read is known before the line of names
    _write_lines(token_lines(chain(first, pieces), vocabulary, tags))


def _write_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)

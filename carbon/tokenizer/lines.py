"""Text lines of tokens, which `carbon tokenize` writes and reads.

A line is a chunk of a contig as the model reads it, tab-separated: contig, start, end, ids (tags,
`<dna>`, 6-mers; separated by spaces), and the letters of 6-mers with fewer than six known bases, as
`6-mer:letters` separated by commas, or `.` without such 6-mers. Decoding the lines yields the exact
sequence, in upper case, with N for unknown bases.
"""

import re
from collections.abc import Iterable, Iterator

import numpy as np

from carbon.errors import UserError
from carbon.genome import SequenceChunk
from carbon.tokenizer.dna import Encoding, decode_ids, encode
from carbon.tokenizer.kmer import ALL_KNOWN, K, Kmers, decode_kmers
from carbon.tokenizer.vocabulary import NATIVE, Vocabulary

HEADER = "contig\tstart\tend\tids\tpartial"
_LINE_BP = 60


def token_lines(
    chunks: Iterable[SequenceChunk], vocabulary: Vocabulary = NATIVE, tags: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the header, then a line for each chunk."""
    yield HEADER
    for contig, start, bases in chunks:
        encoding = encode(bases, vocabulary, tags=tags)
        ids = " ".join(map(str, encoding.ids.tolist()))
        yield f"{contig}\t{start}\t{start + len(bases)}\t{ids}\t{_partial(encoding)}"


def _partial(encoding: Encoding) -> str:
    kmers, known = encoding.kmers[encoding.num_prefix :], encoding.known[encoding.num_prefix :]
    partial = np.flatnonzero(known != ALL_KNOWN)
    text = decode_kmers(Kmers(kmers[partial], known[partial]))
    last_bp = encoding.length_bp - K * (len(known) - 1)
    letters = (
        (at, text[K * i : K * i + (last_bp if at == len(known) - 1 else K)])
        for i, at in enumerate(partial.tolist())
    )
    return ",".join(f"{at}:{bases}" for at, bases in letters) or "."


def fasta_lines(
    lines: Iterable[str], shown_as: str, vocabulary: Vocabulary = NATIVE
) -> Iterator[str]:
    """Yield FASTA lines from the lines of `token_lines`.

    Raises:
        UserError: at the first malformed line.
    """
    contig, bases, end_before = None, "", 0
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.rstrip("\r\n") == HEADER:
            continue
        name, start, end, sequence = _read_line(line, f"{shown_as} line {number}", vocabulary)
        if start and (name != contig or start != end_before):
            raise UserError(
                f"{shown_as} line {number}: begins at {start} of '{name}', but the line before "
                "does not end there; keep the lines in their order"
            )
        if not start:
            yield from _wrapped(bases)
            yield f">{name}"
            contig, bases = name, ""
        bases += sequence
        whole = len(bases) // _LINE_BP * _LINE_BP
        yield from _wrapped(bases[:whole])
        bases, end_before = bases[whole:], end
    if contig is None:
        raise UserError(f"{shown_as}: has no tokens; give what `carbon tokenize` wrote")
    yield from _wrapped(bases)


def _wrapped(bases: str) -> Iterator[str]:
    return (bases[at : at + _LINE_BP] for at in range(0, len(bases), _LINE_BP))


def _read_line(line: str, where: str, vocabulary: Vocabulary) -> tuple[str, int, int, str]:
    try:
        name, start, end, ids, partial = line.rstrip("\r\n").split("\t")
        numbers = np.array(ids.split(), dtype=np.int64)
        letters = [entry.split(":") for entry in partial.split(",") if partial != "."]
        replaced = {int(at): bases for at, bases in letters}
        length_bp = int(end) - int(start)
    except (ValueError, OverflowError):
        raise UserError(
            f"{where}: is not five columns of '{HEADER.expandtabs(1)}'; give what `carbon "
            "tokenize` wrote"
        ) from None
    text = decode_ids(numbers, vocabulary)
    for at, bases in replaced.items():
        if not 0 <= K * at < len(text) or not re.fullmatch("[ACGTN]{1,6}", bases):
            raise UserError(f"{where}: '{at}:{bases}' is not a 6-mer of the line and its letters")
        text = text[: K * at] + bases + text[K * (at + 1) :]
    if len(text) != length_bp:
        raise UserError(
            f"{where}: {len(text)} bases stand where {length_bp} should; is it of the "
            f"{vocabulary.name} vocabulary?"
        )
    return name, int(start), int(end), text

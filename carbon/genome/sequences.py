"""A stream of named sequences from FASTA or FASTQ, for what needs no random access."""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from carbon.errors import GenomeError
from carbon.genome.sequence_lines import (
    LETTERS_AND_ENDS,
    Header,
    Part,
    SequenceLines,
    Wording,
    check,
    checked,
)
from carbon.genome.streams import check_bgzip_end, compression_of
from carbon.io.files import why_no_file

_WORDING = Wording(
    empty="has no sequence; give a FASTA or FASTQ",
    no_header="expected a header that begins with '>' or '@'; is this a FASTA file?",
    no_name="a record without a name; write it right behind the first letter",
    broken="{file} line {line}: is broken behind this ({error}); fetch it again",
)


class SequenceRecord(NamedTuple):
    """A sequence of a FASTA or FASTQ; the description is what follows its name in the header."""

    name: str
    description: str
    bases: str


def read_sequences(path: str | Path) -> Iterator[tuple[str, str]]:
    """Return `(name, bases)` of what `read_records` returns.

    Raises:
        GenomeError: as there.
    """
    return ((record.name, record.bases) for record in read_records(path))


def fasta_text(pairs: Iterable[tuple[str, str]], line_bp: int | None = None) -> str:
    r"""Return headers and bases as FASTA, in lines of `line_bp`, or one line a record.

    >>> fasta_text([("a", "ACGTA")], 3)
    '>a\nACG\nTA\n'
    """
    lines = []
    for header, bases in pairs:
        step = line_bp or max(1, len(bases))
        lines += [f">{header}", *(bases[n : n + step] for n in range(0, len(bases), step))]
    return "".join(f"{line}\n" for line in lines)


def read_records(path: str | Path) -> Iterator[SequenceRecord]:
    """Return the records of FASTA or FASTQ, plain, bgzip or gzip, one in memory at a time.

    A FASTA file is checked as a whole before the first record is given; FASTQ and what comes
    through standard input (`-`) record by record. Several records may have one name.

    Raises:
        GenomeError: the file is missing, empty, truncated or not DNA in one of the formats.
    """
    path = Path(path)
    if str(path) == "-":
        return _of_stream(SequenceLines(path, _WORDING))
    if not path.is_file():
        raise GenomeError(
            f"{path}: {why_no_file(path)}; give a FASTA or FASTQ, or - for standard input"
        )
    if compression_of(path) == "bgzip":
        check_bgzip_end(path)
    lines = SequenceLines(path)
    if lines.first_letter() == b"@":
        return _of_fastq(SequenceLines(path, _WORDING))
    check(lines)
    again = SequenceLines(path)
    return _of_fasta(checked(again) if lines.has_blanks else again.fasta())


def _of_stream(lines: SequenceLines) -> Iterator[SequenceRecord]:
    is_fastq = lines.first_letter() == b"@"
    yield from _of_fastq(lines) if is_fastq else _of_fasta(checked(lines))


def _of_fasta(parts: Iterable[Part]) -> Iterator[SequenceRecord]:
    of_record: Header | None = None
    bases: list[bytes] = []
    for header, text in parts:
        if header:
            if of_record:
                yield _record(of_record, bases)
            of_record, bases = header, []
        bases.append(text.replace(b"\n", b""))
    if of_record:
        yield _record(of_record, bases)


def _of_fastq(lines: SequenceLines) -> Iterator[SequenceRecord]:
    with lines.told_where_broken():
        stripped = map(bytes.rstrip, lines.lines())
        for line in filter(None, stripped):
            if not line.startswith(b"@"):
                raise lines.error("expected a header that begins with '@'; is the file damaged?")
            header = lines.header(line)
            record = _record(header, _letters(lines, stripped))
            num_missing = len(record.bases)
            while num_missing > 0 and (quality := next(stripped, None)) is not None:
                num_missing -= len(quality)
            if num_missing:
                raise lines.error(
                    f"record '{record.name}' has no quality, or not one for each base; is the file "
                    "cut off?"
                )
            yield record


def _letters(lines: SequenceLines, stripped: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a record of FASTQ up to that which begins with '+'."""
    for line in takewhile(lambda line: not line.startswith(b"+"), stripped):
        if line.translate(None, LETTERS_AND_ENDS):
            raise lines.wrong_letter(line, lines.number)
        yield line


def _record(header: Header, bases: Iterable[bytes]) -> SequenceRecord:
    name, description = header
    return SequenceRecord(
        name.decode("utf-8", "replace"),
        description.decode("utf-8", "replace"),
        b"".join(bases).decode(),
    )

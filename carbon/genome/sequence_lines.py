"""The lines of FASTA, FASTQ and plain sequences: one reader, one set of rules, bounded memory.

A file or standard input is read once and by blocks; what must not be in it is sought in whole
blocks, and lines are counted for messages. FASTA is read by `checked`, or by `SequenceLines.fasta`
where the file has been checked before; FASTQ and plain sequences by `SequenceLines.lines`. As for
samtools, blanks before a name and at the end of a line, and a byte-order mark, are not there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from carbon.errors import GenomeError
from carbon.genome.alphabet import FASTA_LETTERS
from carbon.genome.streams import (
    BROKEN_GZIP,
    BYTE_ORDER_MARK,
    is_too_long,
    open_bytes,
    shown_name,
    too_long,
)

_BLOCK_BYTES = 1 << 16
_LF = ord("\n")
_LONE_CR = "lines end in a lone CR; convert them to LF"
LETTERS_AND_ENDS = FASTA_LETTERS + b"\n"
_BLANKS = (b" ", b"\t")


@dataclass(frozen=True, slots=True)
class Wording:
    """What is said where a file is wrong, by those who take a FASTA alone and those who do not.

    Attributes:
        empty: there is no sequence.
        no_header: text stands where the first header should.
        no_name: a header has no name.
        broken: the stream of bytes breaks off; has room for file, line and error.
    """

    empty: str
    no_header: str
    no_name: str
    broken: str


FASTA_WORDING = Wording(
    empty="has no sequence; give a FASTA with at least one contig",
    no_header="expected a header that begins with '>'; is this a FASTA file?",
    no_name="a contig without a name; write it right after '>'",
    broken="{file}: broken after line {line} ({error}); fetch it again",
)


# Plain tuples: a file may hold millions. A header is a name, and the description behind it.
Header = tuple[bytes, bytes]
# Some of a contig: its header if it begins here, and text, which may end inside a line.
Part = tuple[Header | None, bytes]


class SequenceLines:
    """The lines of a file, or of standard input (`-`), and where they are wrong.

    Attributes:
        wording: what is said of mistakes.
        has_blanks: whether what was checked so far had blanks at the ends of lines.
    """

    def __init__(self, path: Path, wording: Wording = FASTA_WORDING) -> None:
        """Remember what to read, which is opened when it is first asked for, and read once."""
        self.wording = wording
        self.has_blanks = False
        self._number = 0  # lines that were given before `_text`
        self._text, self._at = b"", 0  # what is given line by line, and how far
        self._shown_as = shown_name(path)
        self._blocks: Iterator[bytes] = self._read(path)

    @property
    def number(self) -> int:
        """Lines that were given whole so far; only mistakes need it, so it is counted for them."""
        return self._number + self._text.count(b"\n", 0, self._at)

    def error(self, wrong: str, line: int | None = None) -> GenomeError:
        """Return what is wrong with a line, by default the one that was given last."""
        return GenomeError(f"{self._shown_as} line {line or self.number}: {wrong}")

    def empty(self) -> GenomeError:
        """Return that there is no sequence."""
        return GenomeError(f"{self._shown_as}: {self.wording.empty}")

    def wrong_letter(self, text: bytes, first_line: int) -> GenomeError:
        """Return where the first letter stands that is not one of DNA; there must be one."""
        wrong = text.translate(None, LETTERS_AND_ENDS)[:1]
        return self.error(
            f"{wrong.decode('latin-1')!r} is not a DNA letter (ACGT, N and IUPAC codes); is this a "
            "protein or a damaged file?",
            first_line + text.count(b"\n", 0, text.index(wrong)),
        )

    @contextmanager
    def told_where_broken(self) -> Iterator[None]:
        """Raise a GenomeError that tells the line where a stream breaks off."""
        try:
            yield
        except BROKEN_GZIP as error:
            told = {"file": self._shown_as, "line": self.number, "error": error}
            raise GenomeError(self.wording.broken.format(**told)) from None

    def _read(self, path: Path) -> Iterator[bytes]:
        """Yield the text, cut anywhere, its lines ending in LF alone; whoever takes it counts them.

        Raises:
            GenomeError: a line is too long, or a CR stands alone; what stands before the line of
                that has been yielded.
        """
        held = b""  # a CR whose LF may open the next block; one that ends the file ends a line
        line_bytes = 0  # of the line that the block ends in; no other is much longer than a block
        with open_bytes(path) as source:
            if source.peek(3)[:3] == BYTE_ORDER_MARK:
                source.read(3)
            while block := source.read1(_BLOCK_BYTES):
                text = held + block
                held = b""
                if b"\r" in text:
                    held = b"\r" if text.endswith(b"\r") else b""
                    text = text.removesuffix(b"\r").replace(b"\r\n", b"\n")
                    if (at := text.find(b"\r")) >= 0:
                        yield text[: text.rfind(b"\n", 0, at) + 1]
                        raise self.error(_LONE_CR, self.number + 1)
                last_end = text.rfind(b"\n")
                line_bytes = len(text) - last_end - 1 + (line_bytes if last_end < 0 else 0)
                if is_too_long(line_bytes):
                    raise self.error(too_long(), self.number + 1)
                if text:
                    yield text

    def first_letter(self) -> bytes:
        """Pass over blank lines at the beginning, and return what the next begins with, if any."""
        text = b""
        with self.told_where_broken():
            for block in self._blocks:
                text += block
                num_blank = len(text) - len(text.lstrip())
                start = text.rfind(b"\n", 0, num_blank) + 1
                self._number += text.count(b"\n", 0, start)
                if num_blank < len(text):
                    self._blocks = chain((text[start:],), self._blocks)
                    return text[start : start + 1]
                text = text[start : start + 1]  # of a line of blanks, one is enough
        return b""

    def lines(self) -> Iterator[bytes]:
        """Yield each line, without its end."""
        parts: list[bytes] = []  # of a line that goes on in the next block
        for block in self._blocks:
            first, *others = block.split(b"\n")
            parts.append(first)
            if not others:
                continue
            for line in (b"".join(parts), *others[:-1]):
                self._number += 1
                yield line
            parts = [others[-1]]
        if last := b"".join(parts):
            self._number += 1
            yield last

    def fasta(self) -> Iterator[Part]:
        """Yield each contig by blocks: its header comes with the first of them alone.

        Raises:
            GenomeError: there is no header at the beginning, or one has no name.
        """
        first = self.first_letter()
        if not first:
            raise self.empty()
        if first != b">":
            raise self.error(self.wording.no_header, self.number + 1)
        begun: list[bytes] = []  # a header that goes on in the next block
        at_line_start = True
        with self.told_where_broken():
            for block in self._blocks:
                if begun and b"\n" not in block:
                    begun.append(block)
                    continue
                text = b"".join((*begun, block))
                self._text, self._at = text, 0
                at = 0
                if not (at_line_start and text.startswith(b">")):
                    at = _end_of_contig(text, 0)
                    yield None, text[:at]
                while header_end := text.find(b"\n", at) + 1:
                    self._at = header_end
                    header = self.header(text[at:header_end])
                    at = _end_of_contig(text, header_end)
                    yield header, text[header_end:at]
                begun = [text[at:]] if at < len(text) else []
                self._at = at
                at_line_start = bool(begun) or text.endswith(b"\n")
                self._number, self._text = self.number, b""
        if begun:  # the last line, without an end
            self._number += 1
            yield self.header(b"".join(begun)), b""

    def header(self, line: bytes) -> Header:
        """Return what a header says, the line that was given last.

        Raises:
            GenomeError: it has no name.
        """
        words = line[1:].split(None, 1)  # samtools, too, passes over blanks before the name
        if not words:
            raise self.error(self.wording.no_name)
        return words[0], words[1].rstrip() if len(words) > 1 else b""


def _end_of_contig(text: bytes, start: int) -> int:
    """Return where the next header begins, at `start` or behind it, or else the text ends."""
    at = text.find(b">", start)
    if at < 0:
        return len(text)
    if not at or text[at - 1] != _LF:  # inside a line; two letters take longer to find than one
        return text.find(b"\n>", at) + 1 or len(text)
    return at


def checked(lines: SequenceLines) -> Iterator[Part]:
    """Yield what `lines.fasta()` does, without blanks at the ends of lines, and look at each part.

    Raises:
        GenomeError: at the first line that is not DNA in FASTA.
    """
    held = b""  # a blank that ended a part: nothing but blanks may follow it in its line
    for header, text in lines.fasta():
        if header:
            held = b""
        if held or text.translate(None, LETTERS_AND_ENDS):
            lines.has_blanks = True
            text = held + text
            held = b" " if text.endswith(_BLANKS) else b""
            text = b"\n".join(line.rstrip(b" \t") for line in text.split(b"\n"))
            if text.translate(None, LETTERS_AND_ENDS):
                raise lines.wrong_letter(text, lines.number + 1)
        yield header, text


def check(lines: SequenceLines) -> None:
    """Read a FASTA to its end and raise GenomeError at the first line that is not right."""
    for _ in checked(lines):
        pass

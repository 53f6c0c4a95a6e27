"""One reader of FASTA, FASTQ and plain sequences: all doors give and refuse the same."""

import gzip
import io
import os
import re
import sys
import tempfile
import tracemalloc
from pathlib import Path
from unittest import mock

import pysam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import GenomeError, UserError
from carbon.genome import (
    Interval,
    Reference,
    SequenceRecord,
    pieces,
    read_pieces,
    read_records,
    sequence_lines,
    sequences,
)
from data_pipeline.inputs import file_rows
from data_pipeline.recipe import FilesConfig

words = st.text(alphabet="aZ9.|:>@+-\u00e9", min_size=1, max_size=5)
bases = st.text(alphabet="ACGTUNacgtnRy-", max_size=90)
records = st.lists(
    st.builds(SequenceRecord, words, st.one_of(st.just(""), words), bases),
    min_size=1,
    max_size=4,
    unique_by=lambda record: record.name,
)
layouts = st.tuples(
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 100),  # width of a line
    st.booleans(),  # whether the last line has an end
    st.booleans(),  # whether a blank line comes first
)


def wrapped(text: str, width: int) -> list[str]:
    return [text[at : at + width] for at in range(0, len(text), width)]


def as_fasta(of: SequenceRecord, width: int) -> list[str]:
    return [f">{of.name} {of.description}", *wrapped(of.bases, width)]


def as_fastq(of: SequenceRecord, width: int) -> list[str]:
    quality = ("@+>I" * 30)[: len(of.bases)]
    return [
        f"@{of.name} {of.description}",
        *wrapped(of.bases, width),
        "+",
        *wrapped(quality, width),
    ]


def laid_out(found, of_format, layout) -> bytes:
    end, width, has_last_end, has_blank_line = layout
    lines = [line for record in found for line in of_format(record, width)]
    text = end.join([""] * has_blank_line + lines) + end
    return (text if has_last_end else text.removesuffix(end)).encode()


def bgzip(data: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        with pysam.BGZFile(f"{scratch}/x.gz", "w") as sink:
            sink.write(data)
        return Path(scratch, "x.gz").read_bytes()


PACKINGS = {"plain": bytes, "gzip": lambda data: gzip.compress(data, mtime=0), "bgzip": bgzip}


def through_file(read, data: bytes) -> list:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "x.fa")
        path.write_bytes(data)
        try:
            return list(read(path))
        except GenomeError as error:
            raise GenomeError(str(error).replace(str(path), "FILE")) from None


def through_stdin(read, data: bytes) -> list:
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))
    with mock.patch.object(sys, "stdin", stdin):
        return list(read("-"))


def from_pieces(path, piece_bp=7) -> list[tuple[str, str]]:
    joined: dict[str, str] = {}
    for contig, start, letters in read_pieces(path, piece_bp):
        assert len(letters) <= piece_bp and start == len(joined.get(contig, ""))
        joined[contig] = joined.get(contig, "") + letters.decode()
    return list(joined.items())


def from_index(path) -> list[tuple[str, str]]:
    with Reference(path) as reference:
        return [
            (contig, reference.fetch(Interval(contig, 0, length_bp)))
            for contig, length_bp in reference.contig_lengths_bp.items()
        ]


DOORS = {
    "records of a file": (through_file, read_records),
    "records of stdin": (through_stdin, read_records),
    "pieces of a file": (through_file, from_pieces),
    "pieces of stdin": (through_stdin, from_pieces),
    "an index": (through_file, from_index),
}


def small_blocks(num_bytes: int):
    return mock.patch.object(sequence_lines, "_BLOCK_BYTES", num_bytes)


@pytest.mark.parametrize("of_format", [as_fasta, as_fastq])
@pytest.mark.parametrize("packing", PACKINGS)
@given(found=records, layout=layouts, block=st.integers(1, 60))
def test_records_are_the_same_through_every_door(of_format, packing, found, layout, block):
    data = PACKINGS[packing](laid_out(found, of_format, layout))
    with small_blocks(block):
        assert through_file(read_records, data) == found
        assert through_stdin(read_records, data) == found


@given(found=records, layout=layouts, block=st.integers(1, 60), piece_bp=st.integers(1, 40))
def test_pieces_joined_are_records(found, layout, block, piece_bp):
    data = laid_out(found, as_fasta, layout)
    expected = [(record.name, record.bases) for record in found]
    with small_blocks(block):
        assert through_file(lambda path: from_pieces(path, piece_bp), data) == expected
        assert through_stdin(lambda path: from_pieces(path, piece_bp), data) == expected


def test_a_contig_without_bases_is_one_empty_piece():
    data = b">a\n>b\nAC\n>c"
    assert through_stdin(lambda path: read_pieces(path, 2), data) == [
        ("a", 0, b""), ("b", 0, b"AC"), ("c", 0, b"")
    ]  # fmt: skip


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_door_gives_what_pysam_fetches(tmp_path, packing):
    contigs = {"a": "ACGTN" * 50, "b": "acgtnRYK-" * 11, "c": "T"}
    found = [SequenceRecord(name, "x", letters) for name, letters in contigs.items()]
    text = laid_out(found, as_fasta, ("\n", 13, True, False))
    (tmp_path / "clean.fa").write_bytes(text)
    with pysam.FastaFile(str(tmp_path / "clean.fa")) as fasta:
        expected = [(name, fasta.fetch(name)) for name in fasta.references]
    assert expected == list(contigs.items())
    for door, read in DOORS.values():
        found = door(read, PACKINGS[packing](text))
        assert [(row[0], row[-1]) for row in found] == expected


NO_NAME = "a (contig|record) without a name"
LONE_CR = "lines end in a lone CR"
WRONG = {
    b">a\nAC\n\nA?G!\n": r"line 4: '\?' is not a DNA letter",
    b">a\nAC>\n": "line 2: '>' is not a DNA letter",
    b">a\nAC \nGT\n": "line 2: ' ' is not a DNA letter",
    b">a\n  \n>b\nAC\n": "line 2: ' ' is not a DNA letter",
    b">a\nAC\r\n\xe9\r\n": "line 3: '\u00e9' is not a DNA letter",
    b"\n\nAC\n>a\nAC\n": "line 3: expected a header",
    b" >a\nAC\n": "line 1: expected a header",
    b">a\nAC\n>b\n>a": "line 4: contig 'a' stands twice",
    b">a\n> b\nAC\n": f"line 2: {NO_NAME}",
    b">a\nAC\n>": f"line 3: {NO_NAME}",
    b">a\nAC\n>%b x\n" % (b"n" * 65_001): "line 3: a contig's name of 65,001 letters",
    b"\r\r\n>a\n": f"line 1: {LONE_CR}",
    b">a\rAC\r": f"line 1: {LONE_CR}",
    b">a\nAC\r\r\nA?\n": f"line 2: {LONE_CR}",
    b">a\nAC\rG": f"line 2: {LONE_CR}",
    b">a\nA?\nAC\rG\n": r"line 2: '\?' is not a DNA letter",
    b"": "has no sequence; give a FASTA",
    b" \n\n": "has no sequence; give a FASTA",
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("content", WRONG, ids=lambda content: ascii(content[:30]))
@pytest.mark.parametrize("block", [3, 1 << 16])
def test_every_door_refuses_the_same(door, content, block):
    through, read = DOORS[door]
    for pack in PACKINGS.values():
        with small_blocks(block), pytest.raises(GenomeError) as error:
            through(read, pack(content))
        file = "standard input" if through is through_stdin else "FILE"
        assert re.match(f"{file}:? {WRONG[content]}", str(error.value))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("content", [b">a\nAC\r", b">a\r\nAC\r\n\r", b"\n\r\n>a\nAC"], ids=ascii)
def test_odd_ends_that_are_let_through(door, content):
    through, read = DOORS[door]
    for pack in PACKINGS.values():
        ((name, *_, letters),) = through(read, pack(content))
        assert (name, letters) == ("a", "AC")


@pytest.mark.parametrize("door", [door for door in DOORS if door != "an index"])
def test_spaces_before_the_first_header_are_no_bases(door):
    """But samtools indexes no such file."""
    through, read = DOORS[door]
    ((name, *_, letters),) = through(read, b"  \n>a\nAC\n")
    assert (name, letters) == ("a", "AC")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("packing", ["gzip", "bgzip"])
def test_a_stream_that_breaks_off_is_told(door, packing):
    through, read = DOORS[door]
    whole = PACKINGS[packing](b">a\n" + b"ACGTTGCA\n" * 999)
    for cut in (1, 28, len(whole) // 2):
        with pytest.raises(GenomeError, match=r"fetch (it )?again"):
            through(read, whole[:-cut])


@pytest.mark.parametrize("door", ["records of stdin", "pieces of a file", "pieces of stdin"])
def test_what_is_good_before_a_break_is_counted(door):
    through, read = DOORS[door]
    with pytest.raises(GenomeError, match=r"line 3"):
        through(read, gzip.compress(b">a\nACGT\nACGT\nAC", mtime=0)[:-4])


@pytest.mark.parametrize("door", DOORS)
def test_a_file_is_checked_once(door):
    through, read = DOORS[door]
    check = mock.Mock(wraps=sequence_lines.checked)
    with (
        mock.patch.object(sequence_lines, "checked", check),
        mock.patch.object(pieces, "checked", check),
        mock.patch.object(sequences, "checked", check),
    ):
        through(read, b">a x\nACGT\nAC\n>b\nGGT\n")
    check.assert_called_once()


def test_a_record_is_given_before_the_next_is_written():
    reading, writing = os.pipe()
    with (
        os.fdopen(writing, "wb", buffering=0) as sink,
        os.fdopen(reading, "rb") as source,
        mock.patch.object(sys, "stdin", io.TextIOWrapper(source)),
    ):
        found = read_records("-")
        sink.write(b">a\nAC\n>b\nG")
        assert next(found) == ("a", "", "AC")
        sink.write(b"T\n")
        sink.close()
        assert list(found) == [("b", "", "GT")]


def test_a_long_line_is_read_in_little_memory(tmp_path):
    path = tmp_path / "x.fa"
    path.write_bytes(b">a\n" + b"ACGT" * (1 << 21))  # 8 MiB
    tracemalloc.start()
    num_bases = sum(len(piece.bases) for piece in read_pieces(path, 6000))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_bases == 1 << 23 and most_bytes < 1 << 20


@pytest.mark.parametrize("packing", ["plain", "gzip"])
@given(found=st.lists(st.text(alphabet="ACGTNacgtr-", min_size=1, max_size=40), min_size=1),
       end=st.sampled_from(["\n", "\r\n", "\n\n"]), block=st.integers(1, 60))  # fmt: skip
def test_plain_sequences_are_lines(packing, found, end, block):
    data = PACKINGS[packing](("\ufeff" + end.join(found)).encode())

    def read(path):
        return [
            row["sequence"] for row in file_rows(path, FilesConfig(path=str(path), source="mrna"))
        ]

    with small_blocks(block):
        assert through_file(read, data) == found


def test_plain_sequences_with_lone_cr_are_refused(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"ACGT\nAC\rGT\n")
    with pytest.raises(UserError, match=f"x.txt line 2: {LONE_CR}"):
        list(file_rows(path, FilesConfig(path=str(path), source="mrna")))

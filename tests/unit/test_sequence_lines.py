"""One reader of FASTA, FASTQ and plain sequences: all doors give and refuse the same."""

import gzip
import io
import os
import re
import sys
import tempfile
import tracemalloc
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError, UserError
from carbon.genome import (
    Interval,
    Reference,
    SequenceRecord,
    VcfReader,
    read_chunks,
    read_records,
    read_sequences,
    sequences,
    unpack_genbank,
)
from carbon.genome.alphabet import as_dna, checked_sequence, why_protein
from carbon.genome.gff import read_features
from carbon.inference.checks import checked_dna
from data_pipeline.inputs.evaluations import evaluation_places
from data_pipeline.inputs.files import file_rows
from data_pipeline.recipe import AssemblyConfig, EvaluationConfig, FilesConfig

words = st.text(alphabet="aZ9.|:>@+-\u00e9", min_size=1, max_size=5)
bases = st.text(alphabet="ACGTUNacgtnRy-", max_size=90).filter(
    lambda text: not why_protein(text.encode())
)
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
    for contig, start, letters in read_chunks(path, piece_bp):
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
    return mock.patch.object(sequences, "_BLOCK_BYTES", num_bytes)


# Each door meets each packing; blocks alternate, so that each of both meets each size.
WAYS = [
    (door, packing, (3, 1 << 16)[number % 2])
    for number, (door, packing) in enumerate(product(DOORS, PACKINGS))
]
STREAMED = [way for way in WAYS if way[0] != "an index"]


def packed(data: bytes) -> dict[str, bytes]:
    return {name: pack(data) for name, pack in PACKINGS.items()}


def read_in(way, packings: dict[str, bytes]) -> list:
    door, packing, block = way
    through, read = DOORS[door]
    with small_blocks(block):
        return through(read, packings[packing])


def names_and_bases(found) -> list[tuple[str, str]]:
    return [(row[0], row[-1]) for row in found]


NO_NAME = "a record without a name"
LONE_CR = "lines end in a lone CR"
WRONG = {
    b">a\nAC\n\nA?G!\n": r"line 4: '\?' is not a DNA letter",
    b">a\nAC>\n": "line 2: '>' is not a DNA letter",
    b">a\nAC GT\n": "line 2: ' ' is not a DNA letter",
    b">a\n A\n>b\nAC\n": "line 2: ' ' is not a DNA letter",
    b">a\nAC\nA\tC \n": r"line 3: '\\t' is not a DNA letter",
    b">a\nAC\r\n\xe9\r\n": "line 3: '\u00e9' is not a DNA letter",
    b"\n\nAC\n>a\nAC\n": "line 3: expected a header",
    b" >a\nAC\n": "line 1: expected a header",
    b">a\n> \nAC\n": f"line 2: {NO_NAME}",
    b">a\nAC\n>": f"line 3: {NO_NAME}",
    b">a\nAC\n>\xe9 x\nAC\n": r"line 3: the name b'\\xe9' is not UTF-8; convert the file",
    b">a\nA\0C\n": r"line 2: '\\x00' is not a DNA letter",
    b"\r\r\n>a\n": f"line 1: {LONE_CR}",
    b">a\rAC\r": f"line 1: {LONE_CR}",
    b">a\nAC\r\r\nA?\n": f"line 2: {LONE_CR}",
    b">a\nAC\rG": f"line 2: {LONE_CR}",
    b">a\nA?\nAC\rG\n": r"line 2: '\?' is not a DNA letter",
    b"": "has no sequence; give a FASTA",
    b" \n\n": "has no sequence; give a FASTA",
}


@pytest.mark.parametrize("content", WRONG, ids=lambda content: ascii(content[:30]))
def test_every_door_refuses_the_same(content):
    packings = packed(content)
    for way in WAYS:
        with pytest.raises(GenomeError) as error:
            read_in(way, packings)
        file = "standard input" if DOORS[way[0]][0] is through_stdin else "FILE"
        assert re.match(f"{file}:? {WRONG[content]}", str(error.value)), way


def test_utf_16_is_named():
    for (through, read), encoding in product(DOORS.values(), ("utf-16-le", "utf-16-be")):
        with pytest.raises(GenomeError, match=r"is UTF-16 text; convert it"):
            through(read, "\ufeff>a\nACGT\n".encode(encoding))


# What htslib 1.x makes of it, by `samtools faidx` or (a mark) as kseq reads.
AS_SAMTOOLS_READS = {
    b"> a x\nAC\n": [("a", "AC")],
    b">\ta\nAC\n": [("a", "AC")],
    b">a\nACG  \nACG  \nT \t\n>b\nG": [("a", "ACGACGT"), ("b", "G")],
    b">a x \nACG\nT  \n  \n>b\nG ": [("a", "ACGT"), ("b", "G")],
    b">a\nAC \r\nGT\t\r\n": [("a", "ACGT")],
    b"\xef\xbb\xbf>a\nAC\n": [("a", "AC")],
    b">a\nAC\r": [("a", "AC")],
    b">a\r\nAC\r\n\r": [("a", "AC")],
    b"\n\r\n>a\nAC": [("a", "AC")],
}
# samtools indexes no such file.
STREAMED_ALONE = {
    b"  \n>a\nAC\n": [("a", "AC")],
    b">a\n  \n>b\nAC\n \n": [("a", ""), ("b", "AC")],
}


@pytest.mark.parametrize("content", AS_SAMTOOLS_READS | STREAMED_ALONE, ids=ascii)
def test_blanks_ends_and_a_mark_are_read_as_samtools_reads_them(content):
    packings = packed(content)
    for door, packing, block in WAYS if content in AS_SAMTOOLS_READS else STREAMED:
        for size in (1, block):
            found = names_and_bases(read_in((door, packing, size), packings))
            assert found == (AS_SAMTOOLS_READS | STREAMED_ALONE)[content], (door, packing, size)


@pytest.mark.parametrize("of_format", [as_fasta, as_fastq])
@settings(max_examples=60)
@given(
    found=records, layout=layouts, block=st.integers(1, 60), packing=st.sampled_from([*PACKINGS]),
    piece_bp=st.integers(1, 40),
)  # fmt: skip
def test_records_are_the_same_through_every_door(
    of_format, packing, found, layout, block, piece_bp
):
    data = PACKINGS[packing](laid_out(found, of_format, layout))
    expected = [record._replace(bases=as_dna(record.bases)) for record in found]
    with small_blocks(block):
        for through in (through_file, through_stdin):
            assert through(read_records, data) == expected
            if of_format is as_fasta:
                pieces = through(lambda path: from_pieces(path, piece_bp), data)
                assert pieces == names_and_bases(expected)


def test_names_may_be_repeated_where_records_are_streamed():
    """But which of the two is meant by a name cannot be told."""
    data = b">a x\nACGT\n>a y\nGG\n"
    for through in (through_file, through_stdin):
        assert through(read_records, data) == [("a", "x", "ACGT"), ("a", "y", "GG")]
        assert [piece[:3] for piece in through(lambda path: read_chunks(path, 3), data)] == [
            ("a", 0, b"ACG"), ("a", 3, b"T"), ("a", 0, b"GG")
        ]  # fmt: skip
    for pack in PACKINGS.values():
        with pytest.raises(GenomeError, match="FILE line 3: contig 'a' occurs twice"):
            through_file(from_index, pack(data))


def test_a_name_longer_than_an_index_can_hold():
    data = b">a\nAC\n>%b x\n" % (b"n" * 65_001)
    assert len(through_file(read_records, data)) == 2
    with pytest.raises(GenomeError, match="FILE line 3: a contig's name of 65,001 letters"):
        through_file(from_index, data)


LONG_LINES = {
    "sequence": (b">a x\nACGT\n" + b"A" * 500 + b"\nAC\n", 3),
    "header": (b">a\nACGT\n>b" + b"x" * 500 + b"\nAC\n", 3),
    "header of blanks": (b">a\n>" + b" " * 500, 2),
    "blanks first": (b"\n" + b" " * 500 + b">a\nAC\n", 2),
    "no end": (b">a\n" + b"A" * 500, 2),
    "quality": (b"@a\nAC\n+\nI" + b"I" * 500, 4),
}


@pytest.mark.parametrize("where", LONG_LINES)
def test_a_line_has_a_bound(where, monkeypatch):
    monkeypatch.setattr(sequences, "MOST_LINE_BYTES", 300)
    content, line = LONG_LINES[where]
    packings = packed(content)
    ways = [way for way in WAYS if way[0].startswith("records")] if content[:1] == b"@" else WAYS
    for number, (door, packing, _) in enumerate(ways):
        with pytest.raises(GenomeError, match=f" line {line}: a line of more than 300 bytes"):
            read_in((door, packing, (1, 7, 64)[number % 3]), packings)


@pytest.mark.parametrize("packing", ["gzip", "bgzip"])
def test_a_stream_that_breaks_off(packing):
    whole = PACKINGS[packing](b">a\n" + b"ACGTTGCA\n" * 999)
    for (through, read), cut in product(DOORS.values(), (1, 28, len(whole) // 2)):
        with pytest.raises(GenomeError, match=r"fetch (it )?again"):
            through(read, whole[:-cut])
    for door in ("records of stdin", "pieces of a file", "pieces of stdin"):
        through, read = DOORS[door]
        with pytest.raises(GenomeError, match="line 3"):  # as many as are good before
            through(read, gzip.compress(b">a\nACGT\nACGT\nAC", mtime=0)[:-4])


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
    path.write_bytes(b">a\n" + b"ACGT" * (1 << 20))  # 4 MiB
    tracemalloc.start()
    num_bases = sum(len(piece.bases) for piece in read_chunks(path, 6000))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_bases == 1 << 22 and most_bytes < 1 << 20


@given(packing=st.sampled_from(["plain", "gzip"]),
       found=st.lists(st.text(alphabet="ACGTNacgtr-", min_size=1, max_size=40), min_size=1),
       end=st.sampled_from(["\n", "\r\n", "\n\n"]), block=st.integers(1, 60))  # fmt: skip
def test_plain_sequences_are_lines(packing, found, end, block):
    data = PACKINGS[packing](("\ufeff" + end.join(found)).encode())

    def read(path):
        return [
            row["sequence"] for row in file_rows(path, FilesConfig(path=str(path), source="mrna"))
        ]

    with small_blocks(block):
        assert through_file(read, data) == found


@pytest.mark.parametrize(
    ("what", "pack"),
    [
        ("gff3", bytes),
        ("bed", gzip.compress),
        ("txt", gzip.compress),
        ("gb", bytes),
        ("vcf", gzip.compress),
    ],
)
def test_a_line_of_any_text_has_a_bound(pack, what, tmp_path, monkeypatch):
    monkeypatch.setattr(sequences, "MOST_LINE_BYTES", 300)
    path = tmp_path / f"x.{what}"
    readers = {
        "gff3": lambda: list(read_features(path)),
        "bed": lambda: evaluation_places(
            EvaluationConfig(path=str(path), assembly="a"), AssemblyConfig(genome="g.fa"), {}
        ),
        "txt": lambda: list(file_rows(path, FilesConfig(path=str(path), source="mrna"))),
        "gb": lambda: unpack_genbank(path, tmp_path / "x.fa"),
        "vcf": lambda: VcfReader(path, SimpleNamespace()),
    }
    first = {"gb": b"LOCUS       x\n", "txt": b"ACGT\n", "vcf": b"##fileformat=VCFv4.3\n"}
    path.write_bytes(pack(first.get(what, b"# x\n") + b"A" * 700 + b"\n"))
    told = r"line [12]: a line of more than 300 bytes"
    with small_blocks(64), pytest.raises(UserError, match=told):
        readers[what]()


@pytest.mark.parametrize(
    ("letters", "share"),
    [
        ("MAVSKVYARSVYDSRGN", "13 of 17"),  # A three times and G count as bases, N as a gap
        ("acgrysw", "4 of 7"),
        ("ACGRYS", None),  # no more than half
        ("NNNNNNNNRY", None),
        ("RYSWK", None),  # too short to judge
    ],
)
def test_a_sequence_of_codes_for_several_bases_looks_like_a_protein(tmp_path, letters, share):
    path = tmp_path / "s.fa"
    path.write_text(f">dna\nACGT\n>second\n{letters[:3]}\n{letters[3:]}\n")
    fastq = tmp_path / "s.fq"
    fastq.write_text(f"@second\n{letters}\n+\n{'I' * len(letters)}\n")
    if share is None:
        assert [bases for _, bases in read_sequences(path)] == ["ACGT", letters]
        return
    message = f"{share} letters are codes for two or three bases; is this a protein"
    for read in (
        lambda: read_sequences(path),  # before the first record
        lambda: list(read_sequences(fastq)),
        lambda: checked_sequence(letters, "prompt 1"),
        lambda: list(checked_dna(["ACGT", letters])),
    ):
        with pytest.raises(UserError, match=f"(record 'second'|prompt 1|item 2): {message}"):
            read()


def test_plain_sequences_with_lone_cr_are_refused(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"ACGT\nAC\rGT\n")
    with pytest.raises(UserError, match=f"x.txt line 2: {LONE_CR}"):
        list(file_rows(tmp_path / "x.txt", FilesConfig(path="x.txt", source="mrna")))

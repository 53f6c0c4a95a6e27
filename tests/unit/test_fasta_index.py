"""An index beside a FASTA is held against it: a wrong one is never used."""

import os
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import Interval, Reference, fasta
from tests.helpers.files import random_bases

layouts = st.tuples(
    st.lists(st.integers(0, 150), min_size=1, max_size=5),  # bases of each contig
    st.integers(1, 70),  # of a line
    st.sampled_from(["\n", "\r\n", " \n"]),
    st.sampled_from(["", " of something"]),
    st.booleans(),  # whether the last line has an end
)
NUMBERS = ("length", "offset", "line bases", "line bytes")
damages = st.one_of(
    st.tuples(st.sampled_from(NUMBERS), st.integers(0, 4), st.integers(-130, 130)),
    st.tuples(st.just("both of the line"), st.integers(0, 4), st.integers(-70, 70)),
    st.tuples(st.just("names swapped"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("left out"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("twice"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("order"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("cut"), st.integers(1, 30), st.just(0)),
)


def laid_out(lengths_bp, width, end, description, has_last_end) -> tuple[str, dict[str, str]]:
    contigs = {f"c{n}": random_bases(bp, n) for n, bp in enumerate(lengths_bp)}
    lines = []
    for name, bases in contigs.items():
        lines += [f">{name}{description}"]
        lines += [bases[at : at + width] for at in range(0, len(bases), width)]
    text = end.join(lines) + end
    return (text if has_last_end else text.removesuffix(end)), contigs


def damaged(index: str, how: str, which: int, by: int) -> str:
    rows = [line.split("\t") for line in index.splitlines()]
    row = rows[which % len(rows)]
    if how in NUMBERS:
        column = 1 + NUMBERS.index(how)
        row[column] = str(int(row[column]) + by)
    elif how == "both of the line":
        row[3:] = [str(int(number) + by) for number in row[3:]]
    elif how == "names swapped":
        other = rows[by % len(rows)]
        row[0], other[0] = other[0], row[0]
    elif how == "left out":
        rows.remove(row)
    elif how == "twice":
        rows.append(row)
    elif how == "order":
        rows.sort(key=lambda each: each is row)
    text = "".join("\t".join(each) + "\n" for each in rows)
    return text[:-which] if how == "cut" else text


def all_bases(path: Path) -> dict[str, str]:
    with Reference(path) as reference:
        return {
            name: reference.fetch(Interval(name, 0, length_bp))
            for name, length_bp in reference.contig_lengths_bp.items()
        }


@settings(max_examples=50)
@given(packing=st.sampled_from(["plain", "bgzip"]), layout=layouts, damage=damages)
@example(layout=([150], 60, "\n", "", True), damage=("offset", 0, 1), packing="plain")
@example(layout=([150], 60, "\n", "", True), damage=("line bytes", 0, 1), packing="plain")
@example(layout=([121, 3], 60, "\n", "", True), damage=("both of the line", 0, 61), packing="plain")
def test_a_wrong_index_is_never_used(packing, layout, damage):
    text, contigs = laid_out(*layout)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "g.fa")
        path.write_text(text)
        if packing == "bgzip":
            pysam.tabix_compress(str(path), f"{path}.gz")
            path = Path(f"{path}.gz")
        try:
            expected = all_bases(path)
        except GenomeError:  # samtools does not index it either
            return
        assert expected == {name: bases for name, bases in contigs.items() if name in expected}
        fai = Path(f"{path}.fai")
        fai.write_text(damaged(fai.read_text(), *damage))
        os.utime(fai, (2**32, 2**32))
        assert all_bases(path) == expected


def blocks_of(path: Path) -> list[int]:
    return np.fromfile(f"{path}.gzi", dtype="<u8").tolist()


@pytest.fixture(scope="module")
def several_blocks(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("bgzip")
    text, contigs = laid_out([150_000, 10, 90_000, 65_000], 60, "\n", " x", True)
    (folder / "g.fa").write_text(text)
    pysam.tabix_compress(str(folder / "g.fa"), str(folder / "g.fa.gz"))
    return folder / "g.fa.gz", contigs


@pytest.mark.parametrize(
    ("number", "by"),
    [(n, (-1, 30, 1, -(1 << 16))[n % 4]) for n in range(9)],
)
def test_wrong_blocks_of_a_bgzip(several_blocks, tmp_path, number, by):
    """Also of a block in the middle of a contig."""
    path = Path(shutil.copy(several_blocks[0], tmp_path))
    assert all_bases(path) == several_blocks[1]
    blocks = blocks_of(path)
    assert len(blocks) == 9  # their number, and where four of them begin
    blocks[number] = (blocks[number] + by) % 2**64
    np.array(blocks, dtype="<u8").tofile(f"{path}.gzi")
    assert all_bases(path) == several_blocks[1]
    assert blocks_of(path) != blocks


@pytest.mark.parametrize("width", [999, 1000])
def test_lines_that_are_not_held_in_memory(tmp_path, monkeypatch, width):
    monkeypatch.setattr(fasta, "_LINE_BYTES", 100)
    text, contigs = laid_out([4000, 1000, 3], width, "\n", "", True)
    path, index = tmp_path / "g.fa", tmp_path / "g.fa.fai"
    path.write_text(text)
    assert all_bases(path) == contigs
    right = index.read_text()
    index.write_text(
        right.replace(f"\t{width}\t{width + 1}\n", f"\t{2 * width + 1}\t{2 * width + 2}\n")
    )
    assert all_bases(path) == contigs
    assert index.read_text() == right


def test_a_right_index_is_used(several_blocks, tmp_path, monkeypatch):
    path = Path(shutil.copy(several_blocks[0], tmp_path))
    plain = path.with_suffix("")
    plain.write_text(several_blocks[0].with_suffix("").read_text())
    for each in (path, plain):
        pysam.faidx(str(each))
    monkeypatch.delattr(fasta, "_build_indexes")
    for each in (path, plain):
        assert all_bases(each) == several_blocks[1]


def test_every_contig_of_many_is_looked_at(tmp_path):
    path, fai = tmp_path / "g.fa", tmp_path / "g.fa.fai"
    path.write_text("".join(f">c{n}\n{'ACGT' * 20}\n" for n in range(5000)))
    Reference(path).close()
    rows = fai.read_text().splitlines()
    at = random.Random(0).randrange(1, 4999)
    name, length, offset, *line = rows[at].split("\t")
    rows[at] = "\t".join((name, length, str(int(offset) + 1), *line))
    fai.write_text("\n".join(rows) + "\n")
    with Reference(path) as reference:
        assert reference.fetch(Interval(name, 0, 6)) == "ACGTAC"


@pytest.mark.parametrize("line", ["", "\n"])
def test_contigs_without_bases_are_reported_and_left_out(tmp_path, capsys, line):
    (path := tmp_path / "r.fa").write_text(f">e\n>a\nACGTA\nCG\n>b of it\n{line}>c\nGGCA\n")
    said = []
    for _ in range(2):  # the second time by the index of the first
        with Reference(path) as reference:
            assert reference.contig_lengths_bp == {"a": 7, "c": 4}
            assert reference.fetch(Interval("c", 1, 4)) == "GCA"
        said.append(capsys.readouterr().err)
    assert said == [f"{path}: contigs without bases are left out: 2 ('e', 'b')\n", ""]

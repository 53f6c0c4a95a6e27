"""A damaged journal is the beginning of what was written, or is refused."""

import os

import pytest

from carbon.errors import UserError
from carbon.io.files import scratch_folder
from carbon.parallel.journal import Journal

JOB = {"model": "m", "offsets": [0, 3]}
BLOCKS = [[[0.5, None, number, "telomere"]] * 3 for number in range(6)]
NAME = ".o.tsv.progress"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("journal")
    with Journal(folder / "o.tsv", JOB, resume=False) as journal:
        for block in BLOCKS:
            journal.add(block)
        return (folder / NAME).read_bytes()


def reopened(folder, content):
    """Return the blocks that a resumed run finds, None where the journal is refused untouched."""
    path = folder / NAME
    path.write_bytes(content)
    try:
        with Journal(folder / "o.tsv", JOB, resume=True) as journal:
            return list(journal.blocks())
    except UserError as error:
        assert str(error).startswith(f"{path}: is damaged") and "\n" not in str(error)
        assert path.read_bytes() == content
        return None


def test_every_truncation_is_a_beginning(tmp_path, whole):
    for size in range(len(whole) + 1):
        kept = reopened(tmp_path, whole[:size])
        assert kept == BLOCKS[: max(0, whole[:size].count(b"\n") - 1)]


def test_every_changed_byte_is_refused(tmp_path, whole):
    for at in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        kept = reopened(tmp_path, bytes(changed))
        # Without its last newline a line is torn, and is cut off.
        assert kept is None or (whole[at:] == b"\n" and kept == BLOCKS[:-1])


def test_lines_that_are_missing_doubled_or_in_another_order_are_refused(tmp_path, whole):
    lines = whole.splitlines(keepends=True)
    for order in ([2, 3, 4, 5, 6], [0, 2, 3], [0, 1, 1, 2], [0, 2, 1, 3], [0, 1, 2, 3, 4, 5, 6, 6]):
        assert reopened(tmp_path, b"".join(lines[number] for number in order)) is None
    for other in (b"[]\n", b"null\n", b'{"model": "m", "offsets": [0, 3]}\n[[1]]\n', b"\xff\n"):
        assert reopened(tmp_path, other) is None


@pytest.mark.parametrize("is_scratch", [False, True])
def test_a_scratch_output_has_nothing_to_resume(tmp_path, monkeypatch, capsys, is_scratch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with scratch_folder("test") as scratch:
        folder = scratch if is_scratch else tmp_path
        with pytest.raises(KeyError), Journal(folder / "o.tsv", JOB, resume=False) as journal:
            synced.clear()
            journal.add(BLOCKS[0])
            assert list(journal.blocks()) == [BLOCKS[0]]
            raise KeyError
        assert (folder / NAME).exists() is not is_scratch
    assert bool(synced) is not is_scratch
    assert ("--resume" in capsys.readouterr().err) is not is_scratch


def test_a_block_may_be_longer_than_the_first_line(tmp_path, whole, monkeypatch):
    """The values of a chromosome, base by base, are one block."""
    monkeypatch.setattr("carbon.parallel.journal.MAX_BYTES", 100)
    with Journal(tmp_path / "o.tsv", JOB, resume=False) as journal:
        journal.add("A" * 1000)
        content = (tmp_path / NAME).read_bytes()
    assert reopened(tmp_path, content + b"torn") == ["A" * 1000]
    (tmp_path / NAME).write_bytes(b"0" * 101)
    with pytest.raises(UserError, match="line 1 is too long; remove the file"):
        Journal(tmp_path / "o.tsv", JOB, resume=True)

"""A damaged journal is the beginning of what was written, or is refused."""

import random

import pytest

from carbon.blocks.journal import Journal
from carbon.errors import UserError

JOB = {"model": "m", "frames": [0, 3]}
BLOCKS = [[[0.5, None, number, "telomere"]] * 3 for number in range(6)]
NAME = ".o.tsv.progress"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder / "o.tsv", JOB, resume=False)
    for block in BLOCKS:
        journal.add(block)
    journal.say_what_is_kept()
    return (folder / NAME).read_bytes()


def reopened(folder, content):
    """Return the blocks that a resumed run finds, None where the journal is refused untouched."""
    path = folder / NAME
    path.write_bytes(content)
    try:
        journal = Journal(folder / "o.tsv", JOB, resume=True)
    except UserError as error:
        assert str(error).startswith(f"{path}: is damaged") and "\n" not in str(error)
        assert path.read_bytes() == content
        return None
    kept = list(journal.kept())
    journal.remove()
    return kept


def test_every_truncation_is_a_beginning(tmp_path, whole):
    for size in range(len(whole) + 1):
        kept = reopened(tmp_path, whole[:size])
        assert kept == BLOCKS[: max(0, whole[:size].count(b"\n") - 1)]


def test_mutations_are_refused_or_are_a_beginning(tmp_path, whole):
    draw = random.Random(0)
    num_refused = 0
    for _ in range(200):
        content, at = bytearray(whole), draw.randrange(len(whole))
        change = draw.choice(["byte", "insert", "delete", "newline"])
        if change == "byte":
            content[at] ^= 1 << draw.randrange(8)
        elif change == "delete":
            del content[at : at + draw.randrange(1, 80)]
        else:
            content[at:at] = b"\n" if change == "newline" else draw.randbytes(3)
        kept = reopened(tmp_path, bytes(content))
        assert kept is None or kept == BLOCKS[: len(kept)]
        num_refused += kept is None
    assert num_refused > 170


def test_lines_that_are_missing_doubled_or_in_another_order_are_refused(tmp_path, whole):
    lines = whole.splitlines(keepends=True)
    for order in ([2, 3, 4, 5, 6], [0, 2, 3], [0, 1, 1, 2], [0, 2, 1, 3], [0, 1, 2, 3, 4, 5, 6, 6]):
        assert reopened(tmp_path, b"".join(lines[number] for number in order)) is None
    for other in (b"[]\n", b"null\n", b'{"model": "m", "frames": [0, 3]}\n[[1]]\n', b"\xff\n"):
        assert reopened(tmp_path, other) is None

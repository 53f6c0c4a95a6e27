"""What messages call a path that cannot be read, and an output for which there is no room."""

import errno
import os

import pytest

from carbon.errors import GenomeError
from carbon.genome import Reference
from carbon.io.files import errors_naming, why_no_file


def test_what_stands_in_the_way_is_named(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    expected = {
        "absent": "no such file",
        "": "is a folder",
        "loop": "symbolic link",
        "pipe": "pipe",
    }
    for name, words in expected.items():
        assert words in why_no_file(tmp_path / name)
        with pytest.raises(GenomeError, match=words):
            Reference(tmp_path / name)


def test_an_output_without_room_has_its_name_and_the_words_of_the_system():
    arrow = "Error writing bytes to file. Detail: [errno 28] No space left on device"
    with pytest.raises(OSError) as error, errors_naming("out.parquet"):
        raise OSError(errno.ENOSPC, arrow)
    assert (error.value.filename, error.value.strerror) == (
        "out.parquet",
        "No space left on device",
    )

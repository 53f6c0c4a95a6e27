"""Files that are whole or absent: what is on the disk when, and who writes under which name."""

import os
import threading
from pathlib import Path

import pytest

from carbon import files
from carbon.files import atomic_file, atomic_folder


@pytest.fixture
def done(monkeypatch) -> list[tuple[str, str]]:
    """What was synced and renamed, in order, by name."""
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        calls.append(("sync", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        calls.append(("rename", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(files.os, "replace", renamed)
    return calls


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, done):
    with atomic_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("whole")
    assert done == [("sync", temporary.name), ("rename", "a.txt"), ("sync", tmp_path.name)]


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path, done):
    with atomic_folder(tmp_path / "a") as temporary:
        (temporary / "below").mkdir()
        (temporary / "below" / "x").write_text("whole")
        (temporary / "y").write_text("whole")
    renamed = done.index(("rename", "a"))
    of_content = {("sync", name) for name in (temporary.name, "below", "x", "y")}
    assert set(done[:renamed]) == of_content
    assert done[renamed + 1 :] == [("sync", tmp_path.name)]


def test_a_file_system_that_cannot_sync_folders_is_no_error(tmp_path, monkeypatch):
    fsync = os.fsync

    def of_files(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(22, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr(files.os, "fsync", of_files)
    with atomic_folder(tmp_path / "a") as temporary:
        (temporary / "x").write_text("whole")
    assert (tmp_path / "a" / "x").read_text() == "whole"


def test_a_disk_that_fails_leaves_the_earlier_file(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("old")

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"), atomic_file(tmp_path / "a.txt") as new:
        new.write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


def test_two_writers_of_one_path_never_share_a_temporary_name(tmp_path, monkeypatch):
    """Also not in two containers of equal host name, whose processes have equal numbers."""
    with atomic_file(tmp_path / "a.txt") as first, atomic_file(tmp_path / "a.txt") as second:
        assert first != second
        first.write_text("the first, which is longer")
        second.write_text("the second")
    assert (tmp_path / "a.txt").read_text() == "the first, which is longer"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_threads_that_write_one_path_leave_one_whole_file(tmp_path):
    texts = [f"{number}\n" * 100_000 for number in range(8)]
    errors = []

    def write(text: str) -> None:
        try:
            with atomic_file(tmp_path / "a.txt") as temporary, temporary.open("w") as sink:
                sink.writelines(text.splitlines(keepends=True))
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and (tmp_path / "a.txt").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]

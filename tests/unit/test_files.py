"""Files that are whole or absent: what is on the disk when, and who writes under which name."""

import errno
import os
import shutil
import signal
import traceback
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path

import pytest

from carbon.errors import GenomeError
from carbon.genome import Reference
from carbon.io import files
from carbon.io.files import atomic_file, atomic_folder, errors_naming


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


def test_a_file_is_created_once_and_whole(tmp_path, done):
    (tmp_path / "b.txt").write_text("old")
    for name in ("a.txt", "b.txt"):
        with suppress(FileExistsError), atomic_file(tmp_path / name, replace=False) as temporary:
            temporary.write_text("new")
    assert [kind for kind, _ in done] == ["sync", "sync", "sync"]  # no rename
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.txt": "new",
        "b.txt": "old",
    }


def write(kind: str, target: Path) -> None:
    if kind == "folder":
        with atomic_folder(target) as folder:
            (folder / "x").write_text("new")
            (folder / "y").write_text("new")
        return
    with atomic_file(target, replace=kind == "replaced") as file, file.open("w") as sink:
        sink.write("n")
        sink.flush()
        sink.write("ew")


def killed_at(moment: int, kind: str, target: Path) -> bool:
    """Write in a fork that is killed before its nth call of the system; return whether it was."""
    child = os.fork()
    if child == 0:
        calls = iter(range(moment))

        def counted(function):
            def call(*given, **more):
                if next(calls, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*given, **more)

            return call

        for name in ("open", "close", "fsync", "replace", "link", "unlink", "mkdir", "listdir"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            write(kind, target)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


@pytest.mark.parametrize(
    "kind",
    [
        "replaced",
        pytest.param("created", marks=pytest.mark.nightly),
        pytest.param("folder", marks=pytest.mark.nightly),
    ],
)
def test_what_is_killed_at_any_moment_is_whole_or_absent(tmp_path, kind):
    seen = set()
    for moment in count():
        # A folder for each: what a killed process has left takes calls of the next one.
        target = tmp_path / str(moment) / "a"
        target.parent.mkdir()
        if kind == "replaced":
            target.write_text("old")
        if not killed_at(moment, kind, target):
            break
        files = sorted(target.iterdir()) if kind == "folder" and target.is_dir() else [target]
        texts = [path.read_text() for path in files if path.exists()]
        assert texts in ([], ["old"], ["new"], ["new", "new"])
        seen.add(str(texts))
    assert len(seen) == 2 and moment > 5  # before the rename, and after it
    for folder in tmp_path.iterdir():
        for left in folder.iterdir():
            os.utime(left, (1, 1))
        target = folder / "a"
        write(kind, folder / "b")
        shutil.rmtree(target, ignore_errors=True) if kind == "folder" else target.unlink(True)
        write(kind, target)  # and removes what the killed have left
        assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_two_writers_of_one_path_never_share_a_temporary_name(tmp_path):
    """Also not in two containers of equal host name, whose processes have equal numbers."""
    with atomic_file(tmp_path / "a.txt") as first, atomic_file(tmp_path / "a.txt") as second:
        assert first != second
        first.write_text("the first, which is longer")
        second.write_text("the second")
    assert (tmp_path / "a.txt").read_text() == "the first, which is longer"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(("of_folders", "left"), [(True, "new"), (False, "old")])
def test_a_disk_that_fails_leaves_the_earlier_file(tmp_path, monkeypatch, of_folders, left):
    """But a file system that cannot sync folders is no error."""
    (tmp_path / "a.txt").write_text("old")
    fsync = os.fsync

    def fail(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}") == of_folders:
            raise OSError(5, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(files.os, "fsync", fail)
    with (
        nullcontext() if of_folders else pytest.raises(OSError, match="Input/output error"),
        atomic_file(tmp_path / "a.txt") as new,
    ):
        new.write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": left}


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
        with pytest.raises(GenomeError, match=words):
            Reference(tmp_path / name)


def test_an_output_without_room_has_its_name_and_the_words_of_the_system():
    arrow = "Error writing bytes to file. Detail: [errno 28] No space left on device"
    with pytest.raises(OSError) as error, errors_naming("out.parquet"):
        raise OSError(errno.ENOSPC, arrow)
    told = error.value.filename, error.value.strerror
    assert told == ("out.parquet", "No space left on device")

"""The lock of a folder: one run holds it, a second is refused, an ended one leaves it free."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from carbon import locks
from carbon.console import run_command
from carbon.errors import UserError
from carbon.locks import locked_folder, locked_output

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from carbon.locks import locked_folder
with locked_folder(sys.argv[1]):
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holding(tmp_path):
    """Another process that holds the lock of `tmp_path / "run"`."""
    words = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def lock_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / ".lock").read_text())


def write_lock(folder: Path, age_seconds: float, **changed: object) -> None:
    """Write a lock of this process, but for what is changed, last renewed some time ago."""
    folder.mkdir()
    with locked_folder(folder):
        content = lock_of(folder) | changed
    (folder / ".lock").write_text(json.dumps(content))
    renewed = time.time() - age_seconds
    os.utime(folder / ".lock", (renewed, renewed))


def without_flock(monkeypatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", flock)


def is_free(folder: Path) -> bool:
    try:
        with locked_folder(folder):
            return True
    except UserError as error:
        assert "in use by" in str(error)
        return False


def test_a_second_run_is_refused_in_one_line(tmp_path, holding, capsys):
    def second():
        with locked_folder(tmp_path / "run"):
            raise AssertionError("both hold it")

    assert run_command(second) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"error: {tmp_path}/run: in use by process {holding.pid} on ")
    assert line.count("\n") == 1


def test_the_lock_names_its_holder(tmp_path):
    with locked_folder(tmp_path):
        content = lock_of(tmp_path)
    assert content["pid"] == os.getpid() and content["host"] == os.uname().nodename
    assert content["command"] == " ".join(sys.argv) and str(content["since"]).endswith(" UTC")


def test_a_killed_run_leaves_its_folder_free_at_once(tmp_path, holding):
    holding.send_signal(signal.SIGKILL)
    holding.wait()
    assert lock_of(tmp_path / "run")["pid"] == holding.pid
    assert is_free(tmp_path / "run")


def test_a_fork_of_a_killed_run_does_not_hold_its_lock(tmp_path):
    """As the manager that datatrove forks, which outlives a driver that is killed."""
    forks = HOLD.replace("time.sleep(60)", "time.sleep(5)").replace(
        "    print", "    import os; os.fork() and time.sleep(60)  # the fork is ready\n    print"
    )
    words = [sys.executable, "-c", forks, str(tmp_path / "run")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert not is_free(tmp_path / "run")
    process.kill()
    process.wait()
    assert is_free(tmp_path / "run")
    process.stdout.close()


def test_the_end_of_a_fork_leaves_the_lock_of_its_parent(tmp_path):
    with locked_folder(tmp_path):
        fork = multiprocessing.get_context("fork").Process(target=sys.exit)
        fork.start()
        fork.join()
        assert not is_free(tmp_path)
    assert is_free(tmp_path)


def test_nothing_is_left_behind(tmp_path):
    with locked_folder(tmp_path / "a" / "b"), locked_output(tmp_path / "c" / "d"):
        assert (tmp_path / "a/b/.lock").is_file() and (tmp_path / "c/.d.lock").is_file()
    assert list(tmp_path.iterdir()) == []
    with locked_folder(tmp_path / "a" / "b"):
        (tmp_path / "a/b/x").write_text("a result")
    assert list((tmp_path / "a" / "b").iterdir()) == [tmp_path / "a/b/x"]


def test_two_names_of_an_output_have_one_lock(tmp_path):
    (tmp_path / "link").symlink_to("real")
    refused = pytest.raises(UserError, match="link: in use by")
    with locked_output(tmp_path / "real"), refused, locked_output(tmp_path / "link"):
        pass


def test_threads_of_one_process_exclude_each_other(tmp_path):
    held, refused = [], threading.Semaphore(0)

    def run() -> None:
        try:
            with locked_folder(tmp_path):
                held.append(all(refused.acquire(timeout=60) for _ in range(3)))
        except UserError:
            refused.release()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held == [True]


def while_waiting(monkeypatch, happens: Callable[[], None]) -> None:
    """Let something happen in place of each wait for the next look."""
    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=lambda _: happens()))


def test_another_machine_holds_it_until_its_lease_ends(tmp_path, monkeypatch, capsys):
    write_lock(tmp_path / "run", 0, machine="another", host="node3", pid=7)
    while_waiting(monkeypatch, lambda: os.utime(tmp_path / "run" / ".lock", (1, 1)))
    assert is_free(tmp_path / "run")
    assert f"{tmp_path}/run: process 7 on node3 holds it; waiting" in capsys.readouterr().err


def test_another_machine_that_renews_its_lease_keeps_it(tmp_path, monkeypatch):
    write_lock(tmp_path / "run", 5, machine="another", host="node3", pid=7)
    while_waiting(monkeypatch, lambda: os.utime(tmp_path / "run" / ".lock"))
    with (
        pytest.raises(UserError, match="in use by process 7 on node3"),
        locked_folder(tmp_path / "run"),
    ):
        pass


def test_without_flock_a_process_of_this_machine_is_looked_for(tmp_path, monkeypatch):
    """The init process lives; a process of that number that started at another time does not."""
    without_flock(monkeypatch)
    monkeypatch.setattr(locks, "_SETTLE_SECONDS", 0.01)
    write_lock(tmp_path / "alive", 1e6, pid=os.getppid(), process=locks._process(os.getppid()))
    assert not is_free(tmp_path / "alive")
    namespace = locks._process(os.getpid()).partition(" ")[0]
    write_lock(tmp_path / "ended", 0, pid=os.getppid(), process=f"{namespace} 1")
    assert is_free(tmp_path / "ended")


def test_without_flock_a_second_run_is_refused(tmp_path, monkeypatch):
    without_flock(monkeypatch)
    with locked_folder(tmp_path):
        assert not is_free(tmp_path)
    assert is_free(tmp_path)


def test_of_many_that_take_an_abandoned_lock_one_holds_it(tmp_path, monkeypatch):
    """All find it abandoned before one writes its name, and settle when the last has written."""
    without_flock(monkeypatch)
    write_lock(tmp_path / "run", 1e6, machine="another")
    found, written, refused = threading.Barrier(4), threading.Barrier(4), threading.Semaphore(0)
    write, held = locks._write, []

    def write_after_all(handle: int, holder: locks.Holder) -> None:
        found.wait(60)
        write(handle, holder)

    monkeypatch.setattr(locks, "_write", write_after_all)
    while_waiting(monkeypatch, lambda: written.wait(60))

    def run() -> None:
        try:
            with locked_folder(tmp_path / "run"):
                held.append(all(refused.acquire(timeout=60) for _ in range(3)))
        except UserError:
            refused.release()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held == [True]


def test_a_torn_lock_file_is_not_held_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_SETTLE_SECONDS", 0.01)
    (tmp_path / ".lock").write_text('{"host": "nod')
    os.utime(tmp_path / ".lock", (1, 1))
    assert is_free(tmp_path)


def test_a_run_whose_lock_is_anothers_by_now_ends(tmp_path, monkeypatch, capsys):
    """As after a suspension that was longer than the lease."""
    ended = threading.Event()
    monkeypatch.setattr(locks, "_RENEWED_SECONDS", 0.05)
    monkeypatch.setattr(locks.os, "_exit", lambda code: ended.set() if code == 1 else None)
    with locked_folder(tmp_path):
        (tmp_path / ".lock").write_text(json.dumps(lock_of(tmp_path) | {"token": "x", "pid": 9}))
        assert ended.wait(60)
    assert "taken by process 9 on " in capsys.readouterr().err
    assert (tmp_path / ".lock").exists()  # it is not ours to remove

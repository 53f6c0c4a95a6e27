"""The lock of a folder: one run holds it, a second is refused, an ended one leaves it free."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from carbon.console import run_command
from carbon.errors import UserError
from carbon.io import locks
from carbon.io.locks import locked_folder, locked_output

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from carbon.io import locks
locks.LEASE_SECONDS, locks._RENEWED_SECONDS = 1.0, 0.2
with locks.locked_folder(sys.argv[1]):
    print("ready", flush=True)
    time.sleep(60)
"""


def started(folder: Path, code: str = HOLD) -> subprocess.Popen:
    """Start another process that holds the lock of a folder."""
    words = [sys.executable, "-c", code, str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def ended(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def holding(tmp_path):
    """Another process that holds the lock of `tmp_path / "run"`."""
    process = started(tmp_path / "run")
    yield process
    process.send_signal(signal.SIGCONT)
    ended(process)


def write_lock(folder: Path, **changed: object) -> Path:
    """Write the lock that a process of another machine holds, but for what is changed."""
    fields = {"pid": 7, "host": "node3", "mode": "lease", "token": "0" * 32}
    fields |= {"duration": locks.LEASE_SECONDS, "start": locks._us().start} | changed
    lock = folder / ".lock"
    folder.mkdir(exist_ok=True)
    lock.write_text("filelock/2\n" + "".join(f"{k}={v}\n" for k, v in fields.items()))
    return lock


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Seconds instead of minutes, for whatever waits."""
    monkeypatch.setattr(locks, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(locks, "_RENEWED_SECONDS", 0.2)
    monkeypatch.setattr(locks, "_WRITTEN_SECONDS", 2.5)
    monkeypatch.setattr(locks, "_SECONDS_BETWEEN_LOOKS", 0.02)


@pytest.fixture(params=["exchanges names", "only renames"])
def system(request, monkeypatch):
    """A file system such as ext4, and one such as NFS or Lustre."""
    if request.param == "only renames":
        call = (lambda *_: errno.EINVAL, 2)
        monkeypatch.setattr("filelock._filesystem._exchange._rename_call", lambda: call)


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
    host = os.uname().nodename
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/run: in use by process {holding.pid} on {host}; wait or end it\n"
    )


def test_a_lock_that_only_another_user_can_remove_is_named(tmp_path, monkeypatch):
    here = locks._us()
    write_lock(tmp_path, host=here.hostname, pid=os.getpid(), start=here.start - 1)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("filelock._filesystem._exchange._rename_call", lambda: (refuse, 2))
    remove = Path.unlink

    def remove_own(path: Path, missing_ok: bool = False) -> None:
        if path.name == ".lock":
            refuse()
        remove(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", remove_own)
    with pytest.raises(UserError, match=r"/\.lock: its process has ended; ask its user to remove"):
        locked_folder(tmp_path).__enter__()


def test_a_suspended_run_of_this_machine_keeps_its_lock(tmp_path, holding):
    holding.send_signal(signal.SIGSTOP)
    os.utime(tmp_path / "run" / ".lock", (1, 1))
    assert not is_free(tmp_path / "run")


def test_a_killed_run_leaves_its_folder_free_at_once(tmp_path, holding, capsys, system):
    holding.send_signal(signal.SIGKILL)
    holding.wait()
    assert (tmp_path / "run" / ".lock").is_file()
    assert is_free(tmp_path / "run")
    assert capsys.readouterr().err == ""  # it did not wait


def test_a_process_that_has_the_number_of_an_ended_one_does_not_hold_its_lock(tmp_path):
    here = locks._us()
    write_lock(tmp_path / "run", host=here.hostname, pid=os.getpid(), start=here.start - 1)
    assert is_free(tmp_path / "run")


def test_the_lock_of_another_who_was_quicker_stays(tmp_path):
    lock = write_lock(tmp_path / "run")
    before = locks._renewal(lock)
    lease = locks.SoftFileLease(lock, lease_duration=1.0, heartbeat_interval=0.2)
    os.utime(lock, (1, 1))
    for seen in (before, None):
        with pytest.raises(locks.Timeout):
            locks._replace(lease, seen)
    assert lease.owner.hostname == "node3" and list(lock.parent.iterdir()) == [lock]


def test_a_fork_of_a_killed_run_does_not_hold_its_lock(tmp_path):
    """As the manager that datatrove forks, which outlives a driver that is killed."""
    forks = HOLD.replace("time.sleep(60)", "time.sleep(5)").replace(
        "    print", "    import os; os.fork() and time.sleep(60)  # the fork is ready\n    print"
    )
    process = started(tmp_path / "run", forks)
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


def holders(attempts: int, folder: Path) -> int:
    """Let threads try to lock a folder at once; return how many held the lock meanwhile."""
    held, refused = [], threading.Semaphore(0)

    def run() -> None:
        try:
            with locked_folder(folder):
                held.append(all(refused.acquire(timeout=60) for _ in range(attempts - 1)))
        except UserError:
            refused.release()

    threads = [threading.Thread(target=run) for _ in range(attempts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(held)
    return len(held)


def test_threads_of_one_process_exclude_each_other(tmp_path):
    assert holders(4, tmp_path) == 1


@pytest.mark.parametrize(
    ("system", "content"),
    [("exchanges names", "of another machine"), ("only renames", "{torn")],
    indirect=["system"],
)
def test_of_many_that_take_an_abandoned_lock_one_holds_it(tmp_path, content, system):
    lock = write_lock(tmp_path)
    if content != "of another machine":
        lock.write_text(content)
    assert holders(4, tmp_path) == 1


def test_a_marker_that_a_killed_process_left_is_outwaited(tmp_path, monkeypatch):
    call = (lambda *_: errno.EINVAL, 2)
    monkeypatch.setattr("filelock._filesystem._exchange._rename_call", lambda: call)
    monkeypatch.setattr(locks, "_WRITTEN_SECONDS", 0.3)
    here = locks._us()
    write_lock(tmp_path, host=here.hostname, pid=os.getpid(), start=here.start - 1)
    marker = tmp_path / ".lock.replacing"
    marker.touch()
    assert is_free(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize(("second_look", "is_lost"), [("ours", False), ("theirs", True)])
def test_a_lock_is_lost_if_two_looks_see_another(monkeypatch, second_look, is_lost):
    """Who replaces an abandoned lock second holds its name for a moment, and gives it back."""
    monkeypatch.setattr(locks, "_SECONDS_BETWEEN_LOOKS", 0.01)
    seen = iter(["theirs", second_look])

    class Lease:
        @property
        def owner(self):
            return SimpleNamespace(token=next(seen))

    loss = SimpleNamespace(token="ours")
    assert locks._is_of_another(Lease(), loss, threading.Event()) is is_lost


def test_who_waits_gets_the_lock_when_it_is_free(tmp_path):
    order = []

    def second() -> None:
        with locked_output(tmp_path / "x", wait=True):
            order.append("second")

    with locked_output(tmp_path / "x"):
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.1)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


# A process of another PID namespace, of another machine, and of a machine with our name.
ELSEWHERE = {
    "container": {},
    "machine": {"start": 5 << 64},
    "namesake": {"host": locks._us().hostname, "pid": 2**31 - 1, "start": 5 << 64},
}


@pytest.mark.parametrize(
    ("system", "where"),
    [
        ("exchanges names", "container"),
        ("only renames", "machine"),
        ("exchanges names", "namesake"),
    ],
    indirect=["system"],
)
def test_another_machine_holds_it_until_its_lease_ends(tmp_path, capsys, where, system):
    lock = write_lock(tmp_path / "run", **ELSEWHERE[where])
    os.utime(lock, (1, 1))
    began = time.monotonic()
    with locked_folder(tmp_path / "run"):
        assert time.monotonic() - began >= locks.LEASE_SECONDS
    assert "holds it; waiting at most 1 s" in capsys.readouterr().err


def test_another_machine_that_renews_its_lease_keeps_it(tmp_path):
    lock = write_lock(tmp_path / "run")
    content = lock.read_text()
    timer = threading.Timer(0.3, os.utime, (lock, (1, 1)))
    timer.start()
    with (
        pytest.raises(UserError, match="in use by process 7 on node3"),
        locked_folder(tmp_path / "run"),
    ):
        pass
    assert lock.read_text() == content


def test_what_is_no_lock_file_is_replaced_or_named(tmp_path):
    """A link that leads nowhere is not followed."""
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    assert is_free(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".lock").mkdir()
    with pytest.raises(IsADirectoryError):
        locked_folder(tmp_path).__enter__()


def test_a_folder_that_cannot_be_written_to_is_an_error_of_the_system(tmp_path, monkeypatch):
    """As of another user, or on a disk that is mounted for reading."""
    for number in (13, 30, 28):
        error = OSError(number, os.strerror(number), str(tmp_path / ".lock"))

        def refuse(*_: object, raised: OSError = error, **__: object) -> None:
            raise raised

        monkeypatch.setattr(locks.SoftFileLease, "acquire", refuse)
        with pytest.raises(OSError, match=os.strerror(number)):
            locked_folder(tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_lock_is_anothers_by_now_ends(tmp_path, monkeypatch, capsys):
    """As after a suspension that was longer than the lease."""
    ends = threading.Event()

    def end(code: int) -> None:
        assert code == 1
        ends.set()

    monkeypatch.setattr(locks.os, "_exit", end)
    with locked_folder(tmp_path):
        (tmp_path / ".lock").unlink()
        time.sleep(1)  # a lock that was removed is not another's yet
        assert not ends.is_set()
        write_lock(tmp_path, pid=9)
        assert ends.wait(60)
    assert "taken by process 9 on node3; this run ends" in capsys.readouterr().err
    assert (tmp_path / ".lock").exists()  # it is not ours to remove

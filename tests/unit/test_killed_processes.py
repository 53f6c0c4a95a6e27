"""What kills a process is read by its neighbours, and told once in a line."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from torch.distributed import HashStore

from train.distributed import failures as module
from train.distributed.failures import NOTE, Neighbours, SharedFate, death_of

SLEEPS = [sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(60)"]
GLOO = "[/pytorch/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.1]:4: Connection reset by peer"


@pytest.fixture
def sleeping():
    """Processes that sleep, and whose parent, this one, does not look whether they have ended."""
    started = [subprocess.Popen(SLEEPS, stdout=subprocess.PIPE) for _ in range(2)]
    for process in started:
        process.stdout.readline()
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_the_signal_is_read_before_the_parent_has_looked(sleeping, number):
    watched = Neighbours({5: sleeping[0].pid, 6: sleeping[1].pid})
    assert list(watched.killed(0.05)) == []
    os.kill(sleeping[1].pid, number)
    assert list(watched.killed(10)) == [(6, number)]
    assert list(watched.killed(0.05)) == []  # once
    watched.close()


def test_an_orderly_end_is_no_death(sleeping):
    ends = subprocess.Popen([sys.executable, "-S", "-c", "input(); exit(3)"], stdin=subprocess.PIPE)
    watched = Neighbours({0: ends.pid, 1: sleeping[0].pid})
    ends.stdin.close()  # an EOFError: exit code 1
    os.kill(sleeping[0].pid, signal.SIGTERM)  # as launchers do
    until = time.monotonic() + 10
    while watched._watched and time.monotonic() < until:
        assert list(watched.killed(1)) == []
    ends.wait()


def test_who_is_gone_before_it_is_watched_is_not_watched(sleeping):
    sleeping[0].kill()
    sleeping[0].wait()
    assert list(Neighbours({0: sleeping[0].pid}).killed(0.01)) == []


@pytest.fixture
def store():
    return HashStore()


@pytest.fixture(autouse=True)
def codes(monkeypatch):
    """Exit codes with which the process would have ended at once."""
    found = []

    def end(code):
        found.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(module.os, "_exit", end)
    monkeypatch.setattr(module.threading.Timer, "start", lambda timer: None)
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.05)
    return found


@pytest.fixture
def watching(monkeypatch):
    """An event: the neighbours of this process are watched."""
    found = threading.Event()

    def watched(pids):
        neighbours = Neighbours(pids)
        found.set()
        return neighbours

    monkeypatch.setattr(module, "Neighbours", watched)
    return found


def neighbour_of(store, process):
    """Return the environment of process 0, beside which there is process 1."""
    store.set("pid-1", str(process.pid))
    return {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}


def test_a_killed_neighbour_is_told_of_instead_of_the_closed_connection(
    store, sleeping, watching, codes, capsys, tmp_path
):
    environment = neighbour_of(store, sleeping[0]) | {NOTE: str(tmp_path / "told")}
    with pytest.raises(SystemExit), SharedFate(store, 0, environment):
        assert watching.wait(300)
        sleeping[0].kill()
        raise RuntimeError(GLOO)
    assert set(codes) == {1}
    (line,) = capsys.readouterr().err.splitlines()
    assert line == death_of(1, 9)
    assert (tmp_path / "told").exists()


def test_a_death_that_another_has_told_of_is_not_told_again(
    store, sleeping, watching, codes, capsys
):
    environment = neighbour_of(store, sleeping[0])
    store.add("deaths", 1)
    with pytest.raises(SystemExit), SharedFate(store, 0, environment):
        assert watching.wait(300)
        sleeping[0].kill()
        raise RuntimeError("NCCL error: remote process exited or there was a network error")
    assert set(codes) == {1} and capsys.readouterr().err == ""


def test_a_connection_lost_to_another_machine_is_a_line(store, codes, capsys):
    with pytest.raises(SystemExit), SharedFate(store, 0, {}):
        try:
            raise RuntimeError(GLOO)
        except RuntimeError as error:
            raise ValueError("while saving") from error
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("process 0 ends: another process is gone (while saving)")
    assert codes == [1]


def test_a_connection_lost_behind_a_failure_that_is_told(store, codes, capsys):
    store.set("failed", "7")
    with pytest.raises(SystemExit), SharedFate(store, 0, {}):
        raise RuntimeError(GLOO)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "process 0 ends because process 7 failed; see its message above"


def test_an_error_of_nccl_that_is_not_a_lost_connection_keeps_its_traceback(store, capsys):
    defect = (
        "NCCL error in: ProcessGroupNCCL.cpp:94, unhandled cuda error (run with NCCL_DEBUG=INFO)"
    )
    with pytest.raises(RuntimeError, match="unhandled cuda"), SharedFate(store, 0, {}):
        raise RuntimeError(defect)
    told = capsys.readouterr().err
    assert "process 0 failed:" in told and "Traceback" in told and defect in told


def test_a_failure_before_all_processes_have_begun_is_seen(store, codes, capsys):
    """Process 1 of this machine never begins; another machine's process has failed."""
    store.set("failed", "7")
    environment = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    with pytest.raises(SystemExit), SharedFate(store, 0, environment):
        raise RuntimeError(GLOO)
    assert "process 7 failed" in capsys.readouterr().err


def test_a_defect_keeps_its_traceback(store, codes, capsys):
    with pytest.raises(ZeroDivisionError), SharedFate(store, 0, {}):
        1 / 0  # noqa: B018
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert store.get("failed") == b"0"

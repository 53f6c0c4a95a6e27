"""What a run does with the signals that it gets; whole runs are in tests/distributed."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from unittest import mock

import pytest
from torch.distributed.elastic.multiprocessing.api import SignalException

from tests.helpers.processes import waits_for
from train import signals
from train.launch import main as launch
from train.signals import STOPPING, StopSignals, signals_held


class Ended(Exception):
    pass


@pytest.fixture
def heard(monkeypatch):
    """A listener that is told of signals at times; what ends the process raises instead."""
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])

    def ended(code):
        raise Ended(code)

    monkeypatch.setattr(signals.os, "_exit", ended)
    told = StopSignals()

    def hear(number, seconds=0.0):
        now[0] += seconds
        told._hear(number)

    return told, hear


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_before_the_first_step_a_signal_ends_the_process(heard, number, code, capsys):
    _, hear = heard
    with pytest.raises(Ended, match=str(code)):
        hear(number)
    assert "before the first step; nothing was to be saved" in capsys.readouterr().err


@pytest.mark.parametrize("second", STOPPING)
def test_a_second_one_ends_it_at_once(heard, second, capsys):
    told, hear = heard
    told.saves = True
    hear(signal.SIGINT)
    assert told.name == "SIGINT"
    with pytest.raises(Ended, match=str(128 + second)):
        hear(second, 2.5)
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("finishes the step and saves; a second signal stops at once")
    assert last.startswith(f"{second.name}: stopped at once; --resume auto goes on")


def test_the_same_wish_comes_twice(heard, capsys):
    """Slurm and systemd signal all processes, and torchrun hands on what it gets."""
    told, hear = heard
    told.saves = True
    for number, seconds in ((signal.SIGTERM, 0), (signal.SIGTERM, 0.2), (signal.SIGHUP, 1.5)):
        hear(number, seconds)
    assert told.name == "SIGTERM" and len(capsys.readouterr().err.splitlines()) == 1


def test_it_hears_while_the_main_thread_waits_and_then_gives_the_signals_back():
    before = [signal.getsignal(each) for each in STOPPING]
    with StopSignals(speaks=False) as told:
        told.saves = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert waits_for(lambda: told.name) == "SIGTERM"
    assert [signal.getsignal(each) for each in STOPPING] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_what_is_ignored_stays_ignored():
    """`nohup` does that with SIGHUP, and a shell with the SIGINT of what is in the background."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals(speaks=False) as told:
            os.kill(os.getpid(), signal.SIGHUP)
            assert told.name == "" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_readers_are_deaf(tmp_path):
    """A reader that a signal ends would end the run in the middle of its last step."""
    context = multiprocessing.get_context("spawn")
    with signals_held():
        process = context.Process(target=time.sleep, args=(60,))
        process.start()
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        assert all(blocked >> (each - 1) & 1 for each in STOPPING)
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(STOPPING)
    finally:
        process.kill()
        process.join()


def test_launched_and_stopped_is_one_line(monkeypatch, capsys):
    """torchrun shows its own traceback, and 1; whole launches are in tests/distributed."""
    stopped = SignalException("stopped", signal.SIGINT)
    monkeypatch.setattr("torch.distributed.run.main", mock.Mock(side_effect=stopped))
    assert launch(["--standalone", "nothing.py"]) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("SIGINT: stopped; the same command with --resume")

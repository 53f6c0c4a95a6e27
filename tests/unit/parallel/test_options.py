"""Which engine a command line chooses."""

import os
import socket
from functools import partial

import pytest

from carbon.errors import UserError
from carbon.inference.sequence_job import is_streamed
from carbon.parallel import local, options
from carbon.parallel.driver import Workers
from carbon.parallel.engines import InProcess
from carbon.parallel.local import LocalProcesses
from carbon.parallel.options import WorkerOptions
from tests.helpers.parallel import job_of, run


class Sees:
    """A worker that reports its environment."""

    def __init__(self):
        self.about = {}

    def __call__(self, payload):
        return [os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("OMP_NUM_THREADS")]


@pytest.fixture(autouse=True)
def no_torch(monkeypatch):
    monkeypatch.setattr(local, "_PRELOADED", [])
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def engine(**given):
    return options.engine_of(WorkerOptions(**given), Sees)


def gpus(monkeypatch, *names):
    monkeypatch.setattr("carbon.gpus.visible_gpus", lambda: list(names))


def test_without_gpus_the_command_computes_itself(monkeypatch):
    gpus(monkeypatch)
    assert isinstance(engine(), InProcess) and isinstance(engine(processes=0), InProcess)
    for number in (1, 3):
        found = engine(processes=number)
        assert isinstance(found, LocalProcesses) and found.size == number
        assert found._context.get_start_method() == "forkserver"


def test_one_worker_a_gpu(monkeypatch):
    gpus(monkeypatch, "4", "7")
    for given, seen in (
        ({}, ["4", "7"]),
        ({"device": "cuda:1,cuda:0"}, ["7", "4"]),
        ({"device": "cuda", "processes": 3}, ["4", "7", "4"]),
        ({"device": "cuda:1", "processes": 2}, ["7", "7"]),
    ):
        found = engine(**given)
        assert [e["CUDA_VISIBLE_DEVICES"] for e in found._environments] == seen
        assert found._context.get_start_method() == "spawn"
    assert engine(device="cpu").size == 1
    gpus(monkeypatch, "4")
    assert isinstance(engine(), InProcess)


def test_this_process_computes_on_the_first_gpu_that_is_named(monkeypatch):
    gpus(monkeypatch, "4", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    for device, seen in (("auto", "4,7"), ("cuda", "4,7"), ("cuda:1,cuda:0", "7"), ("cuda:0", "4")):
        engine(device=device, processes=0)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
    assert options.device_here(WorkerOptions(device="cuda:1")) == "cuda"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    assert options.device_here(WorkerOptions(device="cpu")) == "cpu"
    with pytest.raises(UserError, match="cuda:2 does not exist"):
        options.device_here(WorkerOptions(device="cuda:2"))


def test_each_worker_sees_its_own_gpu_and_threads(monkeypatch, tmp_path):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    environments = [{"CUDA_VISIBLE_DEVICES": n, "OMP_NUM_THREADS": "1"} for n in "57"]
    with Workers(LocalProcesses(Sees, environments)) as workers:
        seen = []
        from carbon.parallel.driver import run_job

        run_job(job_of(tmp_path / "o"), workers, lambda results: seen.extend(r for _, r in results))
    assert {tuple(each) for each in seen} <= {("5", "1"), ("7", "1")} and len(seen) == 15
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ray": "h:1", "processes": 2}, "--ray and --processes: give one of them"),
        ({"device": "cuda:0,cuda:9"}, "cuda:9 does not exist; 2 GPUs are visible"),
        ({"device": "cuda:0,cpu"}, "a list names GPUs, such as cuda:0,cuda:1"),
        ({"device": "cpu,cpu"}, "a list names GPUs, such as cuda:0,cuda:1"),
        ({"processes": 5000}, "give 0 to 1024"),
        ({"processes": -1}, "give 0 to 1024"),
    ],
)
def test_options_that_are_not_possible(monkeypatch, given, message):
    gpus(monkeypatch, "0", "1")
    with pytest.raises(UserError, match=message):
        engine(**given)


@pytest.mark.parametrize("address", ["auto", "local", "h", "h:x", ""])
def test_an_address_is_required(monkeypatch, address):
    pytest.importorskip("ray")
    gpus(monkeypatch)
    if not address:
        assert isinstance(engine(), InProcess)
        return
    with pytest.raises(UserError, match="give HOST:PORT of the head node"):
        engine(ray=address)


def test_an_address_that_nobody_answers_is_one_line(monkeypatch):
    pytest.importorskip("ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UserError, match=r"nobody answers .*--processes"):
            engine()
        assert isinstance(engine(processes=0), InProcess)  # which overrides the variable


def test_without_ray_one_line_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"install carbon-dna\[ray\]"):
        engine(ray="127.0.0.1:6379")


def test_a_stream_is_for_one_process(monkeypatch, capsys):
    assert is_streamed(WorkerOptions(), "standard input is read by one process")
    assert not capsys.readouterr().err
    several = WorkerOptions(processes=2)
    assert is_streamed(several, "standard input is read by one process")
    said = capsys.readouterr().err
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert is_streamed(WorkerOptions(), "standard input is read by one process")
    assert capsys.readouterr().err == said
    assert is_streamed(WorkerOptions(processes=0), "standard input is read by one process")
    assert not capsys.readouterr().err
    reason, effect = said.split("; ")
    assert reason == "standard input is read by one process"
    assert effect == "--processes, --ray and RAY_ADDRESS have no effect\n"
    assert not is_streamed(several, None)
    resumed = WorkerOptions(resume=True)
    with pytest.raises(UserError, match="--resume: standard input is read by one process, without"):
        is_streamed(resumed, "standard input is read by one process")
    assert not is_streamed(resumed, None)


def test_a_run_through_the_options(monkeypatch, tmp_path):
    from tests.helpers.parallel import WHOLE, Doubler

    with options.workers_of(WorkerOptions(processes=2), partial(Doubler, tmp_path)) as workers:
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE

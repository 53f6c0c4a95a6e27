"""Who takes which device, and who belongs together, by what launchers put into the environment."""

import argparse

import pytest

from carbon.blocks import crew
from carbon.blocks.launches import Launch, launch_of
from carbon.errors import UserError

TORCHRUN = {"TORCHELASTIC_RUN_ID": "r", "RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "4"}  # fmt: skip
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": "9",
        "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "8(x2)"}  # fmt: skip
ARRAY = {"SLURM_JOB_ID": "70", "SLURM_ARRAY_JOB_ID": "69", "SLURM_ARRAY_TASK_ID": "1"}


@pytest.mark.parametrize(
    ("environ", "launch"),
    [
        ({}, None),
        ({"CARBON_LAUNCH": "mine", **TORCHRUN}, Launch("mine")),
        (TORCHRUN, Launch("torchrun r", False, 1)),
        (TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}, Launch("torchrun r", True, 0)),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}, Launch("torchrun r", False)),
        (TORCHRUN | {"WORLD_SIZE": "1"}, None),
        # The script of a job, one process whatever the job has.
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "16", "SLURM_PROCID": "0"}, None),
        (STEP, Launch("slurm 7", False, 1)),
        (STEP | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, Launch("slurm 7", True, 0)),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "1(x16)"}, Launch("slurm 7", False)),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "2(x7),1(x2)"}, Launch("slurm 7", False, 1)),
        (ARRAY, Launch("slurm 69")),
        (ARRAY | {"SLURM_STEP_NUM_TASKS": "1"}, Launch("slurm 69")),
    ],
)
def test_what_an_environment_says(environ, launch):
    assert launch_of(environ) == launch


def places(monkeypatch, *, gpus=0, launch=None, visible=None, device="auto", **asked):
    """Return what every process of a machine with so many GPUs and eight cores is given."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    names = (visible or ",".join(map(str, range(gpus)))).split(",")
    monkeypatch.setattr(crew, "_visible_gpus", lambda: names[:gpus] if gpus else [])
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    arguments = argparse.Namespace(**{"devices": None, "processes": None, "device": device} | asked)
    return crew._environments(arguments, launch)


def gpu(name, threads=None):
    more = {"OMP_NUM_THREADS": str(threads)} if threads else {}
    return {"CUDA_VISIBLE_DEVICES": name, **more}


def test_who_takes_what(monkeypatch):
    def of(**asked):
        return places(monkeypatch, **asked)

    assert of() == of(gpus=1) == of(gpus=8, device="cpu") == of(gpus=8, device="cuda:3") == [{}]
    assert of(processes=3) == [{"OMP_NUM_THREADS": "2"}] * 3
    assert of(processes=20) == [{"OMP_NUM_THREADS": "1"}] * 20
    assert of(gpus=4) == [gpu(n, 2) for n in "0123"]
    assert of(gpus=4, devices=[2]) == [gpu("2")]
    assert of(gpus=4, devices=[0, 2]) == [gpu("0", 4), gpu("2", 4)]
    assert of(gpus=2, visible="GPU-a,GPU-b", devices=[1, 0]) == [gpu("GPU-b", 4), gpu("GPU-a", 4)]
    assert of(gpus=2, processes=3) == [gpu("0", 2), gpu("1", 2), gpu("0", 2)]
    # Of a launcher's several processes on a machine each takes one device.
    assert of(gpus=4, launch=Launch("l", local_rank=2)) == [gpu("2")]
    assert of(gpus=1, launch=Launch("l", local_rank=2)) == [gpu("0")]
    assert of(gpus=2, launch=Launch("l")) == [gpu("0", 4), gpu("1", 4)]
    assert of(launch=Launch("l", local_rank=2)) == [{}]


def test_threads_that_the_user_has_chosen_stay(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    arguments = argparse.Namespace(devices=None, processes=2, device="cpu")
    assert crew._environments(arguments, None) == [{}, {}]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"processes": 0}, "--processes 0"),
        ({"gpus": 2, "devices": [0, 2]}, "no GPU 2; 2 can be seen"),
        ({"devices": [0], "device": "cpu"}, "--device cpu"),
    ],
)
def test_what_cannot_be(monkeypatch, asked, message):
    with pytest.raises(UserError, match=message):
        places(monkeypatch, **asked)

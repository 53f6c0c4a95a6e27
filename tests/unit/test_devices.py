"""A GPU that is there and cannot be used is told of, and never silently done without."""

import warnings

import pytest
import torch

from carbon import devices
from carbon.errors import UserError
from train.config import ParallelConfig
from train.distributed import attention, float8
from train.distributed.mesh import joined_ranks

OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 11040)"


@pytest.fixture
def node(monkeypatch, tmp_path):
    """A machine: whether it shows a GPU, and what its PyTorch says of it."""

    def made(*, has_gpu, built_with="12.8", says=None, usable=False, visible=None):
        monkeypatch.setattr(devices, "has_gpus", lambda: has_gpu)
        monkeypatch.setattr(torch.version, "cuda", built_with)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)

        def init():
            warnings.warn("a screen of advice", stacklevel=1)
            if says:
                raise RuntimeError(f"{says}\nPlease update.")

        monkeypatch.setattr(torch.cuda, "init", init)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return made


BROKEN = [
    ({"says": OLD_DRIVER}, f"there is an NVIDIA GPU, but CUDA cannot be used: {OLD_DRIVER}"),
    ({"built_with": None}, "there is an NVIDIA GPU, but this PyTorch is built without CUDA"),
    ({}, "there is an NVIDIA GPU, but CUDA finds none"),
]


@pytest.mark.parametrize(("facts", "why"), BROKEN)
def test_a_gpu_that_cannot_be_used_stops_a_run(node, facts, why, capsys, recwarn):
    node(has_gpu=True, **facts)
    with pytest.raises(UserError) as told, joined_ranks(ParallelConfig()):
        pass
    assert str(told.value).startswith(why)
    with pytest.raises(UserError, match="'cuda': there is an NVIDIA GPU"):
        devices.uses_gpu("cuda")
    assert devices.uses_gpu("cpu") is False
    assert devices.default_device() == "cpu"
    assert capsys.readouterr().err == f"computing on the CPU: {why}\n"
    assert not recwarn.list


@pytest.mark.parametrize(
    "facts", [{"has_gpu": False}, {"has_gpu": True, "visible": ""},
              {"has_gpu": True, "visible": "-1"}]
)  # fmt: skip
def test_without_a_gpu_or_with_a_hidden_one_nothing_is_said(node, facts, capsys):
    node(**facts, says=OLD_DRIVER)
    assert devices.uses_gpu("auto") is False and devices.default_device() == "cpu"
    assert capsys.readouterr().err == ""
    with pytest.raises(UserError, match="'cuda': this machine shows no NVIDIA GPU"):
        devices.uses_gpu("cuda")


def test_a_usable_gpu_is_used(node):
    node(has_gpu=True, usable=True)
    assert devices.uses_gpu("auto") and devices.uses_gpu("cuda") and not devices.uses_gpu("cpu")
    assert devices.default_device() == "cuda" and devices.why_no_cuda() is None


def used(capability, installed, monkeypatch) -> dict[str, tuple[str, str]]:
    monkeypatch.setattr(devices, "find_spec", lambda name: name in installed or None)
    parts = devices.GPU_FEATURES.items()
    return {name: tuple(devices.chosen(part, capability).values()) for name, part in parts}


def test_doctor_tells_what_a_gpu_uses_and_why(monkeypatch):
    everything = ("flash_attn", "triton", "torchao")
    found = used((9, 0), everything, monkeypatch)
    assert found["attention in training"][0] == "torch.nn.attention.varlen"
    assert found["float8"][0] == "torchao, scaled by rows"
    older = used((7, 5), everything, monkeypatch)
    assert older["attention in inference"][0] == "SDPA"
    assert older["float8"][0] == "bfloat16" and "9.0" in older["float8"][1]
    assert older["loss behind the head"][0] == "a Triton kernel, in place"
    bare = used((9, 0), (), monkeypatch)
    assert bare["attention in inference"][0] == "SDPA" and "flash_attn" in str(bare)
    assert bare["loss behind the head"][0] == "plain PyTorch"
    without = used(None, everything, monkeypatch)
    assert {why for _, why in without.values()} == {"no GPU that can be used"}


def test_doctor_and_the_trainer_ask_the_same_of_a_gpu():
    least = {name: part.least_capability for name, part in devices.GPU_FEATURES.items()}
    assert least["attention in training"] == attention._LEAST_CAPABILITY
    assert least["float8"] == float8._LEAST_CAPABILITY


def test_doctor_tells_versions_and_gpus(node, monkeypatch, tmp_path, capsys):
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 1\n")
    monkeypatch.setattr(devices, "_DRIVER", driver)
    node(has_gpu=True, usable=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "a card")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: (9, 0))
    memory = type("Properties", (), {"total_memory": 80e9})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: memory)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    found = devices.gpu_facts()
    assert (found["driver"], found["cuda"], found["nccl"]) == ("570.86.15", "12.8", "2.27.3")
    assert found["devices"] == [{"name": "a card", "capability": "9.0", "gb": 80.0}]
    assert found["parts"]["dtype"]["used"] == "bfloat16"

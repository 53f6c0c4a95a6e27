"""Which device computes, and why a GPU that is there does not."""

import os
import warnings
from pathlib import Path

import torch

from carbon.console import say
from carbon.errors import UserError

_DEVICE_FILES = "nvidia[0-9]*"


def default_device() -> str:
    """Return `cuda` where a GPU can be used, else `cpu`; say why, where there is one."""
    if torch.cuda.is_available():
        return "cuda"
    if why := why_no_cuda():
        say(f"computing on the CPU: {why}")
    return "cpu"


def uses_gpu(asked: str) -> bool:
    """Return whether a run computes on GPUs, that asked for `auto`, `cuda` or `cpu`.

    A node whose GPUs cannot be used is no node without GPUs: it would train for months.

    Raises:
        UserError: `cuda` was asked for and there is none, or `auto`, and a GPU that is there cannot
            be used.
    """
    if asked == "cpu" or torch.cuda.is_available():
        return asked != "cpu"
    why = why_no_cuda()
    if asked == "cuda":
        raise UserError(f"compute.device = 'cuda': {why or 'this machine shows no NVIDIA GPU'}")
    if why:
        raise UserError(f"{why}; mend that, or say compute.device = 'cpu' to train without")
    return False


def why_no_cuda() -> str | None:
    """Say why CUDA cannot be used; None where it can, there is no NVIDIA GPU, or it is hidden."""
    if torch.cuda.is_available() or _are_hidden() or not _are_there():
        return None
    if torch.version.cuda is None:
        return "there is an NVIDIA GPU, but this PyTorch is built without CUDA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says the same at length
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except (RuntimeError, AssertionError) as error:
            said = str(error).strip().splitlines()[0]
            return f"there is an NVIDIA GPU, but CUDA cannot be used: {said}"
    return "there is an NVIDIA GPU, but CUDA finds none"


def _are_there() -> bool:
    """Return whether the driver shows a GPU, https://docs.nvidia.com on `/dev/nvidia*`."""
    return any(Path("/dev").glob(_DEVICE_FILES))


def _are_hidden() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")

"""Which device computes, and why a GPU that is there does not."""

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from carbon.errors import UserError
from carbon.progress import say

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


_DRIVER = Path("/proc/driver/nvidia/version")

Capability = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of Carbon that is done better on a GPU.

    Attributes:
        used: what does it there.
        otherwise: what does it without.
        modules: that are needed beside torch.
        least_capability: of the GPU.
        note: when it is used.
    """

    used: str
    otherwise: str
    modules: Sequence[str] = ()
    least_capability: Capability = (0, 0)
    note: str = "by itself"


PARTS = {
    "dtype": Part(used="bfloat16", otherwise="float32", least_capability=(8, 0)),
    "attention in training": Part(
        used="torch.nn.attention.varlen",
        otherwise="SDPA with a mask of all pairs",
        least_capability=(8, 0),
    ),
    "attention in inference": Part(
        used="flash_attention_2",
        otherwise="SDPA",
        modules=("flash_attn",),
        least_capability=(8, 0),
    ),
    "loss behind the head": Part(
        used="a Triton kernel, in place", otherwise="plain PyTorch", modules=("triton",)
    ),
    "torch.compile": Part(
        used="Triton code of inductor",
        otherwise="layers are not compiled",
        modules=("triton",),
        least_capability=(7, 0),
        note="with compute.compile of a recipe",
    ),
    "float8": Part(
        used="torchao, scaled by rows",
        otherwise="bfloat16",
        modules=("torchao",),
        least_capability=(9, 0),
        note="with compute.float8 of a recipe",
    ),
}


def chosen(part: Part, capability: Capability | None) -> dict[str, str]:
    """Say what does a part on a GPU, or without one, and why."""
    missing = [module for module in part.modules if find_spec(module) is None]
    if capability is None:
        why = "no GPU that can be used"
    elif capability < part.least_capability:
        why = f"the GPU has compute capability {_dotted(capability)}, and it needs "
        why += _dotted(part.least_capability)
    elif missing:
        why = f"{', '.join(missing)}: not installed; pip install 'carbon-dna[gpu]'"
    else:
        return {"used": part.used, "why": part.note}
    return {"used": part.otherwise, "why": why}


def gpu_facts() -> dict[str, Any]:
    """Return the versions of what drives GPUs, the GPUs, and what does each part of Carbon."""
    usable = torch.cuda.is_available()
    count = torch.cuda.device_count() if usable else 0
    capabilities = [torch.cuda.get_device_capability(i) for i in range(count)]
    nccl: Any = torch.cuda.nccl if usable and torch.distributed.is_nccl_available() else None
    least = min(capabilities, default=None)
    return {
        "driver": driver_version(_DRIVER),
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, nccl.version())) if nccl else None,
        "devices": [
            {
                "name": torch.cuda.get_device_name(i),
                "capability": _dotted(capability),
                "gb": round(torch.cuda.get_device_properties(i).total_memory / 1e9, 1),
            }
            for i, capability in enumerate(capabilities)
        ],
        "parts": {name: chosen(part, least) for name, part in PARTS.items()},
    }


def driver_version(path: Path) -> str | None:
    """Return the version of NVIDIA's driver, which the kernel module tells in a file."""
    if not path.is_file():
        return None
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", path.read_text(encoding="utf-8"))
    return found[0] if found else None


def _dotted(capability: Capability) -> str:
    return ".".join(map(str, capability))

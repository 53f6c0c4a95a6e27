"""Choice of the device, why a GPU cannot be used, its features, and states of random numbers."""

import os
import random
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carbon.errors import UserError
from carbon.gpus import has_gpus
from carbon.progress import say


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Restore the states of the random numbers of Python, NumPy and torch at the end.

    Trainers of transformers set the seeds of all three.
    """
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def default_device() -> str:
    """Return `cuda` if a GPU can be used, else `cpu`, and print why an existing GPU is not used."""
    if torch.cuda.is_available():
        return "cuda"
    if why := why_no_cuda():
        say(f"computing on the CPU: {why}")
    return "cpu"


def uses_gpu(requested: str) -> bool:
    """Return whether a run that requests `auto`, `cuda` or `cpu` computes on GPUs.

    `auto` does not fall back to the CPU on a node with unusable GPUs, where training would take
    months.

    Raises:
        UserError: `cuda` is requested and cannot be used, or `auto` is requested and the node has a
            GPU that cannot be used.
    """
    if requested == "cpu" or torch.cuda.is_available():
        return requested != "cpu"
    why = why_no_cuda()
    if requested == "cuda":
        raise UserError(f"compute.device = 'cuda': {why or 'this machine shows no NVIDIA GPU'}")
    if why:
        raise UserError(f"{why}; fix that, or set compute.device = 'cpu' to train without")
    return False


def why_no_cuda() -> str | None:
    """Return why CUDA is unusable; None if it is usable, or the NVIDIA GPU is absent or hidden."""
    if torch.cuda.is_available() or _are_hidden() or not has_gpus():
        return None
    if torch.version.cuda is None:
        return "there is an NVIDIA GPU, but this PyTorch is built without CUDA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch also warns, at length
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            return f"there is an NVIDIA GPU, but CUDA cannot be used: {reason}"
    return "there is an NVIDIA GPU, but CUDA finds none"


def _are_hidden() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")


_DRIVER = Path("/proc/driver/nvidia/version")

Capability = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuFeature:
    """A part of Carbon with a faster implementation on GPUs.

    Attributes:
        used: implementation on a GPU.
        otherwise: implementation without one.
        modules: required modules in addition to torch.
        least_capability: minimum compute capability of the GPU.
        note: condition for its use.
    """

    used: str
    otherwise: str
    modules: Sequence[str] = ()
    least_capability: Capability = (0, 0)
    note: str = "by itself"


GPU_FEATURES = {
    "dtype": GpuFeature(used="bfloat16", otherwise="float32", least_capability=(8, 0)),
    "attention in training": GpuFeature(
        used="torch.nn.attention.varlen",
        otherwise="SDPA with a mask of all pairs",
        least_capability=(8, 0),
    ),
    "attention in inference": GpuFeature(
        used="flash_attention_2",
        otherwise="SDPA",
        modules=("flash_attn",),
        least_capability=(8, 0),
    ),
    "loss behind the head": GpuFeature(
        used="a Triton kernel, in place", otherwise="plain PyTorch", modules=("triton",)
    ),
    "torch.compile": GpuFeature(
        used="Triton code of inductor",
        otherwise="layers are not compiled",
        modules=("triton",),
        least_capability=(7, 0),
        note="with compute.compile of a recipe",
    ),
    "float8": GpuFeature(
        used="torchao, scaled by rows",
        otherwise="bfloat16",
        modules=("torchao",),
        least_capability=(9, 0),
        note="with compute.float8 of a recipe",
    ),
}


def chosen(feature: GpuFeature, capability: Capability | None) -> dict[str, str]:
    """Return the implementation that is used for a feature, and why.

    Args:
        feature: entry of `GPU_FEATURES`.
        capability: compute capability of the GPU; None without one.
    """
    missing = [module for module in feature.modules if find_spec(module) is None]
    if capability is None:
        why = "no GPU that can be used"
    elif capability < feature.least_capability:
        why = f"the GPU has compute capability {_dotted(capability)}, and it needs "
        why += _dotted(feature.least_capability)
    elif missing:
        why = f"{', '.join(missing)}: not installed; pip install 'carbon-dna[gpu]'"
    else:
        return {"used": feature.used, "why": feature.note}
    return {"used": feature.otherwise, "why": why}


def gpu_facts() -> dict[str, Any]:
    """Return versions of driver, CUDA and NCCL, the GPUs, and the choice for each feature."""
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
        "parts": {name: chosen(feature, least) for name, feature in GPU_FEATURES.items()},
    }


def driver_version(path: Path) -> str | None:
    """Return the version of NVIDIA's driver from a file of the kernel module; None without it."""
    if not path.is_file():
        return None
    version = re.search(r"\b\d+\.\d+(\.\d+)?\b", path.read_text(encoding="utf-8"))
    return version[0] if version else None


def _dotted(capability: Capability) -> str:
    return ".".join(map(str, capability))

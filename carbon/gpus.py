"""The NVIDIA GPUs of this machine, without importing torch, which takes seconds."""

import os
import re
import sys
from functools import cache
from pathlib import Path

from carbon.errors import UserError

CUDA, AUTO = "cuda", "auto"


def has_gpus() -> bool:
    """Return whether the driver shows a GPU (https://docs.nvidia.com, `/dev/nvidia*`)."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def may_use_gpus(device: str) -> bool:
    """Return whether a device may be a GPU of NVIDIA.

    >>> may_use_gpus("auto"), may_use_gpus("cuda:0,cuda:1"), may_use_gpus("cpu")
    (True, True, False)
    """
    return device == AUTO or device.startswith(CUDA)


def chosen_gpus(device: str) -> list[str]:
    """Return the GPUs to compute on, as `CUDA_VISIBLE_DEVICES` names them; none for the CPU.

    Raises:
        UserError: a named GPU does not exist, or a list names other devices than GPUs.
    """
    if device in (AUTO, CUDA):
        return visible_gpus()
    if not may_use_gpus(device) and "," not in device:
        return []
    numbers = [_number(name, device) for name in device.split(",")]
    visible = visible_gpus()
    for number in numbers:
        if number >= len(visible):
            raise UserError(
                f"--device {device}: {CUDA}:{number} does not exist; {len(visible)} GPUs are "
                "visible"
            )
    return [visible[number] for number in numbers]


def _number(name: str, device: str) -> int:
    match = re.fullmatch(rf"{CUDA}:(\d{{1,4}})", name)
    if not match:
        raise UserError(f"--device {device}: a list names GPUs, such as cuda:0,cuda:1")
    return int(match[1])


@cache
def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, counted once, by a short-lived child."""
    if not has_gpus():
        return []
    import subprocess  # not needed on most machines

    count = "import torch; print(torch.cuda.device_count())"
    output = subprocess.run(
        [sys.executable, "-c", count], stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    number = int(output) if output.isdigit() else 0
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[:number] if chosen else [str(n) for n in range(number)]

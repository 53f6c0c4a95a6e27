"""Products of a layer in float8, by torchao: forward, and both of backward.

Each row of a factor is scaled by a power of two and rounded to e4m3; sums are in fp32 and results
in bf16. Weights, their gradients and all between the products stay as they are, so that what
shards, checkpoints and exports is not affected.
"""

import dataclasses
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from carbon.errors import UserError
from carbon.io.config import check
from train.config import FLOAT8_SIDE

_LEAST_CAPABILITY = (9, 0)


def why_no_float8(device: torch.device) -> str:
    """Return the missing requirement, or an empty string; a CPU emulates float8."""
    if find_spec("torchao") is None:
        return "the package torchao is not installed; pip install 'carbon-dna[gpu]'"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return "the GPU is older than its kernel, which needs compute capability 9.0"
    return ""


def use_float8(layers: Iterable[nn.Module], device: torch.device) -> None:
    """Let the matrices of layers multiply in float8; a CPU multiplies rounded numbers.

    Raises:
        UserError: torchao or the kernel is missing, or a matrix has sides that it does not take.
    """
    if why := why_no_float8(device):
        raise UserError(f"compute.float8: {why}")
    float8: Any = import_module("torchao.float8")
    rows = float8.Float8LinearConfig.from_recipe_name("rowwise")
    settings = dataclasses.replace(rows, emulate=device.type != "cuda")
    for layer in layers:
        for name, module in layer.named_modules():
            if isinstance(module, nn.Linear):
                sides = tuple(module.weight.shape)
                fits = all(side % FLOAT8_SIDE == 0 for side in sides)
                check(
                    fits, f"compute.float8: {name} is {sides}; sides are multiples of {FLOAT8_SIDE}"
                )
        float8.convert_to_float8_training(layer, config=settings)

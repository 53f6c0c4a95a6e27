"""What float8 does to the numbers, emulated on a CPU: `python -m bench.float8`.

For each matrix of a layer of `500m`, the relative error of its result and its two gradients, in
bf16 and in float8 with bf16 between, against fp64, for random states and weights. No speed: that is
what `bench/gpu.py` measures on a GPU.
"""

import argparse
import copy

import torch
from torch import Tensor, nn

from carbon.model import PRESETS
from carbon.reports.card import table
from train.network.float8 import use_float8
from train.planning.sizes import Sizes


def results(layer: nn.Module, given: Tensor, grad: Tensor) -> list[Tensor]:
    """Return the product of states and a matrix, and the gradients of both."""
    states = given.detach().clone().requires_grad_()
    out = layer(states)
    out.backward(grad)
    (weight,) = layer.parameters()
    assert states.grad is not None and weight.grad is not None
    return [part.double() for part in (out.detach(), states.grad, weight.grad)]


def errors(inputs: int, outputs: int, tokens: int) -> list[list[float]]:
    """Return the errors of bf16 and of float8: of the result, of states, of weights."""
    matrix = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(matrix.weight, std=0.02)
    exact = nn.Sequential(matrix).bfloat16()
    states, grad = (torch.randn(tokens, n).bfloat16() for n in (inputs, outputs))
    rounded, in_float8 = copy.deepcopy(exact), copy.deepcopy(exact)
    use_float8([in_float8], torch.device("cpu"))
    wanted = results(exact.double(), states.double(), grad.double())
    return [
        [
            float((a - b).norm() / b.norm())
            for a, b in zip(results(network, states, grad), wanted, strict=True)
        ]
        for network in (rounded, in_float8)
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--preset", default="500m", choices=sorted(PRESETS))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    head = ("matrix", "bf16: result", "states", "weights", "float8: result", "states", "weights")
    rows = []
    for name, (inputs, outputs) in Sizes.of(PRESETS[arguments.preset]()).linears.items():
        found = errors(inputs, outputs, arguments.tokens)
        rows.append((name, *(f"{100 * error:.2f} %" for kind in found for error in kind)))
    print(table(rows, head))


if __name__ == "__main__":
    main()

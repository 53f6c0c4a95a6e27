"""The GPU kernel on a machine without one: interpreted against the plain form, and compiled."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton exists for Linux on x86_64 alone")

INTERPRETED = """
import torch
from carbon.losses import fused, head_loss, kernel
from carbon.losses.objectives import CE, FNS, Objective
from carbon.losses.soft_mask import LossFactors

generator = torch.Generator().manual_seed(0)
blend = Objective(token=0.7, bases=0.3)
all_three = Objective(token=0.5, bases=0.3, uniform=0.2)
kmers = torch.randint(4096, (6,), generator=generator)
known = torch.rand(6, 6, generator=generator) < 0.7
known[:3], known[3] = True, False
factors = LossFactors(
    3 * torch.rand(6, generator=generator).double(),
    3 * torch.rand(6, 6, generator=generator).double(),
)
for dtype, scale, atol, cases in (  # at 60 marginals underflow
    (torch.float32, 1, 1e-6, ((CE, True, None), (all_three, False, None))),
    (torch.float32, 60, 1e-6, ((FNS, True, None), (all_three, True, None), (blend, False, None))),
    (torch.float32, 60, 1e-6, ((FNS, True, factors), (all_three, True, factors))),
    (torch.float16, 8, 1e-3, ((blend, True, None), (blend, True, factors))),
    (torch.bfloat16, 60, 1e-2, ((CE, True, None), (all_three, True, None))),
):
    logits = (scale * torch.randn(6, 4096, generator=generator)).to(dtype)
    for objective, with_gradient, factors in cases:
        targets = kmers, known, objective, factors
        expected, plain = fused.chunk_loss(logits, *targets, 0, False, with_gradient)
        inside = logits.clone()
        found, grad = kernel.chunk_loss(inside, *targets, with_gradient)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        if with_gradient:
            assert grad is inside
            torch.testing.assert_close(grad.float(), plain, rtol=1e-2, atol=atol)
        else:
            assert grad is None and torch.equal(inside, logits)
wide = torch.rand(6, 12, generator=generator) < 0.7
strided = torch.stack([kmers, kmers], dim=1)[:, 0]
for form in (wide[:, :6], wide[:, :1].expand(6, 6), wide.T[:6].T, wide[:, :6].long()):
    targets = form.bool(), all_three, None
    expected, _ = fused.chunk_loss(logits.float(), kmers, *targets, 0, False, False)
    found, _ = kernel.chunk_loss(logits.float(), strided, form, all_three, None, False)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
empty = torch.empty(0, 4096)
assert float(kernel.chunk_loss(empty, kmers[:0], known[:0], blend, None, True)[0].loss) == 0

hidden = torch.randn(6, 8, generator=generator, requires_grad=True)
weight = torch.randn(4096, 8, generator=generator, requires_grad=True)


def gradients():
    loss = head_loss(hidden, weight, kmers, known, all_three, chunk_tokens=4).loss
    return loss.detach(), *torch.autograd.grad(loss, (hidden, weight))


plain = gradients()
calls = []
run = kernel.chunk_loss
kernel.chunk_loss = lambda *arguments: calls.append(1) or run(*arguments)
fused.kernel_chunk_loss = lambda _: kernel.chunk_loss
torch.testing.assert_close(gradients(), plain, rtol=1e-5, atol=1e-5)
assert len(calls) == 2
"""

COMPILED = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from carbon.losses.kernel import LAUNCH, _token_loss

weights = dict.fromkeys(("token_weight", "bases_weight", "uniform_weight"), "fp32")
cases = (
    ("bf16", True, False, False),
    ("fp32", True, True, False),
    ("bf16", False, True, False),
    ("bf16", True, False, True),
)
for dtype, gradient, uniform, factors in cases:
    pointers = {"logits_ptr": f"*{dtype}", "kmers_ptr": "*i64", "known_ptr": "*u8"}
    pointers |= {"token_factors_ptr": "*fp32", "bases_factors_ptr": "*fp32"}
    constants = {"WITH_GRADIENT": gradient, "WITH_UNIFORM": uniform, "WITH_FACTORS": factors}
    types = pointers | {"nats_ptr": "*fp32", "num_tokens": "i32"} | weights
    types |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(_token_loss, signature=types, constexprs=constants)
    kernel = compile(source, target=GPUTarget("cuda", 90, 32), options=LAUNCH)
    assert kernel.asm["cubin"]
    assert ".maxnreg 128" in kernel.asm["ptx"]
"""


def python(code, folder, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.nightly
def test_interpreted_it_equals_the_plain_form(tmp_path):
    done = python(INTERPRETED, tmp_path, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_it_compiles_for_hopper(tmp_path):
    done = python(COMPILED, tmp_path, TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr

"""The GPU kernel against the plain form."""

import pytest
import torch

from carbon.losses import fused
from carbon.losses.objectives import Objective
from carbon.losses.soft_mask import LossFactors
from tests.helpers.objectives import ALL_THREE, blend


@pytest.mark.parametrize("objective", [blend(0.4), ALL_THREE])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_kernel_equals_the_plain_form(objective: Objective, weighted: bool) -> None:
    from carbon.losses import kernel

    generator = torch.Generator().manual_seed(0)
    kmers = torch.randint(4096, (300,), generator=generator)
    known = torch.rand(300, 6, generator=generator) < 0.7
    logits = 20 * torch.randn(300, 4096, generator=generator)
    factors = there = None
    if weighted:
        factors = LossFactors(torch.rand(300), torch.rand(300, 6))
        there = LossFactors(*(each.cuda() for each in factors))
    expected, plain = fused.chunk_loss(logits, kmers, known, objective, factors, 0, False, True)
    on_gpu = logits.cuda(), kmers.cuda(), known.cuda()
    found, grad = kernel.chunk_loss(*on_gpu, objective, there, True)
    torch.testing.assert_close([x.cpu() for x in found], list(expected), rtol=1e-5, atol=1e-5)
    assert grad is not None
    torch.testing.assert_close(grad.cpu(), plain, rtol=1e-4, atol=1e-6)

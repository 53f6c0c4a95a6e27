"""Dropout before adapters."""

import copy

import pytest
import torch

from carbon.adapt.config import WayConfig
from carbon.adapt.dropout import Dropout
from tests.helpers.adapt import BINARY, adapted_of, base_folder


@pytest.mark.parametrize("shape", [(1000, 301), (7,), (3, 5, 2)])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_share_is_zero_and_the_rest_grows(shape, share):
    torch.manual_seed(0)
    values = (torch.rand(shape) + 1).requires_grad_()
    found = Dropout(share)(values)
    kept = found != 0
    torch.testing.assert_close(found[kept], values[kept] / (1 - share), rtol=1e-4, atol=0)
    gradient = torch.rand(shape) + 1
    found.backward(gradient)
    expected = torch.where(kept, gradient / (1 - share), 0.0)
    torch.testing.assert_close(values.grad, expected, rtol=1e-4, atol=0)
    if kept.numel() > 1000:
        assert float((~kept).float().mean()) == pytest.approx(share, abs=0.003)
        # The four draws of a word are as good as others: neighbours go as often as chance has it.
        gone = (~kept).float()
        assert float((gone[:, 1:] * gone[:, :-1]).mean()) == pytest.approx(share**2, abs=0.002)


def test_none_of_it_outside_of_training_and_the_same_by_a_seed():
    dropout, values = Dropout(0.3), torch.randn(50, 9)
    assert dropout.eval()(values) is values
    dropout.train()
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(dropout(values))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[1], drawn[2])


def test_adapters_have_it(tmp_path, network):
    folder = base_folder(tmp_path, copy.deepcopy(network))
    for share, number in ((0.1, 14), (0.0, 0)):
        way = WayConfig(name="lora", dropout=share)
        adapted, _ = adapted_of(folder, BINARY, way)
        there = [m for m in adapted.network.modules() if isinstance(m, Dropout)]
        assert len(there) == number and not any(m.training for m in there)

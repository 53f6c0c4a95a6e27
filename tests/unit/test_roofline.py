"""The arithmetic of a step against other ways of counting the same."""

import pytest
import torch
from transformers import LlamaForCausalLM

from bench import roofline
from carbon.model import PRESETS
from train.models.network import Sizes, flops_a_token


@pytest.mark.parametrize("preset", ["tiny", "8b"])
def test_operations_are_those_that_the_planner_counts(preset):
    found = roofline.works(preset)
    recomputed = found["attention"].flops / 7
    flops = sum(work.flops for work in found.values()) - recomputed
    expected = flops_a_token(PRESETS[preset](), roofline.ROW_TOKENS) * roofline.ROW_TOKENS
    assert flops == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("preset", ["500m", "3b"])
def test_weights_are_those_of_the_network(preset):
    config = PRESETS[preset]()
    with torch.device("meta"):
        network = LlamaForCausalLM(config)
    count = sum(weight.numel() for weight in network.parameters())
    assert roofline.parameters(Sizes.of(config)) == count


def test_the_longer_of_computing_and_moving_is_what_counts():
    card = roofline.Card(100, 10, 1)
    assert roofline.Work(200, 5).seconds(card) == 2
    assert roofline.Work(50, 30).seconds(card) == 3

"""What the tests of generation share."""

import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.inference import Model
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE


@pytest.fixture(scope="module")
def likeness(network) -> Model:
    """A draft that is like the network, but not quite."""
    like = LlamaForCausalLM(network.config).eval()
    like.load_state_dict(network.state_dict())
    with torch.no_grad():
        like.lm_head.weight += 0.02 * torch.randn(
            like.lm_head.weight.shape, generator=torch.Generator().manual_seed(3)
        )
    return Model(LoadedModel(like, NATIVE))

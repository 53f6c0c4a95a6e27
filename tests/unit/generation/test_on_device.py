"""6-mers drawn ahead, where the logits are: the text of the host's way, and nothing waited for."""

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.inference import Model, SamplingRule
from carbon.inference.generate import generate
from carbon.inference.generate.decode import Decoder
from carbon.inference.generate.sampling import draw
from carbon.inference.runner import ModelRunner
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE
from tests.conftest import small_config
from tests.helpers.generation import PROMPTS, RULES, other_network


@pytest.mark.parametrize(
    ("mode", "options", "prompts"),
    [
        ("token", {}, PROMPTS[::2]),
        ("base", {"temperature": 0.0}, PROMPTS[:8]),
        ("chain", {"top_p": 0.8}, PROMPTS[9:10]),
    ],
)
def test_text_drawn_ahead_is_the_same(mode, options, prompts, monkeypatch):
    """Rows end and start again, contexts fill, tails condition the first 6-mer."""
    model = other_network(5)
    expected = model.generate(prompts, 100, seed=4, mode=mode, **options)
    monkeypatch.setitem(generate._AHEAD, "cpu", 7)
    told: list[int] = []
    found = model.generate(prompts, 100, seed=4, mode=mode, advance=told.append, **options)
    assert found == expected
    assert sum(told) == 100 * len(prompts)


@pytest.mark.parametrize(("num_rows", "options"), [(1, RULES[1]), (8, RULES[-1])])
def test_no_token_waits_for_the_device(num_rows, options):
    """Tensors without data refuse `.item()`, `.tolist()`, `bool()`, `.cpu()` and `nonzero`."""
    with torch.device("meta"):
        network = LlamaForCausalLM(small_config(700)).to(torch.bfloat16).eval()
    reader = ModelRunner(LoadedModel(network, NATIVE), batch_tokens=4096)
    decoder = Decoder(reader, ["A" * 6 * 125] * num_rows, ())
    logits = decoder.extend([[] for _ in range(num_rows)])[:, 0]
    numbers = decoder.to_device(np.random.default_rng(0).random((num_rows, 6)))
    with torch.inference_mode():
        kmers = draw(logits, SamplingRule(**options), numbers)
        for _ in range(4):  # past the first 128 places
            logits, kmers = decoder.draw_next(kmers, numbers, SamplingRule(**options))
    assert (logits.device.type, logits.shape) == ("meta", (num_rows, 4096))
    with pytest.raises((RuntimeError, NotImplementedError)):
        kmers.tolist()


def test_what_takes_no_mask_has_a_network_beside_it_that_does():
    """Over the same weights, and nothing is switched from pass to pass."""
    model = other_network(5)
    expected = model.generate(PROMPTS[:8], 60, seed=1)
    network = model.model.network
    network.config._attn_implementation = "flash_attention_2"
    beside = Model(model.model)
    assert beside.generate(PROMPTS[:8], 60, seed=1) == expected
    masked = beside.runner.masked_network
    assert masked.config._attn_implementation == "sdpa"
    assert network.config._attn_implementation == "flash_attention_2"
    pairs = zip(masked.parameters(), network.parameters(), strict=True)
    assert all(here is there for here, there in pairs)

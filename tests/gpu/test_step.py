"""One step of training in every way of computing, against eager fp32 with a mask on the CPU."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from carbon.io.config import read_table
from carbon.losses.objectives import FNS
from tests.helpers.packed import batch
from tests.helpers.runs import RECIPE
from train.config import ParallelConfig, TrainConfig
from train.distributed.attention import _why_not
from train.distributed.float8 import why_no_float8
from train.distributed.mesh import joined_ranks, local, named_parameters, trained_parameters
from train.distributed.parallelize import build_stages
from train.distributed.pipeline import Pipeline, finish_gradients
from train.optim import make_optimizers
from train.planning.compute import ATTENTIONS

KINDS: dict[str, dict[str, Any]] = {
    "eager": {"attention": "sdpa"},
    "as_shipped": {},
    "compiled": {"compile": True},
    "varlen": {"attention": "varlen"},
    "flash_attention_2": {"attention": "flash_attention_2"},
    "flash_attention_3": {"attention": "flash_attention_3"},
    "selective": {"activation_checkpointing": "selective"},
    "selective_compiled": {"activation_checkpointing": "selective", "compile": True},
    "full": {"activation_checkpointing": "full"},
    "float8": {"float8": True},
    "float8_compiled": {"float8": True, "compile": True},
}
GIVEN = [batch([[40, 24], [64]], seed=0), batch([[10, 30, 24], [33, 31]], seed=1)]


class Step(NamedTuple):
    """What a step finds: nats a token, the norm and the gradients by name, and what it changes."""

    loss: float
    norm: float
    gradients: dict[str, Tensor]
    largest_change: float


def step_of(device: str, **compute: Any) -> Step:
    """Take two microbatches through `tiny`, whose weights depend on the seed alone."""
    table = read_table(RECIPE)
    table["compute"] = {"device": device, **compute}
    config = TrainConfig.from_table(table, "recipe")
    torch._dynamo.reset()
    with joined_ranks(ParallelConfig(), device) as ranks:
        parts = build_stages(config, ranks)
        (optimizer,) = make_optimizers(config.optimizer, trained_parameters(parts))
        named = named_parameters(parts)
        before = {name: local(p).detach().cpu().clone() for name, p in named.items()}
        given = [one.to(ranks.device) for one in GIVEN]
        sums = Pipeline(config, ranks, parts).forward_backward(given, FNS)
        norm = finish_gradients(parts, ranks, sums.num_tokens, 1.0)
        gradients = {name: local(p.grad).cpu().float().clone() for name, p in named.items()}
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        optimizer.step()
        after = {name: local(p).detach().cpu() for name, p in named.items()}
        changes = [(after[name] - before[name]).abs().max() for name in named]
        return Step(
            float(sums.loss / sums.num_tokens),
            float(norm),
            gradients,
            float(torch.stack(changes).max()),
        )


@pytest.fixture(scope="module")
def expected() -> Step:
    """Return the reference: eager, fp32, SDPA with a mask, on the CPU."""
    return step_of("cpu", attention="sdpa", dtype="float32")


# On the CPU the stand-ins for kernels make what is compiled slow: it is left to the nightly tests.
ON_CPU = {"as_shipped", "full"}
CASES = [
    pytest.param(
        device, kind, marks=[pytest.mark.nightly] if device == "cpu" and kind not in ON_CPU else []
    )
    for device in ("cpu", "cuda")
    for kind in KINDS
]


@pytest.mark.parametrize(("device", "kind"), CASES, indirect=["device"])
def test_a_step_finds_what_the_reference_finds(device: str, kind: str, expected: Step) -> None:
    compute, used = KINDS[kind], torch.device(device)
    if why := why_no_float8(used) if "float8" in compute else "":
        pytest.skip(why)
    attention = str(compute.get("attention", "sdpa"))
    if device == "cuda" and (why := _why_not(attention, used)):
        pytest.skip(why)
    assert attention in ATTENTIONS
    found = step_of(device, **compute)
    in_fp32 = device == "cpu"  # bf16 has 8 bits, e4m3 four: the share of a gradient that is right
    likeness = 0.95 if "float8" in compute else (0.9999 if in_fp32 else 0.99)
    close = 1e-4 if in_fp32 and "float8" not in compute else 0.02
    assert found.loss == pytest.approx(expected.loss, rel=close)
    assert found.norm == pytest.approx(expected.norm, rel=5 * close)
    assert found.gradients.keys() == expected.gradients.keys()
    for name, gradient in found.gradients.items():
        wanted = expected.gradients[name].flatten()
        assert torch.cosine_similarity(gradient.flatten(), wanted, dim=0) > likeness, name
    # The first step of Adam is as long as its rate, but for a weight's decay.
    assert found.largest_change == pytest.approx(1e-3, rel=0.05)

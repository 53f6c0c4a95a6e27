"""The device that a test computes on; the CPU runs the same code over kernels that stand in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.helpers.attention import kernels_on_cpu
from tests.helpers.graphs import graphs_on_cpu
from tests.helpers.runs import small_corpus


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return a small corpus."""
    return small_corpus()


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return `cuda`, and `cpu` so that the tests themselves are held where there is no GPU."""
    if request.param == "cuda":
        torch.cuda.manual_seed(0)
        yield "cuda"
        return
    compiled = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self: compiled(self, backend="aot_eager"))
    monkeypatch.setattr(
        "train.distributed.parallelize.chosen_attention",
        lambda compute, *_: "sdpa" if compute.attention == "auto" else compute.attention,
    )
    with kernels_on_cpu(), graphs_on_cpu():
        yield "cpu"

"""What is set once for a process before a run: determinism, and how often layers are compiled."""

import os

import torch

from train.config import ComputeConfig

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_GRAPHS_A_LENGTH = 4
"""Of a compiled layer: whole microbatches and the rest of a share, with gradients and without."""


def set_up(compute: ComputeConfig, num_lengths: int) -> None:
    """Let this process compute as a run asks.

    Args:
        compute: of the run.
        num_lengths: how many lengths its rows have.
    """
    if compute.deterministic:
        os.environ.setdefault(_CUBLAS, ":4096:8")  # which cuBLAS reads when it is first used
        torch.use_deterministic_algorithms(True)
    if compute.compile:
        from torch._dynamo import config as dynamo

        # Beyond the limit a layer would go on without being compiled, in silence.
        enough = _GRAPHS_A_LENGTH * num_lengths
        dynamo.recompile_limit = max(dynamo.recompile_limit, enough)
    if compute.deterministic and compute.compile:
        from torch._inductor import config as inductor

        inductor.deterministic = True  # kernels are chosen by rule, and not by timing them


class CompiledGraphs:
    """Counts the graphs that layers of this process are compiled into.

    Attributes:
        total: since this was made.
    """

    def __init__(self, compute: ComputeConfig) -> None:
        """Begin to count."""
        self._compiles = compute.compile
        self._before = self._now()
        self.total = 0

    def new(self) -> int:
        """Return how many there are since this was last asked."""
        before, self.total = self.total, self._now() - self._before
        return self.total - before

    def _now(self) -> int:
        if not self._compiles:
            return 0
        from torch._dynamo.utils import counters

        return counters["stats"]["unique_graphs"]

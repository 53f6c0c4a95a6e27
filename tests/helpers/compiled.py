"""A backend of `torch.compile` that runs graphs as they are, and notes them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd


class Noted:
    """Graphs are divided into forward and backward as inductor would have it.

    Attributes:
        num_graphs: so far.
        backward: what the graphs of backward compute, by the names of operators.
    """

    def __init__(self) -> None:
        self.num_graphs = 0
        self.backward: Counter[str] = Counter()
        self._compile = aot_autograd(
            fw_compiler=lambda graph, inputs: make_boxed_func(graph),
            bw_compiler=self._note,
            partition_fn=min_cut_rematerialization_partition,
        )

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.num_graphs += 1
        return self._compile(graph, inputs)

    def _note(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        targets = [node.target for node in graph.graph.nodes]
        self.backward.update(t.name() for t in targets if isinstance(t, torch._ops.OpOverload))
        return make_boxed_func(graph)

"""CUDA graphs on a CPU: what is computed is recorded with its memory, and replayed there.

As on a GPU, a graph has operators, their tensors by address, and the host's numbers as they were;
what asks for contents while it is recorded is refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

REFUSED = {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal"}


class GraphOnCpu:
    """Stands in for `torch.cuda.CUDAGraph`.

    Attributes:
        made: of all that were made, in order.
        operators: what was recorded: the operator, its tensors and other arguments, its results.
        num_replays: so far.
    """

    made: list["GraphOnCpu"] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.operators: list[tuple[Callable[..., Any], Any, Any, list[Tensor]]] = []
        self.num_replays = 0
        self.made.append(self)

    def replay(self) -> None:
        """Compute all again, from what is in the tensors into the tensors."""
        self.num_replays += 1
        for operator, args, kwargs, found in self.operators:
            again = [x for x in tree_leaves(operator(*args, **kwargs)) if isinstance(x, Tensor)]
            for old, new in zip(found, again, strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Capture(TorchDispatchMode):
    """Stands in for `torch.cuda.graph`."""

    def __init__(self, graph: GraphOnCpu, stream: object, capture_error_mode: str) -> None:
        super().__init__()
        self._graph = graph

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.name() in REFUSED:
            raise RuntimeError(f"{func.name()} asks the device while it is captured")
        result = func(*args, **(kwargs or {}))
        found = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        self._graph.operators.append((func, args, kwargs or {}, found))
        return result


class _Stream:
    def wait_stream(self, other: Self) -> None:
        pass


@contextmanager
def graphs_on_cpu(tokens_ahead: int = 16) -> Iterator[list[GraphOnCpu]]:
    """Let 6-mers be drawn ahead by graphs that are captured on the CPU; give those that are."""
    GraphOnCpu.made = []
    with mock.patch.multiple(
        torch.cuda,
        CUDAGraph=GraphOnCpu,
        graph=Capture,
        Stream=_Stream,
        current_stream=_Stream,
        stream=lambda stream: nullcontext(),
        device=lambda device: nullcontext(),
    ), mock.patch("carbon.inference.generate.decode._GRAPH_DEVICES", {"cpu"}), mock.patch.dict(
        "carbon.inference.generate.generate._AHEAD", cpu=tokens_ahead
    ), mock.patch(  # NumPy, which sorts on a CPU, leaves no operator in a graph
        "carbon.inference.generate.sampling._descending",
        lambda weights: weights.sort(dim=-1, descending=True).values,
    ):  # fmt: skip
        yield GraphOnCpu.made

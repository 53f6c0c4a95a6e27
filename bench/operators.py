"""What an operator-by-operator count says of some work: launches, and reads that wait for them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# They make room, or another look at what is there, and compute nothing.
_NO_WORK = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "lift_fresh", "detach"),
        *("_unsafe_view", "_reshape_alias", "_fused_sdp_choice"),
    )
)
_READS = frozenset(
    f"aten::{name}"
    for name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2")
)
# Copies to the host, of which a tensor of the host itself makes no operator.
_COPIES = ("cpu", "tolist")


class Counts:
    """What was counted.

    Attributes:
        launches: operators that compute: where there is a GPU, a kernel each at least.
        reads: of numbers from the device, for each of which the host waits.
        passes: of the network.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.launches = self.reads = self.passes = 0


class _Operators(TorchDispatchMode):
    """Counts what one thread computes."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        with self:  # what is made of several operators is none itself
            found = func.decompose(*args, **given)
        if found is not NotImplemented:
            return found
        name = func.name().partition(".")[0]
        if name in _READS:
            self._counts.reads += 1
        elif not func.is_view and name not in _NO_WORK:
            self._counts.launches += 1
        return func(*args, **given)


@contextmanager
def counted(network: torch.nn.Module) -> Iterator[Counts]:
    """Count what is computed meanwhile, by this thread and by those that begin."""
    counts = Counts()

    def passed(*_: Any) -> None:
        counts.passes += 1

    def copying(copy: Callable[..., Any]) -> Callable[..., Any]:
        def copied(*given: Any) -> Any:
            counts.reads += 1
            return copy(*given)

        return copied

    run = threading.Thread.run

    def run_counted(thread: threading.Thread) -> None:
        with _Operators(counts):  # a mode is of one thread
            run(thread)

    with ExitStack() as stack:
        stack.callback(network.register_forward_pre_hook(passed).remove)
        stack.enter_context(patch.object(threading.Thread, "run", run_counted))
        for name in _COPIES:
            copy = getattr(torch.Tensor, name)
            stack.enter_context(patch.object(torch.Tensor, name, copying(copy)))
        stack.enter_context(_Operators(counts))
        yield counts

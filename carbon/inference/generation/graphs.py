"""Work of a GPU that is captured once and replayed: one launch where there were hundreds."""

from collections.abc import Callable
from threading import Lock

import torch
from torch import Tensor

_ONE_CAPTURE = Lock()  # CUDA allows no two in a process


class Replayed:
    """A function of tensors as a CUDA graph.

    The graph has the kernels of one call with the memory that they read and write. So the function
    asks nothing of the device, all shapes follow from those of its tensors, and what changes from
    call to call is in them: a number of the host would stay what it was at the capture.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], *given: Tensor) -> None:
        """Call the function twice on tensors like these: to warm up, and for the capture."""
        self._given = tuple(tensor.clone() for tensor in given)
        with _ONE_CAPTURE, torch.cuda.device(given[0].device):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function(*self._given)  # libraries take their memory here, and not in the graph
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            # Another thread may go on with its own work, which is not part of this.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._found = function(*self._given)

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return what the function finds for other contents; nothing waits for the device."""
        for tensor, new in zip(self._given, given, strict=True):
            tensor.copy_(new)
        self._graph.replay()
        return tuple(tensor.clone() for tensor in self._found)

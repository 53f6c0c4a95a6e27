"""Decoders that share their weights with another and run other layers of it.

A forward hook would be state on the shared module: another thread's pass would call it too.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

Decoder = TypeVar("Decoder", bound=nn.Module)


def decoder_with(decoder: Decoder, **modules: nn.Module) -> Decoder:
    """Return a decoder that shares all modules with another but for those that are named.

    The decoder that is passed in is not changed, so that several threads may run it.

    Args:
        decoder: a stock decoder, whose forward pass runs `embed_tokens`, `layers` and `norm`.
        **modules: by those names, what the new one runs instead; `nn.Identity()` runs nothing.
    """
    view = copy.copy(decoder)
    view._modules = {**decoder._modules, **modules}
    return view


class Observed(nn.Module):
    """A layer that runs as it is and passes the states after it to a function."""

    def __init__(self, layer: nn.Module, observe: Callable[[Tensor], None]) -> None:
        """Wrap a layer, which is not changed."""
        super().__init__()
        self._layer, self._observe = layer, observe

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Return what the layer returns."""
        output = self._layer(*inputs, **options)
        self._observe(output[0] if isinstance(output, tuple) else output)
        return output

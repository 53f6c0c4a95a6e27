"""Carbon: generative DNA language models, scored and sampled on any machine.

>>> import carbon
>>> carbon.reverse_complement("AACG")
'CGTT'

Names are loaded when first used, so that `import carbon` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from carbon.__version__ import __version__

if TYPE_CHECKING:
    from carbon import adapt, box
    from carbon.adapt.loading import load_adapted
    from carbon.adapt.predictor import Adapted
    from carbon.design.tuning import tune
    from carbon.errors import UserError
    from carbon.genome import Interval, Reference, Variant, read_annotation, reverse_complement
    from carbon.inference import (
        Carbon,
        Constraints,
        Draft,
        ScanChunk,
        SequenceScore,
        VariantScore,
        join_chunks,
        load,
    )
    from carbon.tokenizer import decode, encode
    from carbon.tokenizer.pretrained import HybridDNATokenizer, NativeDNATokenizer

_HOMES = {
    "Adapted": "carbon.adapt.predictor",
    "UserError": "carbon.errors",
    "Interval": "carbon.genome",
    "Reference": "carbon.genome",
    "Variant": "carbon.genome",
    "read_annotation": "carbon.genome",
    "reverse_complement": "carbon.genome",
    "Carbon": "carbon.inference",
    "ScanChunk": "carbon.inference",
    "Constraints": "carbon.inference",
    "Draft": "carbon.inference",
    "SequenceScore": "carbon.inference",
    "VariantScore": "carbon.inference",
    "join_chunks": "carbon.inference",
    "load": "carbon.inference",
    "load_adapted": "carbon.adapt.loading",
    "HybridDNATokenizer": "carbon.tokenizer.pretrained",
    "NativeDNATokenizer": "carbon.tokenizer.pretrained",
    "decode": "carbon.tokenizer",
    "encode": "carbon.tokenizer",
    "tune": "carbon.design.tuning",
}

_MODULES = ("adapt", "box")

__all__ = [
    "Adapted",
    "Carbon",
    "Constraints",
    "Draft",
    "HybridDNATokenizer",
    "Interval",
    "NativeDNATokenizer",
    "Reference",
    "ScanChunk",
    "SequenceScore",
    "UserError",
    "Variant",
    "VariantScore",
    "__version__",
    "adapt",
    "box",
    "decode",
    "encode",
    "join_chunks",
    "load",
    "load_adapted",
    "read_annotation",
    "reverse_complement",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"carbon.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'carbon' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__

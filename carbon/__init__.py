"""Carbon: train and use generative DNA language models on any machine.

>>> import carbon
>>> carbon.reverse_complement("AACG")
'CGTT'

Names are imported on first use, so `import carbon` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from carbon.__version__ import __version__

if TYPE_CHECKING:
    from carbon import design, finetune, pretrained, rl
    from carbon.errors import UserError
    from carbon.finetune.load import load_finetuned
    from carbon.finetune.predict import FinetunedModel
    from carbon.genome import Interval, Reference, Variant, read_annotation, reverse_complement
    from carbon.genome.genome import Genome
    from carbon.inference import (
        Constraints,
        Draft,
        Model,
        ScanChunk,
        SequenceScore,
        VariantScore,
        join_chunks,
        load,
    )
    from carbon.tokenizer import decode, encode
    from carbon.tokenizer.tokenizers import HybridDNATokenizer, NativeDNATokenizer

_HOMES = {
    "FinetunedModel": "carbon.finetune.predict",
    "UserError": "carbon.errors",
    "Genome": "carbon.genome.genome",
    "Interval": "carbon.genome",
    "Reference": "carbon.genome",
    "Variant": "carbon.genome",
    "read_annotation": "carbon.genome",
    "reverse_complement": "carbon.genome",
    "Model": "carbon.inference",
    "ScanChunk": "carbon.inference",
    "Constraints": "carbon.inference",
    "Draft": "carbon.inference",
    "SequenceScore": "carbon.inference",
    "VariantScore": "carbon.inference",
    "join_chunks": "carbon.inference",
    "load": "carbon.inference",
    "load_finetuned": "carbon.finetune.load",
    "HybridDNATokenizer": "carbon.tokenizer.tokenizers",
    "NativeDNATokenizer": "carbon.tokenizer.tokenizers",
    "decode": "carbon.tokenizer",
    "encode": "carbon.tokenizer",
}

_MODULES = ("design", "finetune", "pretrained", "rl")

__all__ = [
    "Constraints",
    "Draft",
    "FinetunedModel",
    "Genome",
    "HybridDNATokenizer",
    "Interval",
    "Model",
    "NativeDNATokenizer",
    "Reference",
    "ScanChunk",
    "SequenceScore",
    "UserError",
    "Variant",
    "VariantScore",
    "__version__",
    "decode",
    "design",
    "encode",
    "finetune",
    "join_chunks",
    "load",
    "load_finetuned",
    "pretrained",
    "read_annotation",
    "reverse_complement",
    "rl",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"carbon.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'carbon' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__

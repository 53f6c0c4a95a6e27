"""Carbon: train and use generative DNA language models on any machine.

>>> import carbon
>>> carbon.reverse_complement("AACG")
'CGTT'

Names are imported on first use, so `import carbon` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from carbon.__version__ import __version__
from carbon.lazy import lazy_names

if TYPE_CHECKING:
    from carbon import compare, design, finetune, pretrained, rl
    from carbon.errors import UserError
    from carbon.finetune.predict import FinetunedModel, load_finetuned
    from carbon.genome import (
        Interval,
        Reference,
        SequenceRecord,
        Variant,
        VcfReader,
        VcfRow,
        read_annotation,
        read_fasta,
        read_vcf,
        reverse_complement,
    )
    from carbon.genome.genome import Genome
    from carbon.inference import (
        Constraints,
        DependencyMap,
        Draft,
        Model,
        ScanChunk,
        SequenceScore,
        VariantScore,
        join_chunks,
        load,
    )
    from carbon.io.rows import Table
    from carbon.tokenizer import decode, encode
    from carbon.tokenizer.tokenizers import HybridDNATokenizer, NativeDNATokenizer

_HOMES = {
    "FinetunedModel": "carbon.finetune.predict",
    "UserError": "carbon.errors",
    "Genome": "carbon.genome.genome",
    "Interval": "carbon.genome",
    "Reference": "carbon.genome",
    "SequenceRecord": "carbon.genome",
    "Variant": "carbon.genome",
    "VcfReader": "carbon.genome",
    "VcfRow": "carbon.genome",
    "read_annotation": "carbon.genome",
    "read_fasta": "carbon.genome",
    "read_vcf": "carbon.genome",
    "reverse_complement": "carbon.genome",
    "Model": "carbon.inference",
    "ScanChunk": "carbon.inference",
    "Constraints": "carbon.inference",
    "DependencyMap": "carbon.inference",
    "Draft": "carbon.inference",
    "SequenceScore": "carbon.inference",
    "VariantScore": "carbon.inference",
    "join_chunks": "carbon.inference",
    "load": "carbon.inference",
    "load_finetuned": "carbon.finetune.predict",
    "Table": "carbon.io.rows",
    "HybridDNATokenizer": "carbon.tokenizer.tokenizers",
    "NativeDNATokenizer": "carbon.tokenizer.tokenizers",
    "decode": "carbon.tokenizer",
    "encode": "carbon.tokenizer",
}

_MODULES = ("compare", "design", "finetune", "pretrained", "rl")

__all__ = [
    "Constraints",
    "DependencyMap",
    "Draft",
    "FinetunedModel",
    "Genome",
    "HybridDNATokenizer",
    "Interval",
    "Model",
    "NativeDNATokenizer",
    "Reference",
    "ScanChunk",
    "SequenceRecord",
    "SequenceScore",
    "Table",
    "UserError",
    "Variant",
    "VariantScore",
    "VcfReader",
    "VcfRow",
    "__version__",
    "compare",
    "decode",
    "design",
    "encode",
    "finetune",
    "join_chunks",
    "load",
    "load_finetuned",
    "pretrained",
    "read_annotation",
    "read_fasta",
    "read_vcf",
    "reverse_complement",
    "rl",
]


_find = lazy_names("carbon", _HOMES)


if not TYPE_CHECKING:  # a type checker reports names that do not exist

    def __getattr__(name: str) -> Any:
        return import_module(f"carbon.{name}") if name in _MODULES else _find(name)


def __dir__() -> list[str]:
    return __all__

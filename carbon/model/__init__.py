"""Stock Llama networks for DNA: sizes, loading, saving, the 4,096-row head."""

from carbon.model.checkpoint import LoadedModel, load_model, name_tags, save_model, vocabulary_of
from carbon.model.head import kmer_logits
from carbon.model.presets import PRESETS

__all__ = [
    "PRESETS",
    "LoadedModel",
    "kmer_logits",
    "load_model",
    "name_tags",
    "save_model",
    "vocabulary_of",
]

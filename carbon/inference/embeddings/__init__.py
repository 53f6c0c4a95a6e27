"""A vector a sequence."""

from carbon.inference.embeddings.vectors import Float32s, embed_sequences

__all__ = ["Float32s", "embed_sequences"]

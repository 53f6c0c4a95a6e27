"""How outer gradients are written: what a recipe can name, and how many bytes each takes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

Layout = dict[str, tuple[str, tuple[int, ...]]]
"""From a part to its dtype, as safetensors names it, and its shape."""

DTYPE_BYTES = {"F32": 4, "BF16": 2, "I8": 1, "U8": 1}
INT8_BLOCK = 256
INT4_BLOCK = 64
TOP_CHUNK = 4096
"""Numbers that an index of `TOP_INDEX_BITS` finds one of."""
TOP_KEPT = 64
"""Of a whole chunk; of the rest of a tensor, the same share."""
TOP_INDEX_BITS = 12
TOP_CODE_BITS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class CodecChoice:
    """A way to write a tensor of fp32.

    Attributes:
        name: in a recipe and in the record of a round.
        label: in a sentence.
        layout: from the numbers of a tensor to its parts as they are stored.
        feedback: share of what was not sent that is sent with the next one (error feedback); None
            if nothing is kept.
    """

    name: str
    label: str
    layout: Callable[[int], Layout]
    feedback: float | None = None

    def num_bytes(self, numel: int) -> int:
        """Return the bytes of all parts of a tensor."""
        parts = self.layout(numel).values()
        return sum(DTYPE_BYTES[dtype] * math.prod(shape) for dtype, shape in parts)


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of `count` numbers of `bits` bits, in groups that fill whole bytes."""
    group_bits = math.lcm(bits, 8)
    return math.ceil(count * bits / group_bits) * group_bits // 8


def top_kept(numel: int) -> int:
    """Return how many numbers of a tensor are sent: of the rest of a chunk, one at least."""
    whole, rest = divmod(numel, TOP_CHUNK)
    return whole * TOP_KEPT + math.ceil(rest * TOP_KEPT / TOP_CHUNK)


def _int8(numel: int) -> Layout:
    return {"codes": ("I8", (numel,)), "scales": ("F32", (math.ceil(numel / INT8_BLOCK),))}


def _int4(numel: int) -> Layout:
    scales = math.ceil(numel / INT4_BLOCK)
    return {"codes": ("U8", (packed_bytes(numel, 4),)), "scales": ("F32", (scales,))}


def _top2(numel: int) -> Layout:
    kept, chunks = top_kept(numel), math.ceil(numel / TOP_CHUNK)
    return {
        "indices": ("U8", (packed_bytes(kept, TOP_INDEX_BITS),)),
        "codes": ("U8", (packed_bytes(kept, TOP_CODE_BITS),)),
        "magnitudes": ("F32", (chunks, 2)),
    }


CODEC_CHOICES = {
    choice.name: choice
    for choice in (
        CodecChoice(
            name="fp32", label="numbers as they are", layout=lambda n: {"values": ("F32", (n,))}
        ),
        CodecChoice(
            name="bf16", label="16-bit floats", layout=lambda n: {"values": ("BF16", (n,))}
        ),
        CodecChoice(
            name="int8", label=f"8-bit integers with a scale for {INT8_BLOCK}", layout=_int8
        ),
        CodecChoice(
            name="int4", label=f"4-bit integers with a scale for {INT4_BLOCK}", layout=_int4
        ),
        CodecChoice(
            name="top2",
            label=f"the largest {TOP_KEPT} of {TOP_CHUNK:,} in 2 bits, the rest sent later",
            layout=_top2,
            feedback=0.95,
        ),
    )
}

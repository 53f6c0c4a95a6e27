"""Kernels of attention over packed rows, in which it stays inside a piece."""

from dataclasses import dataclass

from carbon.io.config import check


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """A way to attend.

    Attributes:
        has_mask: of all pairs of positions; else it is told where pieces begin and end, needs a
            GPU, and knows no fp32.
        module: a package that has it beside torch; empty for torch itself.
    """

    has_mask: bool = False
    module: str = ""


ATTENTIONS = {
    "sdpa": Attention(has_mask=True),
    "varlen": Attention(),
    "flash_attention_2": Attention(module="flash_attn"),
    "flash_attention_3": Attention(module="flash_attn_interface"),
}


def attention_of(asked: str, dtype: str, *, on_gpu: bool) -> str:
    """Return the attention that a run uses.

    Args:
        asked: one of the choices.
        dtype: that computes.
        on_gpu: where it does.

    Raises:
        ConfigError: that one needs a GPU, or bf16.
    """
    can_do_without_mask = on_gpu and dtype == "bfloat16"
    if asked == "auto":
        return "varlen" if can_do_without_mask else "sdpa"
    check(
        can_do_without_mask or ATTENTIONS[asked].has_mask,
        f"compute.attention = {asked!r}: needs a GPU and bfloat16; leave it out",
    )
    return asked

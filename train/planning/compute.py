"""Kernels of attention over packed rows, in which it stays inside a piece."""

from dataclasses import dataclass

from carbon.io.config import check


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """A way to attend.

    Attributes:
        has_mask: of all pairs of positions; else it takes the bounds of segments, needs a
            GPU, and knows no fp32.
        module: the package that provides it; empty for torch itself.
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


DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
"""Names of torch's dtypes of products and activations, with the bytes of a number."""


def dtype_of(asked: str, *, on_gpu: bool) -> str:
    """Return the dtype that a run computes in; `auto` is bf16 on a GPU and fp32 on a CPU."""
    if asked == "auto":
        return "bfloat16" if on_gpu else "float32"
    return asked


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationCheckpointing:
    """Activations of a layer that backward recomputes.

    Attributes:
        recomputes: whether any are; the input of the layer is always kept.
        keeps_products: not the results of matrix products and of attention, which cost the most.
    """

    recomputes: bool
    keeps_products: bool

    @property
    def repeats_forward(self) -> bool:
        """Whether backward takes the operations of another forward, products among them."""
        return self.recomputes and not self.keeps_products


ACTIVATION_CHECKPOINTINGS = {
    "none": ActivationCheckpointing(recomputes=False, keeps_products=True),
    "selective": ActivationCheckpointing(recomputes=True, keeps_products=True),
    "full": ActivationCheckpointing(recomputes=True, keeps_products=False),
}

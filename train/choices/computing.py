"""How a process computes: in which dtype, and what of a layer is kept for backward."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComputeDtype:
    """Names of torch's dtypes of products and activations, with a GPU and without one."""

    on_gpu: str
    on_cpu: str

    def name(self, on_gpu: bool) -> str:
        """Return the one for a device."""
        return self.on_gpu if on_gpu else self.on_cpu


COMPUTE_DTYPES = {
    "auto": ComputeDtype(on_gpu="bfloat16", on_cpu="float32"),
    "float32": ComputeDtype(on_gpu="float32", on_cpu="float32"),
    "bfloat16": ComputeDtype(on_gpu="bfloat16", on_cpu="bfloat16"),
}
DTYPE_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationCheckpointing:
    """What of a layer is computed anew in backward.

    Attributes:
        computes_anew: whether anything is; what goes into the layer is kept at any rate.
        keeps_products: not the results of matrix products and of attention, which cost the most.
    """

    computes_anew: bool
    keeps_products: bool

    @property
    def repeats_forward(self) -> bool:
        """Whether backward takes the operations of another forward, products among them."""
        return self.computes_anew and not self.keeps_products


ACTIVATION_CHECKPOINTINGS = {
    "none": ActivationCheckpointing(computes_anew=False, keeps_products=True),
    "selective": ActivationCheckpointing(computes_anew=True, keeps_products=True),
    "full": ActivationCheckpointing(computes_anew=True, keeps_products=False),
}

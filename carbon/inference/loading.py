"""Loading a model: what `carbon.load` is."""

from pathlib import Path
from typing import Literal

import torch
from transformers.utils.import_utils import is_flash_attn_2_available

from carbon.devices import default_device
from carbon.errors import UserError
from carbon.inference.engine import Carbon
from carbon.model import load_model
from carbon.options import Dtype, check_choice

DTYPES: dict[Dtype, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(
    source: str | Path,
    *,
    device: str = "auto",
    dtype: Dtype | Literal["auto"] = "auto",
    attention: str = "auto",
    yarn: float | None = None,
) -> Carbon:
    """Load a model folder, a model of the box, or the Hub's of that name, to score and generate.

    A local folder comes before a model in the box of that name.

    Args:
        source: the `export/` folder of a run, any stock folder with one of the vocabularies, or a
            name such as `yeast`: `carbon models` lists what is in the box.
        device: `cpu`, `cuda`, `mps` (not tried), or `auto` for a CUDA GPU where there is one.
        dtype: of weights and activations, `auto` for bfloat16 on a CUDA GPU and float32 elsewhere;
            log-probabilities are always float32.
        attention: `sdpa`, `flash_attention_2`, or `auto`: the latter where it is installed, the
            device is a CUDA GPU and the dtype one it knows.
        yarn: stretch the context by this factor with YaRN (Peng et al. 2023, arXiv 2309.00071); the
            released models are stretched by 4.

    Raises:
        ModelError: the folder is absent, incomplete or of another kind.
        UserError: the device, dtype or attention is not there.
    """
    if device == "auto":
        device = default_device()
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    check_choice("dtype", dtype, DTYPES)
    if attention == "auto":
        has_flash = is_flash_attn_2_available() and dtype == "bfloat16" and device != "cpu"
        attention = "flash_attention_2" if has_flash else "sdpa"
    model = load_model(source, DTYPES[dtype], attention=attention, yarn=yarn)
    try:
        model.network.to(device)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device '{device}' cannot be used: {str(error).splitlines()[0]}") from None
    return Carbon(model)

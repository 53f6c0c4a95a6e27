"""Save and load fine-tuned networks: a safetensors head, a stock model or adapter folder."""

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from carbon.errors import ModelError, UserError
from carbon.finetune.folder import (
    ADAPTER,
    HEAD,
    MODEL,
    Manifest,
    read_manifest,
    weights_sha256,
    write_manifest,
)
from carbon.finetune.linear import Linear
from carbon.finetune.network import FinetunedNetwork, Head, OpenedModel
from carbon.finetune.predict import FinetunedModel
from carbon.inference.options import Dtype
from carbon.model import LoadedModel, model_folder
from carbon.model.load import no_bars
from carbon.tokenizer import K


def load_finetuned(
    folder: str | Path,
    *,
    base: str | Path | None = None,
    device: str = "auto",
    dtype: Dtype = "float32",
) -> FinetunedModel:
    """Load what `carbon finetune` wrote, to predict.

    Args:
        folder: with `finetune.json`.
        base: where the model that was fine-tuned lies, if not where it lay; not needed for `full`.
        device: `cpu`, `cuda`, or `auto`.
        dtype: of the backbone; the head is float32.

    Raises:
        ModelError: the folder is damaged, the base model is absent or another one.
        UserError: the device is not there.
    """
    from carbon.inference import load

    folder = Path(folder)
    manifest = read_manifest(folder)
    source = folder / MODEL if manifest.way == "full" else _base_of(folder, manifest, base)
    model = load(source, device=device, dtype=dtype).model
    opened = OpenedModel(model, manifest.layer)
    backbone: nn.Module = opened.backbone
    if manifest.way == "lora":
        backbone = _with_adapter(opened.backbone, folder / ADAPTER)
    head = read_head(folder, manifest, opened.backbone.config.hidden_size)
    network = FinetunedNetwork(backbone, head, per_base=manifest.question.per_base)
    return FinetunedModel(network.to(model.network.device).eval(), model.vocabulary, manifest)


def _base_of(folder: Path, manifest: Manifest, given: str | Path | None) -> Path:
    """Return the folder of the base model, whose weights are those that were fine-tuned."""
    source: Any = given or manifest.base
    if not given and not Path(source).exists() and (folder / source).exists():
        source = folder / source
    try:
        found = model_folder(source).path
    except ModelError as error:
        if given:
            raise
        raise ModelError(
            f"{error} (the base model of {folder}: say with --base where it is)"
        ) from None
    if weights_sha256(found) != manifest.base_sha256:
        raise ModelError(
            f"{folder}: was made on other weights than those of {source}; give its base model, "
            f"whose SHA-256 begins with {manifest.base_sha256[:12]}, with --base"
        )
    return found


def _with_adapter(backbone: Any, folder: Path) -> nn.Module:
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(f"{folder}: needs peft; install carbon-dna[finetune]") from None
    try:
        return PeftModel.from_pretrained(backbone, str(folder))
    except Exception as error:  # torn files surface as errors of many libraries
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{folder}: the adapter cannot be loaded: {reason}") from None


def head_for(manifest: Manifest, width: int) -> Head:
    """Return a head of the right shape for a model of so many channels."""
    joined, of_token = (2, K) if manifest.question.per_base else (1, 1)
    return Head(width * joined, manifest.question.num_outputs * of_token, norm=manifest.norm)


def read_head(folder: Path, manifest: Manifest, width: int) -> Head:
    """Read the head.

    Raises:
        ModelError: it is absent or torn, or its tensors are not those that `finetune.json` tells
            of.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    head = head_for(manifest, width)
    path = folder / HEAD
    try:
        head.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ModelError(f"{path}: the head cannot be loaded: {reason}") from None
    return head


def with_linear(
    model: LoadedModel, linear: Linear, manifest: Manifest
) -> tuple[FinetunedModel, OpenedModel]:
    """Return a model whose head is a linear map that was fitted elsewhere."""
    opened = OpenedModel(model, manifest.layer)
    head = head_for(manifest, opened.backbone.config.hidden_size)
    with torch.no_grad():
        head.linear.weight.copy_(torch.from_numpy(linear.weights))
        head.linear.bias.copy_(torch.from_numpy(linear.bias))
    network = FinetunedNetwork(opened.backbone, head, per_base=manifest.question.per_base)
    return FinetunedModel(
        network.to(model.network.device).eval(), model.vocabulary, manifest
    ), opened


def write_finetuned(
    folder: Path, network: FinetunedNetwork, opened: OpenedModel, manifest: Manifest
) -> None:
    """Write a fine-tuned network into a folder that is there; a model of `full` is closed by it.

    Args:
        folder: to write to.
        network: that was fine-tuned.
        opened: the model that its backbone is of.
        manifest: what to say of it; its `base` is where the base model's files lie.
    """
    from safetensors.torch import save_file

    tensors = {name: x.detach().cpu().contiguous() for name, x in network.head.state_dict().items()}
    save_file(tensors, folder / HEAD)
    if manifest.way == "lora":
        backbone: Any = network.backbone
        backbone.save_pretrained(str(folder / ADAPTER), save_embedding_layers=False)
        (folder / ADAPTER / "README.md").unlink(missing_ok=True)  # an empty form
    if manifest.way == "full":
        _write_model(folder / MODEL, opened, model_folder(manifest.base).path)
    write_manifest(folder, manifest)


def _write_model(folder: Path, opened: OpenedModel, base: Path) -> None:
    """Write weights and config; the other files, such as the tokenizer, are those of the base."""
    network = opened.closed()
    with no_bars():
        network.save_pretrained(folder)
    for path in base.iterdir():
        is_weights = path.name.startswith("model") and "safetensors" in path.name
        apart = path.name.startswith(".") or path.name in ("config.json", "background.json")
        if path.is_file() and not is_weights and not apart:
            shutil.copyfile(path, folder / path.name)

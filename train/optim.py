"""Optimizers by name: what each one needs in memory, how reports describe it, how it is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from train.config import OptimizerConfig

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    Parameters = Mapping[str, nn.Parameter]
    """Trainable parameters of this process by their names."""

_FP32_BYTES, _BF16_BYTES = 4, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateSizes:
    """Sizes that decide what an update allocates.

    Attributes:
        largest: elements of the largest trained parameter.
        matrix: shorter and longer side of the largest matrix of a layer.
        shard: processes that a parameter is divided over.
        on_gpu: whether kernels of a GPU can fuse the update.
    """

    largest: int
    matrix: tuple[int, int]
    shard: int
    on_gpu: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerEntry:
    """Facts and functions of an optimizer.

    Attributes:
        label: its name and settings as a sentence of a report has them.
        moments_of_matrices: fp32 tensors that it keeps for a matrix of a layer, of its shape.
        moments_of_others: the same for embedding, head and norms.
        update_bytes: temporaries of one update.
        make: from settings and parameters to torch's optimizers. Their groups have `lr_scale`, by
            which the learning rate of a step is multiplied.
    """

    label: Callable[[OptimizerConfig], str]
    moments_of_matrices: int
    moments_of_others: int
    update_bytes: Callable[[UpdateSizes], int]
    make: Callable[[OptimizerConfig, "Parameters"], tuple["Optimizer", ...]]

    def moment_bytes(self, matrices: int, others: int) -> int:
        """Return the bytes of its state for these numbers of trained elements."""
        moments = self.moments_of_matrices * matrices + self.moments_of_others * others
        return _FP32_BYTES * moments


def _adamw_label(config: OptimizerConfig) -> str:
    return (
        f"AdamW with betas {config.beta1:g} and {config.beta2:g}, epsilon {config.epsilon:g}, "
        f"weight decay {config.weight_decay:g}"
    )


def _muon_label(config: OptimizerConfig) -> str:
    return f"Muon (momentum {config.momentum:g}) on matrices of layers; else {_adamw_label(config)}"


def _adamw_update_bytes(sizes: UpdateSizes) -> int:
    """Return two temporaries of the largest shard; a kernel of a GPU needs none."""
    return 0 if sizes.on_gpu else 2 * _FP32_BYTES * -(-sizes.largest // sizes.shard)


def _muon_update_bytes(sizes: UpdateSizes) -> int:
    """Return AdamW's temporaries, or one whole matrix made orthogonal, if that is more.

    Newton and Schulz's iteration holds the matrix twice and its Gram matrix twice in bf16, next to
    the shard of the momentum in fp32.
    """
    short, long = sizes.matrix
    shard = _FP32_BYTES * -(-short * long // sizes.shard)
    return max(_adamw_update_bytes(sizes), shard + 2 * _BF16_BYTES * short * (long + short))


def _make_adamw(config: OptimizerConfig, parameters: "Parameters") -> tuple["Optimizer", ...]:
    """Make AdamW with weight decay on matrices only; on a GPU an update is one fused kernel."""
    from torch.optim import AdamW

    values = list(parameters.values())
    groups = [
        _group([p for p in values if p.ndim >= 2], config.weight_decay),
        _group([p for p in values if p.ndim < 2], 0.0),
    ]
    # A process of a pipeline may have nothing to train.
    groups = [group for group in groups if group["params"]] or groups[:1]
    on_gpu = bool(values) and all(p.device.type == "cuda" for p in values)
    optimizer = AdamW(
        groups,
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=on_gpu or None,
    )
    return (optimizer,)


def _make_muon(config: OptimizerConfig, parameters: "Parameters") -> tuple["Optimizer", ...]:
    """Make Muon for the matrices of layers, and AdamW for other parameters (Jordan 2024).

    An update is scaled to the root mean square of AdamW's (arXiv 2502.16982), so both share rates
    and weight decay.
    """
    from torch.optim import Muon

    matrices = {n: p for n, p in parameters.items() if p.ndim == 2 and ".layers." in n}
    others = {name: p for name, p in parameters.items() if name not in matrices}
    muon = Muon(
        [_group(list(matrices.values()), config.weight_decay)],
        lr=0.0,
        momentum=config.momentum,
        adjust_lr_fn="match_rms_adamw",
    )
    return muon, *_make_adamw(config, others)


def _group(parameters: "list[nn.Parameter]", weight_decay: float) -> dict[str, Any]:
    return {"params": parameters, "weight_decay": weight_decay, "lr_scale": 1.0}


OPTIMIZERS = {
    "adamw": OptimizerEntry(
        label=_adamw_label,
        moments_of_matrices=2,
        moments_of_others=2,
        update_bytes=_adamw_update_bytes,
        make=_make_adamw,
    ),
    "muon": OptimizerEntry(
        label=_muon_label,
        moments_of_matrices=1,
        moments_of_others=2,
        update_bytes=_muon_update_bytes,
        make=_make_muon,
    ),
}


def make_optimizers(config: OptimizerConfig, parameters: "Parameters") -> tuple["Optimizer", ...]:
    """Make the optimizers of a run for the trainable parameters of this process."""
    return OPTIMIZERS[config.name].make(config, parameters)


def optimizer_state(
    module: "nn.Module", optimizers: "Sequence[Optimizer]", updates: int
) -> dict[str, dict[str, "Tensor"]]:
    """Return the optimizers' tensors by parameter and name: their own memory, no copies.

    Before the first update, torch makes the tensors by an update without gradients. Counters
    (tensors without dimensions) must not include it, so they are set here and not returned.

    Args:
        module: that has the parameters. Torch caches their names by module.
        optimizers: of these parameters, which have no gradients at present.
        updates: number of updates so far.
    """
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    state: Any = get_optimizer_state_dict(module, tuple(optimizers))["state"]
    for tensors in state.values():
        for tensor in tensors.values():
            if not tensor.ndim:
                tensor.fill_(updates)
    return {
        name: {key: tensor for key, tensor in tensors.items() if tensor.ndim}
        for name, tensors in state.items()
    }


def set_learning_rate(optimizers: "tuple[Optimizer, ...]", rate: float) -> None:
    """Set the learning rate of the next update, scaled for each group of parameters."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]

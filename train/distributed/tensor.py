"""Tensor parallelism with sequence parallelism: processes that share each matrix of a layer.

Columns of the first matrices and rows of the second are divided, so attention has whole heads in
each process (arXiv 1909.08053). Between them, and for norms and the loss, a process has its slice
of the sequence (arXiv 2205.05198). Weights are DTensors, so gradients, optimizers and checkpoints
know how they are divided.

Rows of embedding and head, 6-mers among them, are divided as well. For the loss a process gathers
the few rows, and not the logits of the sequence: its tokens have all
6-mers, and the fused head computes any objective as for one process.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from carbon.model.architectures import MODEL_SPECS
from train.distributed.mesh import Ranks

_SLICE, _WHOLE = Shard(1), Replicate()


def share_matrices(stage: nn.Module, ranks: Ranks) -> None:
    """Divide the matrices of a stage among the processes of the tensor axis; also on `meta`."""
    mesh = ranks.mesh["tensor"]
    config: Any = stage.config
    head_norms = MODEL_SPECS[config.model_type].head_norms
    for layer in stage.layers():  # type: ignore[operator]
        parallelize_module(layer, mesh, _layer_plan(head_norms))
    named = dict(stage.named_modules())
    ends: dict[str, Any] = {
        "model.embed_tokens": RowwiseParallel(input_layouts=_WHOLE, output_layouts=_SLICE),
        "model.norm": SequenceParallel(use_local_output=True),
    }
    parallelize_module(stage, mesh, {name: ends[name] for name in ends if name in named})
    if "lm_head" in named:
        parallelize_module(named["lm_head"], mesh, ColwiseParallel())


def _layer_plan(head_norms: Iterable[str]) -> dict[str, Any]:
    """Return the parallel style of each module of a layer."""
    plan: dict[str, Any] = {
        "input_layernorm": SequenceParallel(use_local_output=True),
        "self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": _SLICE},
            desired_input_kwarg_layouts={"hidden_states": _WHOLE},
            use_local_output=True,
        ),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=_SLICE),
        "post_attention_layernorm": SequenceParallel(use_local_output=True),
        "mlp": PrepareModuleInput(
            input_layouts=(_SLICE,), desired_input_layouts=(_WHOLE,), use_local_output=True
        ),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=_SLICE),
    }
    # Norms of heads act on (B, T, heads, width), where heads are divided.
    of_heads = SequenceParallel(sequence_dim=2, use_local_output=True)
    return plan | {f"self_attn.{norm}": of_heads for norm in head_norms}


def slice_of_sequence(ranks: Ranks, tokens: Tensor) -> Tensor:
    """Return the tokens (B, T / size) of (B, T) that a process has between matrices."""
    return tokens.chunk(ranks.shape.tensor, dim=1)[ranks.tensor_rank]


def whole(weight: Tensor) -> Tensor:
    """Return all rows of a weight; backward leaves each process its share of the gradient."""
    if not isinstance(weight, DTensor):
        return weight
    gathered: Tensor = weight.redistribute(placements=[_WHOLE]).to_local(
        grad_placements=[Partial()]
    )
    return gathered


def is_counted_here(weight: Tensor, ranks: Ranks) -> bool:
    """Return whether this process adds a weight to sums over the tensor axis.

    Norms are whole in each of its processes; the first one counts them.
    """
    if ranks.tensor_rank == 0:
        return True
    assert isinstance(weight, DTensor)
    return not weight.placements[-1].is_replicate()

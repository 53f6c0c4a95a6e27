"""The parallel plan: from a stock network to this process's parts of it."""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.torch_version import TorchVersion

from carbon.errors import UserError
from carbon.losses import LossSums
from train.config import ParallelConfig, TrainConfig
from train.distributed.attention import chosen_attention, use_attention
from train.distributed.float8 import use_float8
from train.distributed.mesh import Ranks
from train.distributed.stage import DecoderStage, choose_trained, recompute, stock_name
from train.distributed.tensor import share_matrices, slice_of_sequence
from train.distributed.weights import KMER_INITS, initial_weight, is_adapter
from train.models.network import Sizes, build_network
from train.models.start import Start
from train.planning.compute import ACTIVATION_CHECKPOINTINGS, dtype_of
from train.planning.mesh import layout_of
from train.planning.pipeline import schedule_of


def compute_dtype(config: TrainConfig, device: torch.device) -> torch.dtype:
    """Return the dtype of products and activations."""
    name = dtype_of(config.compute.dtype, on_gpu=device.type == "cuda")
    found: torch.dtype = getattr(torch, name)
    return found


def check_schedule(parallel: ParallelConfig) -> None:
    """Hold a schedule against this PyTorch.

    Raises:
        UserError: the schedule takes backward apart and PyTorch is too old. 2.11 takes arguments
            for tensors that are none, and asks a Python operator for what only others have.
    """
    apart = parallel.pipeline > 1 and schedule_of(parallel).splits_backward
    if apart and TorchVersion(torch.__version__) < "2.13":
        raise UserError(
            f"parallel.schedule = {parallel.schedule!r} needs PyTorch 2.13, and this is "
            f"{torch.__version__}; use 'interleaved_1f1b'"
        )


def build_stages(
    config: TrainConfig, ranks: Ranks, start: Start | None = None, *, fills: bool = True
) -> list[DecoderStage]:
    """Make this process's stages, in the order of the layers: split, parallelise, fill in.

    Before a checkpoint is loaded, trained parameters may stay empty (`fill_trained`).

    Nothing has memory before it is sharded.

    Raises:
        ConfigError: there are fewer layers than pieces.
        UserError: attention, float8 or schedule, as asked for, cannot be used here.
    """
    check_schedule(config.parallel)
    with torch.device("meta"):
        network: Any = build_network(config)
    dtype = str(compute_dtype(config, ranks.device)).removeprefix("torch.")
    attention = chosen_attention(config.compute, dtype, ranks.device)
    use_attention(network.config, attention, ranks.context_group)
    layout = layout_of(config, Sizes.of(network.config), ranks.world_size)
    stages = []
    for number in layout.of_rank[ranks.pipeline_rank]:
        stage = DecoderStage(network, layout.stages[number])
        choose_trained(stage, config.model, in_pipeline=ranks.shape.pipeline > 1)
        parallelize(stage, config, ranks)
        stage.to_empty(device=ranks.device)
        stage.sums = torch.zeros(len(LossSums._fields), dtype=torch.float64, device=ranks.device)
        stage.set_rope_theta(config.phases[0].rope_theta, ranks.device)
        _fill(stage, config, start, trained=False)
        stages.append(stage)
    if fills:
        fill_trained(stages, config, start)
    return stages


def parallelize(stage: DecoderStage, config: TrainConfig, ranks: Ranks) -> None:
    """Parallelise a stage, in this order; each step wraps those before it.

    Context and tensor parallelism, float8, activation checkpointing, compile, FSDP.
    """
    compute = config.compute
    stage.share = ranks.share
    if ranks.shape.tensor > 1:
        share_matrices(stage, ranks)
        stage.own_tokens = partial(slice_of_sequence, ranks)
    if compute.float8:
        use_float8(stage.layers(), ranks.device)
    for layer in stage.layers():
        recompute(layer, ACTIVATION_CHECKPOINTINGS[compute.activation_checkpointing])
        if compute.compile:
            layer.compile()  # in place, so that its parameters keep their names
    _shard(stage, config, ranks)


def fill_trained(
    parts: list[DecoderStage], config: TrainConfig, start: Start | None = None
) -> None:
    """Initialise trained parameters, randomly or from the starting checkpoint."""
    for part in parts:
        _fill(part, config, start, trained=True)


def _shard(part: DecoderStage, config: TrainConfig, ranks: Ranks) -> None:
    """Shard every layer, then the rest; weights and sums are fp32 for every compute dtype."""
    policy = MixedPrecisionPolicy()
    if (dtype := compute_dtype(config, ranks.device)) != torch.float32:
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    parallel = config.parallel
    reshard = parallel.reshard_after_forward and parallel.pipeline == 1
    for layer in part.layers():
        fully_shard(layer, mesh=ranks.data_mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(part, mesh=ranks.data_mesh, mp_policy=policy, reshard_after_forward=reshard)


def _fill(part: DecoderStage, config: TrainConfig, start: Start | None, *, trained: bool) -> None:
    """Initialise trained parameters, or the frozen ones."""
    for name, parameter in part.named_parameters():
        if parameter.requires_grad != trained:
            continue
        name = stock_name(name, part.config)
        if start is None or is_adapter(name):
            given = (name, parameter.shape, part.config, config.seed)
            value = initial_weight(*given, KMER_INITS[config.model.kmer_init])
        else:
            value = start.weight(name)
        fill(parameter, value)


@torch.no_grad()
def fill(parameter: nn.Parameter, value: torch.Tensor) -> None:
    """Copy a whole tensor, which every process has, into a parameter, sharded or not."""
    if isinstance(parameter, DTensor):
        mesh, placements = parameter.device_mesh, parameter.placements
        value = distribute_tensor(value.to(parameter.device), mesh, placements, src_data_rank=None)
    parameter.copy_(value)

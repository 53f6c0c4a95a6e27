"""The parallel plan: from a stock network to this process's parts of it."""

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.torch_version import TorchVersion
from transformers import LlamaForCausalLM

from carbon.errors import UserError
from train.config import ParallelConfig, TrainConfig
from train.distributed.attention import chosen_attention, use_attention
from train.distributed.float8 import use_float8
from train.distributed.mesh import Ranks
from train.distributed.stage import DecoderStage, choose_trained, stock_name
from train.distributed.weights import KMER_INITS, initial_weight, is_adapter
from train.models.spec import llama_config
from train.models.start import Start
from train.planning.compute import COMPUTE_DTYPES
from train.planning.mesh import layers_of_stages, stages_of_rank
from train.planning.pipeline import schedule_of, stages_per_rank


def compute_dtype(config: TrainConfig, device: torch.device) -> torch.dtype:
    """Return the dtype of products and activations."""
    name = COMPUTE_DTYPES[config.compute.dtype].name(on_gpu=device.type == "cuda")
    found: torch.dtype = getattr(torch, name)
    return found


def check_schedule(parallel: ParallelConfig) -> None:
    """Hold a schedule against this PyTorch.

    Raises:
        UserError: the schedule takes backward apart and PyTorch is too old. 2.11 takes arguments
            for tensors that are none, and asks a Python operator for what only others have.
    """
    apart = parallel.pipeline > 1 and schedule_of(parallel).takes_backward_apart
    if apart and TorchVersion(torch.__version__) < "2.13":
        raise UserError(
            f"parallel.schedule = {parallel.schedule!r} needs PyTorch 2.13, and this is "
            f"{torch.__version__}; use 'interleaved_1f1b'"
        )


def build_stages(
    config: TrainConfig, ranks: Ranks, start: Start | None = None, *, fills: bool = True
) -> list[DecoderStage]:
    """Make this process's parts, in the order of the layers: split, adapt, compile, shard, fill in.

    Where a checkpoint is loaded next, what is trained need not be filled in (`fill_trained`).

    Activation checkpointing is a part's own doing, inside each layer. Nothing has memory before
    it is sharded.

    Raises:
        ConfigError: there are fewer layers than pieces.
        UserError: attention, float8 or schedule, as asked for, cannot be used here.
    """
    compute = config.compute
    check_schedule(config.parallel)
    with torch.device("meta"):
        llama = LlamaForCausalLM(llama_config(config))
    dtype = str(compute_dtype(config, ranks.device)).removeprefix("torch.")
    attention = chosen_attention(compute, dtype, ranks.device)
    use_attention(llama.config, attention, ranks.context_group)
    num_pieces = ranks.pipeline_size * stages_per_rank(config.parallel)
    pieces = layers_of_stages(llama.config, config.longest_context_tokens, num_pieces)
    mine = stages_of_rank(config.parallel, ranks.pipeline_rank)
    parts = [DecoderStage(llama, pieces[i], compute.activation_checkpointing) for i in mine]
    for part in parts:
        part.share = ranks.share
        choose_trained(part, config.model, in_pipeline=ranks.pipeline_size > 1)
        if compute.float8:
            use_float8(part.layers(), ranks.device)
        if compute.compile:
            for layer in part.layers():
                layer.compile()  # in place, so that its parameters keep their names
        _shard(part, config, ranks)
        part.to_empty(device=ranks.device)
        part.sums = torch.zeros(6, dtype=torch.float64, device=ranks.device)
        part.set_rope_theta(config.stages[0].rope_theta, ranks.device)
        _fill(part, config, start, trained=False)
    if fills:
        fill_trained(parts, config, start)
    return parts


def fill_trained(
    parts: list[DecoderStage], config: TrainConfig, start: Start | None = None
) -> None:
    """Let what is trained be as it begins: random, or as it is in the start."""
    for part in parts:
        _fill(part, config, start, trained=True)


def _shard(part: DecoderStage, config: TrainConfig, ranks: Ranks) -> None:
    """Shard every layer, then what is left; fp32 weights and sums whatever computes."""
    policy = MixedPrecisionPolicy()
    if (dtype := compute_dtype(config, ranks.device)) != torch.float32:
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    parallel = config.parallel
    reshard = parallel.reshard_after_forward and parallel.pipeline == 1
    for layer in part.layers():
        fully_shard(layer, mesh=ranks.data_mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(part, mesh=ranks.data_mesh, mp_policy=policy, reshard_after_forward=reshard)


def _fill(part: DecoderStage, config: TrainConfig, start: Start | None, *, trained: bool) -> None:
    """Fill in what is trained, or all else."""
    for name, parameter in part.named_parameters():
        if parameter.requires_grad != trained:
            continue
        name = stock_name(name, part.config)
        if start is None or is_adapter(name):
            given = (name, parameter.shape, part.config, config.seed)
            value = initial_weight(*given, KMER_INITS[config.model.kmer_rows])
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

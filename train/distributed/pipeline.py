"""Forward and backward of a global batch, through one process or a pipeline of them."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from carbon.errors import ConfigError
from carbon.losses import LossSums
from carbon.losses.objectives import Objective
from carbon.losses.soft_mask import SoftMask, bits_of_bases, soft_mask_counts
from train.config import TrainConfig
from train.distributed.context import Batch, stacked
from train.distributed.mesh import Ranks, local, named_parameters
from train.distributed.parallelize import compute_dtype
from train.distributed.stage import DecoderStage
from train.distributed.tensor import is_counted_here
from train.planning.mesh import stages_of_rank
from train.planning.pipeline import schedule_of, stages_per_rank


class Pipeline:
    """This process's parts of the network and how batches go through all of them.

    With one process to a pipeline it is a loop over microbatches; with more, a schedule of
    `torch.distributed.pipelining`, rebuilt when the shape of the batch changes.
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, parts: list[DecoderStage]) -> None:
        """Take the parts, in the order of the layers."""
        self._config = config
        self._ranks = ranks
        self._parts = parts
        self._schedules: dict[tuple[int, ...], Any] = {}
        self._tie = _Tie(ranks, parts)

    def forward_backward(self, batch: list[Batch], objective: Objective) -> LossSums:
        """Run this reader's microbatches; return sums over all readers, and leave gradients.

        Gradients belong to the summed loss over all data-parallel ranks, divided by the number of
        processes that share weights: FSDP does that.
        """
        soft_mask = self._soft_mask(batch)
        for part in self._parts:
            part.objective, part.soft_mask = objective, soft_mask
            part.sums.zero_()
        if self._ranks.shape.pipeline > 1:
            self._run_schedule(batch)
        else:
            self._run_loop(batch)
        sums = torch.stack([part.sums for part in self._parts]).sum(0)
        dist.all_reduce(sums, group=self._ranks.group)
        self._tie.sum_gradients()
        return LossSums(*sums)

    def _soft_mask(self, batch: list[Batch]) -> SoftMask | None:
        """Return the weight of soft-masked bases with counts over all processes; None for 1.

        Processes that share the tokens of a batch count them once each, which divides out.
        """
        weight = self._config.data.soft_mask_weight
        if weight == 1:
            return None
        packed = torch.cat([microbatch.known.flatten() for microbatch in batch])
        counts = soft_mask_counts(bits_of_bases(packed), bits_of_bases(packed, 6))
        dist.all_reduce(counts, group=self._ranks.group)
        return SoftMask(weight, counts)

    def _run_loop(self, batch: list[Batch]) -> None:
        (part,) = self._parts
        each = self._config.parallel.reduce_each_microbatch
        for number, microbatch in enumerate(batch, start=1):
            reduces = each or number == len(batch)
            part.set_requires_gradient_sync(reduces)  # type: ignore[operator]
            _call(part, microbatch).backward()  # type: ignore[no-untyped-call]

    def _run_schedule(self, batch: list[Batch]) -> None:
        target = torch.zeros(len(batch), device=self._ranks.device)  # the loss has its own
        self._schedule(batch).step(*self._inputs(batch), target=target, **_rest(batch))

    def _inputs(self, batch: list[Batch]) -> tuple[Tensor, ...]:
        if not self._parts[0].is_first:
            return ()
        return (torch.cat([microbatch.input_ids for microbatch in batch]),)

    def _schedule(self, batch: list[Batch]) -> Any:
        shape = (len(batch), *batch[0].input_ids.shape)
        if any(microbatch.input_ids.shape != shape[1:] for microbatch in batch):
            raise ConfigError("a pipeline needs microbatches of one size; change microbatch_tokens")
        if shape not in self._schedules:
            self._schedules = {shape: self._make_schedule(*shape)}
        return self._schedules[shape]

    def _make_schedule(self, count: int, rows: int, tokens: int) -> Any:
        parallel, ranks = self._config.parallel, self._ranks
        width = self._parts[0].config.hidden_size
        ids = torch.empty(rows, tokens, dtype=torch.int64, device="meta")
        dtype = compute_dtype(self._config, ranks.device)
        if dtype == torch.float32:  # without mixed precision states have the dtype of the weights
            dtype = next(self._parts[0].parameters()).dtype
        # What requires a gradient here is sent one back.
        slice_tokens = tokens // ranks.shape.tensor
        hidden = torch.empty(
            rows, slice_tokens, width, dtype=dtype, device="meta", requires_grad=True
        )
        loss = torch.empty((), device="meta", requires_grad=True)
        indices = stages_of_rank(parallel, ranks.pipeline_rank)
        stages = [
            PipelineStage(
                part,
                index,
                ranks.shape.pipeline * stages_per_rank(parallel),
                ranks.device,
                input_args=ids if part.is_first else hidden,
                output_args=loss if part.is_last else hidden,
                group=ranks.mesh.get_group("pipeline"),
            )
            for index, part in zip(indices, self._parts, strict=True)
        ]
        schedule = schedule_of(parallel)
        kind: Any = get_schedule_class(schedule.torch_name)
        given: Any = stages[0] if schedule.stages_per_rank == 1 else stages
        return kind(given, count, loss_fn=_identity, scale_grads=False)


def _call(part: DecoderStage, batch: Batch) -> Tensor:
    rest = batch._asdict()
    loss: Tensor = part(rest.pop("input_ids"), **rest)
    return loss


def _rest(batch: list[Batch]) -> dict[str, Any]:
    """Return the arguments of every stage after its input, without requesting outputs."""
    return stacked(batch) | {"return_outputs": False}


def _identity(output: Tensor, target: Tensor) -> Tensor:
    return output


class _Tie:
    """Embeddings and head that are one weight, in two parts: each end adds the other's gradient.

    Where the ends are in two processes, these are the first and the last of a pipeline.
    """

    def __init__(self, ranks: Ranks, parts: list[DecoderStage]) -> None:
        self._ends: list[Tensor] = []
        self._group = ranks.mesh.get_group("pipeline")
        self._other = ranks.shape.pipeline - 1 - ranks.pipeline_rank
        if parts[0].config.tie_word_embeddings and ranks.shape.pipeline > 1:
            named = named_parameters(parts)
            ends = [named.get(f"{name}.weight") for name in ("model.embed_tokens", "lm_head")]
            self._ends = [end for end in ends if end is not None]

    def sum_gradients(self) -> None:
        ends = [local(weight.grad) for weight in self._ends if weight.requires_grad]
        if len(ends) == 2:
            ends[0] += ends[1]
            ends[1].copy_(ends[0])
        elif ends:
            mine, there = ends[0], torch.empty_like(ends[0])
            group, other = self._group, self._other
            exchange = [
                dist.P2POp(dist.isend, mine, group=group, group_peer=other),
                dist.P2POp(dist.irecv, there, group=group, group_peer=other),
            ]
            for work in dist.batch_isend_irecv(exchange):
                work.wait()
            mine += there


@torch.no_grad()
def finish_gradients(
    parts: list[DecoderStage], ranks: Ranks, count: Tensor, clip_norm: float
) -> Tensor:
    """Divide gradients by the tokens of the global batch, clip them, return their norm before.

    Both numbers stay on the device, which is not waited for.

    This is the one place that divides. FSDP has divided by the number of processes that share
    weights already, which is undone here. The norm covers the whole network: over all stages and
    shards, each weight once.
    """
    weights = named_parameters(parts)
    gradients = {name: local(p.grad) for name, p in weights.items() if p.grad is not None}
    tied = parts[0].config.tie_word_embeddings
    counted = [
        gradient
        for name, gradient in gradients.items()
        if not (tied and name == "lm_head.weight") and is_counted_here(weights[name], ranks)
    ]
    square = torch.nn.utils.get_total_norm(counted).to(ranks.device).double().square()
    for dimension in ("pipeline", "shard", "tensor"):
        dist.all_reduce(square, group=ranks.mesh.get_group(dimension))
    scale = ranks.shape.replicate * ranks.shape.fsdp / count.clamp(min=1)
    norm = scale * square.sqrt()
    factor = scale * (clip_norm / (norm + 1e-6)).clamp(max=1)
    if gradients:  # a process of a pipeline may have none
        shards = list(gradients.values())
        torch._foreach_mul_(shards, factor.to(shards[0].dtype))
    return norm

"""Schedules and factorings of the processes against a plain loop over stock transformers.

Two steps have it all: the switch from CE to FNS, of the context and of RoPE theta, rows packed from
many pieces, ragged masks, and moments of a step before.
"""

import itertools
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion

from tests.helpers.ranks import run_ranks
from tests.helpers.runs import assert_close, full_weights, make_config, steps_of_each
from train.config import ComputeConfig, ParallelConfig
from train.data import batches, open_rows
from train.distributed.context import ContextShard
from train.distributed.weights import initial_weight
from train.models.network import network_config
from train.planning.compute import ACTIVATION_CHECKPOINTINGS
from train.planning.mesh import Mesh
from train.planning.pipeline import PIPELINE_SCHEDULES
from train.schedule import Schedule, learning_rate

NUM_STEPS = 2
SCHEDULES = [
    name
    for name, schedule in PIPELINE_SCHEDULES.items()
    if not schedule.splits_backward or TorchVersion(torch.__version__) >= "2.13"
]


def config_of(corpus, folder):
    return make_config(corpus, folder / "run", "data.microbatch_tokens=128", *steps_of_each(1))


def plain_loop(config):
    """Train stock transformers in fp64 with losses written as torch's CE and as 24 masked sums."""
    from transformers import LlamaForCausalLM

    class OneReader:
        rank, shape, device, share = 0, Mesh(), torch.device("cpu"), ContextShard()

    schedule = Schedule(config)
    rows = open_rows(config, schedule)
    read = batches(rows, config, schedule, OneReader, range(NUM_STEPS))
    network = LlamaForCausalLM(network_config(config)).double()
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.copy_(initial_weight(name, p.shape, network.config, config.seed))
    decayed = [p for p in network.parameters() if p.ndim >= 2]
    others = [p for p in network.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=config.optimizer.epsilon)
    metrics = []
    for step in range(NUM_STEPS):
        span = schedule.at(step)
        phase = span.phase
        rotary = network.model.rotary_emb
        head_width = 2 * len(rotary.inv_freq)
        rotary.inv_freq = phase.rope_theta ** -(torch.arange(0, head_width, 2) / head_width)
        losses = []
        for batch in next(read):
            for row in range(len(batch.input_ids)):
                soft_mask_weight = config.data.soft_mask_weight
                losses += row_losses(network, batch, row, phase.objective, soft_mask_weight)
        loss = sum(loss for loss, _ in losses) / sum(weight for _, weight in losses)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.optimizer.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(phase, step - span.first_step)
        optimizer.step()
        metrics.append((loss.item(), norm.item()))
    return metrics, {name: p.detach().numpy() for name, p in network.named_parameters()}


def row_losses(network, batch, row, objective, soft_mask_weight):
    """Return loss and weight of every trained token, each piece of the row read on its own."""
    from carbon.tokenizer import NATIVE

    digits = torch.arange(4096)[:, None] // 4 ** torch.arange(5, -1, -1) % 4
    length = batch.input_ids.shape[1]
    starts = [*(batch.position_ids[row] == 0).nonzero()[:, 0].tolist(), length]
    losses = []
    for a, b in itertools.pairwise(starts):
        logits = network(batch.input_ids[row : row + 1, a:b]).logits[0, :, NATIVE.kmer_rows]
        for t in range(b - a):
            target, bits = batch.targets[row, a + t], int(batch.known[row, a + t])
            mask = [bits >> j & 1 for j in range(6)]
            weights = [soft_mask_weight if bits >> 6 + j & 1 else 1 for j in range(6)]
            if objective == "ce" and all(mask):
                weight = sum(weights) / 6
                losses.append(
                    (weight * torch.nn.functional.cross_entropy(logits[t], target), weight)
                )
            elif objective == "fns" and any(mask):
                p = logits[t].softmax(0)
                same = (digits == digits[target]).to(p.dtype).T
                known = [j for j in range(6) if mask[j]]
                loss = sum(-weights[j] * (same[j] @ p).log() for j in known)
                weight = sum(weights[j] for j in known)
                losses.append((loss / len(known), weight / len(known)))
    return losses


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    return plain_loop(config_of(corpus, tmp_path_factory.mktemp("plain")))


def train_all(ranks, config, layouts):
    """Train under each layout in turn, in the processes that there are."""
    from train.distributed.mesh import ranks_of_group
    from train.trainer import Trainer

    results = []
    for parallel, compute in layouts:
        one = config.replace(parallel=parallel, compute=compute)
        trainer = Trainer(one, ranks_of_group(ranks.device, parallel))
        results.append((list(trainer.steps()), full_weights(trainer)))
        dist.barrier()
    return results


def layout(pipeline, replicate, context, schedule="1f1b", kind="none", each=False):
    """Return the settings of a layout; shards are what is left of the processes."""
    parallel = ParallelConfig(
        pipeline=pipeline, replicate=replicate, context=context, schedule=schedule,
        reduce_each_microbatch=each,
    )  # fmt: skip
    return parallel, ComputeConfig(activation_checkpointing=kind)


# Each of pipeline, replicate, context and shard above 1; what goes with what is in `all_layouts`.
LAYOUTS = {
    1: [layout(1, 1, 1)],
    2: [
        layout(2, 1, 1, "interleaved_1f1b", "full"),
        layout(1, 2, 1, each=True),
        layout(1, 1, 2, kind="selective"),
    ],
    4: [layout(2, 1, 1, "zbv"), layout(1, 2, 2, kind="full")],
}


def all_layouts(world_size, pipeline):
    """Yield every way to share the work among so many processes that differs from the others."""
    sizes = [size for size in (1, 2, 4) if size <= world_size]
    for replicate, context in itertools.product(sizes, repeat=2):
        if world_size % (pipeline * replicate * context):
            continue
        for schedule, kind in itertools.product(
            SCHEDULES if pipeline > 1 else ["1f1b"], ACTIVATION_CHECKPOINTINGS
        ):
            # `tiny` has four layers; what takes backward apart recomputes nothing.
            is_too_fine = pipeline == 4 and PIPELINE_SCHEDULES[schedule].stages_per_rank != 1
            is_apart = PIPELINE_SCHEDULES[schedule].splits_backward and kind != "none"
            if not is_too_fine and not is_apart:
                yield layout(pipeline, replicate, context, schedule, kind)
    if pipeline == 1:
        yield layout(1, 1, 1, kind="full", each=True)


ALL_LAYOUTS = [(n, pipeline) for n in (2, 4) for pipeline in (1, 2, 4) if pipeline <= n]


@pytest.mark.parametrize(
    ("world_size", "layouts"),
    [
        *LAYOUTS.items(),
        *(
            pytest.param(n, list(all_layouts(n, pipeline)), marks=pytest.mark.nightly)
            for n, pipeline in ALL_LAYOUTS
        ),
    ],
    ids=["1", "2", "4", *(f"{n} all, pipeline {pipeline}" for n, pipeline in ALL_LAYOUTS)],
)
def test_layouts_equal_the_plain_loop(world_size, layouts, corpus, plain, tmp_path):
    """Loss, gradient norm and weights across a switch of all that can switch."""
    layouts = [each for each in layouts if each[0].schedule in SCHEDULES]
    results = run_ranks(
        world_size, train_all, config_of(corpus, tmp_path), layouts, limit_seconds=3000
    )
    compare_all(results, layouts, plain)


@pytest.mark.parametrize(
    ("world_size", "layouts"),
    [
        (1, [layout(1, 1, 1)]),
        pytest.param(2, [layout(2, 1, 1), layout(1, 1, 2)], marks=pytest.mark.nightly),
        pytest.param(2, [(ParallelConfig(tensor=2), ComputeConfig())], marks=pytest.mark.nightly),
    ],
    ids=["1", "2", "tensor 2"],
)
def test_soft_masked_bases_weigh_what_they_do_in_the_plain_loop(world_size, layouts, soft_masked):
    config, expected = soft_masked
    results = run_ranks(
        world_size, train_all, config, layouts, apart=world_size > 1, limit_seconds=3000
    )
    compare_all(results, layouts, expected)


@pytest.fixture(scope="module")
def soft_masked(corpus, tmp_path_factory):
    """Return a run over the corpus with half of its bases in lower case, and its plain loop."""
    folder = tmp_path_factory.mktemp("soft_masked")
    lower_case_half(corpus, folder / "corpus")
    config = config_of(folder / "corpus", folder)
    config = config.replace(data=config.data.replace(soft_mask_weight=0.1))
    return config, plain_loop(config)


def lower_case_half(corpus, folder):
    """Copy the files of training with stretches of 1 to 40 bases in lower case."""
    random = np.random.default_rng(0)
    for path in corpus.glob("*/train-*.parquet"):
        table = pq.read_table(path)
        sequences = []
        for text in table["sequence"].to_pylist():
            ends = random.integers(1, 41, len(text)).cumsum()
            parts = np.split(np.array(list(text)), ends[ends < len(text)])
            sequences.append(
                "".join("".join(p).lower() if i % 2 else "".join(p) for i, p in enumerate(parts))
            )
        at = table.schema.get_field_index("sequence")
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        changed = table.set_column(at, "sequence", pa.array(sequences))
        pq.write_table(changed, folder / path.parent.name / path.name)


@pytest.mark.nightly
def test_shared_rows_in_bf16_are_those_of_shards(corpus, tmp_path):
    """Rounded alike: 8 bits of a gradient."""
    compute = ComputeConfig(dtype="bfloat16")
    layouts = [(ParallelConfig(context=context), compute) for context in (1, 2)]
    for (shards, _), (shared, _) in run_ranks(2, train_all, config_of(corpus, tmp_path), layouts):
        for here, there in zip(shared, shards, strict=True):
            assert here["loss"] == pytest.approx(there["loss"], rel=1e-3)
            assert here["gradient_norm"] == pytest.approx(there["gradient_norm"], rel=3e-2)


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs a C++ compiler")
def test_compiled_layers_equal_the_plain_loop(corpus, plain, tmp_path):
    layouts = [(ParallelConfig(context=n), ComputeConfig(compile=True)) for n in (1, 2)]
    results = run_ranks(2, train_all, config_of(corpus, tmp_path), layouts, apart=True)
    compare_all(results, layouts, plain)


def compare_all(results, layouts, expected):
    expected_metrics, expected_weights = expected
    for rank, found in enumerate(results):
        for name, (metrics, weights) in zip(layouts, found, strict=True):
            for line, (loss, norm) in zip(metrics, expected_metrics, strict=True):
                assert line["loss"] == pytest.approx(loss, rel=2e-5), name
                assert line["gradient_norm"] == pytest.approx(norm, rel=1e-3), name
            assert [line["objective"] for line in metrics] == ["ce", "fns"]
            assert (weights is None) == (rank > 0)
            if weights is not None:
                assert_close(weights, expected_weights, name)

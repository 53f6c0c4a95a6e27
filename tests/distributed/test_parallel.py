"""Every schedule and factoring of the processes against a plain loop over stock transformers.

The run has it all in four steps: the switch from CE to FNS, of the context and of RoPE theta, rows
packed from many pieces, ragged masks. The processes are started once for all their layouts.
"""

import dataclasses
import itertools
import shutil

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion

from tests.helpers.ranks import run_ranks
from tests.helpers.runs import make_config, make_corpus
from train.choices.pipeline_schedules import PIPELINE_SCHEDULES
from train.compute_config import ComputeConfig
from train.config import ParallelConfig
from train.loop.data import batches, open_rows
from train.loop.rates import learning_rate
from train.network.initial import initial_weight
from train.network.row_share import RowShare
from train.planning.course import Course
from train.planning.sizes import llama_config

SCHEDULES = [
    name
    for name, schedule in PIPELINE_SCHEDULES.items()
    if not schedule.takes_backward_apart or TorchVersion(torch.__version__) >= "2.13"
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def plain_loop(config, num_steps):
    """Train stock transformers in fp64 with losses written as torch's CE and as 24 masked sums."""
    from transformers import LlamaForCausalLM

    class OneReader:
        reader, num_readers, device, share = 0, 1, torch.device("cpu"), RowShare()

    course = Course(config)
    rows = open_rows(config, course)
    read = batches(rows, config, course, OneReader, range(num_steps))
    network = LlamaForCausalLM(llama_config(config)).double()
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.copy_(initial_weight(name, p.shape, network.config, config.seed))
    decayed = [p for p in network.parameters() if p.ndim >= 2]
    others = [p for p in network.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    metrics = []
    for step in range(num_steps):
        span = course.at(step)
        stage = span.stage
        rotary = network.model.rotary_emb
        head_width = 2 * len(rotary.inv_freq)
        rotary.inv_freq = stage.rope_theta ** -(torch.arange(0, head_width, 2) / head_width)
        losses = []
        for batch in next(read):
            for row in range(len(batch.input_ids)):
                losses += row_losses(network, batch, row, stage.objective)
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.optimizer.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(stage, step - span.first_step)
        optimizer.step()
        metrics.append((loss.item(), norm.item()))
    return metrics, {name: p.detach().numpy() for name, p in network.named_parameters()}


def row_losses(network, batch, row, objective):
    """Return the loss of every trained token, each piece of the row read on its own."""
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
            if objective == "ce" and all(mask):
                losses.append(torch.nn.functional.cross_entropy(logits[t], target))
            elif objective == "fns" and any(mask):
                p = logits[t].softmax(0)
                same = (digits == digits[target]).to(p.dtype).T
                sums = [same[j] @ p for j in range(6) if mask[j]]
                losses.append(-torch.stack(sums).log().mean())
    return losses


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    """With and without clipping that bites, for the clipped norm shows in the weights."""
    config = make_config(corpus, tmp_path_factory.mktemp("plain"))
    return plain_loop(config, 4)


def train_all(ranks, config, layouts):
    """Train under each layout in turn, in the processes that there are."""
    from train.loop.trainer import Trainer
    from train.network.ranks import ranks_of_group

    results = {}
    for name, parallel, compute in layouts:
        one = dataclasses.replace(config, parallel=parallel, compute=compute)
        trainer = Trainer(one, ranks_of_group(ranks.device, parallel))
        metrics = list(itertools.islice(trainer.steps(), 4))
        network = trainer.gathered()
        weights = network and {n: p.detach().numpy() for n, p in network.named_parameters()}
        results[name] = metrics, weights
        dist.barrier()
    return results


def layouts_of(world_size):
    """Return every way to share the work among so many processes that differs from the others."""
    found = []
    for pipeline in (1, 2, 4):
        for replicate in (1, 2, 4):
            if world_size % (pipeline * replicate):
                continue
            for schedule in SCHEDULES if pipeline > 1 else ["1f1b"]:
                if pipeline == 4 and PIPELINE_SCHEDULES[schedule].pieces_a_rank != 1:
                    continue  # tiny has four layers
                shard = world_size // pipeline // replicate
                name = f"{pipeline} x {replicate} x {shard} {schedule}"
                parallel = ParallelConfig(pipeline=pipeline, replicate=replicate, schedule=schedule)
                found.append((name, parallel, ComputeConfig()))
    return found


CHECKPOINTED = [
    (f"{kind} {schedule}", ParallelConfig(pipeline=2, schedule=schedule),
     ComputeConfig(activation_checkpointing=kind))
    for kind, schedule in (("selective", "1f1b"), ("full", "interleaved_1f1b"))
]  # fmt: skip


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_every_layout_equals_the_plain_loop(world_size, corpus, plain, tmp_path):
    """Loss, gradient norm and weights after four steps, across a switch of all that can switch."""
    layouts = layouts_of(world_size) + (CHECKPOINTED if world_size == 2 else [])
    config = make_config(corpus, tmp_path / "r", "data.microbatch_tokens=64")
    results = run_ranks(world_size, train_all, config, layouts)
    assert all(list(by_layout) == [name for name, _, _ in layouts] for by_layout in results)
    compare_all(results, plain)


@pytest.mark.parametrize("replicate", [1, 2])
def test_gradients_reduced_each_microbatch_equal_the_plain_loop(replicate, corpus, plain, tmp_path):
    parallel = ParallelConfig(replicate=replicate, reduce_each_microbatch=True)
    config = make_config(corpus, tmp_path / "r", "data.microbatch_tokens=64")
    layouts = [("each", parallel, ComputeConfig())]
    results = run_ranks(2, train_all, config, layouts)
    compare_all(results, plain)


SHARED_ROWS = {
    2: [(1, 1, 2, "1f1b")],
    4: [(1, 1, 2, "1f1b"), (1, 1, 4, "1f1b"), (1, 2, 2, "1f1b"), (2, 1, 2, "1f1b"),
        (2, 1, 2, "interleaved_zero_bubble")],
}  # fmt: skip


@pytest.mark.parametrize("world_size", SHARED_ROWS)
@pytest.mark.parametrize("kind", ["none", "selective", "full"])
def test_shared_rows_equal_the_plain_loop(world_size, kind, corpus, plain, tmp_path):
    """Alone, over shards, copies and a pipeline; pieces cross the slices, of 4 tokens and more."""
    layouts = [
        (
            f"{pipeline} x {replicate} x context {context} {schedule}",
            ParallelConfig(
                pipeline=pipeline, replicate=replicate, context=context, schedule=schedule
            ),
            ComputeConfig(activation_checkpointing=kind),
        )
        for pipeline, replicate, context, schedule in SHARED_ROWS[world_size]
        if schedule in SCHEDULES and (kind == "none" or "zero_bubble" not in schedule)
    ]
    config = make_config(corpus, tmp_path / "r", "data.microbatch_tokens=64")
    compare_all(run_ranks(world_size, train_all, config, layouts), plain)


def test_shared_rows_in_bf16_are_those_of_shards(corpus, tmp_path):
    """Rounded alike: 8 bits of a gradient."""
    layouts = [
        (name, parallel, ComputeConfig(dtype="bfloat16"))
        for name, parallel in {
            "shards": ParallelConfig(),
            "shared": ParallelConfig(context=2),
        }.items()
    ]
    results = run_ranks(
        2, train_all, make_config(corpus, tmp_path / "r", "data.microbatch_tokens=64"), layouts
    )
    for by_layout in results:
        shards, shared = (by_layout[name][0] for name in ("shards", "shared"))
        for here, there in zip(shared, shards, strict=True):
            assert here["loss"] == pytest.approx(there["loss"], rel=1e-3)
            assert here["gradient_norm"] == pytest.approx(there["gradient_norm"], rel=3e-2)


@pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs a C++ compiler")
def test_compiled_layers_equal_the_plain_loop(corpus, plain, tmp_path):
    layouts = [
        (name, parallel, ComputeConfig(compile=True))
        for name, parallel in {
            "alone": ParallelConfig(),
            "shared": ParallelConfig(context=2),
        }.items()
    ]
    config = make_config(corpus, tmp_path / "r", "data.microbatch_tokens=64")
    compare_all(run_ranks(2, train_all, config, layouts), plain)


def compare_all(results, expected):
    expected_metrics, expected_weights = expected
    for rank, by_layout in enumerate(results):
        for layout, (metrics, weights) in by_layout.items():
            for found, (loss, norm) in zip(metrics, expected_metrics, strict=True):
                assert found["loss"] == pytest.approx(loss, rel=2e-5), layout
                assert found["gradient_norm"] == pytest.approx(norm, rel=1e-3), layout
            assert [m["objective"] for m in metrics] == ["ce", "ce", "fns", "fns"]
            assert (weights is None) == (rank > 0)
            if weights is not None:
                compare(weights, expected_weights, layout)


def compare(weights, expected, layout):
    assert set(weights) == set(expected)
    for name, value in weights.items():
        # Adam divides by the root of the square: where a gradient is nearly zero, rounding
        # decides the sign of a step of the size of the learning rate.
        distant = np.abs(value - expected[name]) > 1e-4
        assert distant.mean() < 2e-3, (layout, name)
        np.testing.assert_allclose(value, expected[name], atol=3e-2, err_msg=f"{layout} {name}")

"""What the planner counts, against transformers, autograd, torch's schedules and brute force."""

import dataclasses
import itertools
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from bench.bubbles import Action, idle_of, replayed
from bench.bubbles import idle_share as share_of_step
from carbon.errors import ConfigError
from carbon.model import PRESETS
from train.config import ParallelConfig, TrainConfig
from train.models.network import Sizes, flops_a_token
from train.optim import OPTIMIZERS
from train.planning.memory import Memory, Process, in_flight, memory_of
from train.planning.mesh import Mesh, balanced, layers_of_stages, stages_of_rank
from train.planning.pipeline import PIPELINE_SCHEDULES, pipe_of
from train.planning.plan import Plan, idle_share, plan_of
from train.planning.tables import print_plan
from train.schedule import Schedule

ROOT = Path(__file__).parents[2]


def config_of(*settings: str) -> TrainConfig:
    return TrainConfig.load(ROOT / "train" / "recipes" / "tiny.toml", settings)


def plan(*settings: str, processes: int = 1, **more) -> Plan:
    config = config_of(*settings)
    return plan_of(config, Schedule(config), processes, **more)


def pipeline(ranks: int, schedule: str = "1f1b", pieces: int = 2) -> ParallelConfig:
    return ParallelConfig(pipeline=ranks, schedule=schedule, stages_per_rank=pieces)


# Parameters


@pytest.mark.parametrize(
    ("preset", "ranks", "schedule"),
    [("tiny", 1, "1f1b"), ("mini", 2, "1f1b"), ("500m", 2, "zbv")],
)
def test_parameters_are_those_of_transformers(preset, ranks, schedule):
    microbatches = ["data.microbatch_tokens=256", f"model.preset={preset}"]
    found = plan(
        *microbatches, f"parallel.pipeline={ranks}", f"parallel.schedule={schedule}",
        processes=ranks,
    )  # fmt: skip
    with torch.device("meta"):
        llama = LlamaForCausalLM(PRESETS[preset]())
    embedding = llama.model.embed_tokens.weight.numel()
    copies = embedding if ranks > 1 and llama.config.tie_word_embeddings else 0
    whole = sum(p.numel() for p in llama.parameters())
    assert found.num_parameters == whole
    assert sum(found.parameters_of_rank) == whole + copies
    of_layer = [sum(p.numel() for p in layer.parameters()) for layer in llama.model.layers]
    ends = {0: embedding, len(found.layout.stages) - 1: embedding + llama.model.norm.weight.numel()}
    for held, count in zip(found.layout.of_rank, found.parameters_of_rank, strict=True):
        layers = sum(of_layer[i] for piece in held for i in found.layout.stages[piece])
        if ranks > 1:
            assert count == layers + sum(ends.get(piece, 0) for piece in held)


# Cutting


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 9))
def test_balanced_is_the_best_of_all_divisions(costs, parts):
    parts = min(parts, len(costs))

    def sums(cuts):
        ends = [0, *cuts, len(costs)]
        return [sum(costs[a:b]) for a, b in itertools.pairwise(ends)]

    divisions = map(sums, itertools.combinations(range(1, len(costs)), parts - 1))
    best = min((max(d), sum(cost**2 for cost in d)) for d in divisions)
    ranges = balanced(costs, parts)
    assert [i for part in ranges for i in part] == list(range(len(costs)))
    found = [sum(costs[i] for i in part) for part in ranges]
    assert (max(found), sum(cost**2 for cost in found)) == best


def test_equal_costs_are_divided_evenly_the_longer_parts_first():
    assert [len(part) for part in balanced([1.0] * 10, 4)] == [3, 3, 2, 2]
    assert [len(part) for part in balanced([1, 1, 1, 5], 2)] == [3, 1]


def test_the_ends_of_a_network_have_fewer_layers():
    """30 layers by four: those with an embedding's look-up or a head beside them have seven."""
    layers = layers_of_stages(Sizes.of(PRESETS["3b"]()), 8192, 4)
    assert [len(each) for each in layers] == [7, 8, 8, 7]
    # A layer of `tiny` costs 184,320 (by hand below) and 256 x 128 of attention; the head 524,288.
    assert layers_of_stages(Sizes.of(PRESETS["tiny"]()), 256, 2) == [range(0, 3), range(3, 4)]


def test_pieces_of_a_rank():
    assert stages_of_rank(pipeline(1, "zbv"), 0) == [0]
    assert stages_of_rank(pipeline(4), 2) == [2]
    assert stages_of_rank(pipeline(4, "interleaved_1f1b", 3), 2) == [2, 6, 10]
    assert [stages_of_rank(pipeline(3, "zbv"), r) for r in range(3)] == [[0, 5], [1, 4], [2, 3]]


# Schedules: who does what when, then simulated


def gpipe(rank: int, ranks: int, count: int) -> list[Action]:
    return [Action(kind, rank, i) for kind in "FB" for i in range(count)]


def one_f_one_b(rank: int, ranks: int, count: int) -> list[Action]:
    ahead = min(ranks - rank, count)
    actions = [Action("F", rank, i) for i in range(ahead)]
    for i in range(count):
        actions.append(Action("B", rank, i))
        actions += [Action("F", rank, i + ahead)] * (i + ahead < count)
    return actions


def torchs(schedule: str, ranks: int, pieces: int, count: int) -> list[list[Action]]:
    """Return the table that a schedule of torch runs by; its stages only say where they are.

    Raises:
        ValueError: torch does not take so many microbatches.
    """
    from torch.distributed.pipelining.schedules import get_schedule_class

    indices = stages_of_rank(pipeline(ranks, schedule, pieces), 0)
    stages = [
        SimpleNamespace(
            group_size=ranks, group_rank=0, num_stages=ranks * pieces, stage_index=i,
            is_last=i == ranks * pieces - 1, has_backward=True, submod=torch.nn.Identity(),
        )
        for i in indices
    ]  # fmt: skip
    kind = get_schedule_class(PIPELINE_SCHEDULES[schedule].torch_name)
    table = kind(stages, count).pipeline_order
    names = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    return [
        [
            Action(names[a.computation_type.name], a.stage_index, a.microbatch_index)
            for a in table[rank]
            if a is not None and a.computation_type.name in names
        ]
        for rank in range(ranks)
    ]


def simulated(table: list[list[Action]], num_pieces: int) -> tuple[float, list[int]]:
    """Return the idle share, and the most (microbatch, piece) that each rank keeps at once.

    Forward, backward for inputs and backward for weights take one unit each.
    """
    takes = {"F": 1, "B": 2, "I": 1, "W": 1}
    step = replayed(table, num_pieces, lambda action: takes[action.kind])
    change = {"F": 1, "B": -1, "I": 0, "W": -1}
    kept = [max(itertools.accumulate(change[each.kind] for each in a)) for a in table]
    return share_of_step(step), kept


ORDERS = {"gpipe": gpipe, "1f1b": one_f_one_b}
"""Of the schedules that hold one piece a rank; torch has no tables of them."""


def pieces_to_try(schedule: str) -> list[int]:
    pieces = PIPELINE_SCHEDULES[schedule].stages_per_rank
    return [2, 3] if pieces is None else [pieces]


TABLED = [
    (schedule, pieces)
    for schedule in PIPELINE_SCHEDULES
    for pieces in pieces_to_try(schedule)
    if schedule not in ORDERS
]


@pytest.mark.parametrize("schedule", ORDERS)
@pytest.mark.parametrize(("ranks", "count"), [(2, 9), (3, 8), (8, 8), (8, 32)])
def test_idle_time_of_simple_pipelines(schedule, ranks, count):
    idle, kept = simulated([ORDERS[schedule](rank, ranks, count) for rank in range(ranks)], ranks)
    parallel = pipeline(ranks, schedule)
    assert idle_share(parallel, count) == pytest.approx(idle)
    assert idle == pytest.approx((ranks - 1) / (count + ranks - 1))
    assert [in_flight(parallel, rank, count) for rank in range(ranks)] == kept


# Fewer microbatches than ranks, as many, more, and numbers that rounds do not divide.
SHAPES = [(2, 1), (2, 3), (3, 6), (4, 2), (4, 5), (8, 7), (8, 24)]


@pytest.mark.parametrize(("schedule", "pieces"), TABLED)
@pytest.mark.parametrize(("ranks", "count"), SHAPES)
def test_idle_time_of_torchs_schedules(schedule, ranks, pieces, count):
    """Where torch refuses a number of microbatches, so does the table, and nowhere else."""
    parallel = pipeline(ranks, schedule, pieces)
    if PIPELINE_SCHEDULES[schedule].problem(pipe_of(parallel, count)):
        with pytest.raises(ValueError, match="number of microbatches"):
            torchs(schedule, ranks, pieces, count)
        return
    idle, kept = simulated(torchs(schedule, ranks, pieces, count), ranks * pieces)
    assert idle_share(parallel, count) == pytest.approx(idle)
    found = [in_flight(parallel, rank, count) for rank in range(ranks)]
    if count >= ranks:
        assert found == kept
    assert all(f >= k for f, k in zip(found, kept, strict=True))


# Memory


@pytest.mark.parametrize(("preset", "dtype"), [("tiny", torch.float32), ("mini", torch.bfloat16)])
def test_activations_are_what_autograd_keeps(preset, dtype):
    """The bytes that the graph of a stock network holds on to, packed rows and a mask among them.

    Left out on both sides: the head. Two pieces in a row of 64 make transformers use a mask.
    """
    config = PRESETS[preset]()
    config._attn_implementation = "sdpa"
    llama = LlamaForCausalLM(config).to(dtype)
    own = {p.untyped_storage().data_ptr() for p in llama.parameters()}
    found: dict[int, torch.UntypedStorage] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage
        return tensor

    positions = torch.arange(64).remainder(32).repeat(2, 1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        llama.model(torch.randint(128, 4224, (2, 64)), position_ids=positions, use_cache=False)
    kept = sum(storage.nbytes() for storage in found.values())
    process = make_process(preset, dtype_bytes=dtype.itemsize)
    assert memory_of(process, 64, 2, 1).activations == pytest.approx(kept, rel=0.03)


def make_process(preset: str = "tiny", **changes) -> Process:
    sizes = Sizes.of(PRESETS[preset]())
    layers = (range(sizes.num_layers),)
    optimizer = OPTIMIZERS["adamw"]
    process = Process(
        sizes, ParallelConfig(), Mesh(), 0, layers, "none", 4, False, True, optimizer=optimizer
    )
    return dataclasses.replace(process, **changes)


def test_memory_by_hand():
    """`tiny`, fp32, four shards, two microbatches of 4 rows of 256: see train/recipes/tiny.toml."""
    (memory,) = plan("phases.0.batch_rows=32", processes=4).spans[0].memory
    layer, ends = 184_320 + 2 * 128, 4224 * 128 + 128
    parameters = 4 * layer + ends  # 1,279,104
    tokens = 4 * 256
    assert (memory.weights, memory.moments) == (parameters, 2 * parameters)  # 4 bytes by 4 shards
    assert memory.gathered == 4 * (ends + 2 * layer)
    assert memory.whole_gradients == 4 * (parameters + 2 * layer)
    # Of a layer: two norms, x three; q, k and v for each head, result; four of the MLP; the mask.
    of_layer = 4 * (2 * 3 * 128 + 4 * 128 + 4 * 352 + 256 + 4)
    of_ends = 4 * (3 * 128 + 2 * 32) + 256  # norm and gradient of states; rotary; mask of bytes
    assert memory.activations == tokens * (4 * of_layer + of_ends)
    assert memory.layer == tokens * 4 * (128 + 352)
    # Four fp32 buffers of 512 tokens; weights' gradient twice; states.
    assert memory.logits == 4096 * (512 * 16 + 128 * 8) + tokens * 128 * 4
    assert (memory.transfers, memory.gradients) == (0, parameters)
    assert memory.update == 2 * 4224 * 128
    computing = memory.gathered + memory.whole_gradients + memory.activations + memory.logits
    assert memory.peak == 3 * parameters + computing
    each = ["phases.0.batch_rows=32", "parallel.reduce_each_microbatch=true"]
    (memory,) = plan(*each, processes=4).spans[0].memory
    assert memory.whole_gradients == 4 * (ends + 2 * layer) + parameters  # whole, and of the shard


def test_memory_of_a_probe_by_hand():
    """The first process of a pipeline holds the whole network of `tiny` next to its own part."""
    split = ["parallel.pipeline=2", "phases.0.batch_rows=4", "data.microbatch_tokens=256"]
    probed = plan(*split, "probe.every_steps=1", processes=2).spans[0].memory
    first, second = plan(*split, processes=2).spans[0].memory
    assert (first.probe, second.probe) == (0, 0)
    parameters = 4 * (184_320 + 2 * 128) + 4224 * 128 + 128
    assert probed[0].probe == 4 * parameters and probed[1] == second
    large = dataclasses.replace(first, probe=10**9)
    assert large.peak == first.weights + first.moments + first.transfers + 10**9


def test_memory_of_shared_matrices_by_hand():
    """Halves of all but masks, the input of the first matrices, and the rows that are gathered."""
    (one,) = plan("phases.0.batch_rows=4").spans[0].memory
    (half,) = plan("phases.0.batch_rows=4", "parallel.tensor=2", processes=2).spans[0].memory
    for name in ("weights", "moments", "gathered", "whole_gradients", "gradients", "layer"):
        assert getattr(half, name) == getattr(one, name) // 2, name
    tokens, layers = 4 * 256, 4
    whole = layers * 4 * 256 + 256 + 4 * 2 * 32  # masks of layers and of all; rotary
    inputs = layers * 2 * 128 * 4
    assert half.activations == (one.activations - tokens * whole) // 2 + tokens * (whole + inputs)
    assert half.logits == one.logits + 4096 * 128 * 4 - tokens * 128 * 4 // 2


def test_memory_of_muon_by_hand():
    """A momentum for matrices of layers, two moments for all else; a matrix of the MLP whole."""
    adamw, muon = (
        plan(f"optimizer.name={name}", processes=4).spans[0].memory[0] for name in OPTIMIZERS
    )
    others = 4224 * 128 + (4 * 2 + 1) * 128
    assert muon.moments == 184_320 * 4 + 2 * others  # 4 bytes by 4 shards
    orthogonal = 128 * 352 + 2 * 2 * 128 * (128 + 352)
    assert muon.update == max(adamw.update, orthogonal)


def test_memory_of_shared_rows_by_hand():
    """Two share 8 rows of 256, and keep keys and values of the whole rows."""
    (memory,) = plan("parallel.context=2", processes=4).spans[0].memory
    tokens = 8 * 256 // 2
    of_layer = 4 * (2 * 3 * 128 + (2 + 2 * 2) * 128 + 4 * 352 + 256 + 4)
    of_ends = 4 * (3 * 128 + 2 * 32) + 256
    assert memory.activations == tokens * (4 * of_layer + of_ends)
    (without_mask, alone) = (
        memory_of(make_process(has_mask=False, mesh=Mesh(context=c)), 256, 4, 1) for c in (4, 1)
    )
    keys = 4 * 2 * 64 * 4  # bytes of a token's keys and values, of all layers
    assert without_mask.activations == (alone.activations + 1024 * keys * 3.5) / 4


def test_what_makes_memory_larger_or_smaller():
    def peak(*settings: str, processes: int = 8, **more) -> Memory:
        wide = ["model.preset=mini", "phases.0.batch_rows=64", "data.microbatch_tokens=512"]
        found = plan(*wide, *settings, processes=processes, peak_flops=1e15, **more)
        return found.spans[0].memory[0]

    least = peak()
    none, selective, full = (
        peak(f"compute.activation_checkpointing={kind}") for kind in ("none", "selective", "full")
    )
    assert none.activations > 1.5 * selective.activations > 3 * full.activations
    assert peak(processes=4).weights == pytest.approx(2 * least.weights, abs=16)
    assert peak("parallel.replicate=2").weights == pytest.approx(2 * least.weights, abs=16)
    assert peak("compute.dtype=float32").activations > 1.5 * least.activations
    assert peak("compute.attention=sdpa").activations > least.activations
    assert least.update == 0 < plan().spans[0].memory[0].update  # AdamW is fused on a GPU
    assert peak("parallel.reshard_after_forward=false").gathered > 2 * least.gathered
    assert peak("phases.0.batch_rows=8").whole_gradients < least.whole_gradients
    # Of eight microbatches a gpipe keeps eight, and 1f1b as many as there are ranks.
    gpipe, simple = (
        peak("parallel.pipeline=4", f"parallel.schedule={kind}") for kind in ("gpipe", "1f1b")
    )
    assert gpipe.activations == pytest.approx(4 * simple.activations, rel=0.05)
    assert peak("parallel.pipeline=4").transfers > 0 == least.transfers


# Batches, operations, time


def test_operations_of_heads_that_are_not_hidden_over_heads():
    """64 wide, 2 heads of 16: queries are 32 wide, keys and values 16; 3 layers, an MLP of 96."""
    llama = LlamaConfig(
        hidden_size=64, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        num_hidden_layers=3, intermediate_size=96, vocab_size=4224,
    )  # fmt: skip
    layer = 64 * 32 + 2 * 64 * 16 + 32 * 64 + 3 * 64 * 96  # 24,576
    assert flops_a_token(llama, 100) == 6 * (3 * layer + 4096 * 64 + 3 * 32 * 100) == 2_072_832


def test_operations_and_time_by_hand():
    """`tiny`: 128 wide, 4 layers of 64 wide keys and values and an MLP of 352."""
    layer = 2 * 128 * (128 + 64) + 3 * 128 * 352  # 184,320
    flops_a_token = 6 * (4 * layer + 4096 * 128 + 4 * 128 * 256)
    assert flops_a_token == 8_355_840
    steps = -(-1_600_000 // 4096)
    found = plan(peak_flops=1e12, mfu=0.5, processes=2).spans[0]
    assert (found.num_steps, found.num_tokens) == (steps, 4096 * steps)
    assert found.flops == flops_a_token * 4096 * steps
    assert found.seconds == pytest.approx(found.flops / (2 * 0.5e12))
    again = plan("compute.activation_checkpointing=full").spans[0]
    assert again.flops == found.flops * 4 / 3
    assert again.seconds is None
    waiting = plan(
        "parallel.pipeline=2", "data.microbatch_tokens=1024", processes=2, peak_flops=1e12, mfu=0.5
    ).spans[0]
    assert waiting.idle_share == 1 / 5  # four microbatches through two ranks
    assert waiting.seconds == pytest.approx(found.seconds * 5 / 4)


def test_batches():
    found = plan("data.microbatch_tokens=600", "phases.0.batch_rows=20", processes=4)
    span = found.spans[0]  # 20 rows for four readers; two rows of 256 fit 600 tokens
    assert (span.rank_rows, span.microbatch_rows, span.num_microbatches) == (5, 2, 3)
    span = plan(processes=16).spans[0]  # a row each, and room for four
    assert (span.rank_rows, span.microbatch_rows, span.num_microbatches) == (1, 1, 1)
    small = "data.microbatch_tokens=256"
    laid = plan("parallel.pipeline=2", "parallel.replicate=2", small, processes=8).layout.mesh
    assert (laid.pipeline, laid.replicate, laid.shard, laid.dp_size) == (2, 2, 2, 4)
    found = plan(
        "parallel.context=2", "parallel.replicate=2", "phases.0.batch_rows=32", processes=8
    )
    span = found.spans[0]  # four readers of two processes, which have room for eight rows
    assert (found.layout.mesh.fsdp, found.layout.mesh.dp_size, span.idle_share) == (4, 4, 0)
    assert (span.rank_rows, span.microbatch_rows, span.num_microbatches) == (8, 8, 1)


@pytest.mark.parametrize(
    ("processes", "settings", "message"),
    [
        (0, (), "0 processes are not a multiple"),
        (8, ("parallel.tensor=8",), "tensor = 8: does not divide the 4 query heads"),
        (3, ("parallel.context=3",), "not divided into the 6 slices"),
        (2, ("parallel.pipeline=2", "data.microbatch_tokens=4096"), "1f1b needs .* and has 1"),
        (2, ("parallel.pipeline=2", "data.microbatch_tokens=768"), "3 rows do not divide 16"),
        (2, ("parallel.pipeline=2", "parallel.schedule=interleaved_1f1b",
             "phases.0.batch_rows=7", "data.microbatch_tokens=256"), "schedule's 3 rounds"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(processes, settings, message):
    with pytest.raises(ConfigError, match=message):
        plan(*settings, processes=processes)


# What is printed


def test_a_plan_is_printed_as_comments(capsys):
    config = config_of("data.microbatch_tokens=1024", "parallel.pipeline=2")
    print_plan(plan_of(config, Schedule(config), 4, peak_flops=1e15), 4)
    printed = capsys.readouterr().out
    assert tomllib.loads(config.to_toml() + printed) == tomllib.loads(config.to_toml())
    assert "processes: 4 (pipeline 2 x replicate 1 x shard 2); bfloat16" in printed
    assert "0 to 2" in printed and "1,279,104 parameters" in printed
    assert "MiB of the fullest process" in printed


@pytest.mark.nightly
def test_the_table_of_the_page_is_that_of_the_planner(capsys):
    from bench.plan import main

    main()
    assert capsys.readouterr().out in (ROOT / "docs" / "developers" / "planner.md").read_text()


def test_idle_time_of_one_step_by_hand():
    """Two ranks, one microbatch: F 1 s, B 2 s on stage 0; F 2 s, B 4 s on stage 1.

    Rank 0 computes from 0 to 1 and from 7 to 9, rank 1 from 1 to 7: 9 of 18 seconds.
    """
    seconds = {("F", 0): 1.0, ("B", 0): 2.0, ("F", 1): 2.0, ("B", 1): 4.0}
    table = [[Action("F", stage, 0), Action("B", stage, 0)] for stage in (0, 1)]
    step = replayed(table, 2, lambda action: seconds[action[:2]])
    assert share_of_step(step) == pytest.approx(1 - 9 / 18)
    # Its own times again: a replay of a recorded step is that step.
    idle = idle_of([step], 2)
    assert idle.measured == idle.uneven == pytest.approx(1 - 9 / 18)
    assert idle.stage_seconds == [3.0, 6.0]


def test_a_step_that_waits_is_idle_for_longer_than_its_replay():
    """Two microbatches: rank 0 computes 12 of 30 s and rank 1 24; late by 5 s, it ends at 31 s."""
    seconds = {("F", 0): 2.0, ("B", 0): 4.0, ("F", 1): 4.0, ("B", 1): 8.0}
    table = [[Action(kind, stage, i) for kind in "FB" for i in range(2)] for stage in (0, 1)]
    first, second = replayed(table, 2, lambda action: seconds[action[:2]])
    late = [(action, start + 5, end + 5) for action, start, end in second]
    idle = idle_of([[first, late]], 2)
    assert idle.uneven == pytest.approx(1 - 36 / 60)
    assert idle.measured == pytest.approx(1 - 36 / 62)

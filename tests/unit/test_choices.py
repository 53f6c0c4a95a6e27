"""What a recipe can choose: an unknown name is refused, and each entry does what it stands for."""

import dataclasses
import itertools

import pytest
import torch
from torch.distributed.pipelining.schedules import get_schedule_class

from carbon.config import from_table
from carbon.errors import ConfigError
from carbon.model import PRESETS
from carbon.objectives import OBJECTIVES
from data_pipeline.recipe import AssemblyConfig
from data_pipeline.running.executors import EXECUTORS, ExecutorConfig
from data_pipeline.sources.limits import STOPS_AT_INCOMPLETE_CDS
from train.choices.attentions import ATTENTION_CHOICES
from train.choices.computing import ACTIVATION_CHECKPOINTINGS, COMPUTE_DTYPES, DTYPE_BYTES
from train.choices.guard_policies import GUARD_POLICIES
from train.choices.kmer_rows import KMER_ROWS
from train.choices.pipeline_schedules import PIPELINE_SCHEDULES, Pipe
from train.choices.rate_schedules import RATE_SCHEDULES
from train.choices.stage_ends import STAGE_ENDS
from train.choices.trackers import TRACKERS
from train.choices.tunings import TUNINGS
from train.compute_config import ComputeConfig
from train.config import GuardConfig, ParallelConfig, StageConfig, TrainConfig
from train.model_config import ModelConfig

MODEL = {"preset": "tiny"}
STAGE = {
    "name": "s", "objective": "ce", "tokens": 32, "mixture": {"a": 1.0}, "context_tokens": 32,
    "batch_rows": 1, "learning_rate": 1.0, "schedule": "constant",
}  # fmt: skip
DATA = {"corpus": "c", "microbatch_tokens": 32}
RUN = {"output": "o", "seed": 1, "model": MODEL, "data": DATA, "stages": [STAGE]}


@pytest.mark.parametrize(
    ("schema", "key", "table", "required"),
    [
        (AssemblyConfig, "incomplete_cds", STOPS_AT_INCOMPLETE_CDS, {"genome": "g"}),
        (ExecutorConfig, "kind", EXECUTORS, {"partition": "p"}),
        (ComputeConfig, "attention", ATTENTION_CHOICES, {}),
        (ComputeConfig, "activation_checkpointing", ACTIVATION_CHECKPOINTINGS, {}),
        (ComputeConfig, "dtype", COMPUTE_DTYPES, {}),
        (GuardConfig, "policy", GUARD_POLICIES, {}),
        (ModelConfig, "kmer_rows", KMER_ROWS, MODEL),
        (ModelConfig, "preset", PRESETS, MODEL),
        (ModelConfig, "tune", TUNINGS, {"start": "folder", "last_layers": 1}),
        (ParallelConfig, "schedule", PIPELINE_SCHEDULES, {}),
        (StageConfig, "objective", OBJECTIVES, STAGE),
        (StageConfig, "schedule", RATE_SCHEDULES, STAGE),
        (StageConfig, "until", STAGE_ENDS, STAGE),
        (TrainConfig, "tracker", TRACKERS, RUN),
    ],
)
def test_what_is_no_entry_is_refused_and_the_table_is_listed(schema, key, table, required):
    choices = ", ".join(map(repr, table))
    with pytest.raises(ConfigError) as error:
        from_table(schema, required | {key: "no such"}, "f")
    assert str(error.value) == f"f: {key}: expected one of {choices}, got 'no such'"


def test_a_choice_is_checked_by_hand_too():
    right = from_table(StageConfig, STAGE, "f")
    assert dataclasses.replace(right, schedule="linear").schedule == "linear"
    with pytest.raises(ConfigError, match="got 'no such'"):
        dataclasses.replace(right, schedule="no such")


@pytest.mark.parametrize("schedule", RATE_SCHEDULES.values(), ids=RATE_SCHEDULES)
def test_a_rate_begins_at_its_peak_and_never_rises(schedule):
    rates = [schedule.curve(i / 50) for i in range(51)]
    assert rates[0] == 1 and rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0 if schedule.falls else 1)


@pytest.mark.parametrize("schedule", PIPELINE_SCHEDULES.values(), ids=PIPELINE_SCHEDULES)
def test_a_pipeline_schedule_is_one_of_torchs_and_its_ranks_hold_each_piece_once(schedule):
    """A rank's pieces are in the order of the layers; torch has one class for each name."""
    assert schedule.torch_name in get_schedule_class(schedule.torch_name).__name__
    pipe = Pipe(3, schedule.pieces_a_rank or 2, 6)
    held = [list(schedule.pieces_of_rank(pipe, rank)) for rank in range(pipe.ranks)]
    assert all(pieces == sorted(pieces) and len(pieces) == pipe.pieces for pieces in held)
    assert sorted(itertools.chain(*held)) == list(range(pipe.ranks * pipe.pieces))


def test_a_dtype_is_one_of_torchs_and_its_width_is_known():
    for choice, on_gpu in itertools.product(COMPUTE_DTYPES.values(), (False, True)):
        dtype = getattr(torch, choice.name(on_gpu))
        assert DTYPE_BYTES[choice.name(on_gpu)] == dtype.itemsize


@pytest.mark.parametrize("end", STAGE_ENDS.values(), ids=STAGE_ENDS)
def test_nothing_to_see_ends_no_stage(end):
    assert not end.is_seen([], []) and not end.is_seen([1.0] * 2000, [0.0] * 20)

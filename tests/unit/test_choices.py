"""What a recipe can choose: an unknown name is refused, and each entry does what it stands for."""

import itertools
import typing

import pytest
import torch
from torch.distributed.pipelining.schedules import get_schedule_class

import train.config
from carbon.corpus import SHARE_UNITS
from carbon.finetune import config
from carbon.finetune import config as finetune
from carbon.finetune.baselines import FITS
from carbon.finetune.config import SPLITS
from carbon.finetune.network import LOSSES
from carbon.finetune.tasks import TASK_TYPES, TRANSFORMS
from carbon.inference.options import POOLS, STRANDS_READ
from carbon.losses.objectives import OBJECTIVES
from carbon.model import PRESETS
from carbon.model.architectures import MODEL_SPECS
from carbon.tokenizer import SPECIES_TAG_OF
from data_pipeline.executors import EXECUTORS, ExecutorConfig
from data_pipeline.recipe import AssemblyConfig
from train.codecs import CODECS
from train.config import (
    ComputeConfig,
    GuardConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    PhaseConfig,
    TrainConfig,
    WorkersConfig,
)
from train.distributed.weights import KMER_INITS
from train.hooks import GUARD_POLICIES
from train.models.start import TUNINGS
from train.optim import OPTIMIZERS
from train.planning.compute import (
    ACTIVATION_CHECKPOINTINGS,
    ATTENTIONS,
    DTYPE_BYTES,
    dtype_of,
)
from train.planning.pipeline import PIPELINE_SCHEDULES, Pipe
from train.runs.trackers import TRACKERS
from train.schedule import RATE_SCHEDULES
from train.watch import PHASE_ENDS

PHASE = {
    "name": "s", "objective": "ce", "tokens": 32, "mixture": {"a": 1.0}, "context_tokens": 32,
    "batch_rows": 1, "learning_rate": 1.0, "schedule": "constant",
}  # fmt: skip


def names_of(hint) -> list[str]:
    """Return the names that a field takes, in their order; no name may be one of them."""
    if typing.get_origin(hint) is typing.Literal:
        return [name for name in typing.get_args(hint) if name]
    return names_of(typing.get_args(hint)[0])


@pytest.mark.parametrize(
    ("schema", "key", "table"),
    [
        (finetune.FinetuneConfig, "baselines", config.BASELINES),
        (finetune.FinetuneConfig, "baselines", FITS),
        (finetune.DataConfig, "format", config.FORMATS),
        (finetune.DataConfig, "leaks", config.LEAKS),
        (finetune.DataConfig, "homology", config.HOMOLOGIES),
        (finetune.TaskConfig, "calibration", config.CALIBRATIONS),
        (finetune.TaskConfig, "class_weights", config.CLASS_WEIGHTS),
        (finetune.TaskConfig, "type", TASK_TYPES),
        (finetune.TaskConfig, "loss", LOSSES),
        (finetune.TaskConfig, "transform", TRANSFORMS),
        (finetune.SplitConfig, "by", config.SPLIT_RULES),
        (finetune.MethodConfig, "name", config.METHODS),
        (finetune.MethodConfig, "pool", POOLS),
        (finetune.MethodConfig, "strands", STRANDS_READ),
        (finetune.MethodConfig, "too_long", config.TOO_LONG),
        (AssemblyConfig, "species_type", SPECIES_TAG_OF),
        (ExecutorConfig, "kind", EXECUTORS),
        (ComputeConfig, "activation_checkpointing", ACTIVATION_CHECKPOINTINGS),
        (ComputeConfig, "attention", ("auto", *ATTENTIONS)),
        (ComputeConfig, "dtype", ("auto", *DTYPE_BYTES)),
        (GuardConfig, "policy", GUARD_POLICIES),
        (WorkersConfig, "codec", CODECS),
        (ModelConfig, "architecture", MODEL_SPECS),
        (ModelConfig, "kmer_init", KMER_INITS),
        (ModelConfig, "preset", PRESETS),
        (ModelConfig, "tune", TUNINGS),
        (OptimizerConfig, "name", OPTIMIZERS),
        (ParallelConfig, "schedule", PIPELINE_SCHEDULES),
        (PhaseConfig, "objective", OBJECTIVES),
        (PhaseConfig, "schedule", RATE_SCHEDULES),
        (PhaseConfig, "until", PHASE_ENDS),
        (TrainConfig, "tracker", TRACKERS),
    ],
)
def test_a_recipe_takes_the_names_of_the_table(schema, key, table):
    """The recipe imports no table, so both list the names."""
    assert names_of(schema.model_fields[key].annotation) == list(table)


def test_what_a_recipe_knows_of_a_name_is_what_its_table_says():
    assert {n: e.num_fns_weights for n, e in OBJECTIVES.items()} == train.config.NUM_FNS_WEIGHTS
    facts = (
        (train.config.WITH_DECAY_STEPS, RATE_SCHEDULES, "has_decay_steps"),
        (train.config.ENDED_BY_PROBES, PHASE_ENDS, "needs_probes"),
        (train.config.SPLIT_BACKWARD, PIPELINE_SCHEDULES, "splits_backward"),
        (train.config.GOING_BACK, GUARD_POLICIES, "goes_back"),
    )
    for names, table, attribute in facts:
        assert list(names) == [n for n, entry in table.items() if getattr(entry, attribute)]
    anew = [name for name, each in ACTIVATION_CHECKPOINTINGS.items() if each.recomputes]
    assert anew == ["selective", "full"]  # all but "none"
    assert train.config.SHARE_UNITS == SHARE_UNITS
    assert typing.get_args(finetune.SplitName) == SPLITS
    assert list(TASK_TYPES) == list(finetune.LOSSES_OF)
    numbers = [name for name, kind in TASK_TYPES.items() if kind.is_number]
    assert numbers == ["numbers", "tracks"]


@pytest.mark.parametrize("schedule", RATE_SCHEDULES.values(), ids=RATE_SCHEDULES)
def test_a_rate_begins_at_its_peak_and_never_rises(schedule):
    rates = [schedule.share(step, 10, 60) for step in range(10, 61)]
    assert rates[0] == 1 and rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0 if schedule.falls else 1)


@pytest.mark.parametrize("schedule", PIPELINE_SCHEDULES.values(), ids=PIPELINE_SCHEDULES)
def test_a_pipeline_schedule_is_one_of_torchs_and_its_ranks_hold_each_piece_once(schedule):
    """A rank's pieces are in the order of the layers; torch has one class for each name."""
    assert schedule.torch_name in get_schedule_class(schedule.torch_name).__name__
    pipe = Pipe(3, schedule.stages_per_rank or 2, 6)
    held = [list(schedule.stages_of_rank(pipe, rank)) for rank in range(pipe.ranks)]
    assert all(pieces == sorted(pieces) and len(pieces) == pipe.pieces for pieces in held)
    assert sorted(itertools.chain(*held)) == list(range(pipe.ranks * pipe.pieces))


def test_a_dtype_is_one_of_torchs_and_its_width_is_known():
    for name, num_bytes in DTYPE_BYTES.items():
        assert getattr(torch, name).itemsize == num_bytes
        assert {dtype_of(name, on_gpu=on_gpu) for on_gpu in (False, True)} == {name}
    assert [dtype_of("auto", on_gpu=on_gpu) for on_gpu in (True, False)] == ["bfloat16", "float32"]


@pytest.mark.parametrize("end", PHASE_ENDS.values(), ids=PHASE_ENDS)
def test_nothing_to_see_ends_no_phase(end):
    assert not end.is_seen([], []) and not end.is_seen([1.0] * 2000, [0.0] * 20)

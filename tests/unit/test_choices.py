"""What a recipe can choose: every choice is held to its table, by file and by hand."""

import dataclasses
import itertools
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest
import torch
from torch.distributed.pipelining.schedules import get_schedule_class

from carbon.adapt.choices import BASELINES, CLASS_WEIGHTS, FORMATS, LEAKS, SPLITS
from carbon.adapt.losses import LOSSES
from carbon.adapt.question import QUESTIONS
from carbon.adapt.transforms import TRANSFORMS
from carbon.config import OneOf, from_table
from carbon.errors import ConfigError
from carbon.model import PRESETS
from carbon.objectives import OBJECTIVES
from data_pipeline.recipe import BuildConfig
from data_pipeline.running.executors import EXECUTORS
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
from train.config import TrainConfig

DOCS = Path(__file__).parents[2] / "docs"
CHOICES = {
    ("AssemblyConfig", "incomplete_cds"): STOPS_AT_INCOMPLETE_CDS,
    ("ComputeConfig", "attention"): ATTENTION_CHOICES,
    ("ComputeConfig", "activation_checkpointing"): ACTIVATION_CHECKPOINTINGS,
    ("ComputeConfig", "dtype"): COMPUTE_DTYPES,
    ("ExecutorConfig", "kind"): EXECUTORS,
    ("GuardConfig", "policy"): GUARD_POLICIES,
    ("ModelConfig", "kmer_rows"): KMER_ROWS,
    ("ModelConfig", "preset"): PRESETS,
    ("ModelConfig", "tune"): TUNINGS,
    ("ParallelConfig", "schedule"): PIPELINE_SCHEDULES,
    ("StageConfig", "objective"): OBJECTIVES,
    ("StageConfig", "schedule"): RATE_SCHEDULES,
    ("StageConfig", "until"): STAGE_ENDS,
    ("TrainConfig", "tracker"): TRACKERS,
}
STAGE = {
    "name": "s",
    "objective": "ce",
    "tokens": 32,
    "mixture": {"a": 1.0},
    "context_tokens": 32,
    "batch_rows": 1,
    "learning_rate": 1.0,
    "schedule": "constant",
}
MODEL = {"preset": "tiny"}
REQUIRED = {
    "ModelConfig": MODEL,
    "AssemblyConfig": {"genome": "g"},
    "StageConfig": STAGE,
    "TrainConfig": {
        "output": "o",
        "seed": 1,
        "model": MODEL,
        "data": {"corpus": "c", "microbatch_tokens": 32},
        "stages": [STAGE],
    },
}


def schemas_in(schema: type) -> Iterator[type]:
    """Return a dataclass and all that its fields lead to."""
    yield schema
    for hint in typing.get_type_hints(schema).values():
        for inner in (hint, *get_args(hint)):
            if dataclasses.is_dataclass(inner):
                yield from schemas_in(inner)


SCHEMAS = {each.__name__: each for top in (TrainConfig, BuildConfig) for each in schemas_in(top)}


def test_each_choice_is_held_to_its_table():
    found = {
        (name, key): get_args(hint)[1].table
        for name, schema in SCHEMAS.items()
        for key, hint in typing.get_type_hints(schema, include_extras=True).items()
        if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], OneOf)
    }
    assert {key: found[key] for key in CHOICES} == CHOICES


def settings(schema: str, key: str, value: str) -> dict[str, object]:
    more: dict[str, object] = {"partition": "p"} if schema == "ExecutorConfig" else {}
    if key == "objective" and value in OBJECTIVES:
        more = {"fns_weight": [0.5] * OBJECTIVES[value].num_fns_weights}
    if key == "tune":
        more = {"start": "folder", **({"last_layers": 1} if value == "last" else {})}
    return REQUIRED.get(schema, {}) | more | {key: value}


@pytest.mark.parametrize(
    ("schema", "key", "value"),
    [(*field, value) for field, table in CHOICES.items() for value in table],
)
def test_every_entry_can_be_chosen(schema, key, value):
    assert getattr(from_table(SCHEMAS[schema], settings(schema, key, value), "f"), key) == value


@pytest.mark.parametrize(("schema", "key"), CHOICES)
def test_what_is_no_entry_is_refused_and_the_table_is_listed(schema, key):
    choices = ", ".join(map(repr, CHOICES[schema, key]))
    with pytest.raises(ConfigError) as error:
        from_table(SCHEMAS[schema], settings(schema, key, "no such"), "f")
    assert str(error.value) == f"f: {key}: expected one of {choices}, got 'no such'"
    right = from_table(
        SCHEMAS[schema], settings(schema, key, next(iter(CHOICES[schema, key]))), "f"
    )
    with pytest.raises(ConfigError) as error:
        dataclasses.replace(right, **{key: "no such"})
    assert str(error.value) == f"{key}: expected one of {choices}, got 'no such'"


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("training.md", OBJECTIVES),
        ("objectives.md", OBJECTIVES),
        ("training.md", ACTIVATION_CHECKPOINTINGS),
        ("training.md", GUARD_POLICIES),
        ("training.md", KMER_ROWS),
        ("training.md", PIPELINE_SCHEDULES),
        ("training.md", RATE_SCHEDULES),
        ("training.md", STAGE_ENDS),
        ("training.md", TRACKERS),
        ("corpus.md", EXECUTORS),
        ("adapting.md", BASELINES),
        ("adapting.md", CLASS_WEIGHTS.keys() - {"none"}),
        ("adapting.md", FORMATS),
        ("adapting.md", LEAKS),
        ("adapting.md", LOSSES),
        ("adapting.md", QUESTIONS),
        ("adapting.md", SPLITS),
        ("adapting.md", TRANSFORMS),
    ],
)
def test_the_page_names_every_entry(page: str, table: Mapping[str, object]):
    text = (DOCS / page).read_text()
    missing = [key for key in table if f"`{key}`" not in text and f'"{key}"' not in text]
    assert missing == [], f"docs/{page} does not name them"


@pytest.mark.parametrize("schedule", RATE_SCHEDULES.values(), ids=RATE_SCHEDULES)
def test_a_rate_begins_at_its_peak_and_never_rises(schedule):
    way = [schedule.curve(i / 50) for i in range(51)]
    assert way[0] == 1 and way == sorted(way, reverse=True)
    assert way[-1] == pytest.approx(0 if schedule.falls else 1)


@pytest.mark.parametrize("schedule", PIPELINE_SCHEDULES.values(), ids=PIPELINE_SCHEDULES)
def test_a_pipeline_schedule_is_one_of_torchs_and_its_ranks_hold_each_piece_once(schedule):
    """A rank's pieces are in the order of the layers; torch has one class for each name."""
    assert schedule.torch_name in get_schedule_class(schedule.torch_name).__name__
    pipe = Pipe(3, schedule.pieces_a_rank or 2, 6)
    held = [list(schedule.pieces_of_rank(pipe, rank)) for rank in range(pipe.ranks)]
    assert all(pieces == sorted(pieces) and len(pieces) == pipe.pieces for pieces in held)
    assert sorted(itertools.chain(*held)) == list(range(pipe.ranks * pipe.pieces))


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("choice", COMPUTE_DTYPES.values(), ids=COMPUTE_DTYPES)
def test_a_dtype_is_one_of_torchs_and_its_width_is_known(choice, on_gpu):
    dtype = getattr(torch, choice.name(on_gpu))
    assert DTYPE_BYTES[choice.name(on_gpu)] == dtype.itemsize


@pytest.mark.parametrize("end", STAGE_ENDS.values(), ids=STAGE_ENDS)
def test_an_end_of_a_stage_that_sees_a_sign_says_so(end):
    """A label and a reason stand where something is looked at, and nothing to see ends nothing."""
    looks = end.needs_all_norms or end.needs_probes
    assert bool(end.label) == bool(end.reason) == looks
    assert not end.is_seen([], []) and not end.is_seen([1.0] * 2000, [0.0] * 20)

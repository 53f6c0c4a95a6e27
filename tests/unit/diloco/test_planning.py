"""Bytes, seconds and memory of workers, against sums by hand and sizes of real tensors."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from carbon.errors import ConfigError
from train.codecs import CODECS, encoded
from train.config import WorkersConfig
from train.planning.workers import WorkersPlan, advice, workers_plan

PLAN = WorkersPlan(
    num_parameters=3_000_000_000, codec=CODECS["fp32"], workers=4, every_steps=100,
    fragments=1, step_tokens=500_000, step_seconds=2.0, gbit_per_s=1.0,
    rounds=7,
)  # fmt: skip

SPANS = [SimpleNamespace(num_steps=1, num_tokens=5, seconds=1.0),
         SimpleNamespace(num_steps=12, num_tokens=1152, seconds=24.0)]  # fmt: skip
RUN = SimpleNamespace(spans=SPANS, num_trained=1000)


def plan(**changes):
    if "codec" in changes:
        changes["codec"] = CODECS[changes["codec"]]
    return dataclasses.replace(PLAN, **changes)


def test_bytes_of_a_store_by_hand():
    """3 G parameters of 4 bytes: 12 GB are written once, and three times 12 GB are read."""
    assert (PLAN.payload_bytes, PLAN.sent_bytes) == (12 * 10**9, 12 * 10**9)
    assert PLAN.received_bytes == 36 * 10**9
    assert PLAN.bytes_a_token == 48e9 / (100 * 500_000)
    assert PLAN.round_seconds == 288
    group = plan(times_sent=3)
    assert (group.sent_bytes, group.received_bytes) == (36 * 10**9, 36 * 10**9)
    assert group.round_seconds == 288


# Seconds of a ring of four copies in fp32 at 1 Gbit/s: 4 bytes x 2 x 3/4 x 8 bits = 48 ns each.
@pytest.mark.parametrize(("parameters", "seconds"), [(25e6, 1.2), (8e9, 384)])
def test_seconds_of_data_parallel_by_hand(parameters, seconds):
    found = plan(num_parameters=int(parameters))
    assert found.data_parallel_seconds == pytest.approx(seconds)
    slower = plan(num_parameters=int(parameters), gbit_per_s=0.1)
    assert slower.data_parallel_seconds == pytest.approx(10 * seconds)


def test_top2_of_three_billions_at_100_mbit():
    """120 bytes for 4,096 parameters: 3 others x 87.9 MB x 8 / 0.1 Gbit/s = 21.1 s."""
    found = plan(codec="top2", gbit_per_s=0.1)
    assert found.round_seconds == pytest.approx(3 * 3e9 * 120 / 4096 * 8 / 1e8, rel=1e-6)
    assert found.round_seconds == pytest.approx(21.1, abs=0.05)


@pytest.mark.parametrize(
    ("codec", "momentum", "bytes_each"),
    [("fp32", 0, 4), ("int8", 0.9, 8), ("top2", 0.9, 12)],
)
def test_memory_is_outer_parameters_momentum_and_residuals(codec, momentum, bytes_each):
    config = WorkersConfig(count=2, codec=codec, momentum=momentum)
    assert workers_plan(config, RUN).memory_bytes == bytes_each * 1000


def test_steps_that_outweigh_and_hide_an_exchange():
    """int8 at 10 Gbit/s: 3 x 3.046875 GB x 8 / 10 = 7.3125 s, of steps of 2 s 3.7; by four: 0.9."""
    found = plan(codec="int8", gbit_per_s=10.0, fragments=4)
    assert found.round_seconds == pytest.approx(7.3125)
    assert found.exchange_seconds == pytest.approx(1.828125)
    assert (found.break_even_steps, found.hiding_steps) == (4, 1)
    at_it = plan(codec="int8", gbit_per_s=10.0, every_steps=found.break_even_steps)
    before = plan(codec="int8", gbit_per_s=10.0, every_steps=found.break_even_steps - 1)
    assert at_it.round_seconds <= at_it.every_steps * 2.0
    assert before.round_seconds > before.every_steps * 2.0


def test_one_worker_sends_nothing():
    for found in (plan(workers=1, times_sent=0), plan(workers=1)):
        assert found.sent_bytes == found.received_bytes == found.data_parallel_bytes == 0
        assert (found.round_seconds, found.break_even_steps) == (0, 1)
        assert found.memory_bytes == 24 * 10**9


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_are_those_of_what_is_written(codec):
    """But for the blocks at the ends of tensors, which these sizes fill."""
    tensors = {"a": torch.randn(64, 128), "b": torch.randn(4096), "c": torch.randn(3 * 4096)}
    parts, _ = encoded(CODECS[codec], tensors, {})
    found = plan(codec=codec, num_parameters=sum(x.numel() for x in tensors.values()))
    assert found.payload_bytes == sum(x.nbytes for x in parts.values())


def test_the_plan_of_a_recipe():
    """4 x 3 steps of 96 tokens of the longest span, in 24 seconds; three others are sent to."""
    config = WorkersConfig(count=4, every_steps=6, fragments=2, codec="bf16", momentum=0.0)
    found = workers_plan(config, RUN, 0.5)
    assert (found.step_tokens, found.step_seconds, found.payload_bytes) == (96, 2.0, 2000)
    assert (found.sent_bytes, found.received_bytes) == (6000, 6000)
    assert found.memory_bytes == 4000
    assert found.rounds == 1  # 13 steps of 4 x 6 in a round
    in_a_folder = config.replace(store="folder")
    assert workers_plan(in_a_folder, RUN).sent_bytes == 2000
    sparta = workers_plan(WorkersConfig(count=4, method="sparta", share=0.1), RUN)
    assert (sparta.sent_bytes, sparta.received_bytes) == (1200, 1200)  # 100 numbers x 8 x 2 x 3/4
    assert (sparta.every_steps, sparta.rounds, sparta.memory_bytes) == (1, 1, 4000)
    with pytest.raises(ConfigError, match="gbit-per-s 0"):
        workers_plan(config, RUN, 0)


@pytest.mark.parametrize(
    ("steps", "changes", "words"),
    [(1173, {}, "59 rounds"), (2380, {}, "119 rounds"), (2381, {}, ""), (1173, {"momentum": 0}, ""),
     (1173, {"count": 0}, ""), (1173, {"method": "sparta", "every_steps": 100}, "")],
)  # fmt: skip
def test_the_advice_for_a_short_run(steps, changes, words):
    """Two workers of 10 steps a round share 1,173 steps: 58.65 rounds."""
    found = advice(WorkersConfig(**{"count": 2, "every_steps": 10} | changes), steps)
    assert words in found and bool(words) == bool(found)


def test_processes_of_a_launch_are_divided():
    assert WorkersConfig(count=2).processes_of_each(8) == 4
    assert WorkersConfig(count=3, store="folder").processes_of_each(8) == 8
    with pytest.raises(ConfigError, match="8 processes are no multiple"):
        WorkersConfig(count=3).processes_of_each(8)


def test_folders_of_workers():
    group = WorkersConfig(count=2)
    assert [group.folder("run", n) for n in (None, 0, 1)] == [
        "run/worker-0", "run/worker-0", "run/worker-1"
    ]  # fmt: skip
    assert group.folder("run/worker-1") == "run/worker-1"  # from the record in its folder
    assert group.folder("run/worker-1", 0) == "run/worker-0"
    one = WorkersConfig(count=2, store="folder", number=5)
    assert one.folder("run") == one.folder("run/worker-5", 0) == "run/worker-5"
    assert WorkersConfig(count=1).folder("run", 0) == "run"

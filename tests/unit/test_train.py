import json
import math
from types import SimpleNamespace

import pytest
import torch

from carbon.errors import ConfigError, UserError
from carbon.io.structured import parse_json
from carbon.losses.objectives import CE, FNS
from tests.helpers.objectives import phase_of
from train.__main__ import main
from train.checkpoint import Checkpoints, steps_to_keep
from train.config import (
    CheckpointConfig,
    GuardConfig,
    ParallelConfig,
    ShortRows,
    TrainConfig,
    read_recipe,
)
from train.distributed.parallelize import check_schedule
from train.hooks import Guard, check_step, signal_to_end
from train.planning.mesh import Mesh, check_batches
from train.planning.plan import plan_of
from train.planning.time import flops_a_second
from train.runs.log import RunLog
from train.saved import RunState
from train.schedule import Schedule, learning_rate, objective_at


def rates(num_steps, **changes):
    it = phase_of(tokens=16 * num_steps, **changes)
    return [learning_rate(it, step) for step in range(num_steps)]


def test_schedules():
    assert rates(3) == [1, 1, 1]
    assert rates(6, warmup_steps=4)[:5] == [0.25, 0.5, 0.75, 1, 1]
    # Four steps down from 1 to 0.2 in a line: 1, 0.8, 0.6, 0.4.
    linear = rates(5, schedule="linear", warmup_steps=1, final_learning_rate=0.2)
    assert linear == pytest.approx([1, 1, 0.8, 0.6, 0.4])
    cosine = rates(5, schedule="cosine", warmup_steps=1, final_learning_rate=0.2)
    expected = [0.2 + 0.8 * (1 + math.cos(math.pi * k / 4)) / 2 for k in range(4)]
    assert cosine[1:] == pytest.approx(expected)
    wsd = rates(8, schedule="wsd", warmup_steps=2, decay_steps=2)
    assert wsd == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.5])


def test_the_weight_of_fns():
    plain = [objective_at(phase_of(objective=o, tokens=9 * 16), 3) for o in ("ce", "fns")]
    assert plain == [CE, FNS]
    ramp = phase_of(objective="blend", fns_weight=(0.2, 1.0), tokens=5 * 16)
    steps = [objective_at(ramp, step) for step in range(5)]
    assert [step.bases for step in steps] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert [step.token for step in steps] == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.0])
    assert objective_at(phase_of(objective="blend", fns_weight=(0.9, 0.9)), 0).bases == 0.9


@pytest.mark.parametrize(
    ("objective", "weights"), [("blend", ()), ("blend", (0.5,)), ("blend", (0, 2)), ("ce", (0, 1))]
)
def test_a_blend_and_nothing_else_has_two_weights(objective, weights):
    with pytest.raises(ConfigError, match="fns_weight"):
        phase_of(objective=objective, fns_weight=weights)


def schedule_of(*phases) -> Schedule:
    return Schedule(SimpleNamespace(phases=phases))


def test_processes_share_a_batch_evenly():
    fine, odd = phase_of(batch_rows=6), phase_of(name="odd", batch_rows=9)
    check_batches(schedule_of(fine, odd), Mesh(shard=3))
    message = r"phases\.1 \('odd'\): batches of 9 rows of 16 tokens cannot be shared by 2 processes"
    with pytest.raises(ConfigError, match=message):
        check_batches(schedule_of(fine, odd), Mesh(shard=2))


def test_a_schedule_has_no_gap_and_no_overlap():
    short = (ShortRows(context_tokens=16, steps=2), ShortRows(context_tokens=32, steps=1))
    warm = phase_of(
        name="warm", context_tokens=64, batch_rows=3, tokens=5 * 192, length_warmup=short
    )
    schedule = schedule_of(phase_of(batch_rows=4, tokens=65), warm, phase_of(tokens=16))
    assert [(s.number, s.context_tokens, s.batch_rows, s.num_steps) for s in schedule.spans] == [
        (0, 16, 4, 2), (1, 16, 12, 2), (1, 32, 6, 1), (1, 64, 3, 2), (2, 16, 1, 1)
    ]  # fmt: skip
    assert [s.step_in_phase for s in schedule.spans] == [0, 0, 2, 3, 0]
    rows = [
        row for step in range(schedule.total_steps) for row in schedule.at(step).rows_of_step(step)
    ]
    assert rows == list(range(sum(r.num_rows for r in schedule.rows)))
    read = 0
    for step in range(schedule.total_steps):
        span = schedule.at(step)
        assert span.tokens_by(step) == read
        assert span.batch_rows * span.context_tokens == span.phase.batch_tokens
        read += span.phase.batch_tokens
    assert read == schedule.total_tokens


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"schedule": "wsd", "warmup_steps": 5, "decay_steps": 8},
            "5 and decay_steps 8 are more than the 10 steps",
        ),
        ({"decay_steps": 2}, "only the schedule 'wsd'"),
        ({"final_learning_rate": 2.0}, "give 0 to learning_rate = 1.0"),
    ],
)
def test_schedules_and_numbers_must_fit(changes, message):
    with pytest.raises(ConfigError) as error:
        phase_of(**({"tokens": 160} | changes))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([(48, 1)], "48: give a divisor of context_tokens = 64"),
        ([(64, 1)], "64: give a divisor"),
        ([(32, 2), (16, 3)], "takes 5 steps and the whole phase has 5"),
    ],
)
def test_a_length_warmup_must_fit(parts, message):
    short = tuple(ShortRows(context_tokens=n, steps=steps) for n, steps in parts)
    with pytest.raises(ConfigError, match=message):
        phase_of(context_tokens=64, tokens=5 * 64, length_warmup=short)


def test_the_log_tells_no_time_before_it_is_known(tmp_path, monkeypatch, capsys):
    """The first step took as long as 80 others: at first 650 steps seem to take a week."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    words = [f"output={tmp_path}"]
    config = TrainConfig.load("train/recipes/tiny.toml", words)
    numbers = {"learning_rate": 1e-3, "nats_per_base": 1.3, "tokens_per_second": 9.0, "mfu": None}
    with RunLog(config, SimpleNamespace(is_first=True), Schedule(config), 0) as log:
        for step, seconds in enumerate((900, 11, 11, 11, 11), start=1):
            now[0] += seconds
            log.step({"step": step, "phase": "ce", **numbers}, 650)
    ends = [line.rpartition("tokens/s")[2] for line in capsys.readouterr().err.splitlines()]
    # 646 and 645 steps of 11 seconds.
    assert ends == ["", "", "", ", 1:58:26 left", ", 1:58:15 left"]


@pytest.mark.parametrize(
    ("steps", "keep", "milestone_steps", "kept"),
    [
        ((10, 20, 30), 2, 0, {20, 30}),
        ((10, 20, 21, 22, 23), 2, 0, {10, 20, 23}),  # the clock crowds out none of the others
        ((10, 20, 21, 30), 2, 0, {20, 30}),
        ((1, 2, 3), 2, 0, {2, 3}),
        ((10, 11, 12, 13), 3, 0, {10, 12, 13}),
        ((20, 30, 40, 50), 1, 20, {20, 40, 50}),
    ],
)
def test_which_checkpoints_are_kept(steps, keep, milestone_steps, kept):
    config = CheckpointConfig(every_steps=10, keep=keep, milestone_steps=milestone_steps)
    assert steps_to_keep(steps, config) == kept


@pytest.mark.parametrize(
    ("unsaved_seconds", "save_seconds", "every_minutes", "due"),
    [
        (59, 0.1, 1.0, False),
        (60, 0.1, 1.0, True),
        (120, 7, 1.0, False),  # a twentieth of the time at most goes to writing
        (140, 7, 1.0, True),
        (1e9, 0.1, 0.0, False),
    ],
)
def test_when_the_clock_asks_for_a_checkpoint(
    unsaved_seconds, save_seconds, every_minutes, due, monkeypatch
):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    checkpoint = CheckpointConfig(every_minutes=every_minutes)
    checkpoints = object.__new__(Checkpoints)
    checkpoints._config = SimpleNamespace(checkpoint=checkpoint)
    checkpoints._writing, checkpoints._saved_at = None, now[0]
    checkpoints._save_seconds = save_seconds
    now[0] += unsaved_seconds
    assert checkpoints.are_due() == due
    checkpoints._writing = SimpleNamespace(is_alive=lambda: True)
    assert not checkpoints.are_due()


def test_a_plan_without_a_corpus(monkeypatch, capsys):
    """On a CPU it tells hours by what was timed, of the machine that all processes share."""
    monkeypatch.setattr("train.planning.time.flops_a_second", lambda config: 2e9)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    recipe = "train/recipes/carbon_3b.toml"
    words = ["--config", recipe, "--dry-run", "--set", "data.corpus=no corpus here"]
    assert main([*words, "--world-size", "8"]) == 0
    said = capsys.readouterr()
    assert "no corpus here: not found" in said.err
    config = TrainConfig.from_table(read_recipe(recipe, (), 8), recipe)
    plan = plan_of(config, Schedule(config), 8)
    hours = f"{sum(span.flops for span in plan.spans[:1]) / 2e9 / 3600:,.2f}"
    assert hours in said.out and "hours are those of this CPU" in said.out


def test_what_a_cpu_reaches_is_timed():
    """Of a network as wide as the run's; no CPU takes a minute for the operations of a moment."""
    config = TrainConfig.load("train/recipes/tiny.toml", ["data.microbatch_tokens=256"])
    assert 1e7 < flops_a_second(config) < 1e14


class TestGuard:
    def test_what_is_bad(self):
        guard = GuardConfig(spike_factor=3.0, window_steps=4)
        history = [[1.0, 0.5]] * 4
        assert check_step(guard, history, 1.2, 0.9) == ""
        assert check_step(guard, history, math.nan, 0.9) == "the loss is nan"
        assert check_step(guard, history, 1.0, math.inf) == "the gradient norm is inf"
        assert "3.1 times the median" in check_step(guard, history, 3.1, 0.5)
        assert "gradient norm is 2, 4.0 times" in check_step(guard, history, 1.0, 2.0)
        assert check_step(guard, history[:3], 99.0, 2.0) == ""  # nothing to compare with yet
        assert check_step(GuardConfig(), history, 99.0, 2.0) == ""

    def test_what_is_remembered(self):
        guard, state = Guard(GuardConfig(window_steps=3), None), RunState()
        for i in range(5):
            guard.accept(state, phase_of(), {"loss": i, "gradient_norm": i})
        assert state.history == [[2, 2], [3, 3], [4, 4]]
        for i in range(5):
            numbers = {"loss": i, "gradient_norm": i}
            guard.accept(state, phase_of(until="gradient_norm"), numbers)
        assert len(state.history) == 8
        assert parse_json(json.dumps(state.to_table()), "state", RunState) == state
        assert parse_json('{"step": 3}', "state", RunState) == RunState(step=3)
        for wrong in ('{"step": -1}', '{"step": null}', '{"ended": {"a": 1}}', '{"history": [1]}'):
            with pytest.raises(UserError, match=r"^state: "):
                parse_json(wrong, "state", RunState)

    def test_signals_end_a_phase(self):
        falling = [[1.0, 1.0 + 100 / (i + 10)] for i in range(1000)]
        rising = [[1.0, 5.0]] * 600
        of_norm = phase_of(until="gradient_norm", warmup_steps=200, tokens=16 * 2000)
        assert signal_to_end(of_norm, RunState(history=falling)) == ""
        assert "gradient norm rises" in signal_to_end(of_norm, RunState(history=falling + rising))
        assert signal_to_end(phase_of(), RunState(history=falling + rising)) == ""
        gaps = [0.0, 0.001, 0.011, 0.02, 0.031, 0.04, 0.051]
        of_gap = phase_of(until="precision_gap")
        assert "fp32 and in bf16 widens" in signal_to_end(of_gap, RunState(gaps=gaps))
        assert signal_to_end(of_gap, RunState(gaps=[0.001, -0.001] * 5)) == ""

    def test_a_phase_that_a_signal_ended(self):
        schedule = Schedule(
            SimpleNamespace(phases=(phase_of(tokens=160), phase_of(tokens=32))), {0: 4}
        )
        assert [(s.number, s.first_step, s.num_steps) for s in schedule.spans] == [
            (0, 0, 4), (1, 4, 2)
        ]  # fmt: skip
        assert schedule.total_tokens == 96


def test_a_schedule_that_this_pytorch_cannot_run_is_refused(monkeypatch):
    schedule = "zbv"
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    with pytest.raises(UserError, match=r"needs PyTorch 2\.13"):
        check_schedule(ParallelConfig(pipeline=2, schedule=schedule))
    check_schedule(ParallelConfig(pipeline=2, schedule="interleaved_1f1b"))
    check_schedule(ParallelConfig(schedule=schedule))
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    check_schedule(ParallelConfig(pipeline=2, schedule=schedule))

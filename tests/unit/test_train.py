import json
import math
from types import SimpleNamespace

import pytest

from carbon.errors import ConfigError
from carbon.objectives import CE, FNS
from train.__main__ import main
from train.config import GuardConfig, ShortRows, StageConfig
from train.loop.guard import reason_against, remember, signal_to_end
from train.loop.rates import learning_rate, objective_at
from train.planning.batches import check_batches
from train.planning.course import Course
from train.run_folder.state import RunState


def stage(**changes) -> StageConfig:
    settings = {
        "name": "s",
        "objective": "ce",
        "tokens": 16,
        "mixture": {"a": 1.0},
        "context_tokens": 16,
        "batch_rows": 1,
        "learning_rate": 1.0,
        "schedule": "constant",
    }
    return StageConfig(**(settings | changes))


def rates(num_steps, **changes):
    it = stage(tokens=16 * num_steps, **changes)
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
    plain = [objective_at(stage(objective=o, tokens=9 * 16), 3) for o in ("ce", "fns")]
    assert plain == [CE, FNS]
    ramp = stage(objective="blend", fns_weight=(0.2, 1.0), tokens=5 * 16)
    steps = [objective_at(ramp, step) for step in range(5)]
    assert [step.bases for step in steps] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert [step.token for step in steps] == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.0])
    assert objective_at(stage(objective="blend", fns_weight=(0.9, 0.9)), 0).bases == 0.9


@pytest.mark.parametrize(
    ("objective", "weights"), [("blend", ()), ("blend", (0.5,)), ("blend", (0, 2)), ("ce", (0, 1))]
)
def test_a_blend_and_nothing_else_has_two_weights(objective, weights):
    with pytest.raises(ConfigError, match="fns_weight"):
        stage(objective=objective, fns_weight=weights)


def course_of(*stages) -> Course:
    return Course(SimpleNamespace(stages=stages))


def test_processes_share_a_batch_evenly():
    fine, odd = stage(batch_rows=6), stage(name="odd", batch_rows=9)
    check_batches(course_of(fine, odd), 3)
    message = r"stages\.1 \('odd'\): batches of 9 rows of 16 tokens cannot be shared by 2 processes"
    with pytest.raises(ConfigError, match=message):
        check_batches(course_of(fine, odd), 2)


def test_a_course_has_no_gap_and_no_overlap():
    short = (ShortRows(context_tokens=16, steps=2), ShortRows(context_tokens=32, steps=1))
    warm = stage(name="warm", context_tokens=64, batch_rows=3, tokens=5 * 192, length_warmup=short)
    course = course_of(stage(batch_rows=4, tokens=65), warm, stage(tokens=16))
    assert [(s.number, s.context_tokens, s.batch_rows, s.num_steps) for s in course.spans] == [
        (0, 16, 4, 2), (1, 16, 12, 2), (1, 32, 6, 1), (1, 64, 3, 2), (2, 16, 1, 1)
    ]  # fmt: skip
    assert [s.step_in_stage for s in course.spans] == [0, 0, 2, 3, 0]
    rows = [row for step in range(course.total_steps) for row in course.at(step).rows_of_step(step)]
    assert rows == list(range(sum(r.num_rows for r in course.rows)))
    read = 0
    for step in range(course.total_steps):
        span = course.at(step)
        assert span.tokens_by(step) == read
        assert span.batch_rows * span.context_tokens == span.stage.batch_tokens
        read += span.stage.batch_tokens
    assert read == course.total_tokens


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"schedule": "wsd", "warmup_steps": 5, "decay_steps": 8},
            "= 13, and the whole stage has 10",
        ),
        ({"warmup_steps": 100}, "= 100, and the whole"),
        ({"decay_steps": 2}, "only the schedule 'wsd'"),
        ({"final_learning_rate": 2.0}, "give 0 to learning_rate = 1.0"),
        ({"learning_rate": math.inf}, "learning_rate = inf"),
        ({"tokens": 10**22}, "less than 2^62"),
        ({"mixture": {"a": 0.7, "b": 0.2999999}}, "0.9999998999999999, not 1"),
    ],
)
def test_schedules_and_numbers_must_fit(changes, message):
    with pytest.raises(ConfigError) as error:
        stage(**({"tokens": 160} | changes))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([(48, 1)], "48 tokens: give a divisor of context_tokens = 64"),
        ([(64, 1)], "64 tokens: give a divisor"),
        ([(32, 2), (16, 3)], "takes 5 steps and the whole stage has 5"),
    ],
)
def test_a_length_warmup_must_fit(parts, message):
    short = tuple(ShortRows(context_tokens=n, steps=steps) for n, steps in parts)
    with pytest.raises(ConfigError, match=message):
        stage(context_tokens=64, tokens=5 * 64, length_warmup=short)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "absent.toml"], "absent.toml: no such file"),
        (["--config", "{recipe}", "--set", "seeed=1"], "did you mean 'seed'?"),
        (["--config", "{recipe}", "--dry-run"], "no corpus here: has no train"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    words = [w.format(recipe="train/recipes/tiny.toml") for w in words]
    assert main([*words, "--set", "data.corpus=no corpus here"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    assert message.split(":")[0] in lines[0]


class TestGuard:
    def test_what_is_bad(self):
        guard = GuardConfig(spike_factor=3.0, window_steps=4)
        history = [[1.0, 0.5]] * 4
        assert reason_against(guard, history, 1.2, 0.9) == ""
        assert reason_against(guard, history, math.nan, 0.9) == "the loss is nan"
        assert reason_against(guard, history, 1.0, math.inf) == "the gradient norm is inf"
        assert "3.1 times the median" in reason_against(guard, history, 3.1, 0.5)
        assert "gradient norm is 2, 4.0 times" in reason_against(guard, history, 1.0, 2.0)
        assert reason_against(guard, history[:3], 99.0, 2.0) == ""  # nothing to compare with yet
        assert reason_against(GuardConfig(), history, 99.0, 2.0) == ""

    def test_what_is_remembered(self):
        guard, state = GuardConfig(window_steps=3), RunState()
        for i in range(5):
            remember(state, guard, stage(), i, i)
        assert state.history == [[2, 2], [3, 3], [4, 4]]
        for i in range(5):
            remember(state, guard, stage(until="gradient_norm"), i, i)
        assert len(state.history) == 8
        assert RunState.from_table(json.loads(json.dumps(state.to_table()))) == state
        assert RunState.from_table({"step": 3}) == RunState(step=3)

    def test_signals_end_a_stage(self):
        falling = [[1.0, 1.0 + 100 / (i + 10)] for i in range(1000)]
        rising = [[1.0, 5.0]] * 600
        of_norm = stage(until="gradient_norm", warmup_steps=200, tokens=16 * 2000)
        assert signal_to_end(of_norm, RunState(history=falling)) == ""
        assert "gradient norm rises" in signal_to_end(of_norm, RunState(history=falling + rising))
        assert signal_to_end(stage(), RunState(history=falling + rising)) == ""
        gaps = [0.0, 0.001, 0.011, 0.02, 0.031, 0.04, 0.051]
        of_gap = stage(until="precision_gap")
        assert "fp32 and in bf16 widens" in signal_to_end(of_gap, RunState(gaps=gaps))
        assert signal_to_end(of_gap, RunState(gaps=[0.001, -0.001] * 5)) == ""

    def test_a_stage_that_a_signal_ended(self):
        course = Course(SimpleNamespace(stages=(stage(tokens=160), stage(tokens=32))), {0: 4})
        assert [(s.number, s.first_step, s.num_steps) for s in course.spans] == [
            (0, 0, 4), (1, 4, 2)
        ]  # fmt: skip
        assert course.total_tokens == 96

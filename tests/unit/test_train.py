import math
from types import SimpleNamespace

import pytest

from carbon.errors import ConfigError
from train.__main__ import main
from train.config import StageConfig
from train.data import check_batch
from train.schedule import fns_weight, learning_rate


def stage(**changes) -> StageConfig:
    settings = {
        "name": "s",
        "objective": "ce",
        "tokens": 1,
        "mixture": {"a": 1.0},
        "learning_rate": 1.0,
        "schedule": "constant",
    }
    return StageConfig(**(settings | changes))


def rates(num_steps, **changes):
    return [learning_rate(stage(**changes), step, num_steps) for step in range(num_steps)]


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
    assert [fns_weight(stage(objective=o), 3, 9) for o in ("ce", "fns")] == [0.0, 1.0]
    ramp = stage(objective="blend", fns_weight=(0.2, 1.0))
    assert [fns_weight(ramp, step, 5) for step in range(5)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1.0]
    )
    assert fns_weight(stage(objective="blend", fns_weight=(0.9, 0.9)), 0, 1) == 0.9


@pytest.mark.parametrize(
    ("objective", "weights"), [("blend", ()), ("blend", (0.5,)), ("blend", (0, 2)), ("ce", (0, 1))]
)
def test_a_blend_and_nothing_else_has_two_weights(objective, weights):
    with pytest.raises(ConfigError, match="fns_weight"):
        stage(objective=objective, fns_weight=weights)


def test_processes_share_a_batch_evenly():
    config = SimpleNamespace(data=SimpleNamespace(batch_rows=6))
    check_batch(config, SimpleNamespace(world_size=3))
    with pytest.raises(ValueError, match="no multiple of the 4 processes"):
        check_batch(config, SimpleNamespace(world_size=4))


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

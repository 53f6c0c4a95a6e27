"""The table of objectives: what each entry owes to configuration, trainer, reports and demo."""

import json

import pytest

from carbon.errors import ConfigError
from carbon.losses.objectives import CE, FNS, OBJECTIVES, Objective, objective_named
from carbon.run_folder import read_lines
from eval.report.page import objective_changes
from tests.helpers.objectives import phase_of
from train.schedule import objective_at


@pytest.fixture(params=OBJECTIVES, name="entry")
def each_entry(request):
    return OBJECTIVES[request.param]


def some_weights(entry) -> list[float]:
    return [0.25, 0.75, 0.5, 0.0][: entry.num_fns_weights]


def test_weights_sum_to_one(entry):
    for done in (0, 2, 5):
        objective = entry.at(done, 5, tuple(some_weights(entry)))
        assert objective.token + objective.bases + objective.uniform == pytest.approx(1)


def test_a_phase_of_it_loads_and_goes_from_its_first_objective_to_its_last(entry):
    weights = some_weights(entry)
    phase = phase_of(objective=entry.name, fns_weight=weights, tokens=80)
    given = tuple(weights)
    assert phase.num_steps == 5
    assert objective_at(phase, 0) == entry.at(0, 1, given)
    assert objective_at(phase, 1) == entry.at(1, 4, given)
    assert objective_at(phase, 4) == entry.at(1, 1, given)
    single = phase_of(objective=entry.name, fns_weight=weights)
    assert objective_at(single, 0) == entry.at(0, 1, given)


def test_a_phase_of_it_takes_its_own_number_of_weights(entry):
    for wrong in ([0.5] * (entry.num_fns_weights + 1), [1.5] * entry.num_fns_weights or [0.5]):
        with pytest.raises(ConfigError, match="fns_weight"):
            phase_of(objective=entry.name, fns_weight=wrong)


def test_the_two_that_everybody_knows():
    assert (CE.token, CE.bases, CE.uniform, CE.unit) == (1, 0, 0, "nats per token")
    assert (FNS.token, FNS.bases, FNS.uniform, FNS.unit) == (0, 1, 0, "nats per base")
    half_way = OBJECTIVES["blend"].at(1, 2, (0.2, 1.0))
    assert (half_way.token, half_way.bases) == pytest.approx((0.4, 0.6))


@pytest.mark.parametrize(
    ("name", "weight"), [("token", -0.1), ("bases", 1.1), ("uniform", float("nan"))]
)
def test_a_weight_is_a_share(name, weight):
    with pytest.raises(ValueError, match=f"{name} = {weight}"):
        Objective(**{name: weight})


def changes_of(folder, names: list[str]) -> list[str]:
    """Return the changes of a run with ten steps under each of these objectives."""
    lines = [
        {"step": step, "tokens": 100 * step, "objective": names[(step - 1) // 10], "phase": "s",
         "nats_per_base": 1.3, "marginal_nats_per_base": 1.3}
        for step in range(1, 10 * len(names) + 1)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return objective_changes(read_lines(folder))


def test_the_report_names_every_change(tmp_path):
    labels = [OBJECTIVES[name].label for name in ("ce", "blend", "fns")]
    assert changes_of(tmp_path, ["ce", "blend", "fns"]) == [
        f"At step 11 the objective changes from {labels[0]} to {labels[1]}.",
        f"At step 21 the objective changes from {labels[1]} to {labels[2]}.",
    ]
    assert changes_of(tmp_path, ["fns", "fns"]) == []


@pytest.mark.parametrize("after", [*OBJECTIVES, "<of> $another$ version"])
def test_the_report_takes_any_name(tmp_path, after):
    known = objective_named(after)
    assert known.label == (OBJECTIVES[after].label if after in OBJECTIVES else after)
    (change,) = changes_of(tmp_path, ["older", after])
    assert change.endswith(f"changes from older to {known.label}.")


def test_a_run_that_went_back_over_a_change_has_it_once(tmp_path):
    changes_of(tmp_path, ["ce", "fns"])
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines[:13] + lines[8:]) + "\n")
    assert len(objective_changes(read_lines(tmp_path))) == 1

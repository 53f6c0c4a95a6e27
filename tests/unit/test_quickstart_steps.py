"""The quickstart's table of steps, and the parts of two packages: fitting a time, and numbers."""

import importlib.util
import json
import time
import tomllib
from pathlib import Path

import pytest

from eval.heldout.results import key_numbers
from scripts.quickstart_steps import STEPS, set_options, words
from scripts.quickstart_time import (
    done_at,
    offer,
    rest_tokens,
    speed_of,
    tokens_in_time,
    tokens_left,
    warning,
)
from train.config import TrainConfig
from train.planning.time import shared_out, timed_speed

ROOT = Path(__file__).parents[2]
AWKWARD = '/a b/"c"/\\d'
PATHS = ("output", "genome", "annotation", "contigs", "vcf", "title", "holdout", "recipe")
VALUES = dict.fromkeys((*PATHS, "processes"), AWKWARD) | {
    "incomplete_cds": "drop", "genome_bp": 5, "variants": 4, "sites": 3, "seed": 2,
}  # fmt: skip
LISTS = {
    "changes": ["--set", "seed=1"],
    "training": ["--set", "seed=2"],
    "renamed": ["--contigs", "chr"],
    "code": ["--genetic-code", "4"],
    "coded": ["--set", "assemblies.0.genetic_code=4"],
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_each_step_is_a_command_of_a_module(step):
    command = list(words(step.command + step.if_scored, VALUES | LISTS))
    assert command[0] == "-m" and importlib.util.find_spec(command[1])
    assert not any("{" in word or word.startswith("*") for word in command)
    assert step.needs in ("", *VALUES)


def test_settings_keep_every_letter():
    (build,) = [step for step in STEPS if step.name == "build"]
    command = list(words(build.command, VALUES | LISTS))
    settings = dict(word.split("=", 1) for word in command if "=" in word)
    read = {key: tomllib.loads(f"v = {text}")["v"] for key, text in settings.items()}
    assert read == {
        "output": f"{AWKWARD}/corpus",
        "assemblies.0.genome": AWKWARD,
        "assemblies.0.annotation": AWKWARD,
        "assemblies.0.contigs": AWKWARD,
        "assemblies.0.holdout": [AWKWARD],
        "assemblies.0.incomplete_cds": "drop",
        "assemblies.0.genetic_code": 4,
    }
    assert set_options({"a": 1, "b": "x"}) == ["--set", "a=1", "--set", 'b="x"']
    (_, mixture) = set_options({"m": {'a "b"': 0.5, "c": 0.5}})
    assert tomllib.loads(mixture) == {"m": {'a "b"': 0.5, "c": 0.5}}


def test_a_short_run_is_timed():
    """Each stage runs 16 steps; the first two steps warm up, and one that stutters is no matter."""
    config = TrainConfig.load(ROOT / "train" / "recipes" / "tiny.toml")
    asked = {}

    def train(settings):
        asked.update(settings)
        run = Path(settings["output"])
        run.mkdir()
        speeds = [1, 1, 900, 1000, 5000]
        lines = [{"step": n, "tokens_per_second": s} for n, s in enumerate(speeds, start=1)]
        (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))

    assert timed_speed(config, train) == 1000
    assert asked["phases.0.tokens"] == asked["phases.1.tokens"] == 16 * 16 * 256
    assert not Path(asked["output"]).exists()


def test_tokens_are_shared_out():
    """Of 130,000 tokens 16 parts in 26 are CE; 20 batches of 16 x 256 warm up over 5."""
    config = TrainConfig.load(ROOT / "train" / "recipes" / "tiny.toml")
    assert shared_out(config, 130_000) == {
        "phases.0.tokens": 80_000,
        "phases.0.warmup_steps": 5,
        "phases.1.tokens": 50_000,
        "phases.1.warmup_steps": 0,
    }


def test_tokens_fit_the_time():
    """Of 20 minutes one is gone; at 4,000 tokens a second, 880,000 are what the rest takes."""
    assert tokens_in_time(4000, 20, 60, 880_000) == 4000 * 1140 * 95 // 100 - 880_000
    assert tokens_in_time(4000, 1, 50, 880_000) == 4000 * 24  # two fifths of the minute


def test_the_rest_is_counted_in_tokens():
    """Four windows a variant and two a site, of 256 tokens that take half of a trained one's time.

    A machine that is three times as slow takes three times as long for them.
    """
    after = STEPS[[step.name for step in STEPS].index("train") + 1 :]
    counts = {"variants": 900, "sites": 1000}
    scoring, recovery = 900 * 4 * 128, 1000 * 2 * 128
    assert rest_tokens(after, counts, 256) == 4 * 40_000 + scoring + recovery
    without = [step for step in after if step.name != "score"]
    assert rest_tokens(without, counts, 256) == 3 * 40_000 + recovery


def test_few_tokens_are_warned_of():
    assert warning(3_000_000, 20) == ""
    assert "3,000,000" in warning(1_143_036, 5) and "--minutes 20" in warning(1_143_036, 5)


def test_when_it_will_be_done(tmp_path):
    """Told once twenty steps of this start are timed: 1,000 tokens a second, whatever came before.

    Of the 391 and 245 batches of 4,096 tokens 30 are read, so 122,880 tokens.
    """
    config = TrainConfig.load(ROOT / "train" / "recipes" / "tiny.toml")
    (tmp_path / "config.toml").write_text(config.to_toml())
    more = {"stage": "ce", "objective": "ce"}
    lines = [{"step": n, "tokens": 4096 * n, "tokens_per_second": 9e9, **more} for n in range(1, 9)]
    for n in range(9, 31):
        lines.append({"step": n, "tokens": 4096 * n, "tokens_per_second": 1000, **more})
        (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
        speed = speed_of(tmp_path, steps_before=8)
        assert (speed is None) == (n < 30)
    assert speed == 1000
    assert tokens_left(tmp_path) == (391 + 245 - 30) * 4096
    assert speed_of(tmp_path / "absent") is None


def test_what_is_offered_for_less(monkeypatch):
    monkeypatch.setattr("time.localtime", time.gmtime)
    assert "12:10 (12 minutes" in done_at(600, 2, now=12 * 3600)
    assert "--minutes 6" in offer(12) and offer(3) == ""


@pytest.mark.parametrize("scored", [True, False])
def test_the_numbers_that_tell_how_it_went(tmp_path, scored):
    lines = [
        {"step": n, "objective": "ce" if n < 20 else "fns", "nats_per_base": 1 / n}
        for n in range(1, 31)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    measured = {
        "sequence_recovery": {
            "value": 0.5, "low": 0.4, "high": 0.6, "best_markov_order": 1,
            "markov": [{"value": 0.1}, {"value": 0.3}],
            "ahead_of_best_markov": {"low": 0.1, "high": 0.3},
        },
        "heldout_likelihood": {
            "value": 1.1, "markov": [{"value": k} for k in range(7)],
            "ahead_of_order_6": {"value": 0.05, "low": -0.1, "high": 0.2},
        },
        "overlap_with_train": {"value": 0.07},
    }  # fmt: skip
    if scored:
        measured["variant_auroc"] = {"value": 0.8, "low": 0.7, "high": 0.9}
    (tmp_path / "results.json").write_text(json.dumps(measured))
    assert key_numbers(tmp_path, tmp_path / "results.json") == {
        "sequence_recovery": 0.5,
        "sequence_recovery_interval": [0.4, 0.6],
        "markov_recovery": 0.3,
        "markov_order": 1,
        "recovery_ahead_interval": [0.1, 0.3],
        "variant_auroc": 0.8 if scored else None,
        "variant_auroc_interval": [0.7, 0.9] if scored else None,
        "switch_step": 20,
        "nats_per_base_start": 1.0,
        "nats_per_base_end": pytest.approx(sum(1 / n for n in range(11, 31)) / 20),
        "heldout_nats_per_base": 1.1,
        "markov_6_nats_per_base": 6,
        "ahead_of_markov_6": 0.05,
        "ahead_of_markov_6_interval": [-0.1, 0.2],
        "overlap_with_train": 0.07,
    }

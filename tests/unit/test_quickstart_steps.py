"""The quickstart's table of steps, and the two rooms' parts of it: fitting a time, and numbers."""

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest

from carbon.config import load_config
from eval.heldout.results import key_numbers
from scripts.quickstart_steps import STEPS, set_options, words
from train.config import TrainConfig
from train.planning.time_budget import settings_in_time

ROOT = Path(__file__).parents[2]
AWKWARD = '/a b/"c"/\\d'
VALUES = dict.fromkeys(
    ("output", "genome", "annotation", "vcf", "title", "holdout", "recipe", "processes"), AWKWARD
) | {"incomplete_cds": "drop", "genome_bp": 5, "variants": 4, "sites": 3, "seed": 2}
LISTS = {"changes": ["--set", "seed=1"], "training": ["--set", "seed=2"]}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_each_step_is_a_command_of_a_module(step):
    command = list(words(step.command + step.if_scored, VALUES | LISTS))
    assert command[0] == "-m" and importlib.util.find_spec(command[1])
    assert not any("{" in word or word.startswith("*") for word in command)
    assert step.needs in ("", *VALUES)


def test_settings_keep_every_letter():
    (build,) = [step for step in STEPS if step.name == "build"]
    command = list(words(build.command, VALUES))
    settings = dict(word.split("=", 1) for word in command if "=" in word)
    read = {key: tomllib.loads(f"v = {text}")["v"] for key, text in settings.items()}
    assert read == {
        "output": f"{AWKWARD}/corpus",
        "assemblies.0.genome": AWKWARD,
        "assemblies.0.annotation": AWKWARD,
        "assemblies.0.holdout": [AWKWARD],
        "assemblies.0.incomplete_cds": "drop",
    }
    assert set_options({"a": 1, "b": "x"}) == ["--set", "a=1", "--set", 'b="x"']


def test_tokens_fit_the_time(capsys):
    """At 1,000 tokens a second, 130 seconds are 130,000 tokens, of which 16 parts in 26 are CE."""
    config = load_config(TrainConfig, ROOT / "train" / "recipes" / "tiny.toml")
    asked = {}

    def train(settings):
        asked.update(settings)
        run = Path(settings["output"])
        run.mkdir()
        speeds = [1, 1, 900, 1000, 5000]  # the first two steps warm up
        lines = [{"step": n, "tokens_per_second": s} for n, s in enumerate(speeds, start=1)]
        (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))

    fitted = settings_in_time(config, 130, train)
    assert fitted == {
        "stages.0.tokens": 80_000,  # 20 batches of 16 x 256
        "stages.0.warmup_steps": 5,
        "stages.1.tokens": 50_000,
        "stages.1.warmup_steps": 0,
    }
    assert capsys.readouterr().err == "1,000 tokens a second: 130,000 tokens in the time there is\n"
    assert asked["stages.0.tokens"] == asked["stages.1.tokens"] == 8 * 16 * 256
    assert not Path(asked["output"]).exists()


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
            "ahead_of_order_6": {"low": -0.1, "high": 0.2},
        },
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
        "beats_markov_6": False,
    }

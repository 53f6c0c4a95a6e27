"""Layouts of recipes by the number of processes, and plans that exceed a GPU's memory."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bench.plan import config_of, shipped_layouts
from carbon.errors import ConfigError
from train.__main__ import main
from train.config import TrainConfig, read_recipe
from train.planning.plan import check_fits
from train.trainer import check_memory

RECIPES = Path(__file__).parents[2] / "train" / "recipes"
BIG = str(RECIPES / "carbon_3b.toml")


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "run.toml"
    text = (RECIPES / "tiny.toml").read_text().replace("[checkpoint]", "[parallel]\n[checkpoint]")
    path.write_text(
        text
        + """
[layouts.2]
compute = { activation_checkpointing = "full" }
[layouts.10]
parallel = { replicate = 5, timeout_seconds = 9 }
data = { microbatch_tokens = 512 }
"""
    )
    return path


@pytest.mark.parametrize(
    ("processes", "computed_anew", "replicate", "tokens"),
    [(1, "none", 1, 1024), (2, "full", 1, 1024), (9, "full", 1, 1024), (10, "none", 5, 512)],
)
def test_a_run_takes_the_largest_layout_that_is_not_above(
    recipe, processes, computed_anew, replicate, tokens
):
    config = TrainConfig.from_table(read_recipe(recipe, (), processes), "run")
    assert config.compute.activation_checkpointing == computed_anew
    assert config.parallel.replicate == replicate
    assert (config.data.microbatch_tokens, config.data.corpus) == (tokens, "corpus")


def test_what_is_set_by_hand_goes_above_the_layout(recipe):
    words = ["parallel.replicate=2", "data.microbatch_tokens=256"]
    config = TrainConfig.from_table(read_recipe(recipe, words, 10), "run")
    assert (config.parallel.replicate, config.parallel.timeout_seconds) == (2, 9)
    assert config.data.microbatch_tokens == 256


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("[layouts.8.compute]\ndtype = 'float32'", r"layouts.8.compute.dtype: unknown key"),
        ("[layouts.8.parallel]\npipeline = 0", r"layouts.8.parallel.pipeline: expected 1"),
        ("[layouts.08]\nparallel = {}", r"layouts.08: name a layout by a number"),
        ("[layouts]\n8 = 1", r"layouts.8: expected a table, got 1"),
    ],
)
def test_a_layout_holds_nothing_that_changes_numbers(tmp_path, layout, message):
    path = tmp_path / "run.toml"
    path.write_text((RECIPES / "tiny.toml").read_text() + layout)
    with pytest.raises(ConfigError, match=message):
        read_recipe(path)


@pytest.mark.parametrize(("path", "gpus"), list(shipped_layouts()))
def test_shipped_layouts_fit_gpus_of_80_gb(path, gpus):
    check_fits(config_of(path, gpus), gpus, 80e9)


def test_every_size_has_its_layouts():
    """8 B on one GPU would be 16 bytes of each parameter: 128 GB."""
    found = {(path.stem, gpus) for path, gpus in shipped_layouts()}
    for name in ("carbon_500m", "carbon_3b", "carbon_8b"):
        assert {(name, gpus) for gpus in (8, 64, 512)} <= found
    assert {("carbon_500m", 1), ("carbon_3b", 1)} <= found


def dry_run(*words: str) -> int:
    return main(["--config", BIG, "--dry-run", "--set", "data.corpus=nowhere", *words])


def test_a_plan_that_does_not_fit_is_refused_with_what_to_change(capsys):
    words = ["--world-size", "8", "--peak-tflops", "989"]
    too_much = ["--set", "compute.activation_checkpointing=none"]
    assert dry_run(*words) == 0
    capsys.readouterr()
    assert dry_run(*words, *too_much) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert "# plan: {" in said.out  # which it is that does not fit, can be seen
    assert "phase 'ce' takes 147 GB" in line and "of a GPU that has 80, of which 70" in line
    assert line.endswith("set compute.activation_checkpointing = 'full'")
    assert dry_run(*words, *too_much, "--gpu-gb", "1000") == 0
    assert dry_run("--world-size", "8", "--gpu-gb", "24") == 2  # the layout is for 80
    assert dry_run("--gpu-gb", "-1") == 2


def test_what_to_change_may_be_the_number_of_gpus():
    config = config_of(RECIPES / "carbon_8b.toml", 8)
    with pytest.raises(ConfigError, match=r"; set parallel\.reduce_each_microbatch = true$"):
        check_fits(config, 2, 100e9)
    each = config.replace(parallel=config.parallel.replace(reduce_each_microbatch=True))
    check_fits(each, 2, 100e9)
    with pytest.raises(ConfigError, match=r"; give 4 GPUs$"):
        check_fits(each, 2, 80e9)
    with pytest.raises(ConfigError, match="give larger GPUs, or train less"):
        check_fits(config, 2, 10e9)


def test_a_run_on_gpus_is_refused_before_it_begins(monkeypatch):
    card = SimpleNamespace(total_memory=85_899_345_920)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: card)
    ranks = SimpleNamespace(device=torch.device("cuda", 0), world_size=1)
    check_memory(config_of(Path(BIG), 1), ranks)
    with pytest.raises(ConfigError, match="of a GPU that has 86"):
        check_memory(TrainConfig.from_table(read_recipe(BIG, (), 0), BIG), ranks)
    card.total_memory //= 4
    with pytest.raises(ConfigError, match="of a GPU that has 21"):
        check_memory(config_of(Path(BIG), 1), ranks)
    ranks.device = torch.device("cpu")
    check_memory(config_of(Path(BIG), 1), ranks)

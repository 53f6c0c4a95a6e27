"""Whole runs: stopped and gone on with, and on as many devices as there are."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.runs import lines_of, make_config, words_for
from train.config import ParallelConfig, TrainConfig
from train.distributed.mesh import joined_ranks
from train.trainer import Trainer

ROOT = Path(__file__).parents[2]
# Two steps of 16 rows of 64 tokens, two of 16 of 128: 16 processes could share them.
ROWS = ("phases.0.batch_rows=16", "phases.0.tokens=2048", "phases.1.batch_rows=16",
        "phases.1.tokens=4096", "data.microbatch_tokens=256")  # fmt: skip
NUM_STEPS = 4
# On a GPU sums of atomics come in any order.
CLOSE = {"cpu": 0.0, "cuda": 1e-2}


def settings_of(corpus: Path, output: Path, device: str) -> TrainConfig:
    """Return the settings of a run."""
    return make_config(corpus, output, f"compute.device={device}", *ROWS)


def run(config: TrainConfig, *, resume: bool) -> None:
    """Run to the end in this process."""
    with joined_ranks(ParallelConfig(), config.compute.device) as ranks:
        assert Trainer(config, ranks).run(resume)


def losses(folder: Path) -> dict[int, float]:
    """Return the loss of each step."""
    return {int(line["step"]): float(line["loss"]) for line in lines_of(folder)}


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.nightly), "cuda"], indirect=True
)
def test_a_run_goes_on_and_is_the_same_on_all_devices(
    device: str, corpus: Path, tmp_path: Path
) -> None:
    whole = settings_of(corpus, tmp_path / "whole", device)
    run(whole, resume=False)
    expected = losses(tmp_path / "whole")
    assert sorted(expected) == list(range(1, NUM_STEPS + 1))
    assert (tmp_path / "whole" / "export" / "model.safetensors").exists()

    (half,) = [path for path in (tmp_path / "whole" / "checkpoints").iterdir()
               if path.name.endswith("2")]  # fmt: skip
    shutil.copytree(half, tmp_path / "later" / "checkpoints" / half.name)
    run(settings_of(corpus, tmp_path / "later", device), resume=True)
    found = losses(tmp_path / "later")
    assert sorted(found) == [3, 4]
    assert [found[step] for step in (3, 4)] == pytest.approx(
        [expected[step] for step in (3, 4)], rel=CLOSE[device], abs=0
    )

    count = torch.cuda.device_count() if device == "cuda" else 2
    processes = 1 << count.bit_length() - 1  # the largest power of two, which the rows can share
    config = settings_of(corpus, tmp_path / "all", device)
    words = ["-m", "train.launch", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [sys.executable, *words, "-m", "train", *words_for(config)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "all") == pytest.approx(expected, rel=max(CLOSE[device], 1e-4))

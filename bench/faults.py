"""Kill a training run at random moments until it has ended, and compare it with one left alone.

    python bench/faults.py OUTPUT [--kills 20] [--processes 2] [--seed 0]

Each start goes on with `--resume auto` under torchrun, and a process of it, any rank, gets SIGKILL:
at random times and while a checkpoint is being written, in turn, and in the middle of the run some
four times around the switch of the objective. At the end `metrics.jsonl` (but for what a clock
says) and the exported weights are to be those of the run left alone, bit for bit.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carbon.console import run_command
from carbon.progress import say
from tests.helpers.runs import make_config, make_corpus
from train.config import TrainConfig

CLOCKED = ("tokens_per_second", "mfu")
STEPS = 2000


def main() -> int:
    """Run the trial; print what was seen as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    return run_command(lambda: trial(arguments))


def trial(arguments: argparse.Namespace) -> int:
    """Train one run in peace and one in trouble; return 0 if they are equal."""
    arguments.output.mkdir(parents=True)
    corpus = make_corpus(arguments.output)
    peaceful, troubled = (_config(corpus, arguments.output / n) for n in ("peaceful", "troubled"))
    assert _start(peaceful, arguments.processes).wait() == 0
    moments = _kill_often(troubled, arguments)
    equal = {
        "metrics": _metrics(peaceful) == _metrics(troubled),
        "weights": _weights(peaceful) == _weights(troubled),
    }
    print(json.dumps({"kills": len(moments), "moments": moments} | equal))
    return 0 if all(equal.values()) else 1


def _config(corpus: Path, output: Path) -> TrainConfig:
    tokens = [f"phases.{i}.tokens={STEPS // 2 * 512}" for i in (0, 1)]
    return make_config(corpus, output, "checkpoint.every_steps=10", *tokens)


def _kill_often(config: TrainConfig, arguments: argparse.Namespace) -> list[str]:
    draw = random.Random(arguments.seed)
    before = ["time", "save"] * (arguments.kills // 5)
    after = ["time", "save"] * (arguments.kills // 5)
    moments: list[str] = []
    for kind in [*before, *["switch"] * (arguments.kills - len(before + after)), *after]:
        process = _start(config, arguments.processes)
        ended = _wait(process, _moment(kind, config, draw))
        if ended:
            say(f"the run has ended after {len(moments)} kills")
            return moments
        os.kill(draw.choice(_ranks_of(process.pid)), signal.SIGKILL)
        process.communicate()
        moments.append(f"{kind} at step {len(_metrics(config))}")
        say(f"kill {len(moments)}: {moments[-1]}")
    assert _start(config, arguments.processes).wait() == 0
    return moments


def _start(config: TrainConfig, processes: int) -> subprocess.Popen[str]:
    path = Path(config.output).with_suffix(".toml")
    path.write_text(config.to_toml(), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "train", "--config", str(path)]
    return subprocess.Popen(
        [*command, "--resume", "auto"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _wait(process: subprocess.Popen[str], moment: Callable[[float], bool]) -> bool:
    """Wait for a moment of a process's life; return whether it has ended before."""
    began = time.monotonic()
    while process.poll() is None:
        if moment(time.monotonic() - began) and _ranks_of(process.pid):
            return False
        time.sleep(0.005)
    return True


def _moment(kind: str, config: TrainConfig, draw: random.Random) -> Callable[[float], bool]:
    """Return what tells, from the seconds since a start, whether the moment to kill has come."""
    wait_seconds = draw.uniform(5, 25)
    saved = Path(config.output) / "checkpoints"
    metrics = Path(config.output) / "metrics.jsonl"
    began = time.time()
    switch_step = STEPS // 2 + draw.randint(-3, 3)
    moments: dict[str, Callable[[float], bool]] = {
        "time": lambda seconds: seconds > wait_seconds,
        "save": lambda seconds: seconds > wait_seconds and any(saved.glob(".step-*.partial/*")),
        "switch": lambda _: (
            metrics.exists()
            and metrics.stat().st_mtime > began
            and len(_metrics(config)) >= switch_step
        ),
    }
    return moments[kind]


def _ranks_of(launcher: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def _metrics(config: TrainConfig) -> list[dict[str, Any]]:
    path = Path(config.output) / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    try:
        tables = [json.loads(line) for line in lines]
    except ValueError:  # the last line is being written
        return []
    return [{k: v for k, v in table.items() if k not in CLOCKED} for table in tables]


def _weights(config: TrainConfig) -> bytes:
    return (Path(config.output) / "export" / "model.safetensors").read_bytes()


if __name__ == "__main__":
    raise SystemExit(main())

"""Which size for which budget? Held-out likelihood of sizes x budgets, with fitted exponents.

    python bench/scaling.py OUTPUT --corpus CORPUS --tokens 400000 800000 1600000
    python bench/scaling.py OUTPUT --table --figure scaling.png

Every size is trained once at a level rate; at four fifths of each budget the way branches, and
the branch comes down in a line (WSD), so that a budget costs a fifth of itself. A branch equals a
run of that budget from nothing. OUTPUT/results.json holds what is measured; sizes that are in it
with all budgets are not run again.

The fit is L = E + A N^-a + B D^-b over parameters N and tokens D (Hoffmann et al. 2022,
arXiv 2203.15556, equation 2), least squares of nats per base.
"""

import argparse
import copy
import itertools
import json
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch

import carbon
from carbon.console import natural, run_command
from carbon.corpus import read_source
from carbon.inference import base_log_likelihoods
from carbon.inference.held_out import choose_records, measured_bases
from carbon.io.files import atomic_file
from carbon.progress import say
from train.config import ParallelConfig, TrainConfig
from train.loop.trainer import Trainer
from train.network.ranks import Ranks, joined_ranks
from train.run_folder.state import RunState

SIZES = ("tiny", "3m", "5m")
LEARNING_RATE, CONTEXT_TOKENS, BATCH_ROWS, WARMUP_STEPS = 1e-3, 512, 4, 50
MIXTURE = {"genome": 0.9, "mrna": 0.1}
HELDOUT_BP = 300_000


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--corpus", type=Path, help="with the sources genome and mrna")
    parser.add_argument("--tokens", type=natural, nargs="+", default=[400_000, 800_000, 1_600_000])
    parser.add_argument("--sizes", nargs="+", default=SIZES, choices=SIZES)
    parser.add_argument("--seed", type=natural, default=0)
    parser.add_argument("--table", action="store_true", help="print what is there as Markdown")
    parser.add_argument("--figure", type=Path, help="draw what is there")
    return run_command(lambda: _run(parser.parse_args()))


def _run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "results.json"
    rows: list[dict[str, Any]] = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    )
    if arguments.corpus:
        with joined_ranks(ParallelConfig()) as ranks:
            for size in arguments.sizes:
                there = {row["budget_tokens"] for row in rows if row["size"] == size}
                if not there.issuperset(arguments.tokens):
                    rows = [row for row in rows if row["size"] != size]
                    rows += _grown(arguments, size, ranks)
                    with atomic_file(path) as temporary:
                        temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if arguments.table:
        print(_table(rows))
    if arguments.figure:
        _figure(rows, arguments.figure)


def _grown(arguments: argparse.Namespace, size: str, ranks: Ranks) -> list[dict[str, Any]]:
    """Train one size to each budget and measure it."""
    rows, trunk, seconds = [], None, 0.0
    for budget_tokens in sorted(arguments.tokens):
        folder = arguments.output / f"{size}-{budget_tokens}"
        config = _config(size, budget_tokens, arguments, folder)
        trainer = Trainer(config, ranks)
        num_steps = config.stages[0].num_steps
        branch = num_steps - num_steps // 5
        done = _take_up(trainer, trunk)
        started = time.perf_counter()
        taken = trainer.steps()
        deque(itertools.islice(taken, branch - done), maxlen=0)
        seconds += time.perf_counter() - started
        (network,) = trainer.parts
        state = network.state_dict(), trainer.optimizers[0].state_dict()
        trunk = branch, *copy.deepcopy(state)
        started = time.perf_counter()
        deque(taken, maxlen=0)
        decay_seconds = time.perf_counter() - started
        trainer.export(folder)
        rows.append(
            {
                "size": size,
                "parameters": sum(p.numel() for p in network.parameters()),
                "budget_tokens": budget_tokens,
                "tokens": num_steps * config.stages[0].batch_tokens,
                "seconds": seconds + decay_seconds,
                "nats_per_base": _held_out(folder, arguments.corpus, arguments.seed),
            }
        )
        say(json.dumps(rows[-1]))
    return rows


def _take_up(trainer: Trainer, trunk: tuple[int, Any, Any] | None) -> int:
    """Put a trainer where the trunk has come to; return the steps that are done."""
    if trunk is None:
        return 0
    done, weights, moments = trunk
    (network,) = trainer.parts
    network.load_state_dict(weights)
    trainer.optimizers[0].load_state_dict(copy.deepcopy(moments))
    trainer.state = RunState(step=done, updates=done)
    return done


def _config(
    size: str, budget_tokens: int, arguments: argparse.Namespace, folder: Path
) -> TrainConfig:
    num_steps = -(-budget_tokens // (CONTEXT_TOKENS * BATCH_ROWS))
    stage = {
        "name": "ce",
        "objective": "ce",
        "tokens": budget_tokens,
        "mixture": MIXTURE,
        "context_tokens": CONTEXT_TOKENS,
        "batch_rows": BATCH_ROWS,
        "learning_rate": LEARNING_RATE,
        "schedule": "wsd",
        "warmup_steps": WARMUP_STEPS,
        "decay_steps": num_steps // 5,
    }
    table = {
        "output": str(folder),
        "seed": arguments.seed,
        "model": {"preset": size, "kmer_rows": "bases"},
        "data": {"corpus": str(arguments.corpus), "microbatch_tokens": BATCH_ROWS * CONTEXT_TOKENS},
        "compute": {"dtype": "float32"},
        "stages": [stage],
    }
    return TrainConfig.from_table(table, "bench/scaling.py")


def _held_out(folder: Path, corpus: Path, seed: int) -> float:
    """Return nats per base on the held-out contig."""
    records = read_source(corpus, "genome", "test", ["sequence"])["sequence"].to_pylist()
    model = carbon.load(folder)
    nats, bases = 0.0, 0
    for record in choose_records(records, HELDOUT_BP, seed):
        counted = measured_bases(record)
        (likelihoods,) = base_log_likelihoods(model.runner, [record])
        nats -= float(likelihoods[counted].sum(dtype=np.float64))
        bases += int(counted.sum())
    return nats / bases


def _fitted(rows: list[dict[str, Any]]) -> list[float]:
    """Return E, A, a, B, b and the root mean square of what is left, in nats per base."""
    from scipy.optimize import least_squares

    size, tokens, nats = (
        np.array([row[key] for row in rows], dtype=np.float64)
        for key in ("parameters", "tokens", "nats_per_base")
    )

    def left(p: Any) -> Any:
        return p[0] + p[1] * (size / 1e6) ** -p[2] + p[3] * (tokens / 1e6) ** -p[4] - nats

    starts = itertools.product((1.2, 1.3), (0.01, 0.1), (0.3,), (0.01, 0.1), (0.3,))
    bounds = ([0, 0, 0, 0, 0], [1.4, 1, 3, 1, 3])
    found = min(
        (least_squares(left, start, bounds=bounds, x_scale=0.01) for start in starts),
        key=lambda each: float(each.cost),
    )
    return [*found.x.tolist(), float(np.sqrt(np.mean(found.fun**2)))]


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| size | parameters | tokens | seconds | nats per base |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row['size']}` | {row['parameters']:,} | {row['tokens']:,} | {row['seconds']:,.0f} "
        f"| {row['nats_per_base']:.4f} |"
        for row in rows
    ]
    if len(rows) > 5:
        e, a, alpha, b, beta, rms = _fitted(rows)
        lines += [
            "",
            f"L = {e:.4f} + {a:.4f} (N / 10^6)^-{alpha:.2f} + {b:.4f} (D / 10^6)^-{beta:.2f}; "
            f"root mean square of what is left {rms:.5f}",
        ]
    return "\n".join(lines)


def _figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw likelihood by tokens and by seconds, a line a size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axis, key in zip(figure.subplots(1, 2, sharey=True), ("tokens", "seconds"), strict=True):
        for size in SIZES:
            mine = [row for row in rows if row["size"] == size]
            nats = [row["nats_per_base"] for row in mine]
            axis.plot([row[key] for row in mine], nats, "o-", label=size)
        axis.set_xscale("log")
        axis.set_xlabel(key)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("held-out nats per base")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    raise SystemExit(main())

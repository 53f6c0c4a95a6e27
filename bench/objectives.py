"""Which objective, and when? CE, FNS, and the ways from one to the other, at equal tokens.

    python bench/objectives.py OUTPUT --simulated 0 1 2
    python bench/objectives.py OUTPUT --genome FA --annotation GTF --holdout VIII
    python bench/objectives.py OUTPUT --table --figure objectives.png

All arms see the same rows under the same learning rate (warm-up, three quarters constant, the last
quarter down to a tenth in a line); only the objective differs. Arms that begin alike share their
beginning. OUTPUT/NAME.json holds the results of a genome; arms that are in it are not run again.
"""

import argparse
import copy
import itertools
import json
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch

import carbon
from carbon.config import from_table
from carbon.console import natural, run_command, say
from carbon.corpus import read_source
from carbon.files import atomic_file
from carbon.inference import Carbon
from carbon.inference.held_out import TARGET_BP, choose_sites
from carbon.losses import log_likelihoods
from carbon.model import kmer_logits
from carbon.tokenizer import K, encode
from train.config import ParallelConfig, TrainConfig
from train.loop.trainer import Trainer
from train.network.ranks import Ranks, joined_ranks
from train.run_folder.state import RunState

CE: dict[str, Any] = {"objective": "ce"}
FNS: dict[str, Any] = {"objective": "fns"}


def _blend(first: float, last: float) -> dict[str, Any]:
    return {"objective": "blend", "fns_weight": [first, last]}


# What each quarter of a run trains.
ARMS = {
    "CE": [CE, CE, CE, CE],
    "CE, then FNS at 75 %": [CE, CE, CE, FNS],
    "CE, then FNS at 50 %": [CE, CE, FNS, FNS],
    "CE, then FNS at 25 %": [CE, FNS, FNS, FNS],
    "FNS": [FNS, FNS, FNS, FNS],
    "ramp from 25 to 75 %": [CE, _blend(0.0, 0.5), _blend(0.5, 1.0), FNS],
    "CE, then 0.9 FNS + 0.1 CE at 50 %": [CE, CE, _blend(0.9, 0.9), _blend(0.9, 0.9)],
}
COLUMNS = {
    "chain": "nats per base, chain",
    "marginal": "nats per base, marginals",
    "token": "recovery, token mode",
    "base": "recovery, base mode",
}
PEAK, WARMUP_STEPS = 2e-3, 30
HELDOUT_BP, NUM_SITES = 240_000, 400
WINDOW_TOKENS = 255


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--simulated", type=natural, nargs="*", default=[], metavar="SEED")
    parser.add_argument("--genome")
    parser.add_argument("--annotation")
    parser.add_argument("--holdout", default="auto")
    parser.add_argument("--seed", type=natural, default=0, help="of the run on --genome")
    parser.add_argument("--tokens", type=natural, default=1_600_000, help="of every run")
    parser.add_argument("--table", action="store_true", help="print what is there as Markdown")
    parser.add_argument("--figure", type=Path, help="draw what is there")
    return run_command(lambda: _run(parser.parse_args()))


def _run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    with joined_ranks(ParallelConfig()) as ranks:
        for seed in arguments.simulated:
            name = f"simulated_{seed}"
            genome = output / name / "genome"
            if not genome.exists():
                _pipeline("simulate", "--output", str(genome), "--seed", str(seed))
            corpus = _corpus(output / name, genome / "genome.fa", genome / "genes.gff3", "auto")
            _run_arms(output, name, corpus, seed, arguments.tokens, ranks)
        if arguments.genome:
            name = Path(arguments.genome).name.split(".")[0]
            corpus = _corpus(
                output / name, arguments.genome, arguments.annotation, arguments.holdout
            )
            _run_arms(output, name, corpus, arguments.seed, arguments.tokens, ranks)
    if arguments.table:
        print(_table(_all_results(output)))
    if arguments.figure:
        _figure(_all_results(output), arguments.figure)


def _pipeline(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "data_pipeline", *arguments], check=True)


def _corpus(folder: Path, genome: str | Path, annotation: str | Path, holdout: str) -> Path:
    corpus = folder / "corpus"
    if not corpus.exists():
        settings = {
            "genome": str(genome),
            "annotation": str(annotation),
            "output": str(corpus),
            "holdout": [holdout],
        }
        pairs = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        _pipeline("build", *(text for pair in pairs for text in ("--set", pair)))
    return corpus


def _config(
    quarters: list[dict[str, Any]], corpus: Path, seed: int, tokens: int, output: Path
) -> TrainConfig:
    common = {
        "tokens": tokens // 4,
        "mixture": {"eukaryote": 0.75, "mrna": 0.25},
        "context_tokens": WINDOW_TOKENS + 1,
        "batch_rows": 16,
        "learning_rate": PEAK,
        "schedule": "constant",
    }
    stages = [{"name": f"quarter {i + 1}"} | common | quarters[i] for i in range(4)]
    stages[0]["warmup_steps"] = WARMUP_STEPS
    stages[3] |= {"schedule": "linear", "final_learning_rate": PEAK / 10}
    table = {
        "output": str(output),
        "seed": seed,
        "model": {"preset": "tiny"},
        "data": {
            "corpus": str(corpus),
            "microbatch_tokens": 4 * (WINDOW_TOKENS + 1),
        },
        "stages": stages,
    }
    return from_table(TrainConfig, table, "bench/objectives.py")


def _run_arms(output: Path, name: str, corpus: Path, seed: int, tokens: int, ranks: Ranks) -> None:
    """Train and measure the arms that are not measured yet."""
    path = output / f"{name}.json"
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    trunks: dict[str, tuple[Any, Any]] = {}  # the state after a beginning that arms share
    for arm, quarters in ARMS.items():
        if arm in results:
            continue
        folder = output / name / arm.replace(" ", "_").replace("%", "percent")
        _train(_config(quarters, corpus, seed, tokens, folder), quarters, trunks, ranks, folder)
        results[arm] = {
            dtype: _measure(carbon.load(folder, dtype=dtype), corpus, seed)
            for dtype in ("float32", "bfloat16")
        }
        say(f"{name} | {arm}: {json.dumps(results[arm])}")
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _train(
    config: TrainConfig,
    quarters: list[dict[str, Any]],
    trunks: dict[str, tuple[Any, Any]],
    ranks: Ranks,
    folder: Path,
) -> None:
    trainer = Trainer(config, ranks)
    steps = config.stages[0].num_steps
    done = max((n for n in range(1, 5) if json.dumps(quarters[:n]) in trunks), default=0)
    (network,) = trainer.parts
    if done:
        before = trunks[json.dumps(quarters[:done])]
        network.load_state_dict(before[0])
        trainer.optimizer.load_state_dict(copy.deepcopy(before[1]))
        trainer.state = RunState(step=done * steps, updates=done * steps)
    taken = trainer.steps()
    for quarter in range(done, 4):
        deque(itertools.islice(taken, steps), maxlen=0)
        state = (network.state_dict(), trainer.optimizer.state_dict())
        trunks[json.dumps(quarters[: quarter + 1])] = copy.deepcopy(state)
    trainer.export(folder)


@torch.inference_mode()
def _measure(model: Carbon, corpus: Path, seed: int) -> dict[str, float]:
    """Return held-out nats per base both ways, on whole 6-mers, and recovery both ways."""
    records: list[str] = read_source(corpus, "eukaryote", "test", ["sequence"])[
        "sequence"
    ].to_pylist()
    windows = [
        encode(record[at : at + WINDOW_TOKENS * K])
        for record in records
        for at in range(0, len(record) - WINDOW_TOKENS * K + 1, WINDOW_TOKENS * K)
    ]
    chosen = np.random.default_rng(seed).permutation(len(windows))[
        : HELDOUT_BP // WINDOW_TOKENS // K
    ]
    network, vocabulary = model.model
    sums = np.zeros(3)
    for part in np.array_split(chosen, max(1, len(chosen) // 8)):
        batch = [windows[i] for i in part]
        ids = torch.from_numpy(np.stack([e.ids for e in batch]))
        hidden = network.model(input_ids=ids, use_cache=False)[0][:, :-1]
        logits = kmer_logits(network, hidden, vocabulary).flatten(0, 1)
        kmers = torch.from_numpy(np.concatenate([e.kmers[1:] for e in batch]))
        whole = torch.from_numpy(np.concatenate([e.known[1:] for e in batch])) == 63
        found = log_likelihoods(logits, kmers).of(whole)
        sums += [-found.token.double().sum(), -found.bases.double().sum(), K * whole.sum()]
    sites = choose_sites(records, NUM_SITES, model.context_bp - TARGET_BP, seed)
    sites.sort(key=lambda site: len(site[0]))
    measures = {"chain": sums[0] / sums[2], "marginal": sums[1] / sums[2]}
    for mode in ("token", "base"):
        hits = 0
        for at in range(0, len(sites), 64):
            prompts, targets = zip(*sites[at : at + 64], strict=True)
            texts = model.generate(prompts, TARGET_BP, temperature=0, mode=mode)
            pairs = zip("".join(texts), "".join(targets), strict=True)
            hits += sum(a == b for a, b in pairs)
        measures[mode] = hits / (TARGET_BP * len(sites))
    return measures


def _all_results(output: Path) -> dict[str, Any]:
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(output.glob("*.json"))
    }


def _groups(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Gather the genomes of the simulation under one name."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, arms in results.items():
        groups.setdefault(name.split("_")[0] if "simulated" in name else name, []).append(arms)
    return groups


def _values(runs: list[dict[str, Any]], arm: str, dtype: str, column: str) -> list[float]:
    return [run[arm][dtype][column] for run in runs if arm in run]


def _table(results: dict[str, Any]) -> str:
    lines = []
    for group, runs in _groups(results).items():
        lines += ["", f"**{group}**: mean (least to greatest) of {len(runs)}", ""]
        lines += [f"| | {' | '.join(COLUMNS.values())} | bf16 - fp32 of the four |"]
        lines += ["|---" * (len(COLUMNS) + 2) + "|"]
        for arm in ARMS:
            cells, gaps = [], []
            for column in COLUMNS:
                full, half = (_values(runs, arm, d, column) for d in ("float32", "bfloat16"))
                spread = f" ({min(full):.3f} to {max(full):.3f})" if len(full) > 1 else ""
                cells.append(f"{np.mean(full):.4f}{spread}")
                gaps.append(f"{np.mean(np.subtract(half, full)):+.4f}")
            lines.append(f"| {arm} | {' | '.join(cells)} | {', '.join(gaps)} |")
    return "\n".join(lines)


def _figure(results: dict[str, Any], path: Path) -> None:
    """Draw a panel a measure and a row a genome; a dot is a run."""
    from matplotlib.figure import Figure

    groups = _groups(results)
    figure = Figure(figsize=(13, 2.6 * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), len(COLUMNS), sharey=True, squeeze=False)
    for row, (group, runs) in zip(axes, groups.items(), strict=True):
        for axis, (column, title) in zip(row, COLUMNS.items(), strict=True):
            for number, arm in enumerate(ARMS):
                values = _values(runs, arm, "float32", column)
                axis.plot(values, [number] * len(values), "o", color="#0072B2", markersize=5)
            axis.set_title(f"{group}: {title}", fontsize=9)
            axis.set_yticks(range(len(ARMS)), list(ARMS), fontsize=8)
            axis.invert_yaxis()
            axis.grid(axis="x", alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    raise SystemExit(main())

"""Which objective, and when? CE, FNS, and the ways from one to the other, at equal tokens.

    python bench/objectives.py OUTPUT --simulated 0 1 2
    python bench/objectives.py OUTPUT --genome FA --annotation GTF --holdout VIII --seeds 0 1 2
        [--finetune CORPUS]
    python bench/objectives.py OUTPUT --table --figure objectives.png

All arms see the same rows under the same learning rate (warm-up, three quarters constant, the last
quarter down to a tenth in a line); only the objective differs, but for one arm that switches to a
sixth of the rate. Arms that begin alike share their beginning. With --finetune, the arms of
STARTS are what fine-tuning on another genome begins from, by CE and by FNS.
OUTPUT/NAME_SEED.json holds the results of a genome; arms that are in it are not run again.
"""

import argparse
import copy
import itertools
import json
import re
import subprocess
import sys
from collections import deque
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np
import torch

import carbon
from carbon.console import natural, run_command
from carbon.corpus import read_source
from carbon.inference import Model
from carbon.inference.held_out import TARGET_BP, choose_sites
from carbon.inference.options import Dtype
from carbon.io.files import atomic_file
from carbon.losses import log_likelihoods
from carbon.progress import say
from carbon.tokenizer import K, encode
from train.config import ParallelConfig, TrainConfig
from train.loop.trainer import Trainer
from train.network.ranks import Ranks, joined_ranks
from train.run_folder.state import RunState

PEAK, WARMUP_STEPS = 2e-3, 30
CE: dict[str, Any] = {"objective": "ce"}
FNS: dict[str, Any] = {"objective": "fns"}
# As published: 3e-4 under CE and 5e-5 under FNS (technical report, section 5.3).
AT_A_SIXTH = {"learning_rate": PEAK / 6, "final_learning_rate": PEAK / 60}


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
    "CE, then FNS at 75 % and a sixth of the rate": [CE, CE, CE, FNS | AT_A_SIXTH],
}
# What fine-tuning begins from, and what it trains.
STARTS = ("CE", "CE, then FNS at 75 %")
FINETUNING = {"CE": CE, "FNS": FNS}
COLUMNS = {
    "chain": "nats per base, chain",
    "marginal": "nats per base, marginals",
    "token": "recovery, token mode",
    "base": "recovery, base mode",
}
FULL: Dtype = "float32"
HALF: Dtype = "bfloat16"
DTYPES = (FULL, HALF)
HELDOUT_BP, NUM_SITES, RESAMPLES = 240_000, 400, 2_000
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
    parser.add_argument(
        "--seeds", type=natural, nargs="*", default=[0], help="of the runs on --genome"
    )
    parser.add_argument("--tokens", type=natural, default=1_600_000, help="of every run")
    parser.add_argument("--finetune", type=Path, metavar="CORPUS", help="on the runs of --genome")
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
            genome_name = Path(arguments.genome).name.split(".")[0]
            corpus = _corpus(
                output / genome_name, arguments.genome, arguments.annotation, arguments.holdout
            )
            for seed in arguments.seeds:
                name = f"{genome_name}_{seed}"
                _run_arms(output, name, corpus, seed, arguments.tokens, ranks)
                if arguments.finetune:
                    _finetune(output, name, arguments.finetune, seed, arguments.tokens // 8, ranks)
    if arguments.table:
        print(_table(_all_results(output)))
    if arguments.figure:
        _figure(_all_results(output), arguments.figure)


def _pipeline(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "data_pipeline", *arguments], check=True)


def _corpus(folder: Path, genome: str | Path, annotation: str | Path, holdout: str) -> Path:
    corpus = folder / "corpus"
    if not corpus.exists():
        assembly = {
            "genome": str(genome),
            "annotation": str(annotation),
            "holdout": [holdout],
            "sources": ["eukaryote", "mrna"],
        }
        pairs = [f"{key}={json.dumps(value)}" for key, value in assembly.items()]
        settings = f"assemblies=[{{{', '.join(pairs)}}}]", f"output={json.dumps(str(corpus))}"
        _pipeline("build", *(text for setting in settings for text in ("--set", setting)))
    return corpus


def _config(
    quarters: list[dict[str, Any]], corpus: Path, seed: int, tokens: int, output: Path
) -> TrainConfig:
    stages = [_stage(tokens // 4, f"quarter {i + 1}") | quarters[i] for i in range(4)]
    stages[0]["warmup_steps"] = WARMUP_STEPS
    stages[3] = {"final_learning_rate": PEAK / 10} | stages[3] | {"schedule": "linear"}
    return _recipe({"preset": "tiny"}, stages, corpus, seed, output)


def _stage(tokens: int, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "tokens": tokens,
        "mixture": {"eukaryote": 0.75, "mrna": 0.25},
        "context_tokens": WINDOW_TOKENS + 1,
        "batch_rows": 16,
        "learning_rate": PEAK,
        "schedule": "constant",
    }


def _recipe(
    model: dict[str, Any], stages: list[dict[str, Any]], corpus: Path, seed: int, output: Path
) -> TrainConfig:
    table = {
        "output": str(output),
        "seed": seed,
        "model": model,
        "data": {
            "corpus": str(corpus),
            "microbatch_tokens": 4 * (WINDOW_TOKENS + 1),
        },
        "stages": stages,
    }
    return TrainConfig.from_table(table, "bench/objectives.py")


def _run_arms(output: Path, name: str, corpus: Path, seed: int, tokens: int, ranks: Ranks) -> None:
    """Train and measure the arms that are not measured yet."""
    path = output / f"{name}.json"
    results = _results(path)
    trunks: dict[str, tuple[Any, Any]] = {}  # the state after a beginning that arms share
    for arm, quarters in ARMS.items():
        if arm in results:
            continue
        folder = _folder(output, name, arm)
        _train(_config(quarters, corpus, seed, tokens, folder), quarters, trunks, ranks, folder)
        results[arm] = _measured(folder, corpus, seed)
        _tell(name, arm, results)
        _write(path, results)


def _finetune(output: Path, name: str, corpus: Path, seed: int, tokens: int, ranks: Ranks) -> None:
    """Go on with the arms of STARTS on another genome, by each objective."""
    path = output / f"{name}_finetuned.json"
    results = _results(path)
    for start, objective in itertools.product(STARTS, FINETUNING):
        arm = f"{start}; fine-tuned by {objective}"
        if arm in results:
            continue
        stage = _stage(tokens, f"finetune {objective}") | FINETUNING[objective]
        stage |= {"learning_rate": PEAK / 6, "schedule": "linear"}
        model = {"start": str(_folder(output, name, start))}
        folder = _folder(output, name, arm)
        trainer = Trainer(_recipe(model, [stage], corpus, seed, folder), ranks)
        deque(trainer.steps(), maxlen=0)
        trainer.export(folder)
        results[arm] = _measured(folder, corpus, seed)
        _tell(name, arm, results)
        _write(path, results)


def _measured(folder: Path, corpus: Path, seed: int) -> dict[str, dict[str, list[float]]]:
    return {dtype: _measure(carbon.load(folder, dtype=dtype), corpus, seed) for dtype in DTYPES}


def _tell(name: str, arm: str, results: dict[str, Any]) -> None:
    means = {column: float(np.mean(values)) for column, values in results[arm][FULL].items()}
    say(f"{name} | {arm}: {json.dumps(means)}")


def _folder(output: Path, name: str, arm: str) -> Path:
    return output / name / arm.replace(" ", "_").replace("%", "percent")


def _results(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _write(path: Path, results: dict[str, Any]) -> None:
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
        trainer.optimizers[0].load_state_dict(copy.deepcopy(before[1]))
        trainer.state = RunState(step=done * steps, updates=done * steps)
    taken = trainer.steps()
    for quarter in range(done, 4):
        deque(itertools.islice(taken, steps), maxlen=0)
        state = (network.state_dict(), trainer.optimizers[0].state_dict())
        trunks[json.dumps(quarters[: quarter + 1])] = copy.deepcopy(state)
    trainer.export(folder)


@torch.inference_mode()
def _measure(model: Model, corpus: Path, seed: int) -> dict[str, list[float]]:
    """Return held-out nats per base both ways by window, and recovery both ways by site."""
    records: list[str] = read_source(corpus, "eukaryote", "test", ["sequence"])[
        "sequence"
    ].to_pylist()
    windows = [
        encode(window)
        for record in records
        for at in range(0, len(record) - WINDOW_TOKENS * K + 1, WINDOW_TOKENS * K)
        if not set(window := record[at : at + WINDOW_TOKENS * K]) - set("ACGT")
    ]
    chosen = np.random.default_rng(seed).permutation(len(windows))[
        : HELDOUT_BP // WINDOW_TOKENS // K
    ]
    network, vocabulary = model.model
    found: dict[str, list[float]] = {column: [] for column in COLUMNS}
    for part in np.array_split(chosen, max(1, len(chosen) // 8)):
        batch = [windows[i] for i in part]
        ids = torch.from_numpy(np.stack([e.ids for e in batch]))
        hidden = network.model(input_ids=ids, use_cache=False)[0][:, :-1]
        head = network.lm_head.weight[vocabulary.kmer_rows]
        logits = torch.nn.functional.linear(hidden, head).flatten(0, 1)
        kmers = torch.from_numpy(np.concatenate([e.kmers[1:] for e in batch]))
        likelihoods = log_likelihoods(logits, kmers)
        by_token = {"chain": likelihoods.token / K, "marginal": likelihoods.bases.mean(dim=-1)}
        for column, values in by_token.items():
            found[column] += (-values.double().view(len(batch), -1).mean(dim=1)).tolist()
    sites = choose_sites(records, NUM_SITES, model.context_bp - TARGET_BP, seed)
    sites.sort(key=lambda site: len(site[0]))
    for mode in ("token", "base"):
        for at in range(0, len(sites), 64):
            prompts, targets = zip(*sites[at : at + 64], strict=True)
            texts = model.generate(prompts, TARGET_BP, temperature=0, mode=mode)
            for text, target in zip(texts, targets, strict=True):
                found[mode].append(sum(map(eq, text, target)) / TARGET_BP)
    return {column: [round(value, 6) for value in values] for column, values in found.items()}


def _all_results(output: Path) -> dict[str, Any]:
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(output.glob("*.json"))
    }


def _groups(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Gather the seeds of a genome under one name."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, arms in results.items():
        groups.setdefault(re.sub(r"_\d+", "", name), []).append(arms)
    return groups


def _arms(runs: list[dict[str, Any]]) -> list[str]:
    """Return the arms that every run has."""
    return [arm for arm in runs[0] if all(arm in run for run in runs)]


def _values(runs: list[dict[str, Any]], arm: str, column: str, dtype: Dtype = FULL) -> list[float]:
    return [float(np.mean(run[arm][dtype][column])) for run in runs]


def _interval(runs: list[dict[str, Any]], arm: str, column: str) -> list[float]:
    """Return the 95 % interval of an arm less the first, by bootstrap over seeds and units."""
    first = _arms(runs)[0]
    differences = [np.subtract(run[arm][FULL][column], run[first][FULL][column]) for run in runs]
    random = np.random.default_rng(0)
    means = [
        np.mean([random.choice(differences[run], len(differences[run])).mean() for run in drawn])
        for drawn in random.integers(len(runs), size=(RESAMPLES, len(runs)))
    ]
    return [float(edge) for edge in np.percentile(means, (2.5, 97.5))]


def _table(results: dict[str, Any]) -> str:
    lines = []
    for group, runs in _groups(results).items():
        arms = _arms(runs)
        lines += ["", f"**{group}**: mean of {len(runs)} [less `{arms[0]}`, 95 % interval]", ""]
        lines += [f"| | {' | '.join(COLUMNS.values())} | bf16 - fp32 of the four |"]
        lines += ["|---" * (len(COLUMNS) + 2) + "|"]
        for arm in arms:
            cells = [f"{np.mean(_values(runs, arm, column)):.4f}" for column in COLUMNS]
            if arm != arms[0]:
                for number, column in enumerate(COLUMNS):
                    low, high = _interval(runs, arm, column)
                    cells[number] += f" [{low:+.4f}, {high:+.4f}]"
            gaps = [
                f"{np.mean(_values(runs, arm, c, HALF)) - np.mean(_values(runs, arm, c)):+.4f}"
                for c in COLUMNS
            ]
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
            for number, arm in enumerate(_arms(runs)):
                values = _values(runs, arm, column)
                axis.plot(values, [number] * len(values), "o", color="#0072B2", markersize=5)
            axis.set_title(f"{group}: {title}", fontsize=9)
            axis.set_yticks(range(len(_arms(runs))), _arms(runs), fontsize=8)
            axis.invert_yaxis()
            axis.grid(axis="x", alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    raise SystemExit(main())

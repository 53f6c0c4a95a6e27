"""Compare SPARTA and DiLoCo at equally many numbers: `python bench/sparta.py OUT --corpus CORPUS`.

Two workers train `tiny` on equal tokens: SPARTA with share p next to DiLoCo with a round each 1 / p
steps (plain mean), for each p and seed. A run is one line of OUT/results.jsonl, and is left out if
its line is there, so the same command continues. With all lines it prints a table: held-out nats
per base, the mean over seeds, and the least and the most.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import tomli_w

from carbon.run_folder import read_lines

SHARES, SEEDS, METHODS = (0.001, 0.01, 0.1), (0, 1, 2), ("sparta", "diloco")
CE_TOKENS, FNS_TOKENS = 682_752, 341_248
PLAIN_MEAN = {"momentum": 0.0, "learning_rate": 1.0, "codec": "fp32"}


def main() -> None:
    """Take the runs that lack a line, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpus", required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = arguments.out / "results.jsonl"
    results.touch()
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    for seed, share, method in itertools.product(SEEDS, SHARES, METHODS):
        key = {"method": method, "share": share, "seed": seed}
        if not any(key.items() <= line.items() for line in lines):
            lines.append(key | {"nats_per_base": trained(arguments.out, arguments.corpus, key)})
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    print_table(lines)


def trained(out: Path, corpus: str, key: dict[str, Any]) -> float:
    """Train with two processes; return held-out nats per base of the mean of the workers."""
    folder = out / "{method}-{share}-{seed}".format(**key)
    folder.mkdir(exist_ok=True)
    recipe = folder / "recipe.toml"
    recipe.write_text(tomli_w.dumps(recipe_of(folder, corpus, key)), encoding="utf-8")
    launcher = ["-m", "train.launch", "--standalone", "--nproc-per-node", "2", "-m", "train"]
    command = [sys.executable, *launcher, "--config", str(recipe), "--resume", "auto"]
    with (folder / "log.txt").open("w") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    probes = read_lines(folder / "run" / "worker-0").probes
    return float(probes[-1]["heldout_nats_per_base"])


def recipe_of(folder: Path, corpus: str, key: dict[str, Any]) -> dict[str, Any]:
    """Return the recipe of a run: one row of 256 tokens a step, two thirds CE and the rest FNS."""
    shared = {
        "mixture": {"eukaryote": 0.75, "mrna": 0.25},
        "context_tokens": 256,
        "batch_rows": 1,
        "learning_rate": 1e-3,
    }
    ce = {"objective": "ce", "tokens": CE_TOKENS, "schedule": "constant", "warmup_steps": 30}
    fns = {"objective": "fns", "tokens": FNS_TOKENS, "schedule": "linear"}
    of_method = {
        "sparta": {"method": "sparta", "share": key["share"]},
        "diloco": {"every_steps": round(1 / key["share"])} | PLAIN_MEAN,
    }
    return {
        "output": str(folder / "run"),
        "seed": key["seed"],
        "model": {"preset": "tiny", "kmer_init": "bases"},
        "data": {"corpus": corpus, "microbatch_tokens": 256},
        "compute": {"device": "cpu"},
        "checkpoint": {"every_steps": 200, "every_minutes": 0},
        "probe": {"every_steps": 1_000_000, "sites": 1},
        "workers": {"count": 2} | of_method[key["method"]],
        "phases": [{"name": "ce"} | ce | shared, {"name": "fns"} | fns | shared],
    }


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print a row for each share."""
    print("| p | SPARTA | DiLoCo, H = 1/p |\n|---|---|---|")
    for share in SHARES:
        cells = []
        for method in METHODS:
            same = (n for n in lines if (n["method"], n["share"]) == (method, share))
            nats = [line["nats_per_base"] for line in same]
            cells.append(f"{statistics.mean(nats):.4f} ({min(nats):.4f} to {max(nats):.4f})")
        print(f"| {share} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

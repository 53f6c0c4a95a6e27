"""Speed and memory as ratios, side by side in one run: `python bench/run.py NAME|all [--quick]`.

Prints a table and writes `bench/results/NAME.json`, a list of `{name, value, unit, target, holds}`
with the machine and the versions. One thread, so that a ratio means one core.
"""

import argparse
import json
import os
import platform
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version

import torch
from measure import ROOT, Measure

RESULTS = ROOT / "bench" / "results"
MACHINE = {
    "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
    "versions": {name: version(name) for name in ("torch", "numpy")},
}
# Modules of `packages`; what one needs to be there, such as Chromium, is loaded with it.
BENCHES = (
    "tokenizer", "losses", "data_pipeline", "corpus", "train", "inference", "workers",
    "stock_models", "eval", "demo", "finetune",
)  # fmt: skip


def main() -> None:
    """Run the named benchmark, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*BENCHES, "all"])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    RESULTS.mkdir(exist_ok=True)
    for name in BENCHES if arguments.name == "all" else [arguments.name]:
        measures: list[Measure] = import_module(f"packages.{name}").measures(arguments.quick)
        for m in measures:
            target = (
                "" if m.target is None else f"target {m.target:g}: {'yes' if m.holds else 'NO'}"
            )
            print(f"{name:<10} {m.name:<50} {m.value:>12.4g} {m.unit:<6} {target}")
        rows = [asdict(measure) | MACHINE for measure in measures]
        (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Generate behind prompts of many lengths, by our own engine and by continuous batching.

    python bench/continuous.py --model yeast --prompts 64 --longest 2000 --length 300

Greedy, so that both draw the same text, which is checked; the better of three turns each. Then one
turn more of each is counted, in all threads: operators that compute and reads of a number from the
device, for every 6-mer that is drawn, and passes of the network. Operators on a CPU are not the
kernels of a GPU, where graphs and fused attention launch fewer.
"""

import argparse
import random
import sys
import time

from operators import Counts, counted

import carbon
from carbon.console import natural, run_command
from carbon.inference import Model
from carbon.inference.generate import generate
from carbon.inference.options import ENGINES, Engine
from carbon.tokenizer import K

_AHEAD_ON_A_GPU = generate._AHEAD["cuda"]


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="yeast")
    parser.add_argument("--prompts", type=natural, default=64)
    parser.add_argument("--longest", type=natural, default=2000, metavar="BP")
    parser.add_argument("--length", type=natural, default=300, metavar="BP")
    return run_command(lambda: _run(parser.parse_args()))


def _run(arguments: argparse.Namespace) -> int:
    model, draw = carbon.load(arguments.model), random.Random(0)
    lengths_bp = [draw.randrange(6, arguments.longest) for _ in range(arguments.prompts)]
    prompts = ["".join(draw.choices("ACGT", k=length_bp)) for length_bp in lengths_bp]
    best: dict[Engine, float] = {}
    texts = {}
    for _ in range(3):
        for engine in ENGINES:
            began = time.perf_counter()
            texts[engine] = model.generate(prompts, arguments.length, temperature=0, engine=engine)
            seconds = time.perf_counter() - began
            best[engine] = min(seconds, best.get(engine, seconds))
    num_same = sum(map(str.__eq__, *texts.values()))
    print("engine", "seconds", "bases_a_second", sep="\t")
    for engine, seconds in best.items():
        speed = arguments.prompts * arguments.length / seconds
        print(engine, f"{seconds:.2f}", f"{speed:.0f}", sep="\t")
    print(f"continuous / own: {best['own'] / best['continuous']:.2f} of the speed; ", end="")
    print(f"{num_same} of {len(prompts)} texts the same")
    _print_counts(model, prompts, arguments.length)
    return 0


def _print_counts(model: Model, prompts: list[str], length_bp: int) -> None:
    """Print what each engine computes and reads, and ours when it draws ahead as on a GPU."""

    def count(engine: Engine, ahead: int = 0) -> Counts:
        generate._AHEAD["cpu"] = ahead
        with counted(model.runner.network.model) as counts:
            model.generate(prompts, length_bp, temperature=0, engine=engine)
        return counts

    found = {
        "own": count("own"),
        f"own, {_AHEAD_ON_A_GPU} ahead": count("own", _AHEAD_ON_A_GPU),
        "continuous": count("continuous"),
    }
    drawn = len(prompts) * -(-length_bp // K)
    print("engine", "launches_a_6mer", "reads_a_6mer", "launches_a_pass", "passes", sep="\t")
    for name, counts in found.items():
        each = (counts.launches / drawn, counts.reads / drawn, counts.launches / counts.passes)
        print(name, *(f"{value:.3g}" for value in each), counts.passes, sep="\t")


if __name__ == "__main__":
    sys.exit(main())

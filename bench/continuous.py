"""Generate behind prompts of many lengths, by our own engine and by continuous batching.

    python bench/continuous.py --model yeast --prompts 64 --longest 2000 --length 300

Greedy, so that both draw the same text, which is checked; the better of three turns each.
"""

import argparse
import random
import sys
import time

import carbon
from carbon.console import natural, run_command
from carbon.options import ENGINES, Engine


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
    return 0


if __name__ == "__main__":
    sys.exit(main())

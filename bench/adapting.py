"""What is gained by beginning from a trained model? Ways, starts, baselines; tasks with a truth.

    python bench/adapting.py OUTPUT --model FOLDER --promoters hs_pos_TATA.txt --genome FASTA
    python bench/adapting.py OUTPUT --table

Four tasks: promoters of a file, a sequence a line, against windows of a genome; and three that are
made here and whose answer is known: two motifs at the one or the other distance, which of three
frames is open, and how often a motif stands. Each is learned by a probe, by LoRA and by all
weights, from the model and from random weights of its shape, with every seed. A cell that is in
OUTPUT/results.json is not run again.
"""

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import LlamaForCausalLM

from carbon.adapt.job import as_config, run_adapt
from carbon.console import natural, run_command, say
from carbon.files import atomic_file
from carbon.genome import GENETIC_CODE, STOP_CODONS, read_sequences, reverse_complement
from carbon.model import load_model, save_model

PAIR, COUNTED = ("TGACGTCA", "CACGTG"), "GATAAG"
_NEAR_BP, _FAR_BP = (12, 24), (48, 60)
WAYS: dict[str, dict[str, Any]] = {
    "probe": {"name": "probe"},
    "lora": {"name": "lora", "rank": 8, "epochs": 6.0, "learning_rate": 1e-3},
    "full": {"name": "full", "epochs": 6.0, "learning_rate": 2e-4},
}
SCORES = {"promoters": "auroc", "distance": "auroc", "frame": "mcc", "count": "pearson"}
Row = tuple[str, str]  # sequence, label


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--promoters", type=Path)
    parser.add_argument("--genome", type=Path)
    parser.add_argument("--examples", type=natural, default=1000)
    parser.add_argument("--seeds", type=natural, nargs="+", default=[0, 1, 2])
    parser.add_argument("--table", action="store_true")
    return run_command(lambda: _run(parser.parse_args()))


def _run(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    path = output / "results.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not arguments.table:
        starts = {"trained": arguments.model, "random": _random(arguments.model, output / "random")}
        for task in _tasks(arguments):
            for seed in arguments.seeds:
                data = _write_rows(output, task, arguments.examples, seed)
                for way in WAYS:
                    for start, model in starts.items():
                        cell = f"{task.name} {way} {start} {seed}"
                        if cell in found:
                            continue
                        say(cell)
                        baselines = (way, start) == ("probe", "trained")
                        run = output / cell.replace(" ", "-")
                        found[cell] = _learned(task, data, model, run, way, seed, baselines)
                        with atomic_file(path) as whole:
                            whole.write_text(json.dumps(found, indent=1), encoding="utf-8")
    _print_table(found)
    return 0


class Task(NamedTuple):
    """A question.

    Attributes:
        name: of it.
        kind: as of `carbon adapt`.
        row: draws a sequence and its label.
    """

    name: str
    kind: str
    row: Callable[[random.Random], Row]


def _tasks(arguments: argparse.Namespace) -> list[Task]:
    promoters = arguments.promoters.read_text(encoding="utf-8").split()
    contigs = [bases.upper() for _, bases in read_sequences(arguments.genome)]

    def promoter_or_not(draw: random.Random) -> Row:
        promoter = draw.choice(promoters)
        if draw.random() < 0.5:
            return promoter, "promoter"
        return _window(draw, contigs, len(promoter)), "genome"

    return [
        Task("promoters", "binary", promoter_or_not),
        Task("distance", "binary", _pair_at_a_distance),
        Task("frame", "classes", _open_frame),
        Task("count", "numbers", _number_of_motifs),
    ]


def _window(draw: random.Random, contigs: list[str], length_bp: int) -> str:
    while True:
        contig = draw.choices(contigs, [len(contig) for contig in contigs])[0]
        start = draw.randrange(len(contig) - length_bp)
        window = contig[start : start + length_bp]
        if "N" not in window:
            return window if draw.random() < 0.5 else reverse_complement(window)


def _bases(draw: random.Random, length_bp: int) -> str:
    return "".join(draw.choices("ACGT", k=length_bp))


def _pair_at_a_distance(draw: random.Random) -> Row:
    """Both classes have the same motifs; only the bases between them are fewer or more."""
    name, distances = draw.choice([("near", _NEAR_BP), ("far", _FAR_BP)])
    inside = PAIR[0] + _bases(draw, draw.randint(*distances)) + PAIR[1]
    before_bp = draw.randrange(180 - len(inside))
    return _bases(draw, before_bp) + inside + _bases(draw, 180 - before_bp - len(inside)), name


def _open_frame(draw: random.Random) -> Row:
    """One frame of 50 codons has no stop; the others have theirs by chance."""
    frame = draw.randrange(3)
    codons = sorted(set(GENETIC_CODE) - STOP_CODONS)
    inside = "".join(draw.choices(codons, k=50))
    return _bases(draw, frame) + inside + _bases(draw, 3 - frame), f"frame_{frame}"


def _number_of_motifs(draw: random.Random) -> Row:
    number, pieces = draw.randrange(9), [_bases(draw, draw.randint(8, 24)) for _ in range(9)]
    bases = "".join(piece + COUNTED for piece in pieces[:number]) + "".join(pieces[number:])
    shown = (bases + _bases(draw, 210))[:210]
    return shown, str(sum(shown.startswith(COUNTED, at) for at in range(len(shown))))


def _random(model: Path, folder: Path) -> Path:
    """Write a model of the same shape that has learned nothing."""
    if not folder.exists():
        torch.manual_seed(0)
        save_model(LlamaForCausalLM(load_model(model).network.config), folder)
    return folder


def _write_rows(output: Path, task: Task, number: int, seed: int) -> Path:
    path = output / f"{task.name}-{seed}.tsv"
    draw = random.Random(f"{task.name} {seed}")
    rows = dict(task.row(draw) for _ in range(number))  # no sequence twice
    lines = ["sequence\tlabel", *("\t".join(row) for row in rows.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _learned(
    task: Task, data: Path, model: Path, run: Path, way: str, seed: int, baselines: bool
) -> dict[str, Any]:
    """Adapt, and return what the report has of the test part."""
    config: dict[str, Any] = {
        "model": str(model),
        "output": str(run),
        "seeds": [seed],
        "data": {
            "path": str(data),
            "split": {"seed": seed, "validation_share": 0.2, "test_share": 0.4},
        },
        "question": {"kind": task.kind},
        "way": {**WAYS[way], "strands": "forward", "augment": False, "patience": 6},
    }
    if not baselines:
        config["baselines"] = []
    return run_adapt(as_config(config))


def _print_table(found: dict[str, Any]) -> None:
    """Print the mean over seeds of each task's score in the test part, with the least and most."""
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cell, results in found.items():
        task, way, start, _ = cell.split()
        for entrant, values in results["test"].items():
            shown = f"{way}, {start}" if entrant == "model" else entrant
            value = values[SCORES[task]]["value"]
            scores[shown, task] += [] if value is None else [value]  # a constant has no correlation
    tasks = list(SCORES)
    print("", *(f"{task} ({SCORES[task]})" for task in tasks), sep="\t")
    for entrant in dict.fromkeys(entrant for entrant, _ in scores):
        cells = [_told(scores[entrant, task]) for task in tasks]
        print(entrant, *cells, sep="\t")


def _told(values: list[float]) -> str:
    if not values:
        return ""
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    sys.exit(main())

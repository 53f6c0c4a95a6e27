"""What is gained by beginning from a trained model? Ways, starts, baselines; tasks with a truth.

    python bench/finetuning.py OUTPUT --model FOLDER --promoters hs_pos_TATA.txt --genome FASTA
    python bench/finetuning.py OUTPUT --table

Four tasks: promoters of a file, a sequence a line, against windows of a genome; and three that are
made here and whose answer is known: two motifs at the one or the other distance, which of three
frames is open, and how often a motif stands. Each is learned by a probe, by LoRA and by all
weights, from the model and from random weights of its shape, with every seed. A cell that is in
OUTPUT/results.json is not run again.

Brackets are 95 % intervals by bootstrap over seeds and, within each, over test examples; the
difference from the best baseline is that of the same draws. Of three seeds an interval is rough.
"""

import argparse
import itertools
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaForCausalLM

from carbon.console import natural, run_command
from carbon.finetune.baselines import FITS
from carbon.finetune.config import BASELINES, SPLITS, FinetuneConfig
from carbon.finetune.data import prepare
from carbon.finetune.job import as_config, run_finetune
from carbon.finetune.results import read_findings, read_predictions
from carbon.finetune.tasks import LabelTask
from carbon.genome import GENETIC_CODE, STOP_CODONS, read_sequences, reverse_complement
from carbon.io.files import atomic_file
from carbon.model import load_model, save_model
from carbon.progress import say
from carbon.uncertainty import NUM_RESAMPLES, Statistic

PAIR, COUNTED = ("TGACGTCA", "CACGTG"), "GATAAG"
_NEAR_BP, _FAR_BP = (12, 24), (48, 60)
METHODS: dict[str, dict[str, Any]] = {
    "probe": {"name": "probe"},
    "lora": {"name": "lora", "rank": 8, "epochs": 6.0, "learning_rate": 1e-3},
    "full": {"name": "full", "epochs": 6.0, "learning_rate": 2e-4},
}
SCORES = {"promoters": "auroc", "distance": "auroc", "frame": "mcc", "count": "pearson"}
Row = tuple[str, str]  # sequence, label
Answer = dict[str, Any]
Floats = NDArray[np.float64]


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
    parser.add_argument("--tasks", choices=SCORES, nargs="+", default=list(SCORES))
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS))
    parser.add_argument("--table", action="store_true")
    return run_command(lambda: _run(parser.parse_args()))


def _run(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    path = output / "results.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not arguments.table:
        for cell, work in _cells(arguments):
            if cell in found:
                continue
            say(cell)
            found[cell] = work()
            with atomic_file(path) as whole:
                whole.write_text(json.dumps(found), encoding="utf-8")
    _print_table(found)
    return 0


def _cells(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Answer]]]:
    """Yield a name, of task, entrant and seed, and what answers the test part."""
    output = arguments.output
    starts = {"trained": arguments.model, "random": _random(arguments.model, output / "random")}
    tasks = [task for task in _tasks(arguments) if task.name in arguments.tasks]
    for task, seed in itertools.product(tasks, arguments.seeds):
        data = _write_rows(output, task, arguments.examples, seed)
        for method, (start, model) in itertools.product(arguments.methods, starts.items()):
            run = output / f"{task.name}-{method}-{start}-{seed}"
            config = _config(task, data, model, run, method, seed)
            yield f"{task.name} {method}-{start} {seed}", partial(_finetuned, config)
        for name in BASELINES:
            yield f"{task.name} {name} {seed}", partial(_baseline, config, name, seed)


class Task(NamedTuple):
    """A question.

    Attributes:
        name: of it.
        kind: as of `carbon finetune`.
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


def _config(
    task: Task, data: Path, model: Path, run: Path, method: str, seed: int
) -> FinetuneConfig:
    return as_config(
        {
            "model": str(model),
            "output": str(run),
            "seeds": [seed],
            "data": {
                "path": str(data),
                "split": {"seed": seed, "validation_share": 0.2, "test_share": 0.4},
            },
            "task": {"type": task.kind},
            "method": {**METHODS[method], "strands": "forward", "augment": False, "patience": 6},
            "baselines": [],
        }
    )


def _finetuned(config: FinetuneConfig) -> Answer:
    run_finetune(config)
    folder = config.output_folder
    findings = read_findings(folder)
    labels, said = read_predictions(folder, findings)
    return _answer(findings.manifest.task, said, labels)


def _baseline(config: FinetuneConfig, name: str, seed: int) -> Answer:
    prepared = prepare(config.data, config.task)
    train, validation, test = map(prepared.examples.split, SPLITS)
    said = FITS[name](train, validation, prepared.task, seed)(test)
    return _answer(prepared.task, said, test.labels)


def _answer(task: LabelTask, said: NDArray[Any], labels: NDArray[Any]) -> Answer:
    """Return labels and predictions of the test part, which draws are made of."""
    return {
        "kind": task.type,
        "names": list(task.names),
        "said": said.tolist(),
        "labels": labels.tolist(),
    }


def _print_table(found: dict[str, Answer]) -> None:
    """Print of each task the mean score over seeds, and that minus the best baseline's."""
    by_task: dict[str, dict[str, dict[str, Statistic]]] = defaultdict(lambda: defaultdict(dict))
    sizes = {}
    for cell, answer in found.items():
        task, entrant, seed = cell.split()
        said, labels = (np.array(answer[key]) for key in ("said", "labels"))
        statistics, _ = LabelTask(answer["kind"], tuple(answer["names"]), "").statistics(
            said, labels
        )
        by_task[task][entrant][seed] = statistics[SCORES[task]]
        sizes[task, seed] = len(labels)
    for task, entrants in by_task.items():
        seeds = sorted({seed for of_seed in entrants.values() for seed in of_seed})
        whole = {n: of for n, of in entrants.items() if len(of) == len(seeds)}
        _print_task(task, whole, {seed: sizes[task, seed] for seed in seeds})


def _print_task(
    task: str, entrants: dict[str, dict[str, Statistic]], sizes: dict[str, int]
) -> None:
    means = {n: _mean(of, {s: np.ones(m) for s, m in sizes.items()}) for n, of in entrants.items()}
    best = max((n for n in means if n in BASELINES), key=lambda n: np.nan_to_num(means[n], nan=-1))
    draws: dict[str, list[float]] = defaultdict(list)
    for weights in _drawn(sizes):
        for name, of in entrants.items():
            draws[name].append(_mean(of, weights))
    print(f"{task}\t{SCORES[task]}\tminus {best}")
    for name, mean in means.items():
        minus = np.subtract(draws[name], draws[best])
        print(name, _told(mean, draws[name]), _told(mean - means[best], minus), sep="\t")


def _drawn(sizes: dict[str, int]) -> Iterator[dict[str, Floats]]:
    """Yield weights of the test examples of each seed: seeds are drawn, and of each its examples.

    A seed that is drawn twice has examples of two draws.
    """
    random_of = np.random.default_rng(0)
    seeds = list(sizes)
    for _ in range(NUM_RESAMPLES):
        drawn = [seeds[n] for n in random_of.integers(len(seeds), size=len(seeds))]
        yield {
            f"{seed} {n}": np.bincount(
                random_of.integers(sizes[seed], size=sizes[seed]), minlength=sizes[seed]
            ).astype(np.float64)
            for n, seed in enumerate(drawn)
        }


def _mean(of_seed: dict[str, Statistic], weights: dict[str, Floats]) -> float:
    """Return the mean over the seeds that weights are given of."""
    values = [of_seed[key.split()[0]](weight) for key, weight in weights.items()]
    return float(np.mean(values))


def _told(value: float, draws: Sequence[float] | Floats) -> str:
    if np.isnan(draws).all():
        return ""  # a constant has no correlation
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    sys.exit(main())

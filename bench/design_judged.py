"""Is a learned oracle fooled by designs, and does one see it? Two fine-tuned models, each the judge
of the other.

    python bench/design_judged.py OUT --promoters hs_pos_TATA.txt --genome FASTA --calls 512

Human promoters with a TATA box, which share no 31-mer, are dealt out: a fold to learn from for each
of two models, and a test part that neither has seen. Half of what is no promoter are windows of a
genome, the other half promoters whose bases are shuffled with every pair of neighbours kept. Each
model in turn is the oracle of `carbon design`, and the other one the judge, beside counts of 6-mers
of the judge's fold. What is told is in log odds: a probability near 1 hides what is gained.

OUT is a folder for data, fine-tuned models, and a file of each search; what it has is not made
again.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from design import without_model
from numpy.typing import NDArray
from promoter_folds import FOLDS, OTHER, PROMOTER, TEST, Row, parts_of

import carbon
from carbon.console import natural, run_command
from carbon.design.config import DesignConfig
from carbon.design.functions import running_functions
from carbon.design.search import best_designs, nearest_records, run_search, search_of
from carbon.design.strategies import Candidate
from carbon.finetune.baselines import FITS
from carbon.finetune.data import Examples
from carbon.finetune.findings import read_findings, read_predictions
from carbon.finetune.job import as_config, run_finetune
from carbon.finetune.load import load_finetuned
from carbon.finetune.metrics import statistics_of
from carbon.finetune.prepare import prepare
from carbon.io.files import atomic_file
from carbon.progress import say
from carbon.reports.card import table
from carbon.uncertainty import Estimate, bootstrap

WAYS = ("best_of_n", "beam", "beam, random windows")
BEST, CHECKPOINTS = 10, (64, 128, 256, 512)
TATA_BOX, BOX_AT, BOX_SPAN_BP = (
    ("TATAAA", "TATATA", "TATAAG"),
    215,
    10,
)  # 35 to 25 before the start
Floats = NDArray[np.float64]


class Measures(NamedTuple):
    """What a fold teaches: a fine-tuned model and counts of 6-mers, each from bases to log odds."""

    model: Callable[[Sequence[str]], Floats]
    kmers: Callable[[Sequence[str]], Floats]
    auroc: Estimate


def measures_of(arguments: argparse.Namespace, fold: str, parts: dict[str, list[Row]]) -> Measures:
    folder: Path = arguments.output / f"finetuned_{fold}"
    path = arguments.output / f"{fold}.tsv"
    fold_rows = parts[fold]
    num_chosen_by = len(fold_rows) // 5
    lines = ["sequence\tlabel\tpart"]
    lines += [f"{b}\t{label}\tvalidation" for b, label in fold_rows[:num_chosen_by]]
    lines += [f"{b}\t{label}\ttrain" for b, label in fold_rows[num_chosen_by:]]
    lines += [f"{b}\t{label}\ttest" for b, label in parts[TEST]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = as_config(
        {
            "model": arguments.model,
            "output": str(folder),
            "data": {"path": str(path), "split": {"by": "column", "column": "part"}},
            "task": {"type": "binary", "names": [OTHER, PROMOTER]},
            "method": {"name": "probe", "strands": "forward", "augment": False},
            "baselines": [],
        }
    )
    if not folder.exists():
        run_finetune(config)
    findings = read_findings(folder)
    labels, said = read_predictions(folder, findings)
    statistics, _ = statistics_of("binary", [OTHER, PROMOTER], said, labels)
    prepared = prepare(config.data, config.task)
    train, validation = map(prepared.examples.split, ("train", "validation"))
    answer = FITS["kmers"](train, validation, prepared.task, 0)
    finetuned = load_finetuned(folder)
    return Measures(
        lambda texts: log_odds([each[0] for each in finetuned.predict(list(texts))]),
        lambda texts: log_odds(answer(examples_of(texts))[:, 0]),
        bootstrap(statistics["auroc"], len(labels)),
    )


def examples_of(texts: Sequence[str]) -> Examples:
    count = len(texts)
    unknown = np.full((count, 1), np.nan, np.float32)
    names = tuple(map(str, range(count)))
    return Examples(names, tuple(texts), unknown, (TEST,) * count, ("",) * count)


def log_odds(probabilities: Any) -> Floats:
    p = np.clip(np.array(probabilities, dtype=np.float64), 1e-7, 1 - 1e-7)
    odds: Floats = np.log(p / (1 - p))
    return odds


def searched(
    model: "carbon.Model",
    way: str,
    oracle: Callable[[Sequence[str]], Floats],
    arguments: argparse.Namespace,
    seed: int,
) -> tuple[list[Candidate], list[Candidate]]:
    """Return all that was measured, and the best of it."""
    name: Any = way.partition(",")[0]
    config = DesignConfig(
        strategy=name, length_bp=300, calls=arguments.calls, seed=seed, num_designs=BEST, batch=16
    )
    search, checker = search_of(model.runner, config, 1)
    if name != way:
        search = replace(search, proposer=without_model(search.proposer, [list("ACGT")] * 300))
    with running_functions([lambda texts: oracle(texts).tolist()], 600) as functions:
        history = run_search(search, checker, functions)
    return history, best_designs(search, history)


def rows_of(
    search: dict[str, Any],
    history: Sequence[Candidate],
    best: Sequence[Candidate],
    judge: Measures,
    learned_from: Sequence[Row],
) -> Iterator[dict[str, Any]]:
    """Yield what all measures say of every sequence, and where it stands."""
    texts = [candidate.bases for candidate in history]
    said = {"judge": judge.model(texts), "kmers": judge.kmers(texts)}
    records = [(f"{label}_{n}", bases) for n, (bases, label) in enumerate(learned_from)]
    chosen_ones = [candidate.bases for candidate in best]
    near = dict(zip(chosen_ones, nearest_records(chosen_ones, records), strict=True))
    for n, candidate in enumerate(history):
        found = near.get(candidate.bases)
        yield search | {
            "call": candidate.number,
            "is_best": candidate.bases in near,
            "oracle": candidate.values[0],
            **{name: float(values[n]) for name, values in said.items()},
            "nats_per_base": candidate.nats_per_base,
            "nearest_shared": found.shared if found else 0.0,
            "has_box": has_box(candidate.bases),
            "gc": sum(map(candidate.bases.count, "GC")) / len(candidate.bases),
        }


def has_box(bases: str) -> bool:
    """Return whether a TATA box stands where those of these promoters stand."""
    place = bases[BOX_AT : BOX_AT + BOX_SPAN_BP + len(TATA_BOX[0])]
    return any(box in place for box in TATA_BOX)


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the test part and all searches gave; what is in OUT is not made again."""
    parts = parts_of(arguments)
    measures = {fold: measures_of(arguments, fold, parts) for fold in FOLDS}
    model = carbon.load(arguments.model)
    found: dict[str, Any] = {
        "sizes": {name: len(rows) for name, rows in parts.items()},
        "auroc": {fold: measure.auroc for fold, measure in measures.items()},
        "test": kept(
            arguments.output / "test.json", lambda: test_rows(model, measures, parts[TEST])
        ),
        "rows": [],
    }
    for (oracle, judge), seed, way in itertools.product(
        itertools.permutations(FOLDS), arguments.seeds, WAYS
    ):
        search = {"way": way, "seed": seed, "oracle_of": oracle}
        say(json.dumps(search))

        def rows(search: dict[str, Any] = search, judge: str = judge) -> list[dict[str, Any]]:
            oracle = measures[search["oracle_of"]].model
            history, best = searched(model, search["way"], oracle, arguments, search["seed"])
            learned_from = parts[search["oracle_of"]]
            return list(rows_of(search, history, best, measures[judge], learned_from))

        path = arguments.output / f"{oracle}_{seed}_{way.replace(', ', '_').replace(' ', '_')}.json"
        found["rows"] += kept(path, rows)
    return found


def kept(path: Path, make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return what is in a file, or make it and write it."""
    if not path.exists():
        made = make()
        with atomic_file(path) as whole:
            whole.write_text(json.dumps(made), encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def test_rows(
    model: "carbon.Model", measures: dict[str, Measures], rows: Sequence[Row]
) -> list[dict[str, Any]]:
    """Return what both models and both counts say of sequences that neither learned from."""
    texts = [bases for bases, _ in rows]
    search, _ = search_of(model.runner, DesignConfig(length_bp=300), 1)
    nats = search.proposer.nats_per_base(texts)
    said = {f"model_{fold}": measures[fold].model(texts).tolist() for fold in FOLDS}
    said |= {f"kmers_{fold}": measures[fold].kmers(texts).tolist() for fold in FOLDS}
    return [
        {"label": label, "nats_per_base": nats[n], "has_box": has_box(bases),
         "gc": sum(map(bases.count, "GC")) / len(bases),
         **{name: values[n] for name, values in said.items()}}
        for n, (bases, label) in enumerate(rows)
    ]  # fmt: skip


# What is told of it

COLUMNS = ("oracle", "judge", "kmers", "nats_per_base", "has_box", "gc", "is_near")
SIGNS = ("oracle", "nats_per_base", "gc")


def as_searches(test: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the test part as rows of a search, once by each model as the oracle."""
    return [
        row | {"oracle": row[f"model_{oracle}"], "judge": row[f"model_{judge}"],
               "kmers": row[f"kmers_{judge}"], "way": "test part", "oracle_of": oracle, "seed": n}
        for oracle, judge in itertools.permutations(FOLDS)
        for n, row in enumerate(test)
    ]  # fmt: skip


def mean_of(rows: Sequence[dict[str, Any]], column: str) -> Estimate:
    """Return a mean; searches are drawn whole, for their designs are relatives."""
    values = np.array([row[column] for row in rows], dtype=np.float64)
    searches = [f"{row['way']} {row['seed']} {row['oracle_of']}" for row in rows]
    return bootstrap(lambda w: float((w * values).sum() / w.sum()), len(values), clusters=searches)


def said(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def told(found: dict[str, Any]) -> str:
    for row in found["rows"]:
        row["is_near"] = row["nearest_shared"] > 0
    test = as_searches(found["test"])
    aurocs = ", ".join(f"{fold}: {said(each)}" for fold, each in found["auroc"].items())
    return "\n\n".join(
        [
            f"rows: {found['sizes']}; AUROC in the test part: {aurocs}",
            _best_table(found["rows"], test),
            _course_table(found["rows"]),
            _signs_table(found["rows"], test),
        ]
    )


def _best_table(rows: Sequence[dict[str, Any]], test: Sequence[dict[str, Any]]) -> str:
    """Of sequences of the test part, and of the best of every search: what each measure says."""
    top = sorted(test, key=lambda row: -row["oracle"])[: 2 * BEST]
    groups = {
        f"test part, {label}": [row for row in test if row["label"] == label]
        for label in (PROMOTER, OTHER)
    } | {f"test part, best {BEST} by each oracle": top}
    groups |= {
        f"best {BEST} by {way}": [row for row in rows if row["way"] == way and row["is_best"]]
        for way in WAYS
    }
    lines = [
        (name, *(said(mean_of(some, each)) if each in some[0] else "" for each in COLUMNS))
        for name, some in groups.items()
    ]
    return table(lines, ("sequences", *COLUMNS))


def _course_table(rows: Sequence[dict[str, Any]]) -> str:
    """Of the best by the oracle of the first calls: oracle and judge."""
    lines = []
    for way, calls in itertools.product(WAYS, CHECKPOINTS):
        best: list[dict[str, Any]] = []
        for search in searches_of(rows, way):
            first = [row for row in search if row["call"] <= calls]
            best += sorted(first, key=lambda row: -row["oracle"])[:BEST]
        values = (said(mean_of(best, name)) for name in ("oracle", "judge", "kmers"))
        lines.append((way, str(calls), *values))
    return table(lines, ("way", "calls", "oracle", "judge", "kmers"))


def searches_of(rows: Sequence[dict[str, Any]], way: str) -> list[list[dict[str, Any]]]:
    of_way = [row for row in rows if row["way"] == way]
    return [
        list(some) for _, some in itertools.groupby(of_way, lambda r: (r["oracle_of"], r["seed"]))
    ]


def _signs_table(rows: Sequence[dict[str, Any]], test: Sequence[dict[str, Any]]) -> str:
    """Of all that a search measured: what goes with what the judge says."""
    halves = [[row for row in test if row["oracle_of"] == fold] for fold in FOLDS]
    groups = {"test part": halves} | {way: searches_of(rows, way) for way in WAYS}
    lines = []
    for way, searches in groups.items():
        cells = []
        for sign in SIGNS:
            found = [rank_correlation(search, sign, "judge") for search in searches]
            cells.append(f"{np.mean(found):.2f} ({min(found):.2f} to {max(found):.2f})")
        lines.append((way, *cells))
    return table(lines, ("judge's rank correlation, mean (least to most)", *SIGNS))


def rank_correlation(rows: Sequence[dict[str, Any]], one: str, other: str) -> float:
    ranks = [np.argsort(np.argsort([row[n] for row in rows], kind="stable")) for n in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--promoters", type=Path, required=True)
    parser.add_argument("--genome", type=Path, required=True)
    parser.add_argument("--model", default="yeast")
    parser.add_argument("--calls", type=natural, default=512)
    parser.add_argument("--seeds", type=natural, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    return run_command(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    arguments.output.mkdir(parents=True, exist_ok=True)
    print(told(measured(arguments)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

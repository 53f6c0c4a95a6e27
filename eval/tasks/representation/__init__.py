"""Representation: strand, place in a codon and taxonomy, classified from the states of a model.

A support vector machine reads frozen states, cross-validated with whole genes or genomes. Layer and
kernel are chosen inside of each training part. Baselines read shares of 6-mers, and the model
itself with random weights.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from carbon.errors import UserError as UserError
from carbon.uncertainty import Floats
from eval.contract import Curve, Example, Features, Model, Options, Result, Scatter, Summary, Task
from eval.metrics import by_group, estimate, grouped, summary_of
from eval.tables import Row
from eval.tasks.representation.baselines import KMER_BASELINES
from eval.tasks.representation.build import build
from eval.tasks.representation.cross_validation import KERNELS, Folds, Read, read
from eval.tasks.representation.maps import map_of, planes

COLUMNS = dict.fromkeys(("question", "sequence", "class", "group", "note"), str)
RANDOM = "random weights"
_CLUSTER = "group_of_windows"


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a window; the windows of one question are classified together."""
    examples = []
    for row in options.rows_of(table):
        question, data = row["question"], {"row": row, "seed": options.seed}
        name, needs_bp = f"{question} {row.number + 1}", row.length_bp("sequence")
        examples.append(Example(name, question, data, needs_bp, together=question))
    return examples


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    for _, run in groupby(examples, lambda example: example.together):
        yield from _of_question(model, list(run))


def _of_question(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield whether each window is classified correctly, by each pool of states."""
    rows: list[Row] = [example.data["row"] for example in examples]
    seed: int = examples[0].data["seed"]
    sequences = [row.dna("sequence") for row in rows]
    learned = model.states(sequences)
    if learned is None:
        yield from (example.result(skipped="the model has no states") for example in examples)
        return
    classes = sorted({row["class"] for row in rows})
    folds = Folds(
        [classes.index(row["class"]) for row in rows], [row["group"] for row in rows], seed
    )
    features = dict(learned)
    if untrained := model.untrained(seed):
        random = untrained.states(sequences) or {}
        features |= {f"{pool}, {RANDOM}": each for pool, each in random.items()}
    readings = {pool: read(each, folds) for pool, each in features.items()}
    maps = _maps(learned, readings, seed)
    for n, (example, row) in enumerate(zip(examples, rows, strict=True)):
        right = {pool: int(each.right[n]) for pool, each in readings.items()}
        of_row = {"class": row["class"], _CLUSTER: f"{row['question']} {row['group']}"}
        yield example.result(
            score=float(next(iter(right.values()))),
            right=right,
            right_by_choice={pool: _hits(each, n) for pool, each in readings.items()},
            **of_row,
            map={name: points[n] for name, points in maps.items()},
            note=row["note"],
        )


def _hits(reading: Read, number: int) -> str:
    """Return 1 or 0 for each layer and kernel, kernels of a layer next to each other."""
    return "".join(str(int(right[number])) for right in reading.each.values())


def _maps(
    learned: Mapping[str, Features], readings: Mapping[str, Read], seed: int
) -> dict[str, list[list[float]]]:
    """Return maps of the windows by name, at the layer that was chosen most often."""
    return {
        f"{kind}, {pool}": map_of(each[_usual_layer(readings[pool])], plane, seed)
        for kind, plane in planes().items()
        for pool, each in learned.items()
    }


def _usual_layer(reading: Read) -> str:
    return Counter(choice.layer for choice in reading.chosen).most_common(1)[0][0]


def _summarise(results: Sequence[Result]) -> Summary:
    questions = grouped(results, "group")
    pools = list(results[0]["right"])
    of_pool = {
        pool: [{**result, "score": result["right"][pool]} for result in results] for pool in pools
    }
    notes = [
        f"{name}: {len(each):,} windows of {len({r[_CLUSTER] for r in each}):,} groups; the most "
        f"common class alone gives {_most_common_share(each):.3f}"
        for name, each in questions.items()
    ]
    return replace(
        summary_of(results, "mean", cluster=_CLUSTER, groups=()),
        others={pool: estimate(of_pool[pool], "mean", _CLUSTER) for pool in pools[1:]},
        groups={
            question: {
                pool: by_group(each, "group", "mean", _CLUSTER)[question]
                for pool, each in of_pool.items()
            }
            for question in questions
        },
        curves=dict(_curves(questions, pools)),
        scatters=dict(_scatters(questions)),
        notes=list(dict.fromkeys([*notes, *(r["note"] for r in results if r["note"])])),
    )


def _most_common_share(results: Sequence[Result]) -> float:
    counts = Counter(result["class"] for result in results)
    return max(counts.values()) / len(results)


def _curves(
    questions: Mapping[str, Sequence[Result]], pools: Sequence[str]
) -> Iterator[tuple[str, Curve]]:
    """Yield the share of windows classified correctly by layer, where there are layers."""
    for question, results in questions.items():
        for pool in pools:
            hits: Floats = np.array([list(r["right_by_choice"][pool]) for r in results], float)
            shares = hits.mean(axis=0).reshape(-1, len(KERNELS))[::-1]
            layers = [float(n) for n in range(1, len(shares) + 1)]
            if len(layers) > 1 and RANDOM not in pool:
                for kernel, values in zip(KERNELS, shares.T.tolist(), strict=True):
                    name = f"{question}: {pool}, {kernel}"
                    yield name, Curve("layer", "classified correctly", layers, values)


def _scatters(questions: Mapping[str, Sequence[Result]]) -> Iterator[tuple[str, Scatter]]:
    for question, results in questions.items():
        for name in results[0]["map"]:
            points: Any = np.array([result["map"][name] for result in results])
            x, y = points.T.tolist()
            yield f"{question}: {name}", Scatter(x, y, [result["class"] for result in results])


TASK = Task(
    name="representation",
    axis="representation",
    measures="share of windows whose strand, codon phase or taxonomy the states of a model give",
    metric="mean",
    chance=None,
    columns=COLUMNS,
    build=build,
    examples=_examples,
    run=_run,
    summarise=_summarise,
    cluster=_CLUSTER,
    baselines=KMER_BASELINES,
    markov=False,
)

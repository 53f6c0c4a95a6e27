"""Benchmark of design: calls needed to reach 90 % of the known maximum of a scoring function.

    python bench/design.py OUT --calls 1000 --seeds 0 1 2

Every strategy of `carbon design` that maximizes is compared with three that have no model
(sequences drawn at random, a genetic algorithm, and the same beam whose windows are random bases)
and with `carbon rl`, whose every sample is a call. OUT is the table, as JSON.
"""

import argparse
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import carbon
from carbon.console import natural, run_command
from carbon.design.benchmark_functions import codon_adaptation, gc_window, motif_pair
from carbon.design.config import DesignConfig
from carbon.design.functions import running_functions
from carbon.design.proposals import Proposer
from carbon.design.rules import Rules
from carbon.design.search import run_search, search_of
from carbon.genome.alphabet import GENETIC_CODE
from carbon.inference.options import Constraints, StrategyName
from carbon.progress import say
from carbon.reports.card import table
from carbon.rl.config import RLOptions
from data_pipeline.simulation.codons import FLY_CODON_USAGE

REACHED = 0.9
# Of that of `best_of_n` nothing but the time follows.
BATCHES = {"beam": 16, "infill": 16, "best_of_n": 64}
PROTEIN = "MSKGEELFTGVVPILVELDGDVNGHKFSVSGEGEGDATYGKLTLKFICTTGKL"  # of GFP, its first 53
TATA_BOX, INITIATOR, BOX_AT = "TATAAAAG", "TCA", 69  # of data_pipeline/simulation/genome.py
FLY_USAGE = {codon: share for each in FLY_CODON_USAGE.values() for codon, share in each.items()}


def matches(motif: str, bases: str) -> int:
    return sum(a == b for a, b in zip(motif, bases, strict=True))


def promoter(bases: str) -> float:
    """Return the letters of a simulated promoter's box and initiator, each at its place."""
    found = matches(TATA_BOX, bases[BOX_AT : BOX_AT + len(TATA_BOX)]) + matches(
        INITIATOR, bases[-3:]
    )
    return found / len(TATA_BOX + INITIATOR)


def alone(function: Callable[[Sequence[str]], list[float]]) -> Callable[[str], float]:
    """Return a scoring function of one sequence."""
    return lambda bases: function([bases])[0]


class Question(NamedTuple):
    """A scoring function with maximum 1, the length of a sequence, and the protein it codes for."""

    value: Callable[[str], float]
    length_bp: int
    protein: str | None = None


QUESTIONS = {
    "GC window": Question(alone(gc_window), 100),
    "motif pair": Question(alone(motif_pair), 100),
    "simulated promoter": Question(promoter, 100),
    "codon adaptation": Question(alone(codon_adaptation(FLY_USAGE)), 3 * len(PROTEIN), PROTEIN),
}


def units(question: Question) -> list[list[str]]:
    """Return what may stand at each place: bases, or the codons of an amino acid."""
    if question.protein is None:
        return [list("ACGT")] * question.length_bp
    return [[c for c, a in GENETIC_CODE.items() if a == letter] for letter in question.protein]


def at_random(question: Question, random: np.random.Generator) -> list[str]:
    return [str(random.choice(choices)) for choices in units(question)]


def random_search(question: Question, random: np.random.Generator) -> Iterator[str]:
    while True:
        yield "".join(at_random(question, random))


def genetic(question: Question, random: np.random.Generator, size: int = 32) -> Iterator[str]:
    """Yield what a genetic algorithm measures: tournaments of three, one crossing, a change each.

    The best two of a generation live on; they are not measured again.
    """
    choices = units(question)

    def value(parts: list[str]) -> float:
        return question.value("".join(parts))

    people = [at_random(question, random) for _ in range(size)]
    yield from map("".join, people)
    while True:
        best = sorted(people, key=value, reverse=True)[:2]
        children = []
        for _ in range(size - 2):
            mother, father = (
                max((people[n] for n in random.integers(size, size=3)), key=value) for _ in "12"
            )
            cut = int(random.integers(1, len(choices)))
            child = mother[:cut] + father[cut:]
            place = int(random.integers(len(choices)))
            child[place] = str(random.choice(choices[place]))
            children.append(child)
        yield from map("".join, children)
        people = best + children


@dataclass(frozen=True, kw_only=True, slots=True)
class WithoutModel(Proposer):
    """What a beam proposes, with random bases or codons in the place of what a model draws.

    Attributes:
        choices: what may stand at each place.
    """

    choices: list[list[str]]

    def fresh(self, samples: Sequence[int]) -> list[str]:
        """Return whole sequences at random."""
        return [self._drawn(self.choices, self.seed, sample) for sample in samples]

    def regrown(
        self, bases: str, count: int, turn: tuple[int, int], most_bp: float, temperature: float
    ) -> list[str]:
        """Return copies with one window at random; windows are chosen as a model's are."""
        start, end = self._window(np.random.default_rng([self.seed, *turn]), most_bp)
        unit_bp = len(self.choices[0][0])
        inside = self.choices[start // unit_bp : end // unit_bp]
        drawn = (self._drawn(inside, self.seed, *turn, n) for n in range(count))
        return [bases[:start] + each + bases[end:] for each in drawn]

    @staticmethod
    def _drawn(choices: Sequence[Sequence[str]], *numbers: int) -> str:
        random = np.random.default_rng([*numbers, len(choices)])
        return "".join(each[int(random.integers(len(each)))] for each in choices)


def without_model(proposer: Proposer, choices: list[list[str]]) -> WithoutModel:
    """Return a proposer of the same length, constraints and seed that asks no model."""
    kept = {field.name: getattr(proposer, field.name) for field in fields(Proposer)}
    return WithoutModel(**kept, choices=choices)


def calls_and_best(
    question: Question, texts: Iterator[str], calls: int
) -> tuple[int | None, float]:
    """Return at which call 90 % is reached, if it is, and the best of all calls."""
    best = 0.0
    reached = None
    for call, bases in zip(range(1, calls + 1), texts, strict=False):
        best = max(best, question.value(bases))
        if reached is None and best >= REACHED:
            reached = call
    return reached, best


def by_model(
    model: "carbon.Model",
    question: Question,
    strategy: StrategyName,
    calls: int,
    seed: int,
    is_without: bool = False,
) -> Iterator[str]:
    """Yield all that a strategy of `carbon design` scores, in order."""
    rules = Rules(constraints=Constraints(protein=question.protein))
    config = DesignConfig(
        strategy=strategy,
        length_bp=question.length_bp,
        calls=calls,
        batch=BATCHES[strategy],
        seed=seed,
        rules=rules,
    )
    search, checker = search_of(model.runner, config, 1)
    if is_without:
        search = replace(search, proposer=without_model(search.proposer, units(question)))
    function = lambda texts: list(map(question.value, texts))  # noqa: E731
    with running_functions([function], 60) as functions:
        return (candidate.bases for candidate in run_search(search, checker, functions))


def by_rl(
    model: str, question: Question, calls: int, seed: int, rate: float | None = None
) -> Iterator[str]:
    """Yield what a generator measures that learns as it draws; whole 6-mers, cut to length."""
    seen: list[str] = []

    def value(texts: list[str]) -> list[float]:
        cut = [bases[: question.length_bp] for bases in texts]
        seen.extend(cut)
        return list(map(question.value, cut))

    steps = math.ceil(calls / 16)
    options: RLOptions = {"length_bp": math.ceil(question.length_bp / 6) * 6, "steps": steps,
                            "group": 16, "seed": seed, "probe_steps": steps}  # fmt: skip
    if rate is not None:
        options["rate"] = rate
    with TemporaryDirectory() as folder:
        carbon.rl(model, [value], Path(folder) / "run", device="cpu", **options)  # type: ignore[operator]
    yield from seen


@lru_cache
def drawn(model: str, length_bp: int, protein: str | None, calls: int, seed: int) -> list[str]:
    """Return what the model draws; it goes by no value."""
    question = Question(lambda bases: 0.0, length_bp, protein)
    return list(by_model(load(model), question, "best_of_n", calls, seed))


@lru_cache
def load(model: str) -> "carbon.Model":
    return carbon.load(model)


Strategy = Callable[[str, Question, int, int], Iterator[str]]
"""From the model's name, the question, calls and seed to what is measured, in order."""

STRATEGIES: dict[str, Strategy] = {
    "random": lambda _, q, __, seed: random_search(q, np.random.default_rng(seed)),
    "genetic": lambda _, q, __, seed: genetic(q, np.random.default_rng(seed)),
    "best_of_n": lambda m, q, calls, seed: iter(drawn(m, q.length_bp, q.protein, calls, seed)),
    "beam": lambda m, q, calls, seed: by_model(load(m), q, "beam", calls, seed),
    "infill": lambda m, q, calls, seed: by_model(load(m), q, "infill", calls, seed),
    "beam, random windows": lambda m, q, calls, seed: by_model(
        load(m), q, "beam", calls, seed, is_without=True
    ),
    "RL": by_rl,
    "RL, rate 1e-3": partial(by_rl, rate=1e-3),
    "RL, rate 1e-2": partial(by_rl, rate=1e-2),
}
RL_STRATEGIES = [strategy for name, strategy in STRATEGIES.items() if name.startswith("RL")]


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for (name, question), seed, strategy in itertools.product(
        QUESTIONS.items(), arguments.seeds, arguments.strategies
    ):
        if question.protein is not None and STRATEGIES[strategy] in RL_STRATEGIES:
            continue  # RL supports no rules
        texts = STRATEGIES[strategy](arguments.model, question, arguments.calls, seed)
        reached, best = calls_and_best(question, texts, arguments.calls)
        rows.append(
            {"function": name, "strategy": strategy, "seed": seed, "reached": reached, "best": best}
        )
        say(json.dumps(rows[-1]))
    return rows


def told(rows: list[dict[str, Any]], calls: int) -> str:
    """Return a table: the calls of every seed, and the median of the best."""
    lines = []
    for name, strategy in itertools.product(
        QUESTIONS, dict.fromkeys(row["strategy"] for row in rows)
    ):
        some = [row for row in rows if (row["function"], row["strategy"]) == (name, strategy)]
        reached = ", ".join(str(row["reached"] or f"over {calls}") for row in some)
        if some:
            best = median(row["best"] for row in some)
            lines.append((name, strategy, reached, f"{best:.3f}"))
    return table(lines, ("function", "strategy", "calls to 0.9, each seed", "median of the best"))


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", default="yeast")
    parser.add_argument("--calls", type=natural, default=1000)
    parser.add_argument("--seeds", type=natural, nargs="+", default=[0, 1, 2])
    parser.add_argument("--strategies", choices=STRATEGIES, nargs="+", default=list(STRATEGIES))
    arguments = parser.parse_args()
    return run_command(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    rows = measured(arguments)
    arguments.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(told(rows, arguments.calls))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Tokens and time of the tasks of `eval`, compared with their published protocols."""

import tempfile
from pathlib import Path

import evaluation as trials
from measure import Measure, in_own_process


def measures(quick: bool) -> list[Measure]:
    # With one change a place, as TraitGym has them, sharing gives 4 / 3 at most: the left half once
    # and the right halves of both, against two windows. The target is that of all centred tasks.
    targets = {"brca2": 2.0, "traitgym_mendelian": 2.0}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for t in trials.trials(Path(folder), quick):
            target = 3.0 if t.task.startswith("genomic_niah") else targets.get(t.task)
            fewer = t.literal_tokens / t.tokens
            holds = None if target is None else fewer >= target
            found += [
                Measure(f"{t.task}:tokens", t.tokens / t.examples, "tok/ex"),
                Measure(f"{t.task}:fewer_tokens", fewer, "times", target, holds),
                Measure(f"{t.task}:time", 1000 * t.seconds / t.examples, "ms/ex"),
                Measure(f"{t.task}:faster", t.literal_seconds / t.seconds, "times"),
            ]
    count = 5_000 if quick else 50_000
    with tempfile.TemporaryDirectory() as folder:
        work = f"peak_of_many_variants({folder!r}, {count})"
        _, peak = in_own_process(work, "evaluation")
    holds = peak < 2**30
    return [
        *found,
        Measure(f"right_end_peak_of_{count}_variants", peak / 2**20, "MiB", 1024, holds),
    ]

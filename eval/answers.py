"""Answers of an entrant to the questions of a task, their cost, and the record of both."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.inference.checks import check_finite
from carbon.progress import say
from eval import cost
from eval.contract import Example, Model, Result
from eval.entrants import Entrant
from eval.records import Json, as_json, read_record, settings_of, write_record, write_rows
from eval.suite import Part, Prepared, saying

TOO_LONG = "longer than the context"
_BATCH_SECONDS = 1.0
_PIECE_EXAMPLES, _PIECE_BP = 64, 2_000_000

Batch = Json
"""Results of about a second, and their cost: a line of the journal."""


def job_of(prepared: Prepared, entrant: Entrant) -> Json:
    """Return all settings that the results depend on."""
    return settings_of(_head(prepared, entrant))


def _head(prepared: Prepared, entrant: Entrant) -> Json:
    """Return the part of a record that is known before anything is measured."""
    task = prepared.task
    return {
        "task": {
            "name": task.name,
            "version": task.version,
            "axis": task.axis,
            "measures": task.measures,
            "metric": task.metric,
            "chance": task.chance,
            "published": task.published,
            "source": task.citation,
            "cluster": task.cluster,
        },
        "model": {
            "name": entrant.name,
            "shown_as": entrant.shown_as,
            "kind": entrant.kind,
            "source": entrant.source,
            "identity": entrant.identity,
            "dtype": entrant.dtype,
        },
        "data": prepared.data,
        "options": prepared.options,
    }


def is_written(path: Path, job: Json) -> bool:
    """Return whether the record exists; raise UserError if it has other settings."""
    if not path.exists():
        return False
    there = settings_of(read_record(path).record)
    if other := [name for name in job if there.get(name) != job[name]]:
        raise UserError(
            f"{path}: is of another {', '.join(other)}; name another --output, or remove it"
        )
    return True


def pieces_of(entrant: Entrant, examples: Sequence[Example]) -> list[range]:
    """Split the examples of a task into ranges of numbers, each for one call of a worker.

    Rows of one batch belong to one piece, so that answers do not depend on the number of workers. A
    baseline, which is quick, answers all at once.
    """
    if entrant.kind == "baseline":
        return [range(len(examples))]
    runs = groupby(range(len(examples)), lambda n: examples[n].together or n)
    lists = (list(numbers) for _, numbers in runs)
    blocks = in_blocks(
        lists, _PIECE_EXAMPLES, _PIECE_BP, lambda run: sum(examples[n].needs_bp for n in run)
    )
    return [range(block[0][0], block[-1][-1] + 1) for block in blocks]


def fitting(examples: Iterable[Example], context_bp: int | None) -> list[Example]:
    """Return the examples that fit into the context."""
    return [e for e in examples if context_bp is None or e.needs_bp <= context_bp]


def answered(
    part: Part, prepared: Prepared, model: Model, asked: Sequence[Example]
) -> Iterator[Batch]:
    """Answer questions, and yield batches of results."""
    cost.forget_peak()
    with saying(_where(part.entrant, prepared)), cost.tokens_counted(model) as count:
        yield from _in_time(model.answer(part.task, asked), count)


def _where(entrant: Entrant, prepared: Prepared) -> str:
    return f"{prepared.task.name} ({prepared.data['source']}), {entrant.shown_as}"


def _in_time(stream: Iterator[Result], count: cost.TokenCount) -> Iterator[Batch]:
    waiting: list[Result] = []
    start, tokens = time.monotonic(), count.tokens

    def batch() -> Batch:
        return {
            "results": as_json(waiting),
            "seconds": time.monotonic() - start,
            "tokens": count.tokens - tokens,
            "peak_bytes": cost.peak_bytes(),
        }

    for result in stream:
        waiting.append(_checked(result))
        if time.monotonic() - start >= _BATCH_SECONDS:
            yield batch()
            waiting, start, tokens = [], time.monotonic(), count.tokens
    if waiting:
        yield batch()


def _checked(result: Result) -> Result:
    """Return a result; raise ModelError where its score, or another number, is not finite."""
    for value in result.values():
        if isinstance(value, float):
            check_finite(value, f"example '{result['id']}'")
    return result


def write_answers(
    path: Path,
    prepared: Prepared,
    entrant: Entrant,
    context_bp: int | None,
    batches: Sequence[Batch],
    hardware: Json,
) -> None:
    """Write a record and its rows.

    Args:
        path: of the record.
        prepared: its task.
        entrant: the model or baseline.
        context_bp: bases that fit into one forward pass, None without a limit.
        batches: the answers.
        hardware: that computed them.

    Raises:
        UserError: the metric is not defined for such results.
    """
    results = [result for batch in batches for result in batch["results"]]
    asked = [example.id for example in fitting(prepared.examples, context_bp)]
    if [result["id"] for result in results] != asked:
        raise RuntimeError(f"{prepared.task.name}: results are not those of the examples, in order")
    rows = _all_rows(prepared.examples, results, context_bp)
    with saying(_where(entrant, prepared)):
        record = _record(prepared, entrant, context_bp, rows, batches, hardware)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path.with_suffix(".jsonl"), rows)
    write_record(path, record)


def _all_rows(
    examples: Sequence[Example], results: Sequence[Result], context_bp: int | None
) -> list[Result]:
    """Return a row an example, in order, also for examples that did not fit."""
    found = {result["id"]: result for result in results}
    return [
        found.get(example.id)
        or example.result(skipped=f"{TOO_LONG}: needs {example.needs_bp:,} bp, {context_bp:,} fit")
        for example in examples
    ]


def _record(
    prepared: Prepared,
    entrant: Entrant,
    context_bp: int | None,
    rows: Sequence[Result],
    batches: Sequence[Batch],
    hardware: Json,
) -> Json:
    task = prepared.task
    measured = [row for row in rows if "skipped" not in row]
    skipped = Counter(row["skipped"] for row in rows if "skipped" in row)
    if not measured:
        say(f"{task.name}: {entrant.shown_as} measured nothing: {skipped.most_common(1)[0][0]}")
    head = _head(prepared, entrant)
    return {
        **head,
        "model": {**head["model"], "context_bp": context_bp},
        "counts": {
            "examples": len(rows),
            "measured": len(measured),
            "skipped": dict(skipped.most_common()),
        },
        "summary": task.summarise(measured) if measured else None,
        "cost": _cost(batches, len(measured)),
        "software": cost.software(),
        "hardware": hardware,
    }


def _cost(batches: Sequence[Batch], num_measured: int) -> Json:
    """Sum the cost of batches: of this start and earlier ones, in all processes."""
    seconds = sum(batch["seconds"] for batch in batches)
    tokens = sum(batch["tokens"] for batch in batches)
    peaks = [batch["peak_bytes"] for batch in batches if batch["peak_bytes"] is not None]
    return {
        "seconds": seconds,
        "examples_per_second": num_measured / seconds if seconds else None,
        "tokens": tokens,
        "tokens_per_example": tokens / num_measured if num_measured else None,
        "peak_bytes": max(peaks, default=None),
    }

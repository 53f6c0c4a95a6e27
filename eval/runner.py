"""Models and baselines through the tasks, one record each; stopped at any moment, it goes on.

What is done of a task is kept in a journal beside its record, a line a second or so, and is not
done again. A record that is there is left alone.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from carbon.blocks.journal import Journal
from carbon.console import progress, say
from carbon.errors import UserError
from carbon.inference.reading import check_finite
from eval import cost
from eval.contract import Example, Model, Options, Result, Task
from eval.data import find_data, identity_of, places_of
from eval.entrants import Baselines, Contender, Entrant, Make, contender_of
from eval.records import (
    Json,
    as_json,
    check_folder,
    file_stem,
    read_record,
    write_record,
    write_rows,
)

_BLOCK_SECONDS = 1.0
TOO_LONG = "longer than the context"

Load = Callable[[Entrant], Model]


@dataclass(frozen=True)
class Suite:
    """What is run.

    Attributes:
        tasks: in the order in which they are run.
        models: who takes part, beside the baselines.
        baselines: who stands beside them.
        load: makes a model; called when the first of its tasks is not done yet.
        output: folder of the records.
        datasets: task to path or Hub id, "" for a folder of datasets.
        references: task to FASTA, "" for all tasks.
        options: of the examples; reference and sizes are filled in for each task.
        sizes: task to its sizes.
        resume: go on with what is in the folder.
    """

    tasks: Sequence[Task]
    models: Sequence[Entrant]
    baselines: Baselines
    load: Load
    output: Path
    datasets: Mapping[str, str]
    references: Mapping[str, str]
    options: Options
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    resume: bool = False


@dataclass(frozen=True)
class Prepared:
    """A task with its questions."""

    task: Task
    examples: list[Example]
    data: Json
    options: Json


def run_suite(suite: Suite) -> list[Path]:
    """Run everything that is not done; return the records, baselines first.

    Raises:
        UserError: there are records and no wish to resume, or they are of something else; a dataset
            is missing or not that of its task.
    """
    for task in suite.tasks:
        if find_data(task, suite.datasets) is None:
            looked = " nor ".join(places_of(task, suite.datasets)) or "nothing is published"
            raise UserError(f"{task.name}: no dataset: {looked}; build it, or give --data")
        _check_names(task, suite)
    _check_output(suite)
    paths = []
    for task in suite.tasks:
        prepared = _prepared(task, suite)
        for entrant, make in suite.baselines.of(task).items():
            paths.append(_measure(prepared, entrant, make, suite))
    suite.baselines.forget()
    for entrant in suite.models:
        make = cache(partial(_loaded, suite, entrant))
        paths += [_measure(_prepared(task, suite), entrant, make, suite) for task in suite.tasks]
    return paths


def _loaded(suite: Suite, entrant: Entrant) -> Contender:
    return contender_of(suite.load(entrant))


def _record_path(suite: Suite, task: Task, entrant: Entrant) -> Path:
    return suite.output / task.name / f"{file_stem(entrant.shown_as)}.json"


def _check_names(task: Task, suite: Suite) -> None:
    """Refuse two entrants whose records would be one file."""
    entrants = [*suite.baselines.of(task), *suite.models]
    stems = Counter(file_stem(entrant.shown_as) for entrant in entrants)
    for model in suite.models:
        if stems[file_stem(model.shown_as)] > 1:
            raise UserError(
                f"--model {model.source}: '{model.shown_as}' is the name of another; "
                "write NAME=MODEL"
            )


def _check_output(suite: Suite) -> None:
    """Refuse to go on with what was not asked to be gone on with, before anything is loaded."""
    check_folder(suite.output)
    if suite.resume or not suite.output.exists():
        return
    there = [path for task in suite.tasks for path in suite.output.glob(f"{task.name}/*.json*")]
    if there:
        raise UserError(
            f"{there[0]}: is there already; go on with --resume, or name another folder"
        )


def _prepared(task: Task, suite: Suite) -> Prepared:
    source = find_data(task, suite.datasets)
    assert source is not None  # looked for before
    with _saying(task.name):
        table = task.read(source)
    reference = suite.references.get(task.name) or suite.references.get("")
    options = replace(
        suite.options,
        reference=Path(reference) if reference else None,
        sizes=suite.sizes.get(task.name, {}),
    )
    data = {
        "source": source,
        "identity": identity_of(source),
        "rows": table.num_rows,
        "reference": identity_of(reference) if reference else None,
    }
    with _saying(f"{task.name} ({source})"):
        examples = task.examples(table, options)
    assert len({example.id for example in examples}) == len(examples), task.name
    return Prepared(task, examples, data, as_json(options))


@contextmanager
def _saying(where: str) -> Iterator[None]:
    """Open the message of a mistake with where it is."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{where}: {error}") from None


def _measure(prepared: Prepared, entrant: Entrant, make: Make, suite: Suite) -> Path:
    """Put the questions to an entrant and write its record, unless it is there."""
    path = _record_path(suite, prepared.task, entrant)
    job = _job(prepared, entrant)
    if path.exists():
        _check_same(path, job)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    contender = make()
    context_bp = contender.model.context_bp if contender.model else None
    fitting = [e for e in prepared.examples if context_bp is None or e.needs_bp <= context_bp]
    journal = Journal(path, job, resume=suite.resume)
    where = f"{prepared.task.name} ({prepared.data['source']}), {entrant.shown_as}"
    try:
        with _saying(where):
            results = _answered(prepared, entrant, contender, fitting, journal)
            rows = _all_rows(prepared.examples, results, context_bp)
            record = _record(prepared, entrant, context_bp, rows, list(journal.kept()))
    except BaseException:
        journal.say_what_is_kept()
        raise
    write_rows(path.with_suffix(".jsonl"), rows)
    write_record(path, record)
    journal.remove()
    return path


def _job(prepared: Prepared, entrant: Entrant) -> Json:
    """Return everything that the results follow from."""
    return {
        "task": prepared.task.name,
        "version": prepared.task.version,
        "model": entrant.name,
        "identity": entrant.identity,
        "dtype": entrant.dtype,
        "dataset": prepared.data["identity"],
        **prepared.options,
        "reference": prepared.data["reference"],  # wherever it lies
    }


def _check_same(path: Path, job: Json) -> None:
    record = read_record(path).record
    there = {
        "task": record["task"]["name"],
        "version": record["task"]["version"],
        "model": record["model"]["name"],
        "identity": record["model"]["identity"],
        "dtype": record["model"]["dtype"],
        "dataset": record["data"]["identity"],
        **record["options"],
        "reference": record["data"]["reference"],
    }
    if other := [name for name in job if there.get(name) != job[name]]:
        raise UserError(
            f"{path}: is of another {', '.join(other)}; name another --output, or remove it"
        )


def _answered(
    prepared: Prepared,
    entrant: Entrant,
    contender: Contender,
    fitting: Sequence[Example],
    journal: Journal,
) -> list[Result]:
    """Return a result for each question that fits, those of an earlier start first."""
    results = [result for block in journal.kept() for result in block["results"]]
    left = fitting[len(results) :]
    description = f"{prepared.task.name}: {entrant.shown_as}"
    cost.forget_peak()
    counting = cost.tokens_counted(contender.model)
    with counting as count, progress(description, len(fitting), len(results)) as advance:
        for block in _in_time(contender.answer(prepared.task, left), count):
            journal.add(block)
            results += block["results"]
            advance(len(block["results"]))
    if [result["id"] for result in results] != [example.id for example in fitting]:
        raise RuntimeError(f"{prepared.task.name}: results are not those of the examples, in order")
    return results


def _in_time(stream: Iterator[Result], count: cost.TokenCount) -> Iterator[Json]:
    """Cut a stream of results into blocks of a second or so, with what they cost."""
    waiting: list[Result] = []
    start, tokens = time.monotonic(), count.tokens

    def block() -> Json:
        return {
            "results": as_json(waiting),
            "seconds": time.monotonic() - start,
            "tokens": count.tokens - tokens,
            "peak_bytes": cost.peak_bytes(),
        }

    for result in stream:
        waiting.append(_checked(result))
        if time.monotonic() - start >= _BLOCK_SECONDS:
            yield block()
            waiting, start, tokens = [], time.monotonic(), count.tokens
    if waiting:
        yield block()


def _checked(result: Result) -> Result:
    """Return a result; raise ModelError where its score is no number."""
    if "skipped" not in result:
        check_finite(result["score"], f"example '{result['id']}'")
    return result


def _all_rows(
    examples: Sequence[Example], results: Sequence[Result], context_bp: int | None
) -> list[Result]:
    """Return a row an example, in order, also for those that did not fit."""
    found = {result["id"]: result for result in results}
    return [
        found.get(example.id)
        or {
            "id": example.id,
            "group": example.group,
            "skipped": f"{TOO_LONG}: needs {example.needs_bp:,} bp, {context_bp:,} fit",
        }
        for example in examples
    ]


def _record(
    prepared: Prepared,
    entrant: Entrant,
    context_bp: int | None,
    rows: Sequence[Result],
    blocks: Sequence[Json],
) -> Json:
    task = prepared.task
    measured = [row for row in rows if "skipped" not in row]
    skipped = Counter(row["skipped"] for row in rows if "skipped" in row)
    if not measured:
        say(f"{task.name}: {entrant.shown_as} measured nothing: {skipped.most_common(1)[0][0]}")
    return {
        "task": _told_of(task),
        "model": {
            "name": entrant.name,
            "shown_as": entrant.shown_as,
            "kind": entrant.kind,
            "source": entrant.source,
            "identity": entrant.identity,
            "dtype": entrant.dtype,
            "context_bp": context_bp,
        },
        "data": prepared.data,
        "options": prepared.options,
        "counts": {
            "examples": len(rows),
            "measured": len(measured),
            "skipped": dict(skipped.most_common()),
        },
        "summary": task.summarise(measured) if measured else None,
        "cost": _cost(blocks, len(measured)),
        "software": cost.software(),
        "hardware": cost.hardware(),
    }


def _told_of(task: Task) -> Json:
    return {
        "name": task.name,
        "version": task.version,
        "axis": task.axis,
        "measures": task.measures,
        "metric": task.metric,
        "chance": task.chance,
        "published": task.published,
        "source": task.citation,
        "cluster": task.cluster,
    }


def _cost(blocks: Sequence[Json], num_measured: int) -> Json:
    """Add up what the blocks cost, in this start and in earlier ones."""
    seconds = sum(block["seconds"] for block in blocks)
    tokens = sum(block["tokens"] for block in blocks)
    peaks = [block["peak_bytes"] for block in blocks if block["peak_bytes"] is not None]
    return {
        "seconds": seconds,
        "examples_per_second": num_measured / seconds if seconds else None,
        "tokens": tokens,
        "tokens_per_example": tokens / num_measured if num_measured else None,
        "peak_bytes": max(peaks, default=None),
    }

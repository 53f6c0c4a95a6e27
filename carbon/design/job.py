"""Designs as FASTA, whose headers tell where they come from, or as a table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from carbon.__version__ import __version__
from carbon.design.config import DesignOptions, DesignTask, search_of
from carbon.design.designs import COLUMNS, Design, columns_of, design, designs_of, row_of
from carbon.design.functions import Function, finetuned_contents, named_oracle, started
from carbon.design.rules import Judge, Rules
from carbon.design.search import run_search
from carbon.design.strategies import Candidate, Search
from carbon.errors import UserError
from carbon.finetune.folder import weights_sha256
from carbon.inference.checks import check_several
from carbon.inference.identity import identity_of
from carbon.inference.runner import ModelRunner
from carbon.io.files import atomic_file
from carbon.io.tables import Columns, Write, check_ending, chosen_by_ending, text_of, words_of
from carbon.model import model_folder
from carbon.parallel.journal import Journal
from carbon.progress import progress

_LINE_BP = 60


@contextmanager
def write_fasta(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write a record a design: its values, then where it comes from, in the header."""
    with path.open("w", encoding="utf-8") as sink:
        provenance = words_of(settings)

        def write(row: Sequence[Any]) -> None:
            cells = dict(zip(columns, row, strict=True))
            name, bases = cells.pop("name"), cells.pop("bases")
            told = {key: text_of(cell) for key, cell in cells.items() if cell is not None}
            sink.write(f">{name} {words_of(told)} {provenance}\n")
            sink.writelines(
                f"{bases[at : at + _LINE_BP]}\n" for at in range(0, len(bases), _LINE_BP)
            )

        yield write


# Neither changes what is measured.
_FREE = ("records", "timeout_seconds")


class DesignJob(NamedTuple):
    """What to write.

    Attributes:
        model: as it was named.
        oracles: `NAME=KIND:WHAT`, `KIND:WHAT`, or callables.
        task: what is asked for.
        output: to write.
        resume: go on with what an earlier run left.
    """

    model: str
    oracles: Sequence[str | Function]
    task: DesignTask
    output: Path
    resume: bool


class Found(NamedTuple):
    """What a search has measured, and the best of it."""

    search: Search
    history: list[Candidate]
    designs: list[Design]


def design_with(
    reader: ModelRunner,
    oracles: Sequence[str | Function],
    options: DesignOptions,
    output: str | Path | None,
    resume: bool,
) -> list[Design]:
    """Return the best designs, the best first, and write them if an output is named.

    Raises:
        TypeError: `oracles` is a single string.
        UserError: something does not fit, an oracle fails, nothing is found, or an earlier run is
            in the way of the output.
    """
    check_several("oracles", oracles, '["python:MODULE:FUNCTION"]')
    task = DesignTask(**options)
    if output is None:
        return design(reader, oracles, task)
    if not (folder := reader.network.name_or_path):
        raise UserError("output: the model was not loaded from a folder, which a table names")
    job = DesignJob(folder, oracles, task, Path(output), resume)
    check_job(job)
    return run_design_job(reader, job).designs


def check_job(job: DesignJob) -> None:
    """Look for all that can be wrong before a model is loaded.

    Raises:
        UserError: something is.
    """
    check_ending(job.output, "designs")
    for oracle in job.oracles:
        named_oracle(oracle)
    job.task.goals_for(len(job.oracles))


def run_design_job(reader: ModelRunner, job: DesignJob) -> Found:
    """Search, and write the best designs.

    Raises:
        UserError: an oracle fails, or nothing was found, or an earlier run is in the way.
    """
    search, judge = search_of(reader, job.task, len(job.oracles))
    settings = _settings(reader, job)
    with atomic_file(job.output) as path:  # an impossible one is known before the work
        journal = Journal(job.output, _asked(reader, job, settings), resume=job.resume)
        try:
            history = _history(search, judge, job, journal)
            designs = designs_of(job.task, search, _names(job), history)
            _write(path, job, designs, settings)
        except BaseException:
            journal.close()
            raise
    journal.remove()
    return Found(search, history, designs)


def _history(search: Search, judge: Judge, job: DesignJob, journal: Journal) -> list[Candidate]:
    kept = list(journal.blocks())
    done = sum(map(len, kept))
    oracles = started(job.oracles, job.task.timeout_seconds, COLUMNS)
    try:
        with progress("oracle calls", search.calls, done) as advance:
            return run_search(search, judge, oracles, kept, journal.add, advance)
    finally:
        for oracle in oracles:
            oracle.close()


def _write(path: Path, job: DesignJob, designs: Sequence[Design], settings: dict[str, Any]) -> None:
    columns = columns_of(_names(job))
    with chosen_by_ending(job.output, "designs")(path, columns, settings) as write:
        for design in designs:
            write(list(row_of(design).values()))


def _names(job: DesignJob) -> list[str]:
    return [named_oracle(oracle).name for oracle in job.oracles]


def _settings(reader: ModelRunner, job: DesignJob) -> dict[str, Any]:
    """Return where designs come from, in words that a header can hold."""
    task, folder = job.task, model_folder(job.model).path
    named = [named_oracle(oracle) for oracle in job.oracles]
    return {
        "carbon": __version__,
        "model": job.model,
        "model_sha256": weights_sha256(folder),
        "dtype": reader.dtype,
        "way": task.way,
        "oracles": ",".join(f"{each.name}={each.kind}:{each.what}" for each in named),
        "goals": ",".join(map(str, task.goals or ["most"] * len(named))),
        "calls": task.calls,
        "batch": task.batch,
        "seed": task.seed,
        "tags": "".join(task.tags),
        "length_bp": task.bases_bp,
        "prompt": task.prompt,
        "start": task.start,
        "width": task.width,
        "hot": task.hot,
        "cold": task.cold,
        "within": task.within,
        "records": task.records,
        **task.sampling,
        **rules_given(task.rules),
    }


def rules_given(rules: Rules) -> dict[str, str]:
    """Return the rules that are not the usual ones, by name."""
    usual = _by_name(Rules())
    return {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in _by_name(rules).items()
        if value != usual[name]
    }


def _by_name(rules: Rules) -> dict[str, Any]:
    named = asdict(rules)
    constraints: dict[str, Any] = named.pop("constraints")
    return constraints | named


def _asked(reader: ModelRunner, job: DesignJob, settings: dict[str, Any]) -> dict[str, Any]:
    """Return everything that what is measured follows from."""
    task = {name: value for name, value in asdict(job.task).items() if name not in _FREE}
    kept = {name: value for name, value in settings.items() if name not in _FREE}
    finetuned = {"finetuned": finetuned_contents(job.oracles)}
    return kept | task | finetuned | identity_of(reader, job.model)


def summary_of(job: DesignJob, found: Found) -> dict[str, Any]:
    """Return what the command prints."""
    search, history, designs = found
    return {
        "output": str(job.output),
        "designs": len(designs),
        "first": designs[0].values,
        "front": sum(design.front == 1 for design in designs),
        "calls": len(history),
        "rounds": history[-1].round + 1,
        "start_keeps_rules": None if job.task.start is None else search.start is not None,
    }

"""The run of `carbon design`: a search with a journal, and designs as FASTA or as a table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from carbon.__version__ import __version__
from carbon.design.config import DesignConfig, DesignOptions
from carbon.design.designs import COLUMNS, Design, columns_of, design, designs_of, row_of
from carbon.design.functions import Function, finetuned_digests, parse_function, running_functions
from carbon.design.goals import goal_texts
from carbon.design.rules import RuleChecker, Rules
from carbon.design.search import goals_of, run_search, search_of
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
    """Write a record per design; the header has its values and the settings of the run."""
    with path.open("w", encoding="utf-8") as sink:
        provenance = words_of(settings)

        def write(row: Sequence[Any]) -> None:
            cells = dict(zip(columns, row, strict=True))
            name, bases = cells.pop("name"), cells.pop("bases")
            values = {key: text_of(cell) for key, cell in cells.items() if cell is not None}
            sink.write(f">{name} {words_of(values)} {provenance}\n")
            sink.writelines(
                f"{bases[at : at + _LINE_BP]}\n" for at in range(0, len(bases), _LINE_BP)
            )

        yield write


_NOT_COMPARED = ("records", "timeout_seconds")  # neither changes a score


class DesignJob(NamedTuple):
    """A design run.

    Attributes:
        model: name or folder, as given.
        functions: scoring functions: `[NAME=]KIND:ARGUMENT`, or callables.
        config: options of the run.
        output: file to write.
        resume: continue from the journal of an earlier run.
    """

    model: str
    functions: Sequence[str | Function]
    config: DesignConfig
    output: Path
    resume: bool

    @property
    def names(self) -> list[str]:
        """Return the names of the scoring functions."""
        return [parse_function(function).name for function in self.functions]


class SearchResult(NamedTuple):
    """A finished search: all scored candidates, and the best as designs."""

    search: Search
    history: list[Candidate]
    designs: list[Design]


def design_with(
    reader: ModelRunner,
    functions: Sequence[str | Function],
    options: DesignOptions,
    output: str | Path | None,
    resume: bool,
) -> list[Design]:
    """Return the best designs, best first, and write them if an output is given.

    Raises:
        TypeError: `functions` is a single string.
        UserError: an option is invalid, a scoring function fails, no candidate qualifies, or an
            earlier run left a journal next to the output.
    """
    check_several("functions", functions, '["python:MODULE:FUNCTION"]')
    config = DesignConfig(**options)
    if output is None:
        return design(reader, functions, config)
    if not (folder := reader.network.name_or_path):
        raise UserError("output: the model was not loaded from a folder, which a table names")
    job = DesignJob(folder, functions, config, Path(output), resume)
    check_job(job)
    return run_design_job(reader, job).designs


def check_job(job: DesignJob) -> None:
    """Check a job before the model is loaded.

    Raises:
        UserError: the output, a scoring function or a goal is invalid.
    """
    check_ending(job.output, "designs")
    goals_of(job.config, len(job.names))


def run_design_job(reader: ModelRunner, job: DesignJob) -> SearchResult:
    """Search, and write the best designs.

    Raises:
        UserError: a scoring function fails, no candidate qualifies, or an earlier run left a
            journal.
    """
    search, checker = search_of(reader, job.config, len(job.functions))
    settings = _settings(reader, job)
    with atomic_file(job.output) as path:  # an unwritable output is reported before the search
        journal = Journal(job.output, _journal_settings(reader, job, settings), resume=job.resume)
        try:
            history = _history(search, checker, job, journal)
            designs = designs_of(job.config, search, job.names, history)
            _write(path, job, designs, settings)
        except BaseException:
            journal.close()
            raise
    journal.remove()
    return SearchResult(search, history, designs)


def _history(
    search: Search, checker: RuleChecker, job: DesignJob, journal: Journal
) -> list[Candidate]:
    stored = list(journal.blocks())
    with (
        running_functions(job.functions, job.config.timeout_seconds, COLUMNS) as functions,
        progress("scoring calls", search.config.calls, sum(map(len, stored))) as advance,
    ):
        return run_search(search, checker, functions, stored, journal.add, advance)


def _write(path: Path, job: DesignJob, designs: Sequence[Design], settings: dict[str, Any]) -> None:
    columns = columns_of(job.names)
    with chosen_by_ending(job.output, "designs")(path, columns, settings) as write:
        for design in designs:
            write(list(row_of(design).values()))


def _settings(reader: ModelRunner, job: DesignJob) -> dict[str, Any]:
    """Return the provenance of designs, as values for a header."""
    config, folder = job.config, model_folder(job.model).path
    specs = [parse_function(function) for function in job.functions]
    return {
        "carbon": __version__,
        "model": job.model,
        "model_sha256": weights_sha256(folder),
        "dtype": reader.dtype,
        "strategy": config.strategy,
        "functions": ",".join(f"{spec.name}={spec.kind}:{spec.argument}" for spec in specs),
        "goals": ",".join(goal_texts(config.goals, len(specs))),
        "calls": config.calls,
        "batch": config.batch,
        "seed": config.seed,
        "tags": "".join(config.tags),
        "length_bp": config.bases_bp,
        "prompt": config.prompt,
        "start": config.start,
        "width": config.width,
        "initial_temperature": config.initial_temperature,
        "final_temperature": config.final_temperature,
        "within": config.within,
        "records": config.records,
        **config.sampling,
        **changed_rules(config.rules),
    }


def changed_rules(rules: Rules) -> dict[str, str]:
    """Return the rules that differ from the defaults, by name."""
    defaults = _rule_values(Rules())
    return {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in _rule_values(rules).items()
        if value != defaults[name]
    }


def _rule_values(rules: Rules) -> dict[str, Any]:
    named = asdict(rules)
    constraints: dict[str, Any] = named.pop("constraints")
    return constraints | named


def _journal_settings(
    reader: ModelRunner, job: DesignJob, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return all settings that determine the scores."""
    merged = settings | asdict(job.config)
    compared = {name: value for name, value in merged.items() if name not in _NOT_COMPARED}
    digests = {"finetuned": finetuned_digests(job.functions)}
    return compared | digests | identity_of(reader, job.model)


def summary_of(job: DesignJob, result: SearchResult) -> dict[str, Any]:
    """Return the JSON summary that the command prints."""
    search, history, designs = result
    return {
        "output": str(job.output),
        "designs": len(designs),
        "first": designs[0].values,
        "front": sum(design.front == 1 for design in designs),
        "calls": len(history),
        "rounds": history[-1].round + 1,
        "start_keeps_rules": None if job.config.start is None else search.start is not None,
    }

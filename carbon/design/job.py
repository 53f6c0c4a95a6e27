"""The run of `carbon design`: a search with a journal, and designs as FASTA or as a table."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.__version__ import __version__
from carbon.design.config import DesignConfig, DesignOptions, config_of
from carbon.design.designs import (
    RESERVED,
    Design,
    columns_of,
    nearest_records,
    records_of,
    row_of,
)
from carbon.design.distances import edits_between
from carbon.design.functions import (
    Function,
    file_digests,
    functions_text,
    parse_function,
    running_functions,
)
from carbon.design.goals import fronts, goal_texts
from carbon.design.measures import measured
from carbon.design.rules import Rules
from carbon.design.search import best_designs, goals_of, rounds, run_search, search_of
from carbon.design.strategies import Candidate, Search
from carbon.errors import UserError
from carbon.finetune.folder import weights_sha256
from carbon.genome import fasta_text
from carbon.inference.checks import check_several
from carbon.inference.identity import identity_of
from carbon.inference.options import check_resumed, source_of
from carbon.inference.runner import ModelRunner
from carbon.io.files import atomic_file, check_different_files, output_path
from carbon.io.tables import Columns, Write, check_ending, chosen_by_ending, text_of, words_of
from carbon.model import model_folder
from carbon.parallel.journal import Journal
from carbon.progress import progress

if TYPE_CHECKING:
    from carbon.inference import Model

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
            sink.write(fasta_text([(f"{name} {words_of(values)} {provenance}", bases)], _LINE_BP))

        yield write


class DesignJob(NamedTuple):
    """A design run.

    Attributes:
        model: name or folder, as given.
        functions: scoring functions: `[NAME=]KIND:ARGUMENT`, or callables.
        config: options of the run.
        outputs: files to write; the journal is next to the first one.
        resume: continue from the journal of an earlier run.
    """

    model: str
    functions: Sequence[str | Function]
    config: DesignConfig
    outputs: Sequence[Path]
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
    model: "Model",
    functions: Sequence[str | Function],
    options: DesignOptions,
    outputs: Sequence[Path],
    resume: bool,
) -> list[Design]:
    """Return the best designs, best first, and write them if an output is given.

    Raises:
        TypeError: `functions` is a single string.
        UserError: an option is invalid, a scoring function fails, no candidate qualifies, or an
            earlier run left a journal next to the output.
    """
    check_several("functions", functions, '["python:MODULE:FUNCTION"]')
    check_resumed(resume, outputs)
    config = config_of(options)
    if not outputs:
        search = search_of(model.runner, config, len(functions))
        with running_functions(functions, config.timeout_seconds, RESERVED) as running:
            history = run_search(search, running)
        return designs_of(search, [function.name for function in running], history)
    job = DesignJob(source_of(model), functions, config, outputs, resume)
    check_job(job)
    return run_design_job(model.runner, job).designs


def check_job(job: DesignJob) -> None:
    """Check a job before the model is loaded.

    Raises:
        UserError: the output, a scoring function or a goal is invalid.
    """
    for path in job.outputs:
        check_ending(path, "designs")
    check_different_files(job.outputs)
    goals_of(job.config, len(job.names))


def run_design_job(runner: ModelRunner, job: DesignJob) -> SearchResult:
    """Search, and write the best designs.

    Raises:
        UserError: a scoring function fails, no candidate qualifies, or an earlier run left a
            journal.
    """
    search = search_of(runner, job.config, len(job.functions))
    settings = _settings(runner, job)
    for path in job.outputs:
        output_path(path)  # a wrong output is reported before the journal is created
    described = _journal_settings(runner, job, settings)
    with Journal(job.outputs[0], described, resume=job.resume) as journal, ExitStack() as files:
        temporary = {path: files.enter_context(atomic_file(path)) for path in job.outputs}
        history = _history(search, job, journal)
        designs = designs_of(search, job.names, history)
        for path in job.outputs:
            _write(temporary[path], job, settings, designs)
    return SearchResult(search, history, designs)


def _write(path: Path, job: DesignJob, settings: dict[str, Any], designs: Sequence[Design]) -> None:
    columns = columns_of(job.names, job.config.rules)
    with chosen_by_ending(path, "designs")(path, columns, settings) as write:
        for design in designs:
            row = row_of(design)
            write([row[name] for name in columns])


def _history(search: Search, job: DesignJob, journal: Journal) -> list[Candidate]:
    """Return all scored candidates, including an earlier run's candidates from the journal."""
    history = [_unpacked(packed) for block in journal.blocks() for packed in block]
    with (
        running_functions(job.functions, job.config.timeout_seconds, RESERVED) as functions,
        progress("scoring calls", search.config.calls, len(history)) as advance,
    ):
        for scored in rounds(search, functions, history):
            journal.add([list(astuple(candidate)) for candidate in scored])
            advance(len(scored))
    return history


def _unpacked(packed: Sequence[Any]) -> Candidate:
    number, round_number, parent, bases, values, nats = packed
    return Candidate(number, round_number, parent, bases, tuple(values), nats)


def designs_of(search: Search, names: Sequence[str], history: Sequence[Candidate]) -> list[Design]:
    """Return the designs of a finished search, with their edit distances.

    Args:
        search: the search.
        names: of the scoring functions.
        history: all scored candidates.

    Raises:
        UserError: no candidate qualifies.
    """
    config, best = search.config, best_designs(search, history)
    if not best:
        raise UserError(_why_none(search, names, history))
    sequences = [candidate.bases for candidate in best]
    nearest = nearest_records(sequences, records_of(config.records) if config.records else [])
    front_of = {
        n: number
        for number, front in enumerate(fronts(search.gains(best), len(best)), start=1)
        for n in front
    }
    start = config.start.upper() if config.start else None
    constraints = measured(sequences, config.prompt, config.rules)
    return [
        Design(
            name=candidate.name,
            values=dict(zip(names, candidate.values, strict=True)),
            front=front_of[n],
            nats_per_base=candidate.nats_per_base,
            constraints=constraints[n],
            edits_to_start=edits_between(candidate.bases, start) if start else None,
            nearest_record=near.record if near else None,
            nearest_shared=near.shared if near else None,
            nearest_edits=near.edits if near else None,
            round=candidate.round,
            parent=f"design_{candidate.parent}" if candidate.parent else None,
            bases=candidate.bases,
        )
        for n, (candidate, near) in enumerate(zip(best, nearest, strict=True))
    ]


def _why_none(search: Search, names: Sequence[str], history: Sequence[Candidate]) -> str:
    if not history:
        return "nothing was scored: all drawn sequences break a rule; give less strict rules"
    missed = -search.gains(history).max(axis=0)
    near = ", ".join(f"{name} {miss:.4g}" for name, miss in zip(names, missed, strict=True))
    return (
        f"none of {len(history)} sequences is near enough; the least distances to the targets "
        f"are: {near}; give a larger --within or more --calls"
    )


_NOT_COMPARED = ("records", "timeout_seconds")  # neither changes a score
_AS_GIVEN = (
    *("prompt", "start", "width", "initial_temperature", "final_temperature", "within", "records"),
)


def _settings(runner: ModelRunner, job: DesignJob) -> dict[str, Any]:
    """Return the provenance of designs, as values for a header."""
    config, folder = job.config, model_folder(job.model).path
    return {
        "carbon": __version__,
        "model": job.model,
        "weights_file_sha256": weights_sha256(folder),
        "dtype": runner.dtype,
        "strategy": config.strategy,
        "functions": functions_text(job.functions),
        "goals": ",".join(goal_texts(config.goals, len(job.functions))),
        "calls": config.calls,
        "batch": config.batch,
        "seed": config.seed,
        "tags": "".join(config.tags),
        "length_bp": config.bases_bp,
        **{name: getattr(config, name) for name in _AS_GIVEN},
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
    runner: ModelRunner, job: DesignJob, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return all settings that determine the scores."""
    merged = settings | asdict(job.config)
    compared = {name: value for name, value in merged.items() if name not in _NOT_COMPARED}
    digests = {"function_files": file_digests(job.functions)}
    return compared | digests | identity_of(runner, job.model)


def summary_of(job: DesignJob, result: SearchResult) -> dict[str, Any]:
    """Return the JSON summary that the command prints."""
    search, history, designs = result
    start = {} if job.config.start is None else {"start_keeps_rules": search.start is not None}
    return {
        "outputs": list(map(str, job.outputs)),
        "designs": len(designs),
        "first": designs[0].values,
        "front": sum(design.front == 1 for design in designs),
        "calls": len(history),
        "rounds": history[-1].round + 1,
        **start,
    }

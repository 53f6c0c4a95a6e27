"""The commands `run`, `list` and `build`."""

import argparse
import inspect
import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, get_args

from carbon.console import Parser, natural, natural_numbers, option_help
from carbon.errors import UserError
from carbon.finetune.recipes import PublishedTask, recipes
from carbon.inference.options import Dtype
from carbon.parallel.options import loaded_device, workers_of
from carbon.progress import say
from eval.contract import Model, Options, Task
from eval.data import (
    check_datasets,
    check_models,
    check_name,
    find_data,
    is_cached,
    named_or_plain,
    places_of,
)
from eval.entrants import Baselines, Entrant, entrants_of
from eval.records import read_record
from eval.run_sizes import RUN_SIZES
from eval.runner import Answerer, run_suite
from eval.suite import Suite, saying
from eval.tables import is_on_hub
from eval.tasks import TASKS
from eval.tasks.common.building import source_of
from eval.tasks.common.held_out import CodingGenome

_FLAGS = {
    "num_examples": "--examples",
    "context_length_tokens": "--context",
    "sources": "--source",
}
_WORDS = {"sources": "GROUP=FASTA[,ANNOTATION]", "species": "NAME", "corpus": "FOLDER"}
"""Names of keywords of builders on the command line, and the words for their values."""


def run_models(arguments: argparse.Namespace) -> None:
    """Run models and baselines; print the headlines."""
    suite = suite_of(arguments)
    check_datasets(
        suite.tasks, suite.datasets, {task.name: build_command(task) for task in suite.tasks}
    )
    check_models([model.source for model in suite.models])
    given = {name: value for name, value in vars(arguments).items() if name != "run"}
    make = partial(answerer, argparse.Namespace(**given))
    with workers_of(arguments.workers, make) as workers:
        for path in run_suite(suite, workers):
            print(json.dumps(_headline(path)))


def answerer(arguments: argparse.Namespace) -> Answerer:
    """Return a worker for the suite of a command line."""
    return Answerer(suite_of(arguments))


def suite_of(arguments: argparse.Namespace) -> Suite:
    """Return the suite of a command line.

    Raises:
        UserError: an option is not possible, or a model or dataset is not there.
    """
    known = list(TASKS)
    datasets = named_or_plain(arguments.datasets, known, "--data")
    references = named_or_plain(arguments.references, known, "--reference")
    size = RUN_SIZES[arguments.preset]
    for dtype in arguments.dtypes or [""]:
        if dtype not in get_args(Dtype):
            raise UserError(f"--dtype {dtype}: give float32, bfloat16, or both with a comma")
    if arguments.max_samples == 0:
        raise UserError("--max-samples 0: give 1 or more")
    tasks = _chosen_tasks(arguments.tasks, datasets)
    if arguments.final and not any(task.divides_chromosomes for task in tasks):
        dividing = ", ".join(task.name for task in TASKS.values() if task.divides_chromosomes)
        raise UserError(f"--final: no chosen task divides chromosomes; it is for {dividing}")
    return Suite(
        tasks=tasks,
        models=entrants_of(arguments.models, arguments.dtypes, arguments.yarn),
        baselines=Baselines(
            arguments.train,
            arguments.orders or size.orders,
            arguments.columns,
            CodingGenome.parse(arguments.codon_periodic) if arguments.codon_periodic else None,
        ),
        load=partial(_load, arguments),
        output=arguments.output,
        datasets=datasets,
        references=references,
        options=Options(
            arguments.max_samples or size.max_samples,
            arguments.seed,
            protocol=arguments.protocol,
            final=arguments.final,
        ),
        sizes=size.of_tasks,
        resume=arguments.resume,
    )


def _load(arguments: argparse.Namespace, entrant: Entrant) -> Model:
    from eval.models import load_any  # and torch with it

    return load_any(
        entrant.source,
        entrant.name,
        dtype=entrant.dtype,  # type: ignore[arg-type]
        device=loaded_device(arguments.workers),
        yarn=arguments.yarn,
    )


def _headline(path: Path) -> dict[str, Any]:
    record = read_record(path).record
    value = record["summary"]["value"] if record["summary"] else None
    return {"task": record["task"]["name"], "model": record["model"]["shown_as"], "value": value}


def _chosen_tasks(text: str, datasets: dict[str, str]) -> list[Task]:
    """Return tasks by name; of `all` the tasks with a dataset."""
    if text != "all":
        return _named_tasks(text, "--tasks")
    found = [task for task in TASKS.values() if find_data(task, datasets)]
    for task in TASKS.values():
        if task not in found:
            say(f"{task.name} is left out: no {' nor '.join(places_of(task, datasets))}")
    if not found:
        raise UserError("--data: holds no dataset of a task; `carbon eval list` says which")
    return found


def list_tasks(arguments: argparse.Namespace) -> None:
    """Print each task and recipe of `carbon finetune`, and which of them run offline."""
    offline: dict[str, str] = {}
    datasets = named_or_plain(arguments.datasets, list(TASKS), "--data")
    for task in TASKS.values():
        chance = "depends on the data" if task.chance is None else f"{task.chance:g}"
        figures = ", ".join(f"{name} {value:g}" for name, value in task.published.items())
        found = find_data(task, datasets)
        looked = ", ".join(places_of(task, datasets)) or "nowhere: nothing is published"
        offline[task.name] = _where_offline(task, found)
        print(
            f"{task.name} (version {task.version}, {task.axis})\n"
            f"  measures   {task.measures}\n"
            f"  metric     {task.metric}; chance {chance}\n"
            f"  published  {figures or 'none'} ({task.citation})\n"
            f"  columns    {', '.join(task.columns)}\n"
            f"  data       {found or 'not found'}; looked for: {looked}\n"
            f"  offline    {offline[task.name] or 'no: needs the Hub, or a build'}\n"
            f"  build      {build_command(task)}; takes {_optional(task)}"
        )
    for recipe in recipes().values():
        _list_recipe(recipe)
    print(_runs_offline(offline))


def _where_offline(task: Task, found: str | None) -> str:
    """Return where a task finds its dataset without a network, nothing if it does not."""
    if found is None:
        return ""
    if not is_on_hub(found):
        return f"yes: {found}"
    return "yes: in the cache of `datasets`" if is_cached(task, found) else ""


def _runs_offline(where: dict[str, str]) -> str:
    """Return two lines: the tasks that run without a network, and the others."""
    there = ", ".join(name for name, place in where.items() if place) or "no task"
    absent = ", ".join(name for name, place in where.items() if not place) or "no task"
    return (
        f"runs offline: {there}; fine-tune recipes, on files that you give\n"
        f"needs the Hub, or a build and --data FOLDER: {absent}"
    )


def _list_recipe(recipe: PublishedTask) -> None:
    print(
        f"{recipe.name} (carbon finetune --config {recipe.name})\n"
        f"  question   {recipe.description} ({recipe.settings['task']['type']})\n"
        f"  metric     {recipe.metric}"
    )
    for score, values in recipe.published.items():
        figures = ", ".join(f"{name} {value:g}" for name, value in values.items())
        print(f"  published  {score}: {figures}")
    print(f"  source     {recipe.source}\n  notes      {recipe.notes}")


def build_datasets(tasks: str, words: Sequence[str]) -> None:
    """Build datasets of tasks and print the reports of the builds.

    Args:
        tasks: names with commas.
        words: of the command line: `--output`, and the keywords of the builders as options.

    Raises:
        UserError: a task does not exist, an option is missing or not one of the tasks, or the
            output has another suffix than `.parquet`.
    """
    chosen = _named_tasks(tasks, "task")
    given = vars(_build_parser(chosen).parse_args(list(words)))
    output: Path = given.pop("output")
    if given.get("sources"):
        given["sources"] = [source_of(text) for text in given["sources"]]
    if given.get("num_examples") == 0:
        raise UserError("--examples 0: give 1 or more")
    if output.suffix != ".parquet":
        if output.suffix or output.is_file():
            raise UserError(f"--output {output}: name it {chosen[0].name}.parquet, or a folder")
        output.mkdir(parents=True, exist_ok=True)
    elif len(chosen) > 1:
        raise UserError(f"--output {output}: give a folder for the datasets of {tasks}")
    for task in chosen:
        path = output if output.suffix else output / f"{task.name}.parquet"
        options = {name: given[name] for name in _keywords(task) if given[name] is not None}
        with saying(task.name) if len(chosen) > 1 else nullcontext():
            report = task.build(path, **options)
        for reason, count in report.dropped.items():
            say(f"dropped {count:,}: {reason}")
        print(f"{report.output}: {report.rows:,} rows")


def _named_tasks(text: str, what: str) -> list[Task]:
    """Return the tasks that a text names, with commas."""
    names = [name for name in dict.fromkeys(text.split(",")) if name]
    for name in names:
        check_name(name, list(TASKS), what)
    if not names:
        raise UserError(f"{what}: give names of tasks; `carbon eval list` has all")
    return [TASKS[name] for name in names]


def _build_parser(tasks: Sequence[Task]) -> Parser:
    """Return a parser with the keywords of the builders of tasks as options."""
    names = ",".join(task.name for task in tasks)
    parser = Parser(prog=f"carbon eval build {names}")
    parser.description = "\n\n".join(
        f"{task.name}: {(inspect.getdoc(task.build) or '').splitlines()[0]}" for task in tasks
    )
    parser.add_argument(
        "--output", type=Path, required=True, help="Parquet file, or folder for TASK.parquet"
    )
    options = {name: (task, p) for task in reversed(tasks) for name, p in _keywords(task).items()}
    needed = {name for task in tasks for name in _needed(task)}
    for name, (task, parameter) in sorted(options.items()):
        help_text = option_help(task.build, "Args").get(name, "")
        if parameter.default not in (parameter.empty, None):
            help_text += f" [default: {parameter.default}]"
        parser.add_argument(
            _flag(name),
            dest=name,
            required=name in needed,
            metavar=_WORDS.get(name),
            help=help_text.replace("%", "%%"),
            **_argument_type(str(parameter.annotation)),
        )
    return parser


def _argument_type(annotation: str) -> dict[str, Any]:
    """Return the keywords of an option of the type of a builder's keyword."""
    if "Source" in annotation:
        return {"action": "append"}
    if "Sequence[int]" in annotation:
        return {"type": natural_numbers}
    by_name = {"Path": Path, "int": natural, "str": str}
    return {"type": next(of for name, of in by_name.items() if name in annotation)}


def _keywords(task: Task) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(task.build).parameters
    return {name: each for name, each in parameters.items() if name != "output"}


def _needed(task: Task) -> list[str]:
    return [name for name, p in _keywords(task).items() if p.default is p.empty]


def _optional(task: Task) -> str:
    needed = _needed(task)
    return (
        ", ".join(_flag(name) for name in _keywords(task) if name not in needed) or "nothing else"
    )


def build_command(task: Task) -> str:
    """Return the command that builds a task's dataset, with a word for each file that it needs."""
    needed = " ".join(f"{_flag(name)} {_WORDS.get(name, 'FILE')}" for name in _needed(task))
    return f"carbon eval build {task.name} --output FOLDER/{task.name}.parquet {needed}".strip()


def _flag(name: str) -> str:
    return _FLAGS.get(name, "--" + name.replace("_", "-"))

"""What the commands `run`, `list` and `build` do."""

import argparse
import inspect
import json
from functools import partial
from pathlib import Path
from typing import Any, get_args

from carbon.errors import UserError
from carbon.finetune.recipes import PublishedTask, recipes
from carbon.inference.options import Dtype
from carbon.parallel.options import loaded_device, worker_options, workers_of
from carbon.progress import say
from eval.contract import Model, Options, Task
from eval.data import check_name, find_data, is_on_hub, named_or_plain, places_of
from eval.entrants import Baselines, Entrant, entrants_of
from eval.hub import check_datasets, check_models, is_cached
from eval.probes.windows import PROBES
from eval.records import read_record
from eval.run_sizes import RUN_SIZES
from eval.runner import Answerer, run_suite
from eval.suite import Suite
from eval.tasks import TASKS
from eval.tasks.building import source_of

_BUILD_ARGUMENTS = (
    "reference",
    "annotation",
    "vcf",
    "table",
    "sources",
    "codon_usage",
    "species",
    "num_examples",
    "context_length_tokens",
    "seed",
)
_FLAGS = {
    "num_examples": "--examples",
    "context_length_tokens": "--context",
    "sources": "--source",
}
_WORDS = {"sources": "GROUP=FASTA[,ANNOTATION]", "species": "NAME"}


def run_models(arguments: argparse.Namespace) -> None:
    """Run models and baselines; print the headlines."""
    suite = suite_of(arguments)
    check_datasets(
        suite.tasks, suite.datasets, {task.name: build_command(task) for task in suite.tasks}
    )
    check_models([model.source for model in suite.models])
    given = {name: value for name, value in vars(arguments).items() if name != "run"}
    with workers_of(
        worker_options(arguments), partial(answerer, argparse.Namespace(**given))
    ) as workers:
        for path in run_suite(suite, workers):
            print(json.dumps(_headline(path)))


def answerer(arguments: argparse.Namespace) -> Answerer:
    """Return a worker for what a command line asks for."""
    return Answerer(suite_of(arguments))


def suite_of(arguments: argparse.Namespace) -> Suite:
    """Return what a command line asks for.

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
    return Suite(
        tasks=_chosen_tasks(arguments.tasks, datasets),
        models=entrants_of(arguments.models, arguments.dtypes, arguments.yarn),
        baselines=Baselines(arguments.train, arguments.orders or size.orders, arguments.columns),
        load=partial(_load, arguments),
        output=arguments.output,
        datasets=datasets,
        references=references,
        options=Options(arguments.max_samples or size.max_samples, arguments.seed),
        sizes=size.of_tasks,
        resume=arguments.resume,
    )


def _load(arguments: argparse.Namespace, entrant: Entrant) -> Model:
    from eval.models import load_any  # and torch with it

    return load_any(
        entrant.source,
        entrant.name,
        dtype=entrant.dtype,  # type: ignore[arg-type]
        device=loaded_device(worker_options(arguments)),
        yarn=arguments.yarn,
    )


def _headline(path: Path) -> dict[str, Any]:
    record = read_record(path).record
    value = record["summary"]["value"] if record["summary"] else None
    return {"task": record["task"]["name"], "model": record["model"]["shown_as"], "value": value}


def _chosen_tasks(text: str, datasets: dict[str, str]) -> list[Task]:
    """Return tasks by name; of `all` those that there is a dataset for."""
    if text != "all":
        names = [name for name in text.split(",") if name]
        for name in names:
            check_name(name, list(TASKS), "--tasks")
        if not names:
            raise UserError(f"--tasks: give all, or some of {', '.join(TASKS)}")
        return [TASKS[name] for name in dict.fromkeys(names)]
    found = [task for task in TASKS.values() if find_data(task, datasets)]
    for task in TASKS.values():
        if task not in found:
            say(f"{task.name} is left out: no {' nor '.join(places_of(task, datasets))}")
    if not found:
        raise UserError("--data: holds no dataset of a task; `python -m eval list` says which")
    return found


def list_tasks(arguments: argparse.Namespace) -> None:
    """Print each task, probe and recipe of `carbon finetune`, and which of them run offline."""
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
    for name, probe in PROBES.items():
        print(f"{name} (python -m eval probes)\n  question   {probe.question}")
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
    """Return two lines: the tasks that run without a network, and those that do not."""
    there = ", ".join(name for name, place in where.items() if place) or "no task"
    absent = ", ".join(name for name, place in where.items() if not place) or "no task"
    return (
        f"runs offline: {there}; probes and fine-tune recipes, on files that you give\n"
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


def build_dataset(arguments: argparse.Namespace) -> None:
    """Build a task's dataset and print the report of the build.

    Raises:
        UserError: an argument is missing, one that the builder does not take is given, no example
            is asked for, or the output is not named as Parquet.
    """
    check_name(arguments.task, list(TASKS), "task")
    if arguments.output.suffix != ".parquet":
        raise UserError(f"--output {arguments.output}: name it {arguments.task}.parquet")
    if arguments.num_examples == 0:
        raise UserError("--examples 0: give 1 or more")
    task = TASKS[arguments.task]
    given = {
        name: value for name in _BUILD_ARGUMENTS if (value := getattr(arguments, name)) is not None
    }
    takes = inspect.signature(task.build).parameters
    if unknown := [_flag(name) for name in given if name not in takes]:
        raise UserError(
            f"{task.name}: is not built with {', '.join(unknown)}; it needs "
            f"{', '.join(map(_flag, _needed(task)))}; takes {_optional(task)}"
        )
    missing = [_flag(name) for name in _needed(task) if name not in given]
    if missing:
        raise UserError(f"{task.name}: needs {', '.join(missing)} to be built")
    if "sources" in given:
        given["sources"] = [source_of(text) for text in given["sources"]]
    report = task.build(arguments.output, **given)
    for reason, count in report.dropped.items():
        say(f"dropped {count:,}: {reason}")
    print(f"{report.output}: {report.rows:,} rows")


def _needed(task: Task) -> list[str]:
    parameters = inspect.signature(task.build).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.name != "output"]


def _optional(task: Task) -> str:
    taken = [name for name in inspect.signature(task.build).parameters if name != "output"]
    needed = _needed(task)
    return ", ".join(_flag(name) for name in taken if name not in needed) or "nothing else"


def build_command(task: Task) -> str:
    """Return the command that builds a task's dataset, with a word for each file that it needs."""
    needed = " ".join(f"{_flag(name)} {_WORDS.get(name, 'FILE')}" for name in _needed(task))
    return f"python -m eval build {task.name} --output FOLDER/{task.name}.parquet {needed}".strip()


def _flag(name: str) -> str:
    return _FLAGS.get(name, "--" + name.replace("_", "-"))

"""Evaluate models on tasks: `carbon eval run|report|list|build`.

Published tasks have datasets on the Hub; tasks on your own genome are built from its files.
"""

import argparse
from pathlib import Path

from carbon.console import (
    Parser,
    add_command,
    epilogue,
    natural,
    natural_numbers,
    option_help,
    run_command,
)
from carbon.inference.options import PROTOCOLS
from carbon.launcher import end_with_launcher
from carbon.parallel.options import WorkerOptions, start_early
from eval.run_sizes import RUN_SIZES


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    end_with_launcher()

    def run() -> int | None:
        arguments = _parser().parse_args(argv)
        arguments.workers = _worker_options(arguments)
        start_early(arguments.workers)
        return arguments.run(arguments)  # type: ignore[no-any-return]

    return run_command(run)


def _worker_options(arguments: argparse.Namespace) -> WorkerOptions:
    """Return the worker options of a command line; most commands have none."""
    names = WorkerOptions.__annotations__
    return WorkerOptions(**{k: v for k, v in vars(arguments).items() if k in names})


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="carbon eval",
        description="Evaluate models on tasks of the field or of your own genome.",
        epilog=epilogue(_PAGE, "carbon eval list", _SMOKE),
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (sentence, add_arguments, examples) in _COMMANDS.items():
        add_arguments(add_command(commands, name, sentence, _PAGE, *examples))
    return parser


def _add_run_arguments(command: argparse.ArgumentParser) -> None:
    _add_input(command.add_argument_group("Input"))
    _add_baselines(command.add_argument_group("Baselines"))
    _add_method(command.add_argument_group("Method"))
    output = command.add_argument_group("Output")
    output.add_argument("--output", type=Path, required=True, help="folder of the records")
    _add_workers(command.add_argument_group("Workers"))
    command.set_defaults(run=_run)


def _add_input(command: argparse._ArgumentGroup) -> None:
    command.add_argument(
        "--model", action="append", required=True, metavar="[NAME=]MODEL", dest="models",
        help="model folder, or name of a bundled or Hub model, Carbon or any causal model of DNA; "
        "may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--tasks", default="all", help="all tasks with data, or names separated by commas"
    )
    _add_data_argument(command)
    command.add_argument(
        "--reference", action="append", default=[], metavar="[TASK=]FASTA", dest="references",
        help="genome of the variants; may be repeated for tasks of other assemblies",
    )  # fmt: skip


def _add_baselines(command: argparse._ArgumentGroup) -> None:
    command.add_argument(
        "--train", action="append", default=[], type=Path, metavar="FASTA|PARQUET",
        help="sequences that the Markov baselines are fitted on, or the source folder of a corpus; "
        "may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--orders", type=natural_numbers,
        help="orders of the interpolated Markov baselines, 0 to 16, separated by commas; if not "
        "given, 1 to 12",
    )  # fmt: skip
    command.add_argument(
        "--codon-periodic", metavar="FASTA,ANNOTATION,CORPUS",
        help="add a codon-periodic Markov baseline, fitted on an annotated genome outside of the "
        "regions that a corpus held out",
    )  # fmt: skip
    command.add_argument(
        "--columns", type=_words, default=[],
        help="columns of variants to rank by, higher is more damaging: phyloP,CADD",
    )  # fmt: skip


def _add_method(command: argparse._ArgumentGroup) -> None:
    command.add_argument(
        "--preset", choices=sorted(RUN_SIZES), default="published",
        help="size of the run; smoke tries whether everything runs",
    )  # fmt: skip
    command.add_argument(
        "--protocol", choices=list(PROTOCOLS),
        help="protocol of `carbon variants` for all its tasks; if not given, each task's own",
    )  # fmt: skip
    command.add_argument(
        "--final", action="store_true",
        help="measure the chromosomes of the final test; use it once",
    )  # fmt: skip
    command.add_argument("--max-samples", type=natural, help="maximum number of examples of a task")
    command.add_argument("--seed", type=natural, default=0, help="seed of the choice of examples")
    command.add_argument(
        "--dtype", type=_words, default="float32", dest="dtypes",
        help="float32, bfloat16, or both separated by a comma, for the gap between them",
    )  # fmt: skip
    command.add_argument("--yarn", type=float, metavar="FACTOR", help="stretch Carbon's context")


def _add_workers(command: argparse._ArgumentGroup) -> None:
    command.add_argument(
        "--device", default="auto", help="cpu, mps, cuda, a list such as cuda:0,cuda:1, or auto"
    )
    texts = option_help(WorkerOptions)
    command.add_argument("--processes", type=natural, metavar="N", help=texts["processes"])
    command.add_argument("--ray", metavar="HOST:PORT", help=texts["ray"])
    command.add_argument("--resume", action="store_true", help=texts["resume"])


def _add_data_argument(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    command.add_argument(
        "--data", action="append", default=[], metavar="FOLDER|TASK=PATH", dest="datasets",
        help="folder with TASK.parquet, or one dataset; if not given, the Hub; may be repeated",
    )  # fmt: skip


def _add_report_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="--output of `run`")
    command.add_argument(
        "--output", type=Path, help="folder to write to; if not given, the first DIR"
    )
    command.add_argument("--title", default="Evaluation", help="title of the page")
    command.add_argument(
        "--run", type=Path, dest="training", help="folder of a training run, to show its loss"
    )
    command.add_argument("--generated", type=Path, help="FASTA of `carbon generate` to show")
    command.set_defaults(run=_report)


def _add_list_arguments(command: argparse.ArgumentParser) -> None:
    _add_data_argument(command)
    command.set_defaults(run=_list)


def _add_build_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "tasks", metavar="TASK[,TASK]", help="tasks; `--help` after them lists their options"
    )
    command.add_argument(
        "options", nargs=argparse.REMAINDER, metavar="--output PATH --option VALUE",
        help="a Parquet file, or a folder for TASK.parquet, and the options of the tasks",
    )  # fmt: skip
    command.set_defaults(run=_build)


def _words(text: str) -> list[str]:
    """Read different words with commas between them."""
    return list(dict.fromkeys(part for part in text.split(",") if part))


def _run(arguments: argparse.Namespace) -> None:
    from eval.commands import run_models

    run_models(arguments)


def _report(arguments: argparse.Namespace) -> None:
    from eval.report import write_report

    output = arguments.output or arguments.folders[0]
    more = {"run": arguments.training, "generated": arguments.generated}
    print(write_report(arguments.folders, output, arguments.title, **more))


def _list(arguments: argparse.Namespace) -> None:
    from eval.commands import list_tasks

    list_tasks(arguments)


def _build(arguments: argparse.Namespace) -> None:
    from eval.commands import build_datasets

    build_datasets(arguments.tasks, arguments.options)


_PAGE = "docs/evaluation.md"
_SMOKE = (
    "carbon eval run --model yeast --tasks genomic_niah --data data --preset smoke --output results"
)
_COMMANDS = {
    "run": (
        "Measure models and baselines on tasks",
        _add_run_arguments,
        (_SMOKE, "carbon eval run --model runs/mine/export --train corpus/eukaryote --data data "
         "--reference genome.fa --output results"),
    ),
    "report": (
        "Write a page about the records of runs",
        _add_report_arguments,
        ("carbon eval report results", "carbon eval report A B --output both --title Both"),
    ),
    "list": (
        "List tasks, fine-tuning recipes and data",
        _add_list_arguments,
        ("carbon eval list", "carbon eval list --data data"),
    ),
    "build": (
        "Build the datasets of tasks from primary sources",
        _add_build_arguments,
        ("carbon eval build heldout_likelihood,genome_recovery --output data --corpus corpus "
         "--reference genome.fa",
         "carbon eval build gene_frames --help"),
    ),
}  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

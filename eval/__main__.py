"""Evaluate models on tasks: `carbon eval run|report|list|build`.

Published tasks have datasets on the Hub; tasks on your own genome are built from its files.
"""

import argparse
from pathlib import Path

from carbon.console import Parser, natural, natural_numbers, option_help, run_command
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
        prog="carbon eval", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run_parser(commands.add_parser("run", help="measure models and baselines on tasks"))
    _add_report_parser(commands.add_parser("report", help="write a page about runs"))
    _add_list_parser(commands.add_parser("list", help="list tasks and their data"))
    _add_build_parser(commands.add_parser("build", help="build datasets of tasks"))
    return parser


def _add_run_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--model", action="append", required=True, metavar="[NAME=]MODEL", dest="models",
        help="model folder, or name of a bundled or Hub model, Carbon or any causal model of DNA; "
        "may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--tasks", default="all", help="all (those with data), or names with commas"
    )
    command.add_argument("--output", type=Path, required=True, help="folder of the records")
    _add_data_argument(command)
    command.add_argument(
        "--reference", action="append", default=[], metavar="[TASK=]FASTA", dest="references",
        help="genome of the variants; may be repeated for tasks of other assemblies",
    )  # fmt: skip
    command.add_argument(
        "--train", action="append", default=[], type=Path, metavar="FASTA|PARQUET",
        help="sequences that the Markov baselines are fitted on, or the source folder of a corpus; "
        "may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--orders", type=natural_numbers,
        help="orders of the interpolated Markov baselines, 0 to 16, with commas",
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
    command.add_argument("--preset", choices=sorted(RUN_SIZES), default="published")
    command.add_argument(
        "--protocol", choices=list(PROTOCOLS),
        help="how tasks of variants read them, with its default window, instead of each task's own",
    )  # fmt: skip
    command.add_argument(
        "--final", action="store_true",
        help="measure the chromosomes of the final test, once, instead of those of development",
    )  # fmt: skip
    command.add_argument("--max-samples", type=natural, help="most examples a task")
    command.add_argument("--seed", type=natural, default=0, help="of the choice of examples")
    command.add_argument(
        "--dtype", type=_words, default=["float32"], dest="dtypes",
        help="float32, bfloat16, or both with a comma, for the gap between them",
    )  # fmt: skip
    command.add_argument(
        "--device", default="auto", help="cpu, mps, cuda, a list such as cuda:0,cuda:1, or auto"
    )
    command.add_argument("--yarn", type=float, metavar="FACTOR", help="stretch Carbon's context")
    texts = option_help(WorkerOptions)
    command.add_argument("--processes", type=natural, metavar="N", help=texts["processes"])
    command.add_argument("--ray", metavar="HOST:PORT", help=texts["ray"])
    command.add_argument("--resume", action="store_true", help=texts["resume"])
    command.set_defaults(run=_run)


def _add_data_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data", action="append", default=[], metavar="FOLDER|TASK=PATH", dest="datasets",
        help="folder with TASK.parquet, or one dataset; without it the Hub; may be repeated",
    )  # fmt: skip


def _add_report_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="--output of `run`")
    command.add_argument(
        "--output", type=Path, help="folder to write to; the first DIR if not given"
    )
    command.add_argument("--title", default="Evaluation")
    command.add_argument(
        "--run", type=Path, dest="training", help="folder of a training run, to show its loss"
    )
    command.add_argument("--generated", type=Path, help="FASTA of `carbon generate` to show")
    command.set_defaults(run=_report)


def _add_list_parser(command: argparse.ArgumentParser) -> None:
    _add_data_argument(command)
    command.set_defaults(run=_list)


def _add_build_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "tasks", metavar="TASK[,TASK]", help="the tasks; with --help after it, their options"
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


if __name__ == "__main__":
    raise SystemExit(main())

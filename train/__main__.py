"""Train a model: `torchrun --nproc-per-node N -m train --config FILE`."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carbon.console import Parser, add_command, natural, run_command
from carbon.errors import UserError
from carbon.launcher import end_with_launcher
from carbon.progress import say
from train.distributed.failures import ONE_LINE_ERRORS
from train.signals import StopSignals

if TYPE_CHECKING:
    from train.config import TrainConfig
    from train.schedule import Schedule

_INTERRUPTED = 130
_USUAL_GPU_GB = 80.0


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    end_with_launcher()
    return run_command(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="carbon train", default_command="run", description="Train a model from a recipe."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        inner = add_command(
            commands, name, command.sentence, "docs/training.md", *command.examples,
            prog="carbon train" if name == "run" else f"carbon train {name}",
        )  # fmt: skip
        recipe = inner.add_argument_group("Recipe")
        recipe.add_argument("--config", required=True, help="TOML file of the run")
        recipe.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
            help="change a key, such as phases.0.tokens=1000; may be repeated",
        )  # fmt: skip
        command.add_arguments(inner)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    resume = parser.add_argument_group("Resume")
    resume.add_argument(
        "--resume", choices=["auto"], help="continue from the newest complete checkpoint, if any"
    )
    resume.add_argument(
        "--accept-data-change",
        action="store_true",
        help="resume although the corpus, the mixture or a data setting changed",
    )
    plan = parser.add_argument_group("Plan")
    plan.add_argument(
        "--dry-run", action="store_true", help="check recipe and corpus, print the plan, and stop"
    )
    plan.add_argument(
        "--world-size",
        type=natural,
        default=_num_processes(),
        help="number of processes to plan for",
    )
    plan.add_argument(
        "--peak-tflops", type=float, help="peak of one GPU in TFLOP/s, to estimate hours"
    )
    plan.add_argument("--mfu", type=float, default=0.4, help="share of the peak that a GPU reaches")
    plan.add_argument(
        "--gpu-gb",
        type=float,
        help="memory of one GPU in GB; default: this machine's, else 80",
    )
    plan.add_argument(
        "--gbit-per-s",
        type=float,
        help="network between low-communication workers in Gbit/s, to estimate a round",
    )


def _add_preview(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_argument_group("Output")
    rows.add_argument("--rows", type=natural, default=20, help="number of rows to print")
    rows.add_argument("--first", type=natural, default=0, help="first row to print, from 0")
    rows.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the mixture: .png, .svg or .pdf"
    )


def _add_export(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("Output")
    output.add_argument("--output", required=True, metavar="DIR", help="folder to create")


def _run(arguments: argparse.Namespace) -> int:
    trains = arguments.command == "run" and not arguments.dry_run
    try:
        if trains:
            with StopSignals(speaks=_speaks()) as signals:
                return _train(arguments, signals)
        COMMANDS[arguments.command].act(_config_of(arguments), arguments)
    except ONE_LINE_ERRORS:
        if _speaks():
            raise
        return 1  # every process of a machine meets the same; one line is enough
    return 0


def _speaks() -> bool:
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _num_processes() -> int:
    """Return the processes of this launch."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _config_of(arguments: argparse.Namespace) -> "TrainConfig":
    from train.config import TrainConfig, read_recipe
    from train.models.start import filled_in, open_start

    is_planned = arguments.command == "run" and arguments.dry_run
    processes = arguments.world_size if is_planned else _num_processes()
    table = read_recipe(arguments.config, arguments.overrides, processes)
    if arguments.command == "summary":  # of a run whose start may be gone
        return TrainConfig.from_table(table, arguments.config)
    config = TrainConfig.from_table(filled_in(table), arguments.config)
    open_start(config)  # refuses what does not fit
    return config


def _print_plan(config: "TrainConfig", arguments: argparse.Namespace) -> None:
    """Print the resolved configuration as TOML and what follows from it as comments.

    Raises:
        UserError: the run takes more memory than the GPU has, or does not fit its corpus.
    """
    from train.planning.plan import check_fits, plan_of
    from train.planning.tables import print_plan, print_workers
    from train.planning.time import flops_a_second
    from train.planning.workers import advice, workers_plan
    from train.schedule import Schedule

    schedule, workers = Schedule(config), config.workers
    processes = workers.processes_of_each(arguments.world_size)
    gpu_gb = _gpu_gb(config, arguments)
    timed = None if gpu_gb else flops_a_second(config)
    peak = timed / processes if timed else (arguments.peak_tflops or 0) * 1e12 or None
    mfu, on_gpu = 1.0 if timed else arguments.mfu, gpu_gb is not None
    plan = plan_of(config, schedule, processes, peak_flops=peak, mfu=mfu, on_gpu=on_gpu)
    sys.stdout.write(config.to_toml())
    summary = {
        "parameters": plan.num_parameters,
        "peak_bytes": plan.peak_bytes,
        "steps": schedule.total_steps,
        "tokens": schedule.total_tokens,
    }
    sys.stdout.write(f"\n# plan: {json.dumps(summary)}\n#\n")
    print_plan(plan, 1 if timed else processes)
    if workers.count:
        seconds = None if timed else plan.seconds
        table = workers_plan(workers, plan, arguments.gbit_per_s)
        print_workers(table, seconds, advice(workers, schedule.total_steps))
    if timed:
        sys.stdout.write(
            f"#\n# hours are those of this CPU, which all processes share: a layer and the head, "
            f"timed just now, reach {timed / 1e9:,.1f} GFLOP/s\n"
        )
    sys.stdout.flush()
    if gpu_gb:
        check_fits(config, processes, 1e9 * gpu_gb)
    _check_corpus(config, schedule)


def _gpu_gb(config: "TrainConfig", arguments: argparse.Namespace) -> float | None:
    """Return the memory of the GPUs that a plan is for; None where the plan is for a CPU."""
    import torch

    if config.compute.device != "cpu" and torch.cuda.is_available():
        return arguments.gpu_gb or torch.cuda.get_device_properties(0).total_memory / 1e9
    is_for_gpu = arguments.peak_tflops is not None or arguments.gpu_gb is not None
    return (arguments.gpu_gb or _USUAL_GPU_GB) if is_for_gpu else None


def _check_corpus(config: "TrainConfig", schedule: "Schedule") -> None:
    """Print how many rows the run reads; the plan does without a corpus, so it may be elsewhere.

    Raises:
        UserError: there is one, and it does not fit the run.
    """
    from train.data import open_rows

    corpus = config.data.corpus
    if "://" not in corpus and not Path(corpus).exists():
        say(f"{corpus}: not found, so not checked against the recipe")
        return
    sys.stdout.write(f"#\n# rows that are read: {len(open_rows(config, schedule)):,}\n")


def _preview(config: "TrainConfig", arguments: argparse.Namespace) -> None:
    from carbon.reports.figures import check_picture
    from train.data import open_rows
    from train.planning.preview import draw_mixture, mixture_of, print_mixture, print_rows
    from train.schedule import Schedule

    check_picture(arguments.plot)
    schedule = Schedule(config)
    rows = open_rows(config, schedule)
    print_rows(rows, schedule, arguments.first, arguments.rows)
    mixture = mixture_of(rows, schedule)
    print()
    print_mixture(mixture)
    if arguments.plot:
        draw_mixture(mixture, arguments.plot)


def _export(config: "TrainConfig", arguments: argparse.Namespace) -> None:
    """Write the newest checkpoint as a model folder."""
    from train.export import export_newest
    from train.runs.card import write_card
    from train.runs.log import manifest_of

    config = _in_its_folder(config)
    if Path(arguments.output).exists():
        raise UserError(f"{arguments.output}: exists already; name another output")
    run, export = Path(config.output), Path(arguments.output)
    trained = export_newest(config, export)
    write_card(run, export, corpus_manifest=manifest_of(config), trained=trained)


def _summarize(config: "TrainConfig", arguments: argparse.Namespace) -> None:
    from train.runs.summary import write_summary

    print(write_summary(Path(_in_its_folder(config).output)))


def _in_its_folder(config: "TrainConfig") -> "TrainConfig":
    """Return the configuration of one worker, if there are any."""
    return config.replace(output=config.workers.folder(config.output))


def _train(arguments: argparse.Namespace, signals: StopSignals) -> int:
    """Train; return the exit code."""
    config = _config_of(arguments)
    _check_launch(config, resumes=arguments.resume == "auto")
    from torch.distributed.elastic.multiprocessing.errors import record

    from train.checkpoint import locked_run
    from train.distributed.mesh import joined_ranks
    from train.saved import launch_settings
    from train.trainer import Trainer, check_memory

    @record  # torchrun shows the traceback of the process that failed first, of a defect alone
    def run() -> bool | Exception:
        try:
            workers, device = config.workers, config.compute.device
            given = (config.parallel, device, workers.in_one_launch, launch_settings(config))
            with joined_ranks(*given) as ranks:
                check_memory(config, ranks)
                resume = arguments.resume == "auto"
                folder = workers.folder(config.output, ranks.worker)
                with locked_run(Path(folder), ranks):
                    of_worker = config.replace(output=folder)
                    trainer = Trainer(of_worker, ranks, resumes=resume, signals=signals)
                    return trainer.run(resume, arguments.accept_data_change)
        except ONE_LINE_ERRORS as error:
            return error

    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    has_ended = run()
    if isinstance(has_ended, Exception):
        raise has_ended
    # torchrun would restart all nodes after a process that ends with a status other than 0.
    alone = "TORCHELASTIC_RUN_ID" not in os.environ
    return _INTERRUPTED if alone and not has_ended and signals.name == "SIGINT" else 0


def _check_launch(config: "TrainConfig", *, resumes: bool) -> None:
    """Refuse what cannot run before any process waits for another.

    Raises:
        UserError: the processes do not fit the mesh, the network or a batch, or the checkpoints in
            the run folder are of another network, or the workers' store of another recipe, or the
            tracker is not installed.
    """
    from train.diloco.store import check_store
    from train.planning.plan import plan_of
    from train.runs.trackers import check_installed
    from train.saved import check_network, recipe_settings
    from train.schedule import Schedule

    check_installed(config.tracker)
    schedule, workers = Schedule(config), config.workers
    plan_of(config, schedule, workers.processes_of_each(_num_processes()))
    if schedule.total_steps < workers.count:
        raise UserError(
            f"workers.count: {workers.count} workers share {schedule.total_steps} steps, so some "
            "would take none; give fewer workers or more tokens"
        )
    if workers.store:
        check_store(workers.store, recipe_settings(config))
    if resumes:
        check_network(config, Path(workers.folder(config.output)))


class _Command(NamedTuple):
    """A command of `carbon train`.

    Attributes:
        sentence: what it does.
        examples: two command lines.
        add_arguments: adds its options to a parser.
        act: runs it; of `run`, the dry run.
    """

    sentence: str
    examples: tuple[str, str]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    act: Callable[["TrainConfig", argparse.Namespace], None]


_TINY = "--config train/recipes/tiny.toml --set data.corpus=corpus"
COMMANDS = {
    "run": _Command(
        "Train a model from a recipe (see also `carbon train preview`, `export` and `summary`)",
        (
            f"carbon train {_TINY} --dry-run",
            f"torchrun --standalone --nproc-per-node 2 -m train {_TINY} --resume auto",
        ),
        _add_run,
        _print_plan,
    ),
    "preview": _Command(
        "Print the first rows that a run reads, and its mixture",
        (f"carbon train preview {_TINY}", f"carbon train preview {_TINY} --plot mixture.png"),
        _add_preview,
        _preview,
    ),
    "export": _Command(
        "Write a model folder from the newest checkpoint",
        (
            f"carbon train export {_TINY} --output model",
            "carbon train export --config runs/tiny/config.toml --output model",
        ),
        _add_export,
        _export,
    ),
    "summary": _Command(
        "Write summary.html with curves, phases and throughput of a run",
        (f"carbon train summary {_TINY}", "carbon train summary --config runs/tiny/config.toml"),
        lambda parser: None,
        _summarize,
    ),
}


if __name__ == "__main__":
    raise SystemExit(main())

"""Train a model: `torchrun --nproc-per-node N -m train --config FILE`."""

import argparse
import dataclasses
import json
import logging
import os
import sys
from pathlib import Path

from carbon.config import load_config, to_toml
from carbon.console import natural, run_command
from carbon.errors import UserError
from train.config import ParallelConfig, TrainConfig


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="torchrun ... -m train", description=__doc__)
    parser.add_argument(
        "command",
        nargs="?",
        choices=COMMANDS,
        default="run",
        help="train; print what would be read; write a model folder of the newest checkpoint; "
        "write the page about the run",
    )
    parser.add_argument("--config", required=True, help="TOML file of the run")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--dry-run", action="store_true", help="check all, print the plan, stop")
    parser.add_argument(
        "--world-size",
        type=natural,
        default=os.environ.get("WORLD_SIZE", "1"),
        help="dry run: processes to plan for, else those of this launch",
    )
    parser.add_argument(
        "--peak-tflops", type=float, help="dry run: peak of a GPU, to say how long it takes"
    )
    parser.add_argument(
        "--mfu", type=float, default=0.4, help="dry run: share of the peak that is reached"
    )
    parser.add_argument(
        "--resume", choices=["auto"], help="go on from the newest whole checkpoint, if there is one"
    )
    parser.add_argument(
        "--accept-data-change",
        action="store_true",
        help="resume although the corpus, the mixture or what is read of them has changed",
    )
    parser.add_argument("--rows", type=natural, default=20, help="rows that preview prints")
    parser.add_argument("--first", type=natural, default=0, help="the first of them")
    parser.add_argument("--plot", metavar="PNG", help="preview: draw the mixture")
    parser.add_argument("--output", metavar="DIR", help="export: a folder that is not there yet")
    arguments = parser.parse_args(argv)
    return run_command(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    speaks = os.environ.get("LOCAL_RANK", "0") == "0"
    try:
        config = load_config(TrainConfig, arguments.config, arguments.overrides)
        COMMANDS[arguments.command](config, arguments)
    except (UserError, FloatingPointError, OSError):
        if speaks:
            raise
        return 1  # every process of a machine meets the same; one line is enough
    return 0


def _print_plan(config: TrainConfig, arguments: argparse.Namespace) -> None:
    """Print the resolved configuration as TOML and what follows from it as comments."""
    import torch
    from transformers.utils.import_utils import is_flash_attn_2_available

    from train.loop.data import open_rows
    from train.planning.course import Course
    from train.planning.planner import plan_of
    from train.planning.tables import print_plan

    course = Course(config)
    peak = arguments.peak_tflops
    plan = plan_of(
        config,
        course,
        arguments.world_size,
        peak_flops=peak and 1e12 * peak,
        mfu=arguments.mfu,
        on_gpu=peak is not None or torch.cuda.is_available(),
        flash_attention=torch.cuda.is_available() and is_flash_attn_2_available(),
    )
    rows = open_rows(config, course)
    sys.stdout.write(to_toml(config))
    summary = {
        "parameters": plan.num_parameters,
        "peak_bytes": plan.peak_bytes,
        "steps": course.total_steps,
        "tokens": course.total_tokens,
        "rows": len(rows),
    }
    sys.stdout.write(f"\n# plan: {json.dumps(summary)}\n#\n")
    print_plan(plan)


def _preview(config: TrainConfig, arguments: argparse.Namespace) -> None:
    from train.loop.data import open_rows
    from train.planning.course import Course
    from train.planning.preview import draw_mixture, mixture_of, print_mixture, print_rows

    if arguments.plot and Path(arguments.plot).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot {arguments.plot}: give a name that ends in .png, .svg or .pdf")
    course = Course(config)
    rows = open_rows(config, course)
    print_rows(rows, course, arguments.first, arguments.rows)
    mixture = mixture_of(rows, course)
    print()
    print_mixture(mixture)
    if arguments.plot:
        draw_mixture(mixture, arguments.plot)


def _export(config: TrainConfig, arguments: argparse.Namespace) -> None:
    """Load the newest checkpoint into one process and write it as a model folder."""
    from train.loop.trainer import Trainer
    from train.network.ranks import joined_ranks
    from train.run_folder.card import write_card
    from train.run_folder.log import manifest_of

    if not arguments.output:
        raise UserError("export: give --output, a folder that is not there yet")
    if Path(arguments.output).exists():
        raise UserError(f"{arguments.output}: exists already; name another output")
    single = dataclasses.replace(config, parallel=ParallelConfig())
    with joined_ranks(single.parallel) as ranks:
        trainer = Trainer(single, ranks)
        if not trainer.load():
            raise UserError(f"{config.output}: has no whole checkpoint to export")
        trainer.export(Path(arguments.output))
    write_card(Path(config.output), Path(arguments.output), corpus_manifest=manifest_of(config))


def _summarize(config: TrainConfig, arguments: argparse.Namespace) -> None:
    from train.run_folder.summary import write_summary

    print(write_summary(Path(config.output)))


def _train(config: TrainConfig, arguments: argparse.Namespace) -> None:
    if arguments.dry_run:
        return _print_plan(config, arguments)
    from torch.distributed.elastic.multiprocessing.errors import record

    from train.loop.trainer import Trainer
    from train.network.ranks import joined_ranks

    @record  # torchrun shows the traceback of the process that failed first
    def run() -> None:
        with joined_ranks(config.parallel) as ranks:
            Trainer(config, ranks).run(arguments.resume == "auto", arguments.accept_data_change)

    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    run()


COMMANDS = {"run": _train, "preview": _preview, "export": _export, "summary": _summarize}


if __name__ == "__main__":
    raise SystemExit(main())

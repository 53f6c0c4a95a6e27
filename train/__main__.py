"""Train a model: `torchrun --nproc-per-node N -m train --config FILE`."""

import argparse
import json
import logging
import os
import sys
from pathlib import Path

from carbon.config import load_config, to_toml
from carbon.console import natural, run_command
from carbon.errors import UserError
from train.config import TrainConfig


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="torchrun ... -m train", description=__doc__)
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "preview"),
        default="run",
        help="train, or print what would be read",
    )
    parser.add_argument("--config", required=True, help="TOML file of the run")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--dry-run", action="store_true", help="check all, print the plan, stop")
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
    arguments = parser.parse_args(argv)
    return run_command(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    speaks = os.environ.get("LOCAL_RANK", "0") == "0"
    try:
        config = load_config(TrainConfig, arguments.config, arguments.overrides)
        if arguments.command == "preview":
            _preview(config, arguments)
        elif arguments.dry_run:
            _print_plan(config)
        else:
            _train(config, arguments.resume == "auto", arguments.accept_data_change)
    except (UserError, FloatingPointError, OSError):
        if speaks:
            raise
        return 1  # every process of a machine meets the same; one line is enough
    return 0


def _print_plan(config: TrainConfig) -> None:
    """Print the resolved configuration as TOML and what follows from it as comments."""
    import torch
    from transformers import LlamaForCausalLM

    from train.course import Course
    from train.data import open_rows
    from train.network import llama_config

    course = Course(config)
    rows = open_rows(config, course)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in LlamaForCausalLM(llama_config(config)).parameters())
    sys.stdout.write(to_toml(config))
    plan = {
        "parameters": parameters,
        "state_bytes": 16 * parameters,  # fp32 weights, gradients and two moments
        "steps": course.total_steps,
        "tokens": course.total_tokens,
        "rows": len(rows),
    }
    sys.stdout.write(f"\n# plan: {json.dumps(plan)}\n")


def _preview(config: TrainConfig, arguments: argparse.Namespace) -> None:
    from train.course import Course
    from train.data import open_rows
    from train.preview import draw_mixture, mixture_of, print_mixture, print_rows

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


def _train(config: TrainConfig, resume: bool, accept_data_change: bool) -> None:
    from train.ranks import joined_ranks
    from train.trainer import Trainer

    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    with joined_ranks(config.parallel) as ranks:
        Trainer(config, ranks).run(resume, accept_data_change)


if __name__ == "__main__":
    raise SystemExit(main())

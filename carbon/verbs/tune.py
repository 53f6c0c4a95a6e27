"""`carbon tune`: a generator that learns to draw what oracles like."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from carbon.console import natural
from carbon.verbs.common import Verbs, check_inputs
from carbon.verbs.drawing import add_oracles

if TYPE_CHECKING:
    from carbon.design.tune_task import TuneJob


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "tune",
        help="teach a model to draw what a measure likes",
        description="Draws groups of sequences, has oracles measure them, and trains low-rank "
        "adapters so that what was better than its group becomes likelier (GRPO by trl), near to "
        "where the model began. Writes curves, samples, the adapter and the merged model.",
    )
    verb.add_argument(
        "--model", required=True, help="model folder, or a name in the box or on the Hub"
    )
    add_oracles(verb)
    verb.add_argument("--output", required=True, metavar="FOLDER", help="to write")
    verb.add_argument(
        "--length", type=natural, required=True, metavar="BP", help="of a sample; a multiple of 6"
    )
    verb.add_argument("--prompt", default="", help="DNA before every sample; a multiple of 6")
    verb.add_argument("--tag", action="append", default=[], dest="tags", help="metadata tag")
    verb.add_argument("--seed", type=natural, default=0)
    _add_learning(verb)
    _add_samplers(verb)
    verb.add_argument(
        "--timeout", type=float, default=600, metavar="SECONDS", help="of a group of an oracle"
    )
    verb.add_argument(
        "--device", choices=("auto", "cpu"), default="auto", help="auto: a GPU if there is one"
    )
    verb.add_argument(
        "--resume", action="store_true", help="go on from the last probe of a run that was stopped"
    )
    verb.set_defaults(run=run)


def _add_learning(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("learning")
    group.add_argument("--steps", type=natural, default=200, help="each draws a group")
    group.add_argument(
        "--group", type=natural, default=16, help="samples that are compared with one another"
    )
    group.add_argument(
        "--kl", type=float, default=0.04, help="weight of the divergence from the start"
    )
    group.add_argument("--rate", type=float, default=1e-4, help="of learning; falls to 0")
    group.add_argument("--rank", type=natural, default=16, help="of the adapters")
    group.add_argument(
        "--probe", type=natural, default=20, metavar="STEPS", help="between checkpoints"
    )


def _add_samplers(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("workers that draw")
    group.add_argument(
        "--processes", type=natural, metavar="N", help="worker processes on this machine that draw"
    )
    group.add_argument(
        "--ray", metavar="HOST:PORT", help="draw on the Ray cluster with this head node"
    )
    group.add_argument(
        "--vllm", default="", metavar="URL", help="have a vLLM server of this machine draw"
    )
    group.add_argument(
        "--stale", type=natural, default=2, metavar="N", help="most rounds that weights are old"
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    check_inputs(arguments)
    from carbon.design.grpo import rank
    from carbon.design.tuning import check_tuning, run_tuning, started_by

    job = _job(arguments)
    check_tuning(job)
    summary = run_tuning(job, started_by(arguments) if job.has_workers else None)
    if rank() == 0:
        print(json.dumps(summary))


def _job(arguments: argparse.Namespace) -> "TuneJob":
    from carbon.design.tune_task import TuneJob, TuneTask

    task = TuneTask(
        length_bp=arguments.length,
        prompt=arguments.prompt,
        tags=tuple(arguments.tags),
        goals=tuple(arguments.goals),
        steps=arguments.steps,
        group=arguments.group,
        kl=arguments.kl,
        rate=arguments.rate,
        rank=arguments.rank,
        probe_steps=arguments.probe,
        seed=arguments.seed,
        most_stale=arguments.stale,
        timeout_seconds=arguments.timeout,
    )
    return TuneJob(
        arguments.model,
        arguments.oracles,
        task,
        Path(arguments.output),
        on_cpu=arguments.device == "cpu",
        resume=arguments.resume,
        has_workers=bool(arguments.processes or arguments.ray),
        vllm=arguments.vllm,
    )

"""How the bundled model learned, as the file that the demo plays: scans, not weights.

It scans one region with each checkpoint of a training run, and last with the bundled model. Repeat
the training of `runs/yeast.sh` with `checkpoint.milestone_steps`; step 0 is the network as
initialised by its seed. Of several run folders, the first that has a step provides it.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from carbon.console import Parser, natural, run_command
from carbon.errors import UserError
from carbon.genome import Reference, from_region
from carbon.inference import Model, load
from carbon.io.files import check_parent, scratch_folder
from carbon.pretrained import BUNDLED_MODELS
from carbon.progress import say
from demo.learning_curves import Learning, nats_of, write_learning
from train.config import ParallelConfig, TrainConfig
from train.distributed.mesh import joined_ranks
from train.distributed.weights import KMER_INITS, initial_weight
from train.export import write_export
from train.models.network import build_network, network_config
from train.saved import saved_weights

ENTRY = BUNDLED_MODELS["yeast"]
"""Whose training it is."""
REGION = "VIII:450808-453557"
STEPS = (0, 25, 50, 100, 150, 200, 300, 500, 700, 1000, 3000)


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    return run_command(lambda: _run(_parser().parse_args()))


def _parser() -> argparse.ArgumentParser:
    found = Parser(prog="python runs/yeast_learning.py", description=__doc__)
    found.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders")
    found.add_argument("--steps", type=natural, nargs="+", default=STEPS, help=f"{STEPS}")
    found.add_argument("--last-step", type=natural, default=9000, help="of the bundled model")
    found.add_argument("--region", default=REGION, help="that is read (%(default)s)")
    found.add_argument("--output", type=Path, default=ENTRY.learning, help="file to write")
    return found


def _run(asked: argparse.Namespace) -> int:
    check_parent(asked.output)
    with Reference(ENTRY.genome) as reference:
        region = from_region(asked.region, reference.contig_lengths_bp)
        rows = np.array([nats_of(model, reference, region) for model in _models(asked)])
    steps = (*asked.steps, asked.last_step)
    write_learning(asked.output, Learning(region, steps, rows))
    say(f"{asked.output}: {len(steps)} steps of {region.length_bp:,} bases")
    return 0


def _models(asked: argparse.Namespace) -> Iterator[Model]:
    """Yield the model after each step, then the bundled one."""
    places = {step: _checkpoint(asked.runs, step) for step in asked.steps if step}
    config = TrainConfig.load(asked.runs[0] / "config.toml")
    with joined_ranks(ParallelConfig(), "cpu") as ranks:
        for step in asked.steps:
            say(f"step {step:,}")
            of_step = saved_weights(places[step], ranks, config, None) if step else _begun(config)
            yield _model_of(config, of_step)
    yield load(ENTRY.name)


def _checkpoint(runs: list[Path], step: int) -> Path:
    """Return the first run's checkpoint of a step.

    Raises:
        UserError: no run has it.
    """
    for run in runs:
        place = run / "checkpoints" / f"step-{step:08d}"
        if place.is_dir():
            return place
    raise UserError(f"no checkpoint of step {step:,} in {', '.join(map(str, runs))}")


def _begun(config: TrainConfig) -> Mapping[str, Tensor]:
    """Return the weights of a network as its seed begins it."""
    llama = network_config(config)
    with torch.device("meta"):
        network = build_network(config)
    rows = KMER_INITS[config.model.kmer_init]
    return {
        name: initial_weight(name, weight.shape, llama, config.seed, rows)
        for name, weight in network.named_parameters()
    }


def _model_of(config: TrainConfig, weights: Mapping[str, Tensor]) -> Model:
    with scratch_folder("learning") as folder:
        write_export(network_config(config), config.model, None, weights, folder, ())
        return load(folder)


if __name__ == "__main__":
    raise SystemExit(main())

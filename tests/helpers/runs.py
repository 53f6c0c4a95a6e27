"""A small corpus, short runs over it, and one that has come to its end."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import LlamaForCausalLM

from carbon.errors import UserError
from carbon.model import save_model
from data_pipeline.__main__ import main as data_pipeline
from tests.conftest import small_config
from tests.helpers.artefacts import built
from tests.helpers.ranks import run_ranks
from train.config import TrainConfig

RECIPE = Path(__file__).parents[2] / "train" / "recipes" / "tiny.toml"
BATCH_TOKENS = 8 * 64
CONTEXTS = (64, 128)  # of the two phases
CLOCKED = ("tokens_per_second", "mfu")
Weights = dict[str, np.ndarray]


def small_corpus() -> Path:
    """Return the corpus that all tests of runs read, and none changes."""
    return built("corpus", make_corpus) / "corpus"


def corpus_of_three_sources() -> Path:
    """Return a folder with `genome/` and `corpus/`, of a species and a licence with odd names."""
    names = ("assemblies.0.organism=Simulata <vulgaris>", "assemblies.0.licence=CC0|1.0",
             'assemblies.0.sources=["eukaryote", "mrna", "promoter"]')  # fmt: skip
    build = partial(make_corpus, more=names, genome_bp=90_000, seed=2)
    return built("three_sources", build)


def make_corpus(
    folder: Path, more: Iterable[str] = (), genome_bp: int = 60_000, seed: int = 0
) -> Path:
    words = ["--output", f"{folder}/genome", "--genome-bp", str(genome_bp), "--seed", str(seed)]
    assert data_pipeline(["simulate", *words]) == 0
    settings = [
        f"assemblies.0.genome={folder}/genome/genome.fa",
        f"assemblies.0.annotation={folder}/genome/genes.gff3",
        "assemblies.0.species_type=inv",
        f"output={folder}/corpus",
        *more,
    ]
    assert data_pipeline(["build", *[w for s in settings for w in ("--set", s)]]) == 0
    return folder / "corpus"


def make_config(corpus: Path, output: Path, *more: str) -> TrainConfig:
    """Two steps of CE over 8 rows of 64 tokens, and two of FNS over 4 of 128 with another theta.

    No checkpoint is due by the clock, however busy the machine. The optimizer's epsilon is above
    what rounding does to a gradient: with 1e-8 rounding decides the sign of whole steps where a
    gradient is nearly zero, and no two layouts would end with weights that are close.
    """
    return TrainConfig.load(
        RECIPE,
        [
            f"data.corpus={corpus}", f"output={output}", "data.microbatch_tokens=256",
            *(f"phases.{i}.context_tokens={n}" for i, n in enumerate(CONTEXTS)),
            *(f"phases.{i}.batch_rows={BATCH_TOKENS // n}" for i, n in enumerate(CONTEXTS)),
            "phases.1.rope_theta=5e6", "checkpoint.every_steps=2", "checkpoint.every_minutes=0",
            "checkpoint.keep=5", "phases.0.warmup_steps=0", "optimizer.epsilon=1e-5",
            *steps_of_each(2), *more,
        ],
    )  # fmt: skip


def make_small_config(corpus: Path, output: Path, *more: str) -> TrainConfig:
    """Return the same of a network of two narrow layers, whose steps take half the time."""
    start = built("start", _save_small) / "model"
    return make_config(corpus, output, "model.preset=", f"model.start={start}", *more)


def _save_small(folder: Path) -> None:
    torch.manual_seed(0)
    save_model(LlamaForCausalLM(small_config(max(CONTEXTS))).eval(), folder / "model")


def steps_of_each(steps: int) -> tuple[str, str]:
    """Return the settings by which each of the two phases has so many steps."""
    tokens = steps * BATCH_TOKENS
    return f"phases.0.tokens={tokens}", f"phases.1.tokens={tokens}"


def trained_run() -> tuple[TrainConfig, Weights]:
    """Return the settings of a run of two processes that is at its end, and its weights.

    Its folder is there for all tests: those that change it copy it.
    """
    folder = built("run", _train_to_the_end)
    with np.load(folder / "weights.npz") as weights:
        return _config_of_trained(folder), dict(weights)


def _train_to_the_end(folder: Path) -> None:
    weights, _ = run_ranks(2, run_with_pictures, _config_of_trained(folder))
    np.savez(folder / "weights.npz", **weights)


def _config_of_trained(folder: Path) -> TrainConfig:
    return make_config(small_corpus(), folder / "run", "compute.profile_steps=[1, 3]")


# What a process does in a test


def full_weights(trainer: Any) -> Weights | None:
    """Return the whole weights on the first process."""
    network = trainer.gathered()
    return network and {n: p.detach().numpy().copy() for n, p in network.named_parameters()}


def take_steps(
    ranks: Any, config: TrainConfig, num_steps: int
) -> tuple[list[dict[str, Any]], Weights | None]:
    """Take steps of a run; return their metrics, and the weights behind the last."""
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    metrics = list(itertools.islice(trainer.steps(), num_steps))
    return metrics, full_weights(trainer)


def run_to_the_end(
    ranks: Any, config: TrainConfig, resume: bool = False, accept_data_change: bool = False
) -> Any:
    """Run to the end; return the weights, or the kind and the message of an error."""
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    try:
        with without_pictures():
            trainer.run(resume, accept_data_change)
    except UserError as error:
        return type(error), str(error)
    return full_weights(trainer)


def run_with_pictures(ranks: Any, config: TrainConfig) -> Weights | None:
    """Run to the end, with the page and the card."""
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    trainer.run(resume=False)
    return full_weights(trainer)


@contextmanager
def without_pictures() -> Iterator[None]:
    """Let runs end without their page and their card, which take longer than a few small steps."""
    names = ("train.runs.summary", "train.runs.card")
    with mock.patch.dict(sys.modules, dict.fromkeys(names, mock.Mock())):
        yield


def spoil(trainer: Any, at_step: int) -> None:
    """Let a gradient of this rank be no number in the step behind so many."""
    run = trainer.pipeline._run_loop

    def spoiled(batch: Any) -> None:
        run(batch)
        if trainer.state.step == at_step:
            next(iter(trainer.parts[0].parameters())).grad.mul_(float("nan"))

    trainer.pipeline._run_loop = spoiled


# What a run leaves behind


def words_for(config: TrainConfig) -> list[str]:
    """Return what a run is started with, which goes on if it can."""
    path = Path(config.output).with_suffix(".toml")
    path.write_text(config.to_toml(), encoding="utf-8")
    return ["--config", str(path), "--resume", "auto"]


def lines_of(folder: str | Path, name: str = "metrics") -> list[dict[str, Any]]:
    """Return the lines of a file of a run, without what a clock says."""
    text = (Path(folder) / f"{name}.jsonl").read_text(encoding="utf-8")
    return [
        {key: value for key, value in json.loads(line).items() if key not in CLOCKED}
        for line in text.splitlines()
    ]


def exported(folder: str | Path) -> bytes:
    """Return the file of the weights that a run has exported."""
    return (Path(folder) / "export" / "model.safetensors").read_bytes()


def assert_close(found: Weights, expected: Weights, name: object = "") -> None:
    """Fail unless every weight is that of another layout, but for rounding."""
    assert found.keys() == expected.keys()
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], rtol=0, atol=1e-4, err_msg=f"{name} {key}")


def assert_equal(found: Weights, expected: Weights) -> None:
    """Fail unless weights are the same bit for bit."""
    assert found.keys() == expected.keys()
    for key, value in found.items():
        assert np.array_equal(value, expected[key]), key

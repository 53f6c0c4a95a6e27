"""Tensor parallelism with sequence parallelism: against one process, and across checkpoints."""

import numpy as np
import pytest
import torch

from tests.helpers.ranks import run_ranks
from tests.helpers.runs import (
    assert_close,
    full_weights,
    make_config,
    make_small_config,
    steps_of_each,
)
from train.config import ParallelConfig, TrainConfig

# CE, then FNS over rows of 6-mers that are divided, with tied embeddings at both ends.
LAYOUTS = [
    (2, ParallelConfig(tensor=2)),
    pytest.param(4, ParallelConfig(tensor=2, pipeline=2), marks=pytest.mark.nightly),
    pytest.param(4, ParallelConfig(tensor=2), marks=pytest.mark.nightly),  # x shard 2
    pytest.param(4, ParallelConfig(tensor=2, context=2), marks=pytest.mark.nightly),
    pytest.param(4, ParallelConfig(tensor=2, replicate=2), marks=pytest.mark.nightly),
]


def train_in_fp64(ranks, config: TrainConfig):
    """Return loss and gradient norm of each step, and weights, all of it in fp64."""
    from train.trainer import Trainer

    torch.set_default_dtype(torch.float64)
    try:
        trainer = Trainer(config, ranks)
        lines = [(line["loss"], line["gradient_norm"]) for line in trainer.steps()]
        return lines, full_weights(trainer)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def one_process(corpus, tmp_path_factory):
    return run_ranks(1, train_in_fp64, config_of(corpus, tmp_path_factory))[0]


def config_of(corpus, factory) -> TrainConfig:
    more = ("data.microbatch_tokens=128", *steps_of_each(1))
    return make_small_config(corpus, factory.mktemp("tensor") / "run", *more)


@pytest.mark.parametrize(("size", "parallel"), LAYOUTS)
def test_loss_gradients_and_weights_equal_one_process(
    size, parallel, one_process, corpus, tmp_path_factory
):
    config = config_of(corpus, tmp_path_factory).replace(parallel=parallel)
    lines, weights = run_ranks(size, train_in_fp64, config, parallel=parallel, apart=True)[0]
    expected_lines, expected = one_process
    np.testing.assert_allclose(lines, expected_lines, rtol=1e-9)
    for name, weight in expected.items():
        np.testing.assert_allclose(weights[name], weight, rtol=0, atol=1e-9, err_msg=name)


def go_on(ranks, config: TrainConfig, num_steps: int):
    """Go on from the newest checkpoint for some steps, save, and return the weights."""
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    trainer.load()
    for _, _line in zip(range(num_steps), trainer.steps(), strict=False):
        pass
    trainer.checkpoints.save(trainer.state)
    trainer.checkpoints.finish()
    return full_weights(trainer)


@pytest.mark.nightly
def test_a_checkpoint_of_two_tensor_ranks_goes_on_with_one_and_back(corpus, tmp_path):
    """Weights and moments are whole in a checkpoint, whatever divided them."""
    config = make_config(corpus, tmp_path / "run", "checkpoint.background=false")
    alone = make_config(corpus, tmp_path / "alone")
    sizes = (2, 1, 2)
    expected = run_ranks(1, go_on, alone, len(sizes))[0]
    for size in sizes:
        parallel = ParallelConfig(tensor=size)
        one = config.replace(parallel=parallel)
        found = run_ranks(size, go_on, one, 1, parallel=parallel, apart=size > 1)[0]
    assert_close(found, expected)


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match=r"tensor: 2: does not go with compute\.float8 or"):
        TrainConfig.load(
            "train/recipes/tiny.toml",
            ["parallel.tensor=2", "compute.float8=true", "compute.compile=true"],
        )

"""One, two and four processes against a plain loop over stock transformers."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from carbon.config import load_config
from carbon.errors import ModelError, UserError
from carbon.inference import load
from data_pipeline.__main__ import main as data_pipeline
from tests.helpers.ranks import run_ranks
from train.config import CheckpointConfig, TrainConfig
from train.course import Course
from train.data import batches, open_rows
from train.network import llama_config
from train.schedule import learning_rate

RECIPE = Path(__file__).parents[2] / "train" / "recipes" / "tiny.toml"
BATCH_TOKENS = 8 * 64
CONTEXTS = (64, 128)  # of the two stages


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    words = ["--output", f"{folder}/genome", "--genome-bp", "60000"]
    assert data_pipeline(["simulate", *words]) == 0
    settings = [
        "assemblies.0.genome=genome.fa",
        "assemblies.0.annotation=genes.gff3",
        "assemblies.0.species_type=inv",
    ]
    settings = [s.replace("=ge", f"={folder}/genome/ge") for s in settings]
    settings.append(f"output={folder}/corpus")
    assert data_pipeline(["build", *[w for s in settings for w in ("--set", s)]]) == 0
    return folder / "corpus"


def make_config(corpus: Path, output: Path, *more: str) -> TrainConfig:
    """Two steps of CE over 8 rows of 64 tokens, and two of FNS over 4 of 128 with another theta."""
    return load_config(
        TrainConfig,
        RECIPE,
        [
            f"data.corpus={corpus}", f"output={output}", "data.microbatch_tokens=192",
            *(f"stages.{i}.context_tokens={n}" for i, n in enumerate(CONTEXTS)),
            *(f"stages.{i}.batch_rows={BATCH_TOKENS // n}" for i, n in enumerate(CONTEXTS)),
            "stages.1.rope_theta=5e6", "checkpoint.every_steps=2",
            "checkpoint.keep=5", "stages.0.warmup_steps=0",
            f"stages.0.tokens={2 * BATCH_TOKENS}", f"stages.1.tokens={2 * BATCH_TOKENS}", *more,
        ],
    )  # fmt: skip


def full_weights(trainer) -> dict[str, np.ndarray]:
    return {
        name.removeprefix("llama."): p.full_tensor().detach().numpy().copy()
        for name, p in trainer.network.named_parameters()
    }


def take_steps(ranks, config: TrainConfig, num_steps: int):
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    metrics = list(itertools.islice(trainer.steps(0), num_steps))
    return metrics, full_weights(trainer)


def run_to_the_end(ranks, config: TrainConfig, resume: bool, accept_data_change: bool = False):
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    try:
        trainer.run(resume, accept_data_change)
    except UserError as error:
        return type(error), str(error)
    return full_weights(trainer)


def plain_loop(config: TrainConfig, num_steps: int):
    """Train stock transformers in fp64 with losses written as torch's CE and as 24 masked sums."""
    from transformers import LlamaForCausalLM

    from carbon.tokenizer import NATIVE

    class OneRank:
        rank, world_size, device = 0, 1, torch.device("cpu")

    course = Course(config)
    rows = open_rows(config, course)
    read = batches(rows, config, course, OneRank, 0)
    torch.manual_seed(config.seed)
    network = LlamaForCausalLM(llama_config(config)).double()
    decayed = [p for p in network.parameters() if p.ndim >= 2]
    others = [p for p in network.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    metrics = []
    for step in range(num_steps):
        span = course.at(step)
        stage = span.stage
        rotary = network.model.rotary_emb
        head_width = 2 * len(rotary.inv_freq)
        rotary.inv_freq = stage.rope_theta ** -(torch.arange(0, head_width, 2) / head_width)
        losses = []
        for batch in next(read):
            for row in range(len(batch.input_ids)):
                losses += row_losses(network, batch, row, stage.objective, NATIVE)
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(stage, step - span.first_step)
        optimizer.step()
        metrics.append((loss.item(), norm.item()))
    return metrics, {name: p.detach().numpy() for name, p in network.named_parameters()}


def row_losses(network, batch, row, objective, vocabulary):
    """Return the loss of every trained token, each piece of the row read on its own."""
    digits = torch.arange(4096)[:, None] // 4 ** torch.arange(5, -1, -1) % 4
    length = batch.input_ids.shape[1]
    starts = [*(batch.position_ids[row] == 0).nonzero()[:, 0].tolist(), length]
    known = batch.known.view(-1, length, 6)[row]
    losses = []
    for a, b in itertools.pairwise(starts):
        logits = network(batch.input_ids[row : row + 1, a:b]).logits[0, :, vocabulary.kmer_rows]
        for t in range(b - a):
            target, mask = batch.targets[row, a + t], known[a + t]
            if objective == "ce" and mask.all():
                losses.append(torch.nn.functional.cross_entropy(logits[t], target))
            elif objective == "fns" and mask.any():
                p = logits[t].softmax(0)
                sums = [p[digits[:, j] == digits[target, j]].sum() for j in range(6) if mask[j]]
                losses.append(-torch.stack(sums).log().mean())
    return losses


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    return plain_loop(make_config(corpus, tmp_path_factory.mktemp("plain")), 4)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_any_number_of_processes_equals_the_plain_loop(world_size, corpus, plain, tmp_path):
    """Loss, gradient norm and weights after four steps, across a switch of all that can switch."""
    results = run_ranks(world_size, take_steps, make_config(corpus, tmp_path / "r"), 4)
    expected_metrics, expected_weights = plain
    for metrics, weights in results:
        for found, (loss, norm) in zip(metrics, expected_metrics, strict=True):
            assert found["loss"] == pytest.approx(loss, rel=2e-5)
            assert found["gradient_norm"] == pytest.approx(norm, rel=1e-3)
        assert [m["objective"] for m in metrics] == ["ce", "ce", "fns", "fns"]
        assert set(weights) == set(expected_weights)
        for name, value in weights.items():
            # Adam divides by the root of the square: where a gradient is nearly zero, rounding
            # decides the sign of a step of the size of the learning rate.
            distant = np.abs(value - expected_weights[name]) > 1e-4
            assert distant.mean() < 2e-3, name
            np.testing.assert_allclose(value, expected_weights[name], atol=3e-2, err_msg=name)


def test_nats_per_base_are_those_of_the_exported_model(corpus, tmp_path):
    """CE in nats per base is the likelihood that scoring finds, so an untrained run says 1.386."""
    config = make_config(corpus, tmp_path / "r")
    ((metrics, _),) = run_ranks(1, take_steps, config, 1)
    assert metrics[0]["nats_per_base"] == pytest.approx(metrics[0]["loss"] / 6, rel=1e-6)
    assert metrics[0]["nats_per_base"] == pytest.approx(np.log(4), abs=0.02)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run of two processes from start to end, its folder and its weights."""
    config = make_config(corpus, tmp_path_factory.mktemp("finished") / "run")
    weights, _ = run_ranks(2, run_to_the_end, config, False)
    return config, weights


def copy_of(finished, tmp_path, *, up_to_step: int) -> TrainConfig:
    config, _ = finished
    shutil.copytree(config.output, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("step-*"):
        if int(path.name[5:]) > up_to_step:
            shutil.rmtree(path)
    return dataclasses.replace(config, output=str(tmp_path / "run"))


def test_a_run_folder_holds_what_it_promises(finished):
    config, weights = finished
    folder = Path(config.output)
    assert load_config(TrainConfig, folder / "config.toml") == config
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["tokens"] for line in lines] == [n * BATCH_TOKENS for n in (1, 2, 3, 4)]
    assert {"stage", "objective", "learning_rate", "tokens_per_second", "mfu"} <= set(lines[0])
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == [
        "step-00000002", "step-00000004"
    ]  # fmt: skip
    assert not [p for p in folder.rglob("*") if p.suffix in (".pt", ".pkl") or "metadata" in p.name]
    exported = dict(load(folder / "export").model.network.named_parameters())
    for name, value in weights.items():
        assert np.array_equal(exported[name].detach().numpy(), value), name


def test_resuming_on_the_same_layout_gives_the_same_bits(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    weights, _ = run_ranks(2, run_to_the_end, config, True)
    for name, value in finished[1].items():
        assert np.array_equal(weights[name], value), name
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def test_resuming_on_another_layout_agrees_to_rounding(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    (weights,) = run_ranks(1, run_to_the_end, config, True)
    for name, value in finished[1].items():
        assert (np.abs(weights[name] - value) > 1e-4).mean() < 2e-3, name


def run_on_a_full_disk(ranks, config: TrainConfig):
    from torch.distributed.checkpoint.api import CheckpointException

    import train.checkpoint
    from train.trainer import Trainer

    def full(*_, **__):
        raise CheckpointException("write", {1: (OSError(28, "No space left on device"), None)})

    train.checkpoint.save = full
    trainer = Trainer(config, ranks)
    try:
        trainer.run(resume=True)
    except OSError as error:
        return error.errno, str(error)


def test_a_full_disk_is_one_error_and_nothing_is_lost(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    ((number, message),) = run_ranks(1, run_on_a_full_disk, config)
    assert number == 28 and str(tmp_path) in message
    names = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()]
    assert names == ["step-00000002"]


def test_a_torn_checkpoint_is_passed_over(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=4)
    shard = next((tmp_path / "run" / "checkpoints" / "step-00000004").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-100])
    # Keeping one only must not keep the torn one for being the latest.
    config = dataclasses.replace(config, checkpoint=CheckpointConfig(every_steps=1, keep=1))
    weights, _ = run_ranks(2, run_to_the_end, config, True)
    for name, value in finished[1].items():
        assert np.array_equal(weights[name], value), name
    kept = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()]
    assert kept == ["step-00000004"]


def test_what_may_not_be_resumed(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    ((kind, message),) = run_ranks(1, run_to_the_end, config, False)
    assert kind is UserError and "--resume auto" in message
    other = dataclasses.replace(config, seed=99)
    ((kind, message),) = run_ranks(1, run_to_the_end, other, True)
    assert kind is ModelError and "seed was 0, is 99; resume with those of its run" in message
    assert "--accept-data-change" not in message
    flipped = dataclasses.replace(config.data, flip_strands=())
    other = dataclasses.replace(config, data=flipped)
    ((kind, message),) = run_ranks(1, run_to_the_end, other, True)
    assert kind is ModelError and "data.flip_strands was ['eukaryote', " in message
    assert "or go on with other data by --accept-data-change" in message


def test_other_data_can_be_accepted(finished, tmp_path):
    """And the place of the prepared sources is no change at all."""
    config = copy_of(finished, tmp_path, up_to_step=2)
    moved = dataclasses.replace(config.data, cache=str(tmp_path / "elsewhere"))
    here = dataclasses.replace(config, data=moved)
    (weights,) = run_ranks(1, run_to_the_end, here, True)
    for name, value in finished[1].items():
        np.testing.assert_allclose(weights[name], value, rtol=0, atol=2e-5, err_msg=name)
    shutil.rmtree(tmp_path / "run")
    config = copy_of(finished, tmp_path, up_to_step=2)
    other = dataclasses.replace(config, data=dataclasses.replace(config.data, flip_strands=()))
    (weights,) = run_ranks(1, run_to_the_end, other, True, True)
    assert any(not np.allclose(weights[n], v, atol=2e-5) for n, v in finished[1].items())

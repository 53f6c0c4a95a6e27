"""Runs from start to end: what they leave behind, and how they go on after whatever happened."""

import gc
import json
import os
import pickle
import shutil
import signal
import weakref
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist

from carbon.corpus import read_source
from carbon.errors import ModelError, UserError
from carbon.inference import load
from carbon.io.locks import locked_folder
from eval.__main__ import main as evaluate
from tests.helpers.files import same_files
from tests.helpers.processes import waits_for
from tests.helpers.ranks import run_ranks
from tests.helpers.runs import (
    BATCH_TOKENS,
    assert_close,
    assert_equal,
    exported,
    full_weights,
    lines_of,
    make_config,
    make_small_config,
    run_to_the_end,
    spoil,
    steps_of_each,
    take_steps,
    trained_run,
    without_pictures,
    words_for,
)
from tests.helpers.schemas import check_run
from train import checkpoint, saved
from train.__main__ import main
from train.config import CheckpointConfig, GuardConfig, ParallelConfig, TrainConfig
from train.trainer import Trainer


@pytest.fixture(scope="module")
def finished():
    """A run of two processes from start to end, its folder and its weights."""
    return trained_run()


def copy_of(finished, tmp_path, *, up_to_step: int) -> TrainConfig:
    config, _ = finished
    shutil.copytree(config.output, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("step-*"):
        if int(path.name[5:]) > up_to_step:
            shutil.rmtree(path)
    return config.replace(output=str(tmp_path / "run"))


# What a run leaves behind


def test_nats_per_base_are_those_of_the_exported_model(corpus, tmp_path):
    """CE in nats per base is the likelihood that scoring finds, so an untrained run says 1.386."""
    ((metrics, _),) = run_ranks(1, take_steps, make_config(corpus, tmp_path / "r"), 1)
    assert metrics[0]["nats_per_base"] == pytest.approx(metrics[0]["loss"] / 6, rel=1e-6)
    assert metrics[0]["nats_per_base"] == pytest.approx(np.log(4), abs=0.02)


def test_a_run_folder_holds_what_it_promises(finished):
    config, _ = finished
    folder = Path(config.output)
    assert TrainConfig.load(folder / "config.toml") == config
    check_run(folder, "metrics", "events")
    lines = lines_of(folder)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["tokens"] for line in lines] == [n * BATCH_TOKENS for n in (1, 2, 3, 4)]
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == [
        "step-00000002", "step-00000004"
    ]  # fmt: skip
    assert not [p for p in folder.rglob("*") if p.suffix in (".pt", ".pkl") or "metadata" in p.name]
    records = [read_source(config.data.corpus, name, "train") for name in ("eukaryote", "mrna")]
    assert {code for table in records for code in table["species_type"].to_pylist()} == {"inv"}
    assert {code for table in records for code in table["gene_type"].to_pylist()} == {"cds"}
    named = json.loads((folder / "export" / "config.json").read_text())["carbon_tags"]
    assert named == ["<invertebrate_species>", "<protein_coding_region>"]
    for rank in (0, 1):
        trace = json.loads((folder / "profile" / f"rank-{rank}.json").read_text())
        assert any("mm" in event.get("name", "") for event in trace["traceEvents"])


def test_a_model_folder_at_any_time(finished, tmp_path, capsys, monkeypatch):
    """The folder is that of the run's end, and one weight is in memory at a time."""
    config, weights = finished
    alive, counts, load_one = weakref.WeakSet(), [], saved.load

    def noting(tensors, **rest):
        gc.collect()
        counts.append(len(alive))
        alive.update(tensors.values())
        load_one(tensors, **rest)

    monkeypatch.setattr(saved, "load", noting)
    words = ["--config", f"{config.output}/config.toml"]
    assert main(["export", *words, "--output", f"{tmp_path}/model"]) == 0
    assert counts == [0] * len(weights)
    network = load(tmp_path / "model").model.network
    assert_equal({n: p.detach().numpy() for n, p in network.named_parameters()}, weights)
    assert same_files(tmp_path / "model", Path(config.output) / "export")
    assert main(["export", *words, "--output", f"{tmp_path}/model"]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_page_at_any_time(finished, tmp_path, capsys):
    config = copy_of(finished, tmp_path, up_to_step=4)
    assert main(["summary", "--config", f"{config.output}/config.toml"]) == 0
    assert "summary.html" in capsys.readouterr().out


@pytest.mark.nightly
def test_probes_measure_what_eval_does_and_change_nothing(corpus, finished, tmp_path):
    probe = ["probe.every_steps=2", "probe.heldout_bp=2000", "probe.sites=8"]
    config = make_config(corpus, tmp_path / "run", *probe)
    weights, _ = run_ranks(2, run_to_the_end, config)
    assert_equal(weights, finished[1])
    check_run(tmp_path / "run", "probes")
    probes = lines_of(tmp_path / "run", "probes")
    assert [probe["step"] for probe in probes] == [2, 4]
    words = ["--corpus", str(corpus), "--examples", "8", "--most-bp", "2000"]
    data, results = str(tmp_path / "data"), tmp_path / "results"
    names = "genome_recovery,heldout_likelihood"
    assert evaluate(["build", names, "--output", data, *words]) == 0
    words = ["--model", f"m={tmp_path}/run/export", "--train", f"{corpus}/eukaryote"]
    assert evaluate(["run", *words, "--data", data, "--orders", "0", "--output", str(results)]) == 0
    values = {
        name: json.loads((results / name / "m.json").read_text())["summary"]["value"]["value"]
        for name in names.split(",")
    }
    assert probes[1]["recovery"] == values["genome_recovery"]
    assert probes[1]["heldout_nats_per_base"] == values["heldout_likelihood"]


def assert_is_json_or_tensors(path: Path) -> None:
    """Fail unless a file is JSON, or a safetensors header and tensors, to its last byte."""
    content = path.read_bytes()
    if path.suffix == ".json":
        json.loads(content)
        return
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    end = 0
    for first, last in sorted(entry["data_offsets"] for entry in header.values()):
        assert first == end
        end = last
    assert begin + end == len(content)


@pytest.mark.parametrize("wrong", [pickle.dumps, torch.save])
def test_a_pickle_is_neither_json_nor_tensors(wrong, tmp_path):
    """The check of checkpoints fails for a pickle, and for the zip file of `torch.save`."""
    for name in ("a.safetensors", "a.json"):
        path, values = tmp_path / name, {"a": torch.ones(2)}
        path.write_bytes(wrong(values)) if wrong is pickle.dumps else wrong(values, path)
        assert zipfile.is_zipfile(path) == (wrong is torch.save)
        with pytest.raises((ValueError, AssertionError)):
            assert_is_json_or_tensors(path)


@pytest.mark.parametrize("workers", [[], ["workers.count=1", "workers.every_steps=2"]])
def test_checkpoints_hold_no_pickle_and_are_loaded_without_one(
    workers, corpus, tmp_path, monkeypatch
):
    """Weights, moments, and what a worker adds; a run goes on from them to the same weights."""
    config = make_small_config(corpus, tmp_path / "run", *workers)
    (expected,) = run_ranks(1, run_to_the_end, config)
    folders = sorted((tmp_path / "run" / "checkpoints").iterdir())
    for folder in folders:
        files = list(folder.rglob("*"))
        shards = [path for path in files if path.suffix == ".safetensors"]
        assert shards and set(files) == {*shards, folder / "state.json"}
        for path in files:
            assert_is_json_or_tensors(path)
    shutil.rmtree(folders.pop())
    assert folders

    def refuse(*given, **more):
        raise AssertionError("something is unpickled")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"),
                         (torch, "load")):  # fmt: skip
        monkeypatch.setattr(module, name, refuse)
    (weights,) = run_ranks(1, run_to_the_end, config, True)
    assert_equal(weights, expected)


# Phases that signals end, and bad steps


def run_with_a_signal(ranks, config: TrainConfig, spoilt_at=None):
    """Train; the first phase ends on a signal after its first step, and a step may be spoilt."""
    from train.trainer import Trainer

    def signal(phase, state):
        return "told so" if phase.name == "ce" and state.step == 1 else ""

    with mock.patch("train.trainer.signal_to_end", signal):
        trainer = Trainer(config, ranks)
        if spoilt_at is not None:
            spoil(trainer, at_step=spoilt_at)
        with without_pictures():
            trainer.run(resume=True)
    return full_weights(trainer)


def test_a_rollback_to_before_a_signal(corpus, tmp_path):
    """The checkpoint is that of step 0; the phase has ended all the same, and stays ended."""
    more = ("guard.policy=rollback", "checkpoint.every_steps=10")
    config = make_small_config(corpus, tmp_path / "run", *more)
    run_ranks(1, run_with_a_signal, config, 1)
    folder = tmp_path / "run"
    assert [line["objective"] for line in lines_of(folder)] == ["ce", "fns", "fns"]
    assert ["skipped" in line for line in lines_of(folder)] == [False, True, False]
    check_run(folder, "metrics", "events")
    state = json.loads((folder / "checkpoints/step-00000003/state.json").read_text())["state"]
    # Steps 1 and 2 are left out of the weights: one update remains.
    assert state["ended"] == {"0": 1} and state["skipped"] == [[0, 1]] and state["updates"] == 1


def run_with_nan(ranks, config, policy_runs):
    """Train under each policy; on the last rank alone the loss of step 3 is not a number."""
    from train.trainer import Trainer

    results = []
    for name, guard in policy_runs:
        one = config.replace(output=f"{config.output}/{name}", guard=guard)
        trainer = Trainer(one, ranks)
        if ranks.rank == ranks.world_size - 1:
            spoil(trainer, at_step=2)
        try:
            with without_pictures():
                trainer.run(resume=False)
            results.append("done")
        except FloatingPointError as error:
            results.append(str(error))
        trainer.checkpoints.finish()
    return results


POLICIES = {
    "skip": (GuardConfig(policy="skip"), "done"),
    "stop": (GuardConfig(policy="stop"), "step 3: the gradient norm is nan"),
    "rollback": (GuardConfig(policy="rollback"), "done"),
    "patience": (GuardConfig(policy="skip", most_bad_steps=0), "guard.most_bad_steps = 0"),
}


@pytest.mark.parametrize(
    "names", [["skip", "stop"], pytest.param(list(POLICIES), marks=pytest.mark.nightly)]
)
def test_a_gradient_that_is_no_number_on_one_rank(corpus, tmp_path, names):
    """All ranks leave the step out, roll back, or stop, as the policy says; the rest goes on."""
    config = make_small_config(corpus, tmp_path)
    results = run_ranks(2, run_with_nan, config, [(name, POLICIES[name][0]) for name in names])
    assert results[0] == results[1]
    for name, found in zip(names, results[0], strict=True):
        assert POLICIES[name][1] in found
    ended = [name for name in names if POLICIES[name][1] == "done"]
    for name in ended:
        lines = lines_of(tmp_path / name)
        assert [line["step"] for line in lines] == [1, 2, 3, 4]
        assert ["skipped" in line for line in lines] == [False, False, True, False]
        assert lines[2]["gradient_norm"] is None and np.isfinite(lines[3]["loss"])
        assert name in {line["event"] for line in lines_of(tmp_path / name, "events")}
        # Here the last checkpoint is that of step 2, so both policies leave out step 3 alone.
        assert lines[3] == lines_of(tmp_path / "skip")[3]
    state = json.loads((tmp_path / "skip/checkpoints/step-00000004/state.json").read_text())
    assert state["state"]["skipped"] == [[2, 2]] and state["state"]["updates"] == 3


def run_saving_always(ranks, config):
    """A gradient of step 4 is no number; the clock of the first process asks for every step."""
    from train.checkpoint import Checkpoints
    from train.trainer import Trainer

    with mock.patch.object(Checkpoints, "are_due", lambda self: ranks.is_first):
        trainer = Trainer(config, ranks)
        spoil(trainer, at_step=3)
        with without_pictures():
            trainer.run(resume=False)
    found = sorted(path.name for path in (Path(config.output) / "checkpoints").iterdir())
    return found, trainer.state.skipped


@pytest.mark.nightly
def test_a_rollback_does_not_depend_on_the_clock(corpus, tmp_path):
    """Back to step 2, though there is a checkpoint of step 3: steps 3 and 4 are left out."""
    more = ("phases.1.tokens=1536", "guard.policy=rollback", "checkpoint.keep=1")
    config = make_small_config(corpus, tmp_path / "run", *more)
    (found, skipped), _ = run_ranks(2, run_saving_always, config)
    assert skipped == [[2, 3]]
    assert found == ["step-00000004", "step-00000005"]  # of two a regular one, and the newest


# Going on


def save_and_resume(ranks, config, saved_at, resumed_at):
    """Train two steps under a layout and save, if one is given; under others go on to the end."""
    results = []
    if saved_at:
        trainer = trainer_of(ranks, config, "saved", saved_at)
        steps = trainer.steps()
        losses = [next(steps)["loss"] for _ in range(2)]
        trainer.checkpoints.save(trainer.state)
        trainer.checkpoints.finish()
        losses = [metrics["loss"] for metrics in steps]
        results.append((losses, full_weights(trainer)))
    for number, parallel in enumerate(resumed_at):
        name = f"{ranks.world_size}-{number}"
        if ranks.is_first:
            shutil.copytree(Path(config.output) / "saved", Path(config.output) / name)
        dist.barrier()
        trainer = trainer_of(ranks, config, name, parallel)
        assert trainer.load() and trainer.state.step == 2
        results.append(([metrics["loss"] for metrics in trainer.steps()], full_weights(trainer)))
    return results


def trainer_of(ranks, config, name, parallel):
    from train.distributed.mesh import ranks_of_group
    from train.trainer import Trainer

    one = config.replace(parallel=parallel, output=f"{config.output}/{name}")
    return Trainer(one, ranks_of_group(ranks.device, parallel))


RESUMED_AT = {
    4: [ParallelConfig(pipeline=4, schedule="gpipe"), ParallelConfig(replicate=2)],
    2: [ParallelConfig(pipeline=2, schedule="zbv")],
    1: [ParallelConfig()],
}
RESUMED_AT_BY_FEW = {2: [ParallelConfig(replicate=2)], 1: [ParallelConfig()]}


@pytest.mark.parametrize(
    ("saved_at", "resumed_at"),
    [
        (ParallelConfig(pipeline=2, schedule="interleaved_1f1b"), RESUMED_AT_BY_FEW),
        pytest.param(
            ParallelConfig(pipeline=2, context=2, schedule="interleaved_1f1b"),
            RESUMED_AT,
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["two processes", "four processes"],
)
def test_a_checkpoint_goes_on_at_any_layout(corpus, tmp_path, saved_at, resumed_at):
    """Saved by a pipeline of two, whose stages may share rows; resumed by others."""
    config = make_config(corpus, tmp_path, "data.microbatch_tokens=128")
    found = []
    for world_size, layouts in resumed_at.items():
        saves = saved_at if world_size == max(resumed_at) else None
        found += run_ranks(world_size, save_and_resume, config, saves, layouts)[0]
    (losses, expected), *others = found
    assert len(losses) == 2 and len(others) == sum(map(len, resumed_at.values()))
    for number, (after, weights) in enumerate(others):
        np.testing.assert_allclose(after, losses, rtol=2e-5, err_msg=str(number))
        assert_close(weights, expected, number)


def save_and_resume_in_fp32(*arguments):
    """Keep Muon's iteration out of bf16, whose rounding small singular values magnify."""
    with mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.float):
        return save_and_resume(*arguments)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world_size", "layouts"),
    [
        (1, [ParallelConfig()]),
        (2, [ParallelConfig(), ParallelConfig(replicate=2), ParallelConfig(pipeline=2)]),
    ],
)
def test_muon_goes_on_at_any_layout(corpus, tmp_path, world_size, layouts):
    """Shards, replicas and a pipeline update as one process does; the same layout to the bit."""
    config = make_config(corpus, tmp_path, "optimizer.name=muon", "data.microbatch_tokens=64")
    (losses, expected), *others = run_ranks(
        world_size, save_and_resume_in_fp32, config, layouts[0], layouts, apart=world_size > 1
    )[0]
    assert_equal(others[0][1], expected)
    for number, (after, weights) in enumerate(others):
        np.testing.assert_allclose(after, losses, rtol=2e-5, err_msg=str(number))
        assert_close(weights, expected, number)


def resumed_by_the_command(ranks, config: TrainConfig):
    """Go on as the command does; return weights, and how many were made rather than loaded."""
    from train.distributed import parallelize
    from train.trainer import Trainer

    make = mock.Mock(wraps=parallelize.initial_weight)
    with mock.patch.object(parallelize, "initial_weight", make):
        trainer = Trainer(config, ranks, resumes=True)
        with without_pictures():
            trainer.run(True)
    return full_weights(trainer), make.call_count


def test_resuming_gives_the_same_bits_and_makes_no_weight_anew(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    (weights, made), (_, also) = run_ranks(2, resumed_by_the_command, config)
    assert (made, also) == (0, 0)
    assert_equal(weights, finished[1])
    assert [line["step"] for line in lines_of(config.output)] == [1, 2, 3, 4]


def test_a_checkpoint_that_is_torn_is_passed_over(finished, tmp_path, capsys):
    config = copy_of(finished, tmp_path, up_to_step=4)
    shard = next((tmp_path / "run" / "checkpoints" / "step-00000004").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-100])
    # Keeping one only must not keep the torn one for being the latest.
    config = config.replace(checkpoint=CheckpointConfig(every_steps=1, keep=1))
    (weights,) = run_ranks(1, run_to_the_end, config, True)
    assert_close(weights, finished[1])
    assert "step-00000004: is not whole" in capsys.readouterr().err
    kept = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()]
    assert kept == ["step-00000004"]


def test_what_may_not_be_resumed(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    ((kind, message),) = run_ranks(1, run_to_the_end, config, False)
    assert kind is UserError and "--resume auto" in message
    other = config.replace(seed=99)
    ((kind, message),) = run_ranks(1, run_to_the_end, other, True)
    assert kind is ModelError and "seed was 0, is 99" in message
    assert f"give --config {config.output}/config.toml" in message
    assert "--accept-data-change" not in message
    other = on_one_strand(config, tmp_path)
    ((kind, message),) = run_ranks(1, run_to_the_end, other, True)
    assert kind is ModelError and "both_strands.eukaryote was True, is False" in message
    assert "--accept-data-change" in message


def on_one_strand(config: TrainConfig, folder: Path) -> TrainConfig:
    """Return the run over a copy of its corpus whose manifest takes the other strand away."""
    shutil.copytree(config.data.corpus, folder / "corpus", dirs_exist_ok=True)
    path = folder / "corpus" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["both_strands"] = dict.fromkeys(manifest["both_strands"], False)
    path.write_text(json.dumps(manifest))
    data = config.data.replace(corpus=str(folder / "corpus"))
    return config.replace(data=data)


@pytest.mark.nightly
def test_other_data_can_be_accepted(finished, tmp_path):
    """And the place of the prepared sources is no change at all."""
    config = copy_of(finished, tmp_path, up_to_step=2)
    moved = config.data.replace(cache=str(tmp_path / "elsewhere"))
    here = config.replace(data=moved)
    (weights,) = run_ranks(1, run_to_the_end, here, True)
    for name, value in finished[1].items():
        np.testing.assert_allclose(weights[name], value, rtol=0, atol=2e-5, err_msg=name)
    shutil.rmtree(tmp_path / "run")
    config = copy_of(finished, tmp_path, up_to_step=2)
    other = on_one_strand(config, tmp_path)
    (weights,) = run_ranks(1, run_to_the_end, other, True, True)
    assert any(not np.allclose(weights[n], v, atol=2e-5) for n, v in finished[1].items())


# The command, in this process


def test_a_signal_saves_and_the_same_command_goes_on(corpus, tmp_path, capsys, monkeypatch):
    config = make_small_config(corpus, tmp_path / "run", "checkpoint.every_steps=1000")
    metrics_of = Trainer._metrics

    def with_a_signal(trainer, *given):
        if trainer.state.step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            waits_for(lambda: trainer._signals.name)
        return metrics_of(trainer, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_metrics", with_a_signal)
        assert main(words_for(config)) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "SIGTERM: saved; continue with --resume auto"
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000002"]
    whole = make_small_config(corpus, tmp_path / "whole")
    run_ranks(1, run_to_the_end, whole)
    with without_pictures():
        assert main(words_for(config)) == 0
    assert lines_of(config.output) == lines_of(whole.output)
    assert exported(config.output) == exported(whole.output)


def test_a_second_run_in_a_folder_is_refused_and_changes_nothing(finished, tmp_path, capsys):
    config = copy_of(finished, tmp_path, up_to_step=4)
    words = words_for(config)
    files = [path for path in Path(config.output).rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    with locked_folder(config.output):
        assert main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"error: {config.output}: in use by process {os.getpid()} on ")
    assert {path: path.read_bytes() for path in before} == before


def test_a_full_disk_is_one_error_and_nothing_is_lost(corpus, tmp_path, capsys, monkeypatch):
    """One checkpoint fits, and is kept whole when the next does not."""
    short = (*steps_of_each(1), "checkpoint.every_steps=1")
    config = make_small_config(corpus, tmp_path / "run", *short)
    folders = []

    class OfASmallDisk(checkpoint.HuggingFaceStorageWriter):
        def write_data(self, *given):
            if self.path not in folders:
                folders.append(self.path)
            if len(folders) > 1:
                raise OSError(28, "No space left on device")
            return super().write_data(*given)

    monkeypatch.setattr(checkpoint, "HuggingFaceStorageWriter", OfASmallDisk)
    assert main(words_for(config)) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and "no space left on device" in error
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000001"]


@pytest.mark.nightly
def test_a_phase_that_a_signal_ends(corpus, tmp_path):
    """One step of the first phase is left out, and a resumed run knows."""
    config = make_config(corpus, tmp_path / "run")
    weights, _ = run_ranks(2, run_with_a_signal, config)
    folder = tmp_path / "run"
    assert [line["objective"] for line in lines_of(folder)] == ["ce", "fns", "fns"]
    assert [line["tokens"] for line in lines_of(folder)] == [n * BATCH_TOKENS for n in (1, 2, 3)]
    assert "told so: 'ce' ends" in (folder / "events.jsonl").read_text()
    shutil.rmtree(folder / "checkpoints" / "step-00000003")
    again, _ = run_ranks(2, run_to_the_end, config, True)
    assert_equal(again, weights)

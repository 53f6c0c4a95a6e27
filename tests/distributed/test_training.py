"""Runs from start to end: what they leave behind, and how they go on after whatever happened."""

import dataclasses
import gc
import itertools
import json
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest

from carbon.config import load_config
from carbon.corpus import read_source
from carbon.errors import ModelError, UserError
from carbon.inference import load
from eval.__main__ import main as evaluate
from tests.helpers.files import same_files
from tests.helpers.ranks import run_ranks
from tests.helpers.runs import BATCH_TOKENS, make_config, make_corpus, spoil
from tests.helpers.schemas import check_run
from train.__main__ import main
from train.config import CheckpointConfig, TrainConfig
from train.run_folder import saved


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def full_weights(trainer) -> dict[str, np.ndarray] | None:
    network = trainer.gathered()
    return network and {n: p.detach().numpy().copy() for n, p in network.named_parameters()}


def take_steps(ranks, config: TrainConfig, num_steps: int):
    from train.loop.trainer import Trainer

    trainer = Trainer(config, ranks)
    metrics = list(itertools.islice(trainer.steps(), num_steps))
    return metrics, full_weights(trainer)


def run_to_the_end(ranks, config: TrainConfig, resume: bool, accept_data_change: bool = False):
    from train.loop.trainer import Trainer

    trainer = Trainer(config, ranks)
    try:
        trainer.run(resume, accept_data_change)
    except UserError as error:
        return type(error), str(error)
    return full_weights(trainer)


def test_nats_per_base_are_those_of_the_exported_model(corpus, tmp_path):
    """CE in nats per base is the likelihood that scoring finds, so an untrained run says 1.386."""
    config = make_config(corpus, tmp_path / "r")
    ((metrics, _),) = run_ranks(1, take_steps, config, 1)
    assert metrics[0]["nats_per_base"] == pytest.approx(metrics[0]["loss"] / 6, rel=1e-6)
    assert metrics[0]["nats_per_base"] == pytest.approx(np.log(4), abs=0.02)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run of two processes from start to end, its folder and its weights."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    config = make_config(corpus, folder, "compute.profile_steps=[2, 3]")
    weights, *_ = run_ranks(2, run_to_the_end, config, False)
    return config, weights


def test_a_model_folder_and_a_page_at_any_time(finished, tmp_path, capsys):
    config, weights = finished
    words = ["--config", f"{config.output}/config.toml"]
    assert main(["export", *words, "--output", f"{tmp_path}/model"]) == 0
    exported = dict(load(tmp_path / "model").model.network.named_parameters())
    for name, value in weights.items():
        assert np.array_equal(exported[name].detach().numpy(), value), name
    assert same_files(tmp_path / "model", Path(config.output) / "export")
    assert "load" in (tmp_path / "model" / "README.md").read_text()
    assert main(["export", *words, "--output", f"{tmp_path}/model"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["summary", *words]) == 0
    assert "summary.html" in capsys.readouterr().out


def test_an_export_holds_one_weight_at_a_time(finished, tmp_path, monkeypatch):
    config, weights = finished
    alive, counts, load_one = weakref.WeakSet(), [], saved.load

    def noting(tensors, **rest):
        gc.collect()
        counts.append(len(alive))
        alive.update(tensors.values())
        load_one(tensors, **rest)

    monkeypatch.setattr(saved, "load", noting)
    words = ["--config", f"{config.output}/config.toml", "--output", f"{tmp_path}/model"]
    assert main(["export", *words]) == 0
    assert counts == [0] * len(weights)


def test_probes_measure_what_eval_does_and_change_nothing(corpus, finished, tmp_path):
    probe = ["probe.every_steps=2", "probe.heldout_bp=2000", "probe.sites=8"]
    config = make_config(corpus, tmp_path / "run", *probe)
    weights, _ = run_ranks(2, run_to_the_end, config, False)
    for name, value in finished[1].items():
        assert np.array_equal(weights[name], value), name
    check_run(tmp_path / "run", "probes")
    lines = (tmp_path / "run" / "probes.jsonl").read_text().splitlines()
    probes = [json.loads(line) for line in lines]
    assert [probe["step"] for probe in probes] == [2, 4]
    words = ["--model", f"{tmp_path}/run/export", "--corpus", str(corpus), "--sites", "8"]
    words += ["--tasks", "sequence_recovery,heldout_likelihood", "--most-bp", "2000"]
    assert evaluate(["heldout", *words, "--output", str(tmp_path / "results")]) == 0
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    assert probes[1]["recovery"] == results["sequence_recovery"]["value"]
    assert probes[1]["heldout_nats_per_base"] == results["heldout_likelihood"]["value"]


def run_with_a_signal(ranks, config: TrainConfig):
    """Train; the first stage ends on a signal after its first step."""
    import train.loop.trainer
    from train.loop.trainer import Trainer

    def signal(stage, state):
        return "told so" if stage.name == "ce" and state.step == 1 else ""

    train.loop.trainer.signal_to_end = signal
    trainer = Trainer(config, ranks)
    trainer.run(resume=True)
    return full_weights(trainer)


def test_a_stage_that_a_signal_ends(corpus, tmp_path):
    """One step of the first stage is left out, and a resumed run knows."""
    config = make_config(corpus, tmp_path / "run")
    weights, _ = run_ranks(2, run_with_a_signal, config)
    folder = tmp_path / "run"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["objective"] for line in lines] == ["ce", "fns", "fns"]
    assert [line["tokens"] for line in lines] == [n * BATCH_TOKENS for n in (1, 2, 3)]
    assert "told so: 'ce' ends" in (folder / "events.jsonl").read_text()
    shutil.rmtree(folder / "checkpoints" / "step-00000003")
    again, _ = run_ranks(2, run_to_the_end, config, True)
    for name, value in weights.items():
        assert np.array_equal(again[name], value), name


def run_rolled_back(ranks, config: TrainConfig):
    """The first stage ends on a signal after its first step; the next step is spoilt."""
    from train.loop.trainer import Trainer

    take = Trainer.__init__

    def prepared(self, *arguments):
        take(self, *arguments)
        spoil(self, at_step=1)

    Trainer.__init__ = prepared
    return run_with_a_signal(ranks, config)


def test_a_rollback_to_before_a_signal(corpus, tmp_path):
    """The checkpoint is that of step 0; the stage has ended all the same, and stays ended."""
    config = make_config(
        corpus, tmp_path / "run", "guard.policy=rollback", "checkpoint.every_steps=10"
    )
    run_ranks(2, run_rolled_back, config)
    folder = tmp_path / "run"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["objective"] for line in lines] == ["ce", "fns", "fns"]
    assert ["skipped" in line for line in lines] == [False, True, False]
    check_run(folder, "metrics", "events")
    state = json.loads((folder / "checkpoints/step-00000003/state.json").read_text())["state"]
    # Steps 1 and 2 are left out of the weights: one update remains.
    assert state["ended"] == {"0": 1} and state["skipped"] == [[0, 1]] and state["updates"] == 1


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
    check_run(folder, "metrics", "events")
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
    records = [read_source(config.data.corpus, name, "train") for name in ("eukaryote", "mrna")]
    assert {code for table in records for code in table["species_type"].to_pylist()} == {"inv"}
    assert {code for table in records for code in table["gene_type"].to_pylist()} == {"cds"}
    named = json.loads((folder / "export" / "config.json").read_text())["carbon_tags"]
    assert named == ["<invertebrate_species>", "<protein_coding_region>"]
    for rank in (0, 1):
        trace = json.loads((folder / "profile" / f"rank-{rank}.json").read_text())
        assert any("mm" in event.get("name", "") for event in trace["traceEvents"])


def test_resuming_on_the_same_layout_gives_the_same_bits(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    weights, *_ = run_ranks(2, run_to_the_end, config, True)
    for name, value in finished[1].items():
        assert np.array_equal(weights[name], value), name
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def resumed_by_the_command(ranks, config: TrainConfig):
    """Go on as the command does; return weights, and how many were made rather than loaded."""
    from train.loop.trainer import Trainer
    from train.network import parallel

    made, make = [], parallel.initial_weight

    def counted(name, *arguments):
        made.append(name)
        return make(name, *arguments)

    parallel.initial_weight = counted
    trainer = Trainer(config, ranks, resumes=True)
    assert not made
    trainer.run(True)
    return full_weights(trainer), len(made)


def test_what_is_loaded_is_not_made_before(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    (weights, made), (_, also) = run_ranks(2, resumed_by_the_command, config)
    assert (made, also) == (0, 0)
    for name, value in finished[1].items():
        assert np.array_equal(weights[name], value), name
    shutil.rmtree(config.output)
    (weights, made), _ = run_ranks(2, resumed_by_the_command, config)
    assert made == len(finished[1])  # there was none to go on from
    for name, value in finished[1].items():
        assert np.array_equal(weights[name], value), name


def test_resuming_on_another_layout_agrees_to_rounding(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=2)
    (weights,) = run_ranks(1, run_to_the_end, config, True)
    for name, value in finished[1].items():
        assert (np.abs(weights[name] - value) > 1e-4).mean() < 2e-3, name


def test_a_torn_checkpoint_is_passed_over(finished, tmp_path):
    config = copy_of(finished, tmp_path, up_to_step=4)
    shard = next((tmp_path / "run" / "checkpoints" / "step-00000004").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-100])
    # Keeping one only must not keep the torn one for being the latest.
    config = dataclasses.replace(config, checkpoint=CheckpointConfig(every_steps=1, keep=1))
    weights, *_ = run_ranks(2, run_to_the_end, config, True)
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
    other = on_one_strand(config, tmp_path)
    ((kind, message),) = run_ranks(1, run_to_the_end, other, True)
    assert kind is ModelError and "both_strands.eukaryote was True, is False; " in message
    assert "or go on with other data by --accept-data-change" in message


def resume_each(ranks, configs: list[TrainConfig]):
    return [run_to_the_end(ranks, config, True) for config in configs]


def test_a_checkpoint_from_before_some_keys(finished, tmp_path):
    """What it does not name has its default: a run that sets it otherwise is another run."""
    config = copy_of(finished, tmp_path, up_to_step=2)
    path = tmp_path / "run" / "checkpoints" / "step-00000002" / "state.json"
    table = json.loads(path.read_text())
    for name in ("optimizer.clip_norm", "stages.0.until", "stages.1.length_warmup", "tracker"):
        del table["settings"][name]
    path.write_text(json.dumps(table))
    clipped = dataclasses.replace(config.optimizer, clip_norm=0.5)
    other = dataclasses.replace(config, optimizer=clipped)
    (((kind, message), weights),) = run_ranks(1, resume_each, [other, config])
    assert kind is ModelError and "other settings: optimizer.clip_norm was 1.0, is 0.5;" in message
    for name, value in finished[1].items():
        assert (np.abs(weights[name] - value) > 1e-4).mean() < 2e-3, name


def on_one_strand(config: TrainConfig, folder: Path) -> TrainConfig:
    """Return the run over a copy of its corpus whose manifest takes the other strand away."""
    shutil.copytree(config.data.corpus, folder / "corpus")
    path = folder / "corpus" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["both_strands"] = dict.fromkeys(manifest["both_strands"], False)
    path.write_text(json.dumps(manifest))
    data = dataclasses.replace(config.data, corpus=str(folder / "corpus"))
    return dataclasses.replace(config, data=data)


def load_with(ranks, config: TrainConfig, flipped: list[list[str]]):
    """Load the checkpoint as an earlier version wrote its settings, with each of some lists."""
    from train.loop.trainer import Trainer

    trainer = Trainer(config, ranks)
    path = Path(config.output) / "checkpoints" / "step-00000002" / "state.json"
    table, told = json.loads(path.read_text()), []
    settings = {k: v for k, v in table["settings"].items() if not k.startswith("both_strands.")}
    assert len(settings) == len(table["settings"]) - 2
    for names in flipped:
        older = settings | {"data.flip_strands": names}
        path.write_text(json.dumps(table | {"settings": older}))
        try:
            told.append(trainer.load())
        except ModelError as error:
            told.append(str(error))
    return told


def test_an_older_checkpoint_names_the_sources_of_both_strands(finished, tmp_path):
    """In a list, with names of sources that the run may not read; what it does read must agree."""
    config = copy_of(finished, tmp_path, up_to_step=2)
    lists = [["eukaryote", "prokaryote_evo2"], ["eukaryote"], ["eukaryote", "mrna"], []]
    (found,) = run_ranks(1, load_with, config, lists)
    assert found[:2] == [True, True]
    assert "both_strands.mrna was True, is False; " in found[2] and "eukaryote" not in found[2]
    assert "both_strands.eukaryote was False, is True; " in found[3]


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
    other = on_one_strand(config, tmp_path)
    (weights,) = run_ranks(1, run_to_the_end, other, True, True)
    assert any(not np.allclose(weights[n], v, atol=2e-5) for n, v in finished[1].items())

"""`carbon tune` with workers that draw, in processes of this machine."""

import os
import signal
import sys

import pytest
import torch

import carbon
from carbon.cli import main
from carbon.design.goals import Goal
from carbon.design.grpo import six_mers_alone, tokenizer_of, trainer_of
from carbon.design.oracles import InProcess
from carbon.design.rewards import Rewards
from carbon.design.rollouts import Rollouts, drawn, log_probs_of
from carbon.design.tune_task import TuneJob, TuneTask
from carbon.errors import UserError
from carbon.inference.scoring import base_log_likelihoods
from carbon.model import load_model, save_model
from carbon.run_folder import read_lines
from carbon.tokenizer import NATIVE, decode_ids, encode
from tests.helpers.files import random_bases
from tests.helpers.processes import waits_for, workers_of

ORACLE = "def gc(s): return [(x.count('G') + x.count('C')) / len(x) for x in s]"


@pytest.fixture
def folder(tmp_path, network, monkeypatch):
    save_model(network, tmp_path / "base")
    (tmp_path / "shares.py").write_text(ORACLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words, steps=8, stale=1):
    return [
        "tune", "--model", "base", "--oracle", "python:shares:gc", "--length", "30",
        "--group", "4", "--steps", str(steps), "--rate", "0.01", "--device", "cpu",
        "--output", "out", "--stale", str(stale), *map(str, words),
    ]  # fmt: skip


@pytest.mark.parametrize("stale", [0, 1])
def test_a_worker_that_is_killed_takes_nothing_with_it(folder, start, stale):
    """Two workers, one of which is killed in the middle; no weights are older than allowed."""
    places = {"base": f"{folder}/base", "out": f"{folder}/out"}
    words = [places.get(word, word) for word in command("--processes", 2, stale=stale)]
    learner = start([sys.executable, "-m", "carbon", *words], PYTHONPATH=str(folder))
    waits_for((folder / "out/metrics.jsonl").exists)
    os.kill(workers_of(learner)[0], signal.SIGKILL)
    _, said = learner.communicate(timeout=500)
    assert learner.returncode == 0, said
    assert "a worker died (SIGKILL); another one replaces it" in said
    lines = read_lines("out").steps
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert lines[0]["staleness_rounds"] == 0
    assert all(0 <= line["staleness_rounds"] <= stale for line in lines)
    dropped = [line["dropped_groups"] for line in lines]
    assert dropped == sorted(dropped)
    assert (folder / "out/model/model.safetensors").is_file()


def test_an_oracle_that_fails_in_a_worker_ends_the_run(folder, capsys):
    (folder / "shares.py").write_text("def gc(s): return [float('nan') for x in s]")
    assert main(command("--processes", 1, steps=2)) == 2
    assert "oracle 'gc': " in capsys.readouterr().err


def test_an_oracle_that_no_worker_can_have(folder):
    with pytest.raises(UserError, match="workers are other processes; name oracles"):
        carbon.tune("base", [len], "out", length_bp=30, processes=1)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", 2, "--resume"], "workers: one process learns"),
        (["--vllm", "http://here"], "--vllm: a server draws for a worker; give --processes 1"),
        (["--processes", 2, "--ray", "h:1"], "--ray and --processes: give one of them"),
    ],
)
def test_what_does_not_go_together(folder, capsys, words, message):
    assert main(command(*words)) == 2
    assert message in capsys.readouterr().err


class Groups:
    """Workers whose groups are those of a list."""

    def __init__(self):
        self.groups = []

    def computed(self, blocks):
        while True:
            yield next(blocks).number, self.groups.pop(0)


@pytest.fixture
def trainer(folder):
    """A learner at its first step, for which a group lies ready that other weights drew."""
    loaded = load_model("base")
    task = TuneTask(length_bp=30, group=4, kl=0.0)
    job = TuneJob("base", ["python:shares:gc"], task, folder / "out", on_cpu=True)
    rewards = Rewards([InProcess(lambda s: [0.0] * len(s))], [Goal(1.0)], loaded.vocabulary)
    workers = Groups()
    tokenizer = tokenizer_of("base", loaded.vocabulary)
    with six_mers_alone(loaded):
        yield trainer_of(job, loaded, tokenizer, rewards, Rollouts(workers, task)), workers.groups


def test_log_probabilities_of_a_worker_are_those_of_scoring(trainer):
    learner, _ = trainer
    prompt = [*NATIVE.prefix(), *encode("ACGTTG").ids[1:2]]
    network, task = learner.model.get_base_model(), TuneTask(length_bp=30, prompt="ACGTTG")
    ids = drawn(network, NATIVE, task, 1, range(3))
    log_probs = log_probs_of(network, prompt, ids)
    bases = ["ACGTTG" + decode_ids(row, NATIVE) for row in ids.numpy()]
    scored = base_log_likelihoods(carbon.load("base", device="cpu").reader, bases)
    ours = [float(values[6:].sum()) for values in scored]
    assert log_probs.sum(dim=1).tolist() == pytest.approx(ours, abs=1e-3)


def test_the_loss_corrects_for_the_weights_that_drew(trainer):
    """By arithmetic: mean of -min(r A, clip(r) A), r = p now / p of who drew, A the z-score."""
    learner, groups = trainer
    prompt = list(NATIVE.prefix())
    ids = torch.tensor([encode(random_bases(30, seed)).ids[1:6] for seed in range(4)])
    with torch.no_grad():
        whole = torch.tensor([prompt + row.tolist() for row in ids])
        logits = learner.model(whole).logits[:, len(prompt) - 1 : -1].float()
    now = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    shift = torch.linspace(-0.5, 0.5, 20).reshape(4, 5)
    values = torch.tensor([[0.1], [0.4], [0.2], [0.9]], dtype=torch.float64)
    log_probs = (now - shift).tolist()
    groups.append(
        {"round": 0, "ids": ids.tolist(), "log_probs": log_probs, "values": values.tolist()}
    )

    learner.model.train()
    inputs = [dict(learner.train_dataset[0]) for _ in range(4)]
    learner.current_gradient_accumulation_steps = 1
    loss = learner.compute_loss(learner.model, learner._prepare_inputs(inputs))

    advantage = ((values - values.mean()) / (values.std() + 1e-4)).float()
    ratio = shift.exp()
    expected = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    assert abs(expected.item()) > 0.02  # without the correction it is 0: the mean of z-scores
    assert learner.rollout_func.told() == {"staleness_rounds": 0, "dropped_groups": 0}


def test_groups_of_old_weights_are_dropped_and_counted(trainer):
    learner, groups = trainer
    learner.state.global_step = 5
    for round_ in (1, 2, 3, 5):
        groups.append({"round": round_, "ids": [], "log_probs": [], "values": []})
    rollouts = learner.rollout_func
    rollouts(["<dna>"], learner)
    assert rollouts.told() == {"staleness_rounds": 2, "dropped_groups": 2}
    rollouts(["<dna>"], learner)
    assert rollouts.told() == {"staleness_rounds": 0, "dropped_groups": 2}

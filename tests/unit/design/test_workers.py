"""`carbon rl` with workers that draw, in processes of this machine."""

import subprocess
import sys

import pytest
import torch

import carbon
from carbon.cli import main
from carbon.design.functions import running_functions
from carbon.design.goals import Goal
from carbon.errors import UserError
from carbon.inference.score import base_log_likelihoods
from carbon.model import load_model, save_model
from carbon.rl.config import RLConfig, RLJob, SamplerOptions
from carbon.rl.grpo import kmers_only, make_trainer, tokenizer_of
from carbon.rl.rewards import Rewards
from carbon.rl.rollouts import WorkerRollouts, draw_samples, log_probs_of
from carbon.tokenizer import NATIVE, decode_ids, encode
from tests.helpers.files import random_bases

FUNCTION = "def gc(s): return [(x.count('G') + x.count('C')) / len(x) for x in s]"


@pytest.fixture
def folder(tmp_path, network, monkeypatch):
    save_model(network, tmp_path / "base")
    (tmp_path / "shares.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_function_that_fails_in_a_worker_ends_the_run(folder, capsys):
    (folder / "shares.py").write_text("def gc(s): return [float('nan') for x in s]")
    words = [
        "rl", "--model", "base", "--function", "python:shares:gc", "--length", "30", "--group", "4",
        "--steps", "2", "--device", "cpu", "--output", "out", "--processes", "1",
    ]  # fmt: skip
    assert main(words) == 2
    assert "function 'gc': " in capsys.readouterr().err


def test_a_function_that_no_worker_can_have(folder):
    with pytest.raises(UserError, match="name scoring functions"):
        carbon.rl.run("base", [len], "out", length_bp=30, processes=1)
    assert not (folder / "out").exists()


class Groups:
    """Simulated workers that return prepared groups."""

    def __init__(self):
        self.groups = []

    def computed(self, blocks):
        while True:
            yield [(next(blocks).number, self.groups.pop(0))]


@pytest.fixture
def trainer(folder):
    """A trainer at its first step, and a list for groups drawn with other weights."""
    loaded = load_model("base")
    task = RLConfig(length_bp=30, group=4, kl=0.0)
    job = RLJob("base", ["python:shares:gc"], task, folder / "out", SamplerOptions(device="cpu"))
    workers = Groups()
    tokenizer = tokenizer_of("base", loaded.vocabulary)
    with running_functions([lambda s: [0.0] * len(s)], 60) as functions, kmers_only(loaded):
        rewards = Rewards(functions, [Goal(1.0)], loaded.vocabulary)
        rollouts = WorkerRollouts(workers, task)
        yield make_trainer(job, loaded, tokenizer, rewards, rollouts), workers.groups


def test_log_probabilities_of_a_worker_are_those_of_scoring(trainer):
    learner, _ = trainer
    prompt = [*NATIVE.prefix(), *encode("ACGTTG").ids[1:2]]
    network, task = learner.model.get_base_model(), RLConfig(length_bp=30, prompt="ACGTTG")
    ids = draw_samples(network, NATIVE, task, 1, range(3))
    log_probs = log_probs_of(network, prompt, ids)
    bases = ["ACGTTG" + decode_ids(row, NATIVE) for row in ids.numpy()]
    scored = base_log_likelihoods(carbon.load("base", device="cpu").runner, bases)
    ours = [float(values[6:].sum()) for values in scored]
    assert log_probs.sum(dim=1).tolist() == pytest.approx(ours, abs=1e-3)


def test_the_loss_corrects_for_the_weights_that_drew(trainer):
    """Mean of -min(r A, clip(r) A): r is the ratio to the drawing weights, A the z-score."""
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
    group = {"round": 0, "ids": ids.tolist(), "log_probs": log_probs, "values": values.tolist()}
    groups.append(group)

    learner.model.train()
    inputs = [dict(learner.train_dataset[0]) for _ in range(4)]
    learner.current_gradient_accumulation_steps = 1
    loss = learner.compute_loss(learner.model, learner._prepare_inputs(inputs))

    advantage = ((values - values.mean()) / (values.std() + 1e-4)).float()
    ratio = shift.exp()
    expected = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    assert abs(expected.item()) > 0.02  # without the correction it is 0: the mean of z-scores
    assert learner.rollout_func.metrics() == {"staleness_rounds": 0, "dropped_groups": 0}


def test_groups_of_old_weights_are_dropped_and_counted(trainer):
    learner, groups = trainer
    learner.state.global_step = 5
    for round_ in (1, 2, 3, 5):
        groups.append({"round": round_, "ids": [], "log_probs": [], "values": []})
    rollouts = learner.rollout_func
    rollouts(["<dna>"], learner)
    assert rollouts.metrics() == {"staleness_rounds": 2, "dropped_groups": 2}
    rollouts(["<dna>"], learner)
    assert rollouts.metrics() == {"staleness_rounds": 0, "dropped_groups": 2}


CHECKED = """
import sys
from carbon.cli import main
assert main(sys.argv[1:]) == 2
assert "torch" not in sys.modules
"""


@pytest.mark.nightly
def test_mistakes_are_found_before_torch_is_imported(folder):
    words = ["rl", "--model", "base", "--function", "python:shares:gc", "--output", "out"]
    words += ["--length", "30", "--vllm", "http://127.0.0.1:1"]
    done = subprocess.run([sys.executable, "-c", CHECKED, *words], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert b"--vllm: a server draws for a worker" in done.stderr

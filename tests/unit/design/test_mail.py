"""`carbon tune` with workers that draw: processes that share a folder and nothing else."""

import os

import pytest
import torch

import carbon
from carbon import store
from carbon.cli import main
from carbon.design import mail
from carbon.design.goals import Goal
from carbon.design.grpo import six_mers_alone, tokenizer_of, trainer_of
from carbon.design.mail import Letter, Mailbox
from carbon.design.oracles import InProcess
from carbon.design.rewards import Rewards
from carbon.design.rollouts import Rollouts, drawn, log_probs_of
from carbon.design.tune_task import TuneJob, TuneTask
from carbon.errors import UserError
from carbon.inference.scoring import base_log_likelihoods
from carbon.model import load_model, save_model
from carbon.store import open_tensors
from carbon.tokenizer import NATIVE, decode_ids, encode
from tests.helpers.files import random_bases

ORACLE = "def gc(s): return [(x.count('G') + x.count('C')) / len(x) for x in s]"


@pytest.fixture
def folder(tmp_path, network, monkeypatch):
    save_model(network, tmp_path / "base")
    (tmp_path / "shares.py").write_text(ORACLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words):
    return [
        "tune", "--model", "base", "--oracle", "python:shares:gc", "--length", "30",
        "--group", "4", "--steps", "8", "--rate", "0.01", "--device", "cpu",
        "--mailbox", "mailbox", "--stale", "1", *map(str, words),
    ]  # fmt: skip


def test_what_is_too_old_is_dropped_and_counted(tmp_path):
    mailbox = Mailbox(str(tmp_path / "box"))
    mailbox.begin({"a": 1})
    ones = torch.ones(2, 3)

    def letter(round_):
        return Letter(round_, torch.full((2, 3), round_), ones, ones[:, :1].double())

    for round_ in (3, 4, 4, 5):
        mailbox.send(letter(round_), worker=1, number=mailbox.num_waiting(0))
    torn = tmp_path / "box/samples/000005/2-000000.safetensors"
    torn.write_bytes(b"of a worker that was killed")
    assert [mailbox.num_waiting(least_round) for least_round in (3, 4, 5, 6)] == [4, 3, 1, 0]
    assert mailbox.drop(4) == 1
    assert [mailbox.take(4).round for _ in range(3)] == [5, 4, 4]
    assert mailbox.num_waiting(0) == 0
    assert list((tmp_path / "box/samples/000005").iterdir()) == [torn]


def test_torn_samples_and_weights_are_not_taken(tmp_path):
    mailbox = Mailbox(str(tmp_path / "box"))
    mailbox.begin({})
    ones = torch.ones(2, 3)
    for number in range(2):
        mailbox.send(Letter(0, ones, ones * number, ones * 2), worker=1, number=number)
    path = tmp_path / "box/samples/000000/1-000000.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert mailbox.take(0).log_probs.equal(ones)
    for round_ in range(4):
        mailbox.publish(round_, {"w": ones * round_})
    round_, weights = mailbox.newest(2)
    assert round_ == 3 and weights["w"].equal(ones * 3)
    assert mailbox.newest(3) is None
    assert len(list((tmp_path / "box/weights").iterdir())) == 4
    newest = tmp_path / "box/weights/000003.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert mailbox.newest(2) is None


def test_storage_that_does_not_answer_is_asked_again(tmp_path, monkeypatch, capsys):
    """Every call of storage fails once; a bucket's copies do not pile up on this machine."""
    monkeypatch.setattr(store, "_PAUSES_SECONDS", (0.0, 0.0))  # a folder, a file
    mailbox, failed, call = Mailbox(f"memory://{tmp_path}"), set(), store.Store._call
    mailbox.begin({})

    def failing_once(self, *given, **more):
        if (what := (given[0], str(given[-1]))) not in failed:
            failed.add(what)
            raise OSError("storage does not answer")
        return call(self, *given, **more)

    monkeypatch.setattr(store.Store, "_call", failing_once)
    ones = torch.ones(2, 3)
    for round_ in range(4):
        mailbox.publish(round_, {"w": ones * round_})
        mailbox.send(Letter(round_, ones, ones + 1, ones + 2), worker=1, number=round_)
    assert mailbox.newest(None)[0] == 3 and mailbox.drop(1) == 1
    assert mailbox.take(0).round == 3 and mailbox.num_waiting(0) == 2
    mailbox.end()
    assert mailbox.is_over()
    assert {name for name, _ in failed} >= {"put_file", "pipe_file", "rm", "ls", "get_file"}
    assert "storage does not answer; trying again" in capsys.readouterr().err
    assert [path.name for path in mailbox._scratch.iterdir()] == ["sent.safetensors"]
    mailbox.close()


def test_a_group_that_is_being_sent_is_left_alone(tmp_path, monkeypatch):
    """The learner looks before each of its files, its tensors and its table, has its name."""
    mailbox, looks = Mailbox(str(tmp_path / "box")), []
    mailbox.begin({})
    replace = os.replace

    def after_a_look(*given):
        looks.append((mailbox.num_waiting(0), mailbox.drop(1)))
        replace(*given)

    monkeypatch.setattr(os, "replace", after_a_look)
    mailbox.send(Letter(0, *(torch.ones(2, 3) for _ in range(3))), worker=1, number=0)
    assert looks == [(0, 0), (0, 0)] and mailbox.num_waiting(0) == 1


def test_a_file_that_goes_while_it_is_read(tmp_path, monkeypatch):
    mailbox = Mailbox(str(tmp_path / "box"))
    mailbox.begin({})
    mailbox.publish(0, {"w": torch.ones(2)})
    monkeypatch.setattr(mail, "open_tensors", lambda file: open_tensors(file.with_name("gone")))
    assert mailbox.newest(None) is None


def test_an_oracle_that_no_worker_can_have(folder):
    with pytest.raises(UserError, match="python:MODULE:FUNCTION"):
        carbon.tune("base", [len], "out", length_bp=30, mailbox="mailbox")
    assert not (folder / "out").exists() and not (folder / "mailbox").exists()


def test_a_worker_of_other_settings_and_a_mailbox_of_another_run(folder, capsys):
    Mailbox("mailbox").begin({"group": 4})
    assert main(command("--worker", 1)) == 2
    assert "the run differs in: adapted, carbon, goals" in capsys.readouterr().err
    assert main(command("--output", "out")) == 2
    assert "is the mailbox of another run" in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.fixture
def trainer(folder):
    """A learner at its first step, in whose mailbox a group lies that other weights drew."""
    loaded = load_model("base")
    task = TuneTask(length_bp=30, group=4, kl=0.0)
    job = TuneJob("base", ["python:shares:gc"], task, folder / "out", on_cpu=True)
    rewards = Rewards([InProcess(lambda s: [0.0] * len(s))], [Goal(1.0)], loaded.vocabulary)
    mailbox = Mailbox(str(folder / "box"))
    mailbox.begin({})
    with six_mers_alone(loaded):
        yield (
            trainer_of(
                job, loaded, tokenizer_of("base", loaded.vocabulary), rewards, Rollouts(mailbox, 2)
            ),
            mailbox,
        )


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
    learner, mailbox = trainer
    prompt = list(NATIVE.prefix())
    ids = torch.tensor([encode(random_bases(30, seed)).ids[1:6] for seed in range(4)])
    with torch.no_grad():
        whole = torch.tensor([prompt + row.tolist() for row in ids])
        logits = learner.model(whole).logits[:, len(prompt) - 1 : -1].float()
    now = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    shift = torch.linspace(-0.5, 0.5, 20).reshape(4, 5)
    values = torch.tensor([[0.1], [0.4], [0.2], [0.9]], dtype=torch.float64)
    mailbox.send(Letter(0, ids, now - shift, values), worker=1, number=0)

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

"""`carbon rl`: rewards rise, samples are whole 6-mers, and the export has the starting files."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import carbon
from carbon.cli import main
from carbon.design.functions import running_functions
from carbon.design.goals import Goal
from carbon.errors import UserError
from carbon.genome.sequences import read_records
from carbon.inference.score import base_log_likelihoods
from carbon.model import load_model
from carbon.rl.config import RLConfig, RLJob, SamplerOptions
from carbon.rl.grpo import kmers_only, make_trainer, prompt_of, tokenizer_of
from carbon.rl.rewards import Rewards
from carbon.run_folder import read_lines
from carbon.tokenizer import NATIVE, decode_ids, encode
from tests.helpers.files import random_bases

ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def tune(start, *words, function="python:some_functions:gc", steps=2):
    return main(
        ["rl", "--model", str(start), "--function", function, "--length", "30",
         "--steps", str(steps), "--device", "cpu", "--rate", "0.01", *map(str, words)]
    )  # fmt: skip


def run_of(start, folder, *words, steps):
    """Run so that the share of G and C is maximised; return the folder of the run."""
    (folder / "shares.py").write_text("def gc(s): return [sum(map(x.count, 'GC')) / 30 for x in s]")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ("--output", "run", *words)
        assert tune(start, *words, function="python:shares:gc", steps=steps) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def run(start, tmp_path_factory):
    return run_of(start, tmp_path_factory.mktemp("runs"), "--save-steps", 2, "--group", 4, steps=4)


@pytest.mark.nightly
def test_the_reward_rises_and_the_curves_tell_it(start, tmp_path):
    run = run_of(start, tmp_path, steps=20)
    lines = read_lines(run).steps
    assert [line["step"] for line in lines] == list(range(1, 21))
    gc = [line["gc"] for line in lines]
    assert [line["reward"] for line in lines] == gc
    assert sum(gc[-5:]) / 5 > sum(gc[:5]) / 5 + 0.15
    assert lines[0]["kl_nats_per_base"] == pytest.approx(0, abs=1e-6)
    assert lines[-1]["kl_nats_per_base"] > 0.001
    assert all(0 < line["nats_per_base"] < 1.3863 for line in lines)

    # The page: a tenth of the steps at either end, averaged by hand.
    page = (run / "summary.html").read_text()
    for part in (gc[:2], gc[-2:]):
        assert f"{sum(part) / 2:.4g}" in page
    samples = [record.bases for record in read_records(run / "samples" / "step_000020.fa")]
    assert f"{len(set(samples))} are distinct" in page and "http" not in page
    assert all(bases in page for bases in samples[:5])


def test_samples_are_whole_6_mers_and_tell_where_they_come_from(run):
    files = sorted((run / "samples").iterdir())
    assert [file.name for file in files] == ["step_000002.fa", "step_000004.fa"]
    lines = read_lines(run).steps
    for file, line in zip(files, lines[1::2], strict=True):
        records = list(read_records(file))
        assert len(records) == 4
        assert all(len(r.bases) == 30 and set(r.bases) <= set("ACGT") for r in records)
        gc = [sum(map(r.bases.count, "GC")) / 30 for r in records]
        assert sum(gc) / 4 == pytest.approx(line["gc"])
        words = dict(word.split("=", 1) for word in records[0].description.split())
        assert float(words["gc"]) == pytest.approx(gc[0]) and words["step"] == str(line["step"])


def test_the_export_is_the_start_but_for_weights_with_adapters(start, run):
    export = run / "model"
    assert {path.name for path in export.iterdir()} == {path.name for path in start.iterdir()}
    for path in start.iterdir():
        if path.suffix != ".safetensors":
            assert (export / path.name).read_bytes() == path.read_bytes()
    before, after = (load_file(folder / "model.safetensors") for folder in (start, export))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.split(".")[-2] in ADAPTED}


def test_the_export_loads_everywhere_and_is_start_and_adapter(start, run):
    from peft import PeftModel

    ids = torch.tensor([[*NATIVE.prefix(), *encode(random_bases(30, 1)).ids[1:6]]])
    stock = AutoModelForCausalLM.from_pretrained(run / "model").eval()
    finetuned = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(start), run / "adapter"
    ).eval()
    with torch.no_grad():
        assert torch.allclose(stock(ids).logits, finetuned(ids).logits, atol=1e-4)
    assert stock.lm_head.bias is None
    (drawn,) = carbon.load(run / "model", device="cpu").generate([""], 30, seed=1)
    assert len(drawn) == 30


@pytest.fixture
def ready(start, tmp_path):
    """Job and trl's trainer, with the head restricted to 6-mers."""
    loaded = load_model(start)
    task = RLConfig(length_bp=30, prompt="ACGTTGCAACGT", tags=("<fungi_species>",), group=4)
    job = RLJob(
        str(start), ["python:some_functions:gc"], task, tmp_path / "o", SamplerOptions(device="cpu")
    )
    with (
        running_functions([lambda s: [1.0] * len(s)], 60) as functions,
        kmers_only(loaded),
    ):
        rewards = Rewards(functions, [Goal(1.0)], loaded.vocabulary)
        tokenizer = tokenizer_of(str(start), loaded.vocabulary)
        yield job, make_trainer(job, loaded, tokenizer, rewards)
    assert loaded.network.lm_head.bias is None


def test_what_is_learned_from_is_normalised_over_6_mers(start, ready):
    """The log-probability of a sample equals its score after the prompt."""
    job, trainer = ready
    samples = [random_bases(30, seed) for seed in range(4)]
    wholes = [job.config.prompt + bases for bases in samples]
    scored = base_log_likelihoods(carbon.load(start, device="cpu").runner, wholes, job.config.tags)
    ours = [float(values[12:].sum()) for values in scored]
    (prompt,) = trainer.processing_class(text=[trainer.train_dataset[0]["prompt"]])["input_ids"]
    ids = [[*NATIVE.prefix(job.config.tags), *encode(whole).ids[1:]] for whole in wholes]
    ids = torch.tensor([row[: len(prompt) + 5] for row in ids])
    assert prompt == ids[0, : len(prompt)].tolist()
    arguments = (trainer.model, ids, torch.ones_like(ids), 5)
    with torch.no_grad():
        logps = trainer._get_per_token_logps_and_entropies(*arguments)[0]
        assert logps.sum(dim=1).tolist() == pytest.approx(ours, abs=1e-3)
        trainer.model.get_base_model().lm_head.bias.zero_()
        loose = trainer._get_per_token_logps_and_entropies(*arguments)[0]
    assert (logps - loose > 0.1).any()


def test_samples_are_those_of_generate(start, ready):
    """New adapters change nothing, so the starting model draws the same samples."""
    job, trainer = ready
    found = trainer.rollout_func([prompt_of(job.config)] * 4, trainer)
    (prompt,) = trainer.processing_class(text=[prompt_of(job.config)])["input_ids"]
    assert found["prompt_ids"] == [prompt] * 4
    seed = int(np.random.SeedSequence([job.config.seed, 0]).generate_state(1)[0])
    model = carbon.load(start, device="cpu")
    drawn = model.generate([job.config.prompt] * 4, 30, seed=seed, tags=job.config.tags)
    assert [decode_ids(np.array(ids)) for ids in found["completion_ids"]] == list(drawn)
    assert len(set(drawn)) > 1
    trainer.state.global_step = 1
    assert trainer.rollout_func([prompt_of(job.config)] * 4, trainer) != found


def test_several_functions_with_goals(start, functions, capsys):
    words = ["--function", "python:some_functions:at", "--goal", "0.4", "--goal", "minimize"]
    assert tune(start, *words, "--output", "two", "--group", 4, steps=1) == 0
    line = read_lines("two").steps[-1]
    last = json.loads(capsys.readouterr().out)["last"]
    assert last == {"gc": line["gc"], "at": line["at"]}
    assert last["gc"] + last["at"] == pytest.approx(1)
    rewards = []
    for record in read_records("two/samples/step_000001.fa"):
        words = dict(word.split("=", 1) for word in record.description.split())
        rewards.append(-abs(float(words["gc"]) - 0.4) - float(words["at"]))
    assert line["reward"] == pytest.approx(sum(rewards) / 4) and len(rewards) == 4


def test_a_function_that_fails_leaves_what_was_learned(start, functions, capsys):
    (functions / "moody.py").write_text(
        "calls = 0\n"
        "def gc(sequences):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls > 2:\n"
        "        raise RuntimeError('not today')\n"
        "    return [s.count('G') for s in sequences]\n"
    )
    words = ["--output", "o", "--group", 4, "--save-steps", 1]
    assert tune(start, *words, function="python:moody:gc", steps=9) == 2
    told = capsys.readouterr().err
    assert "function 'gc': sample_1: it raised RuntimeError" in told and "Traceback" not in told
    assert [line["step"] for line in read_lines("o").steps] == [1, 2]
    assert (functions / "o/adapter/adapter_model.safetensors").is_file()
    assert not (functions / "o/model").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--length", 600], "101 tokens, the model has 48"),
        (["--tag", "<unknown>"], "tag '<unknown>'"),
        (["--function", "loss=python:some_functions:gc"], "'loss'"),
    ],
)
def test_mistakes_leave_nothing_behind(start, functions, capsys, words, message):
    assert tune(start, "--output", "o", *words) == 2
    assert message in capsys.readouterr().err
    assert not (functions / "o").exists()


@pytest.mark.parametrize("option", [{"group": 1}, {"kl": -1.0}, {"prompt": "ACGT"}, {"rate": 0.0}])
def test_a_task_is_checked(option):
    with pytest.raises(UserError, match=next(iter(option))):
        RLConfig(length_bp=30, **option)


def test_the_defaults_of_a_task():
    task = RLConfig(length_bp=30)
    assert (task.steps, task.group, task.rank, task.save_steps) == (200, 16, 16, 20)
    assert (task.kl, task.rate, task.most_stale, task.seed) == (0.04, 1e-4, 2, 0)


def test_what_stands_in_the_way_of_a_run(start, functions, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert tune(start, "--output", "o") == 2
    assert "group 16" in capsys.readouterr().err  # is not shared evenly
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setitem(sys.modules, "trl", None)
    assert tune(start, "--output", "o") == 2
    assert "pip install 'carbon-dna[rl]'" in capsys.readouterr().err
    assert not (functions / "o").exists()

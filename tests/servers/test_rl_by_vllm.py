"""A vLLM server that draws for `carbon rl`, started as docs/design.md tells."""

import pytest
import torch
from peft import set_peft_model_state_dict

from carbon.cli import main
from carbon.errors import UserError
from carbon.model import load_model
from carbon.rl.config import RLConfig, RLJob, SamplerOptions
from carbon.rl.grpo import kmers_only, prompt_of, tokenizer_of, with_adapters
from carbon.rl.rollouts import VllmServer, adapter_of, log_probs_of
from carbon.run_folder import read_lines
from tests.helpers.vllm import served_by_vllm

pytestmark = pytest.mark.nightly
FUNCTION = "def gc(s): return [(x.count('G') + x.count('C')) / len(x) for x in s]"
TASK = RLConfig(length_bp=60, prompt="ATGGCTGTCTCTAAAGTT", group=4)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with served_by_vllm("design.md", tmp_path_factory.mktemp("vllm")) as address:
        yield address


@pytest.fixture
def worker(tmp_path):
    """The network of a worker, its vocabulary, and the prompt."""
    loaded = load_model("yeast")
    tokenizer = tokenizer_of("yeast", loaded.vocabulary)
    with kmers_only(loaded):
        job = RLJob("yeast", [], TASK, tmp_path, SamplerOptions(device="cpu"))
        network = with_adapters(job, loaded, tokenizer)
        (prompt,) = tokenizer(text=[prompt_of(TASK)])["input_ids"]
        yield network, loaded.vocabulary, prompt


def change(network, seed):
    """Give it the weights of an adapter that does much."""
    torch.manual_seed(seed)
    weights = {name: 0.2 * torch.randn_like(each) for name, each in adapter_of(network).items()}
    set_peft_model_state_dict(network, weights)


def test_it_draws_with_the_newest_adapter(address, worker):
    network, vocabulary, prompt = worker
    start = log_probs_of(network.get_base_model(), prompt, torch.full((1, 10), 2000))
    server = VllmServer(address, network, vocabulary, prompt, TASK)
    for round_ in (0, 3):
        change(network, round_)
        ids, log_probs = server.draw(round_, 7, range(4))
        assert ids.shape == log_probs.shape == (4, 10)
        assert ids.min() >= vocabulary.kmer_rows.start and ids.max() < vocabulary.kmer_rows.stop
        ours = log_probs_of(network.get_base_model(), prompt, ids)
        torch.testing.assert_close(log_probs, ours, atol=1e-3, rtol=0)
    changed = log_probs_of(network.get_base_model(), prompt, torch.full((1, 10), 2000))
    assert (changed - start).abs().mean() > 0.1  # the adapter does much
    again, _ = server.draw(3, 7, range(4))
    others, _ = server.draw(3, 7, range(4, 8))
    assert again.equal(ids) and not others.equal(ids)
    server.close()


def test_a_server_of_other_weights_is_refused(address, worker):
    network, vocabulary, prompt = worker
    server = VllmServer(address, network, vocabulary, prompt, TASK)
    change(network, 1)
    server.draw(0, 7, range(2))
    change(network, 2)  # not told to the server, which has the adapter of round 0
    with pytest.raises(UserError, match="nats a 6-mer from those of the worker"):
        server.draw(0, 7, range(2))
    server.close()


def test_what_it_refuses_is_told(address, worker):
    network, vocabulary, prompt = worker
    with pytest.raises(UserError, match=r"404.*docs/design.md explains how to"):
        VllmServer(f"{address}/elsewhere", network, vocabulary, prompt, TASK)


def test_a_run_by_a_worker_that_asks_it(address, tmp_path, monkeypatch):
    (tmp_path / "shares.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    words = [
        "rl", "--model", "yeast", "--function", "python:shares:gc", "--length", "60",
        "--group", "8", "--steps", "30", "--rate", "0.003", "--kl", "0", "--device", "cpu",
        "--processes", "1", "--vllm", address, "--stale", "0", "--output", "out",
    ]  # fmt: skip
    assert main(words) == 0
    steps = read_lines("out").steps
    assert len(steps) == 30 and steps[-1]["gc"] > steps[0]["gc"] + 0.15

"""Requests of a worker of `carbon rl` to a vLLM server; tests/servers starts a real server."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch

from carbon.errors import UserError
from carbon.model import load_model, save_model
from carbon.rl.config import RLConfig, RLJob, SamplerOptions
from carbon.rl.grpo import kmers_only, prompt_of, tokenizer_of, with_adapters
from carbon.rl.rollouts import VllmServer, draw_locally

TASK = RLConfig(length_bp=30, group=4)


@pytest.fixture
def worker(tmp_path, network):
    """Network, vocabulary and prompt of a worker."""
    save_model(network, tmp_path / "base")
    name = str(tmp_path / "base")
    loaded = load_model(name)
    tokenizer = tokenizer_of(name, loaded.vocabulary)
    with kmers_only(loaded):
        network = with_adapters(
            RLJob(name, [], TASK, tmp_path, SamplerOptions(device="cpu")), loaded, tokenizer
        )
        (prompt,) = tokenizer(text=[prompt_of(TASK)])["input_ids"]
        yield network, loaded.vocabulary, prompt


@pytest.fixture
def server(worker):
    """A simulated server that draws with our engine: its URL, its requests, and its faults."""
    network, vocabulary, _ = worker
    asked, off = [], {"status": 200, "nats": 0.0, "ids": "token_ids"}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer({"data": []})

        def do_POST(self):
            what = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "lora_path" in what:
                what["files"] = sorted(path.name for path in Path(what["lora_path"]).iterdir())
            asked.append((self.path, what))
            self.answer(self.choices(what) if "prompt" in what else {})

        def choices(self, what):
            draw = draw_locally(network.get_base_model(), vocabulary, what["prompt"], TASK)
            ids, log_probs = draw(0, what["seed"], range(what["n"]))
            told = zip(ids.tolist(), (log_probs - off["nats"]).tolist(), strict=True)
            return {
                "choices": [{off["ids"]: i, "logprobs": {"token_logprobs": p}} for i, p in told]
            }

        def answer(self, what):
            self.send_response(off["status"])
            self.end_headers()
            self.wfile.write(json.dumps(what).encode())

        def log_message(self, *_):
            pass

    http = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", asked, off
    http.shutdown()
    thread.join()
    http.server_close()


def test_what_it_is_asked(worker, server):
    """Each round loads one adapter and unloads the previous one; `close` unloads the last."""
    address, asked, _ = server
    network, vocabulary, prompt = worker
    drawing = VllmServer(address, *worker, TASK)
    for round_, first in ((2, 0), (2, 4), (5, 8)):
        ids, log_probs = drawing.draw(round_, 11, range(first, first + 4))
        expected = draw_locally(network.get_base_model(), vocabulary, prompt, TASK)(
            0, 11 + first, range(4)
        )
        assert ids.equal(expected[0])
        torch.testing.assert_close(log_probs, expected[1])
    drawing.close()
    paths = [path.removeprefix("/v1/") for path, _ in asked]
    load, draw, go = "load_lora_adapter", "completions", "unload_lora_adapter"
    assert paths == [load, draw, draw, go, load, draw, go]
    names = [what.get("lora_name", what.get("model")) for _, what in asked]
    assert names[:4] == [names[0]] * 4 and names[4:] == [names[4]] * 3 and names[0] != names[4]
    assert asked[0][1]["files"] == ["adapter_config.json", "adapter_model.safetensors"]
    drawn = asked[1][1]
    assert drawn["prompt"] == prompt and drawn["max_tokens"] == 5 and drawn["n"] == 4
    assert drawn["allowed_token_ids"] == list(range(128, 128 + 4096))
    assert not Path(asked[0][1]["lora_path"]).parent.exists()


def test_one_that_draws_by_other_weights(worker, server):
    address, _, off = server
    drawing = VllmServer(address, *worker, TASK)
    off["nats"] = 0.09
    drawing.draw(0, 1, range(4))
    off["nats"] = 0.2
    with pytest.raises(UserError, match=r"log-probabilities differ by 0\.20 nats a 6-mer"):
        drawing.draw(0, 1, range(4))


def test_one_that_answers_otherwise(worker, server):
    address, _, off = server
    drawing = VllmServer(f"{address}/v1/", *worker, TASK)
    assert drawing.url == address
    off["ids"] = "of another version"
    with pytest.raises(UserError, match="without ids"):
        drawing.draw(0, 1, range(4))
    off["status"] = 404
    with pytest.raises(UserError, match=r"/v1/\w+: 404"):
        drawing.draw(0, 1, range(4))
    with pytest.raises(UserError, match="no vLLM server answers"):
        VllmServer("http://127.0.0.1:9", *worker, TASK)

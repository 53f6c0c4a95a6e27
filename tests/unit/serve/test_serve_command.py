"""`carbon serve` as a process, by the page that tells of it; it ends when it is told to."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import carbon
from carbon.cli import main
from carbon.pretrained import BUNDLED_MODELS
from tests.helpers.finetune import BINARY, untrained_folder

PAGE = Path(__file__).parents[3] / "docs" / "serving.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Yield a process that serves the bundled model and a fine-tuned one, and its address."""
    yeast, folder = BUNDLED_MODELS["yeast"], tmp_path_factory.mktemp("served")
    promoters = untrained_folder(yeast.folder, BINARY, folder / "promoters")
    (folder / "token").write_text("0123456789abcdef")
    command = [sys.executable, "-m", "carbon", "serve", "--model", "yeast", "--port", "0"]
    command += ["--reference", str(yeast.genome), "--annotation", str(yeast.annotation)]
    command += ["--finetuned", f"promoters={promoters}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        said = process.stderr.readline()
        yield process, re.search(r"answer at (http://127.0.0.1:\d+); Ctrl-C ends", said)[1], folder
    finally:
        process.kill()
        process.communicate()


def blocks_of(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.nightly
def test_the_page_runs_as_it_stands_and_the_server_ends_when_told(server):
    process, address, folder = server
    model = carbon.load("yeast")
    commands = [
        line.replace("http://127.0.0.1:8000", address)
        for block in blocks_of("bash") for line in block.splitlines() if line.startswith("curl ")
    ]  # fmt: skip
    variants, scores, events, predicted, models, ready, metrics = [
        subprocess.run(["bash", "-c", command], capture_output=True, check=True, cwd=folder).stdout
        for command in commands
    ]
    variant = carbon.Variant.parse("VIII:451496 G>A")
    with carbon.Reference(BUNDLED_MODELS["yeast"].genome) as reference:
        (expected,) = model.score_variants(reference, [variant])
    (found,) = json.loads(variants)["variants"]
    assert found["delta"] == pytest.approx(expected.delta, abs=1e-3)
    assert found["gene"] == "ENO2" and 0 <= found["percentile"] <= 100
    (score,) = model.score(["ATGGCCAAGTAA"])
    told = json.loads(scores)["scores"][0]["log_likelihood"]
    assert told == pytest.approx(score.log_likelihood, abs=1e-3)
    *chunks, done = events.decode().strip().split("\n\n")
    texts = [json.loads(each.removeprefix("data: "))["choices"][0]["text"] for each in chunks]
    assert done == "data: [DONE]"
    (drawn,) = model.generate(["ATGGCTGTCTCTAAAGTTTAC"], 60, seed=1)
    assert "".join(texts) == drawn and len(texts) > 10
    assert 0 < json.loads(predicted)["predictions"][0]["predicted"]["yes"] < 1
    assert [each["id"] for each in json.loads(models)["data"]] == ["yeast", "promoters"]
    assert json.loads(ready) == {"status": "ready"}
    assert b'carbon_requests_total{path="/predict",status="200"} 1' in metrics

    names: dict = {}
    (code,) = [block for block in blocks_of("python") if "openai" in block]
    exec(code.replace("http://127.0.0.1:8000", address), names)
    assert names["drawn"].choices[0].text == drawn == names["streamed"]
    (read,) = names["read"].choices
    assert sum(read.logprobs.token_logprobs) == pytest.approx(score.log_likelihood, abs=1e-3)
    assert len(names["vectors"].data) == 2

    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert process.stderr.read() == ""


def test_whoever_reads_the_address_may_ask_at_once(monkeypatch, capsys):
    """Before the server runs its port takes connections, which wait."""

    def run(self, sockets):
        with socket.create_connection(sockets[0].getsockname(), timeout=60):
            pass

    monkeypatch.setattr("uvicorn.Server.run", run)
    assert main(["serve", "--model", "yeast", "--port", "0"]) == 0
    assert "yeast answers at http://127.0.0.1:" in capsys.readouterr().err


def test_sigterm_ends_the_command_with_0(monkeypatch):
    """uvicorn drains, and then raises the signal again for the handler from before it ran."""

    def receive_sigterm(self, sockets):
        with self.capture_signals():
            signal.raise_signal(signal.SIGTERM)
            assert self.should_exit

    def die(number, frame):
        raise AssertionError("the signal would end the process")

    monkeypatch.setattr("uvicorn.Server.run", receive_sigterm)
    before = signal.signal(signal.SIGTERM, die)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["serve", "--model", "yeast", "--port", "0"])
        assert ended.value.code == 0
        assert signal.getsignal(signal.SIGTERM) is die
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_its_extra_the_remedy_is_told(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("carbon.serve", "carbon.serve.server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main(["serve", "--model", "yeast"]) == 2
    assert "carbon-dna[serve]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "99999"], "'99999' is not a port"),
        (["--port", "TAKEN"], "address already in use"),
        (["--host", "no.such.host.invalid"], "--host no.such.host.invalid"),
        (["--most-tokens", "0"], "--most-tokens"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_the_model_is_loaded(capsys, words, message):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [str(taken.getsockname()[1]) if word == "TAKEN" else word for word in words]
        assert main(["serve", "--model", "yeast", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line

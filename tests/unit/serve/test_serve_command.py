"""`carbon serve` as a process, by the page that tells of it; it ends when it is told to."""

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import carbon
from carbon.cli import main
from carbon.pretrained import BUNDLED_MODELS

PAGE = Path(__file__).parents[3] / "docs" / "serving.md"


@pytest.fixture(scope="module")
def server():
    """Yield a process that serves the bundled model, and its address."""
    yeast = BUNDLED_MODELS["yeast"]
    command = [sys.executable, "-m", "carbon", "serve", "--model", "yeast", "--port", "0"]
    command += ["--reference", str(yeast.genome)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()
        yield process, re.search(r"yeast answers at (http://127.0.0.1:\d+); Ctrl-C ends", said)[1]
    finally:
        process.kill()
        process.communicate()


def block_of(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return found


@pytest.mark.nightly
def test_the_page_runs_as_it_stands_and_the_server_ends_when_told(server):
    process, address = server
    model = carbon.load("yeast")
    lines = block_of("bash", "curl").replace("http://127.0.0.1:8000", address).splitlines()
    found = [
        json.loads(subprocess.run(shlex.split(line), capture_output=True, check=True).stdout)
        for line in lines
    ]
    variant = carbon.Variant.parse("VIII:451496 G>A")
    with carbon.Reference(BUNDLED_MODELS["yeast"].genome) as reference:
        (expected,) = model.score_variants(reference, [variant])
    assert found[0]["variants"][0]["delta"] == pytest.approx(expected.delta, abs=1e-3)
    (score,) = model.score(["ATGGCCAAGTAA"])
    told = found[1]["scores"][0]["log_likelihood"]
    assert told == pytest.approx(score.log_likelihood, abs=1e-3)

    names: dict = {}
    exec(block_of("python", "openai").replace("http://127.0.0.1:8000", address), names)
    (drawn,) = names["drawn"].choices
    assert drawn.text == model.generate(["ATGGCTGTCTCTAAAGTTTAC"], 60, seed=1)[0]
    (read,) = names["read"].choices
    assert sum(read.logprobs.token_logprobs) == pytest.approx(score.log_likelihood, abs=1e-3)
    assert len(names["vectors"].data) == 2

    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, -signal.SIGTERM)
    assert process.stderr.read() == ""


def test_whoever_reads_the_address_may_ask_at_once(monkeypatch, capsys):
    """Before the server runs its port takes connections, which wait."""

    def run(self, sockets):
        with socket.create_connection(sockets[0].getsockname(), timeout=60):
            pass

    monkeypatch.setattr("uvicorn.Server.run", run)
    assert main(["serve", "--model", "yeast", "--port", "0"]) == 0
    assert "yeast answers at http://127.0.0.1:" in capsys.readouterr().err


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
        (["--most-waiting", "0"], "--most-waiting"),
        (["--most-tokens", "0"], "--most-tokens"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_the_model_is_loaded(capsys, words, message):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [str(taken.getsockname()[1]) if word == "TAKEN" else word for word in words]
        assert main(["serve", "--model", "yeast", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line

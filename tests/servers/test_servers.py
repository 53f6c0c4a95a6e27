"""Exported models in vLLM and in llama.cpp, by the page that tells how: `scripts/test_servers`."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import carbon
from carbon.cli import main
from carbon.tokenizer import NATIVE, encode
from tests.helpers.files import random_bases
from tests.helpers.vllm import python_of, served_by_vllm

pytestmark = pytest.mark.nightly
PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
PROMPT = "ATGGCTGTCTCTAAAGTT"


def block_of(containing: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return found


@pytest.fixture(scope="module")
def model():
    return carbon.load("yeast")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run a program where the GGUF lies; return what it prints last, as JSON."""
    python, folder = python_of("llama_cpp"), tmp_path_factory.mktemp("gguf")
    words = ["--to", "gguf", "--dtype", "float32"]
    assert main(["convert", "yeast", str(folder / "yeast.gguf"), *words]) == 0

    def run(program):
        done = subprocess.run(
            [python, "-c", program], cwd=folder, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_llama_cpp_draws_and_scores_as_we_do(run, model):
    block = block_of("from llama_cpp")
    found = run(f"import json\n{block}\nprint(json.dumps([text, float(log_likelihood)]))")
    assert found[0] == model.generate([PROMPT], 48, temperature=0)[0]
    (score,) = model.score([PROMPT])
    assert found[1] == pytest.approx(score.log_likelihood, abs=1e-3)


def test_llama_cpp_reads_every_kind_of_text_as_we_do(run):
    bases = random_bases(600, 3)
    texts = {
        f"<dna>{bases}": encode(bases).ids,
        f"<dna>{bases[:601]}A": encode(bases + "A").ids,
        "<dna>acgtacgtacgt": encode("acgtacgtacgt").ids,
        "<dna>ACGTNACCCCCC": encode("ACGTNACCCCCC").ids,
        "<fungi_species><dna>ACGTAC": [8, *encode("ACGTAC").ids],
        "<dna>ACGTAC</dna>": [*encode("ACGTAC").ids, NATIVE.dna_end],
    }
    program = (
        "import json\nfrom llama_cpp import Llama\n"
        "model = Llama('yeast.gguf', vocab_only=True, verbose=False)\n"
        f"texts = {list(texts)!r}\n"
        "ids = [model.tokenize(t.encode(), add_bos=False, special=True) for t in texts]\n"
        "print(json.dumps(ids))"
    )
    for ids, (text, expected) in zip(run(program), texts.items(), strict=True):
        assert ids == np.asarray(expected).tolist(), text


@pytest.fixture(scope="module")
def vllm(tmp_path_factory):
    """Start the server as the page does, and run what the page asks of it."""
    with served_by_vllm("serving.md", tmp_path_factory.mktemp("vllm")) as address:
        found: dict = {}
        for containing in ("import requests", "def log_likelihood", "prompt_logprobs ="):
            exec(block_of(containing).replace("http://localhost:8000", address), found)
        yield found


def test_vllm_draws_as_we_do(vllm, model):
    assert vllm["text"] == model.generate([PROMPT], 48, temperature=0)[0]


def test_vllm_scores_as_we_do(vllm, model):
    (score,) = model.score([PROMPT])
    assert vllm["score"] == pytest.approx(score.log_likelihood, abs=1e-3)

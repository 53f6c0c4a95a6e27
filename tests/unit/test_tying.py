"""The head and `tie_word_embeddings` of a folder: every reader takes one answer, or refuses it."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from carbon.cli import main
from carbon.errors import ModelError
from carbon.inference import load
from carbon.model import folder as module
from carbon.model import model_folder, save_model
from carbon.tokenizer import encode
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.runs import RECIPE
from train.__main__ import main as train
from train.export import save_as_it_came
from train.models.start import Start, start_config

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
READ = {  # what tie_word_embeddings is, and what the weights have beside the embedding
    "tied": (True, None),
    "tied, and its head is there": (True, "equal"),
    "untied": (False, "other"),
    "untied, with an equal head": (False, "equal"),
}
REFUSED = {
    "tied, with another head": (True, "other", "differs from model.embed_tokens.weight"),
    "tied, with a head of another dtype": (True, "half", "differs from model.embed_tokens.weight"),
    "untied, without a head": (False, None, "lack 1 tensors such as lm_head.weight"),
    "by a word": ("false", "other", "tie_word_embeddings is 'false'"),
    "by nothing": (None, "other", "tie_word_embeddings is None"),
}


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tied") / "m"
    torch.manual_seed(0)
    save_model(LlamaForCausalLM(small_config(128)).eval(), folder)
    return folder


@pytest.fixture
def make(tied, tmp_path):
    """Return a function that makes a folder with a flag and a head."""

    def made(flag, head):
        folder = shutil.copytree(tied, tmp_path / "m")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": flag}))
        tensors = load_file(folder / "model.safetensors")
        assert HEAD not in tensors
        embedding = tensors[EMBEDDING]
        torch.manual_seed(1)
        heads = {"equal": embedding.clone(), "half": embedding.half(),
                 "other": embedding + 0.01 * torch.randn_like(embedding)}  # fmt: skip
        if head:
            tensors[HEAD] = heads[head]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return made


def stock_log_likelihood(folder, sequence):
    """Return log p of whole 6-mers by stock transformers."""
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.from_numpy(encode(sequence).ids)[None]
    with torch.inference_mode():
        log_p = stock(ids).logits[0, :-1, 128:].double().log_softmax(dim=1)
    return float(log_p.gather(1, ids[0, 1:, None] - 128).sum())


@pytest.mark.parametrize("name", READ)
def test_all_readers_take_one_answer(make, name, tmp_path, capsys):
    flag, head = READ[name]
    folder = make(flag, head)
    sequence = random_bases(120, seed=3)
    found = stock_log_likelihood(folder, sequence)
    assert main(["convert", str(folder), str(tmp_path / "native")]) == 0
    for output in (folder, tmp_path / "native", exported(folder, tmp_path)):
        (score,) = load(output).score([sequence])
        assert score.log_likelihood == pytest.approx(found, abs=1e-3)
        assert json.loads((output / "config.json").read_text())["tie_word_embeddings"] == flag
    tensors = gguf_of(folder, tmp_path)
    assert ("output.weight" in tensors) == (not flag)
    rows = tensors.get("output.weight", tensors["token_embd.weight"])
    weights = load_file(folder / "model.safetensors")
    np.testing.assert_array_equal(rows, weights.get(HEAD, weights[EMBEDDING]).numpy())


def exported(folder, tmp_path):
    """Export what a run that has begun as this model, and has changed nothing, would."""
    start, output = Start(model_folder(folder)), tmp_path / "export"
    llama = start_config(str(folder))
    with torch.device("meta"):
        names = dict(LlamaForCausalLM(llama).named_parameters())
    output.mkdir()
    weights = {name: start.weight(name) for name in names}
    save_as_it_came(start, weights, output, llama.rope_parameters["rope_theta"], ())
    return output


def gguf_of(folder, tmp_path):
    from gguf import GGUFReader

    output = tmp_path / "m.gguf"
    words = ["convert", str(folder), str(output), "--to", "gguf", "--dtype", "float32"]
    assert main(words) == 0
    return {each.name: np.array(each.data) for each in GGUFReader(output).tensors}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_does_not_fit_itself_is_refused(make, name):
    flag, head, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        load(make(flag, head))


def test_all_readers_refuse_it_alike(make, tmp_path, capsys):
    flag, head, message = REFUSED["tied, with another head"]
    folder = make(flag, head)
    output, fasta = str(tmp_path / "out"), write_fasta(tmp_path / "s.fa", {"s": "ACGTAC"})
    recipe = ["--config", str(RECIPE), "--set", "model.preset=", "--set", f"model.start={folder}",
              "--set", f"output={output}", "--set", f"data.corpus={tmp_path}"]  # fmt: skip
    for command, words in (
        (main, ["info", str(folder)]),
        (main, ["convert", str(folder), output]),
        (main, ["score", "--model", str(folder), str(fasta)]),
        (train, recipe),
        (train, ["export", *recipe, "--output", f"{output}-2"]),
    ):
        assert command(words) == 2
        assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "s.fa"]


def test_heads_are_compared_to_their_end(make, monkeypatch):
    """A piece at a time, and the last number of the last one counts."""
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1000)
    folder = make(True, "equal")
    assert model_folder(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors[HEAD][-1, -1] += 1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="differs from"):
        model_folder(folder)

"""A model as GGUF, read back; `tests/servers` holds it against llama.cpp itself."""

import sys
from copy import deepcopy

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from carbon.cli import main
from carbon.inference import load
from carbon.model import save_model
from carbon.tokenizer import NATIVE


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("gguf") / "mine"
    save_model(network, folder)
    return folder


def read(path):
    from gguf import GGUFReader, dequantize

    found = GGUFReader(path)
    tensors = {
        each.name: dequantize(each.data, each.tensor_type).reshape(each.shape[::-1].tolist())
        for each in found.tensors
    }
    return {name: field.contents() for name, field in found.fields.items()}, tensors


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_read_back_is_the_model(folder, network, tmp_path, dtype):
    output = tmp_path / "m.gguf"
    assert main(["convert", str(folder), str(output), "--to", "gguf", "--dtype", dtype]) == 0
    fields, tensors = read(output)
    state, config = network.state_dict(), network.config
    num_layers, tied = config.num_hidden_layers, config.tie_word_embeddings
    assert len(tensors) == 9 * num_layers + 3 - tied
    rounded = state["model.embed_tokens.weight"].to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(tensors["token_embd.weight"], rounded)
    gates = state["model.layers.1.mlp.gate_proj.weight"].to(getattr(torch, dtype)).float()
    np.testing.assert_array_equal(tensors["blk.1.ffn_gate.weight"], gates.numpy())

    # RoPE turns row i of a head with row i + half of it; GGUF has them as rows 2i and 2i + 1.
    for name, part, num_heads in (
        ("q_proj", "attn_q", config.num_attention_heads),
        ("k_proj", "attn_k", config.num_key_value_heads),
    ):
        ours = state[f"model.layers.0.self_attn.{name}.weight"].to(getattr(torch, dtype)).float()
        theirs = tensors[f"blk.0.{part}.weight"]
        half = len(ours) // num_heads // 2
        for row in range(len(theirs)):
            head, i = divmod(row, 2 * half)
            expected = ours[2 * half * head + i // 2 + half * (i % 2)]
            np.testing.assert_array_equal(theirs[row], expected.numpy())
    assert fields["llama.rope.freq_base"] == config.rope_parameters["rope_theta"]
    assert fields["llama.vocab_size"] == len(fields["tokenizer.ggml.tokens"]) == NATIVE.size
    tokens = fields["tokenizer.ggml.tokens"]
    assert tokens[:4] == ["<pad>", "<oov>", "<dna>", "</dna>"]
    assert tokens[128:130] == ["AAAAAA\ue000", "AAAAAT\ue000"] and tokens[-1] == "GGGGGG\ue000"


def test_half_precision_keeps_its_bits_and_double_precision_is_refused(network, tmp_path, capsys):
    half, output = tmp_path / "half", tmp_path / "m.gguf"
    save_model(deepcopy(network).half(), half)
    assert main(["convert", str(half), str(output), "--to", "gguf"]) == 0
    weight = network.state_dict()["model.layers.1.mlp.gate_proj.weight"].half()
    np.testing.assert_array_equal(read(output)[1]["blk.1.ffn_gate.weight"], weight.float().numpy())
    output.unlink()
    save_model(deepcopy(network).double(), tmp_path / "double")
    assert main(["convert", str(tmp_path / "double"), str(output), "--to", "gguf"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert line.endswith("llama.cpp has no float64 matrices; give --dtype float32")
    assert not output.exists()


def test_what_cannot_be_written_is_told(folder, tmp_path, capsys, monkeypatch):
    words = ["convert", str(folder), str(tmp_path / "m.gguf"), "--to", "gguf"]
    stretched = load(folder, yarn=2.0).model.network
    save_model(stretched, tmp_path / "long")
    assert main(["convert", str(tmp_path / "long"), *words[2:]]) == 2
    assert "yarn" in capsys.readouterr().err
    assert main([*words, "--max-shard-size", "5GB"]) == 2
    assert "--max-shard-size has no effect with --to gguf" in capsys.readouterr().err
    config = Qwen3Config.from_dict(load(folder).model.network.config.to_dict())
    save_model(Qwen3ForCausalLM(config), tmp_path / "other")
    assert main(["convert", str(tmp_path / "other"), *words[2:]]) == 2
    assert "is a qwen3 network, and only llama can be written as GGUF" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert main(words) == 2
    assert "pip install 'carbon-dna[gguf]'" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"long", "other"}

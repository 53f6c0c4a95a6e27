"""Any model to a native folder: the same likelihoods of DNA, by stock transformers too."""

import json
import math
import shutil
from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from carbon.cli import main
from carbon.inference import load
from carbon.model import convert as conversion
from carbon.model import save_model
from carbon.tokenizer import HYBRID, NATIVE, encode
from tests.conftest import small_config
from tests.helpers.files import random_bases, room_for
from tests.helpers.reference import INDEX, chunks


def hybrid_network(tied: bool = True) -> LlamaForCausalLM:
    """Return a network with random rows for the whole released vocabulary."""
    config = small_config()
    config.vocab_size, config.tie_word_embeddings = HYBRID.size, tied
    config.pad_token_id = config.eos_token_id = HYBRID.pad
    torch.manual_seed(1)
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    """Hold `native`, `tied` and `untied`, the hybrids in bfloat16, one in shards; and `qwen3`."""
    folder = tmp_path_factory.mktemp("convert")
    save_model(network, folder / "native")
    hybrid_network().to(torch.bfloat16).save_pretrained(folder / "tied")
    other = Qwen3Config.from_dict(hybrid_network().config.to_dict())
    Qwen3ForCausalLM(other).save_pretrained(folder / "qwen3")
    untied = hybrid_network(tied=False).to(torch.bfloat16)
    untied.save_pretrained(folder / "untied", max_shard_size="4MB")
    assert len(list((folder / "untied").glob("model-*.safetensors"))) > 2
    return folder


def stock_log_likelihood(path, sequence, vocabulary) -> float:
    """Return log p of a sequence of whole 6-mers by stock transformers over the 6-mers."""
    stock = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    ids = torch.from_numpy(encode(sequence, vocabulary).ids)[None]
    with torch.inference_mode():
        log_p = stock(ids).logits[0, :, vocabulary.kmer_rows].double().log_softmax(dim=1)
    return sum(log_p[t, INDEX[kmer]].item() for t, kmer in enumerate(chunks(sequence)))


@pytest.fixture(scope="module", params=["native", "tied", "untied", "qwen3"])
def converted(request, folder):
    """Return a source's name, the folder that it becomes, and what the command says."""
    output, said = folder / f"of-{request.param}", StringIO()
    words = [str(folder / request.param), str(output), "--max-shard-size", "200KB"]
    with redirect_stdout(said):
        assert main(["convert", *words]) == 0
    return request.param, output, said.getvalue().splitlines()


def test_dna_scores_the_same(folder, converted):
    source, output, lines = converted
    assert lines[0].split("\t") == ["bases", "source", "converted", "difference_per_base"]
    assert len(lines) == 8 and lines[-1] == "# largest difference 0 nats per base"
    vocabulary = NATIVE if source == "native" else HYBRID
    sequence = random_bases(120, seed=4)
    before = stock_log_likelihood(folder / source, sequence, vocabulary)
    after = stock_log_likelihood(output, sequence, NATIVE)
    assert after == pytest.approx(before, abs=1e-3) and before < -100
    (score,) = load(output).score([sequence])
    assert score.log_likelihood == pytest.approx(before, abs=1e-3)


@pytest.mark.parametrize("converted", ["tied", "untied"], indirect=True)
def test_the_folder_is_a_stock_native_one(folder, converted):
    source, output, _ = converted
    config = json.loads((output / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["vocab_size"], config["pad_token_id"]) == (4224, 0)
    assert config["eos_token_id"] is None and config["bos_token_id"] is None
    assert config["dtype"] == "bfloat16" and config["tie_word_embeddings"] == (source == "tied")
    assert (output / "tokenizer.json").is_file()
    assert len(list(output.glob("model-*.safetensors"))) > 1

    hybrid = LlamaForCausalLM.from_pretrained(folder / source)
    native = LlamaForCausalLM.from_pretrained(output)
    for module in ("model.embed_tokens", "lm_head"):
        old, new = hybrid.get_submodule(module).weight, native.get_submodule(module).weight
        assert torch.equal(new[128:], old[151_672 : 151_672 + 4096])
        assert torch.equal(new[:4], old[[151_643, 151_671, 151_669, 151_670]])
        assert not new[4:128].any()
    rest = [name for name in native.state_dict() if "embed" not in name and "lm_head" not in name]
    assert len(rest) == 19
    for name in rest:
        assert torch.equal(native.state_dict()[name], hybrid.state_dict()[name])


def test_rounding_shows_in_the_scores_and_stays_within_the_tolerance(folder, tmp_path, capsys):
    words = ["convert", str(folder / "native"), str(tmp_path / "out"), "--dtype", "bfloat16"]
    assert main(words) == 0
    assert 0 < float(capsys.readouterr().out.split()[-4]) < 0.02
    rounded = load(folder / "native").model.network.bfloat16().state_dict()
    stored = LlamaForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(stored[name], tensor) for name, tensor in rounded.items())


def test_the_dtype_is_that_of_the_weight_files(folder, tmp_path):
    """A folder in float32 whose config says bfloat16, as after an edit or a partial copy."""
    source, output = shutil.copytree(folder / "native", tmp_path / "in"), tmp_path / "out"
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    assert main(["convert", str(source), str(output)]) == 0
    assert json.loads((output / "config.json").read_text())["dtype"] == "float32"
    before, after = (load_file(each / "model.safetensors") for each in (source, output))
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}


@pytest.mark.parametrize("fault", ["shift", "nan"])
def test_what_scores_differently_is_not_written(folder, tmp_path, capsys, monkeypatch, fault):
    """A fourth special token before the 6-mers, as an early tokenizer had, shifts them by one."""
    right = conversion.native_rows

    def wrong(rows, vocabulary):
        found = right(rows, vocabulary)
        return found.roll(1, dims=0) if fault == "shift" else found * math.nan

    monkeypatch.setattr(conversion, "native_rows", wrong)
    status, message = {
        "shift": (1, "more than 1e-05"),
        "nan": (2, "not finite"),
    }[fault]
    assert main(["convert", str(folder / "tied"), str(tmp_path / "out")]) == status
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("most_bytes", [5000, 50_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(folder, tmp_path, capsys, most_bytes):
    """There is no room for the weights, for the tokenizer."""
    words = ["convert", str(folder / "native"), str(tmp_path / "out"), "--max-shard-size", "9KB"]
    with room_for(most_bytes):
        assert main(words) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and "file too large" in line
    assert list(tmp_path.iterdir()) == []

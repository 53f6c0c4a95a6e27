"""What a server needs of an exported folder, as far as it can be held without one."""

import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from tokenizers.decoders import DecodeStream
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaForCausalLM,
)

from carbon.model import save_model
from carbon.model.load import stretch
from carbon.tokenizer import NATIVE, encode
from tests.conftest import small_config
from tests.helpers.files import random_bases

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("serving")
    save_model(network, folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@pytest.fixture(scope="module")
def stock(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def test_the_folder_is_a_stock_llama(folder, stock):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"] and config["model_type"] == "llama"
    assert not any("auto_map" in path.read_text() for path in folder.glob("*.json"))
    assert not list(folder.glob("*.py"))
    assert config["pad_token_id"] == 0
    assert config["bos_token_id"] is None and config["eos_token_id"] is None
    with safe_open(folder / "model.safetensors", "pt") as weights:
        names = set(weights.keys())
    assert names == set(LlamaForCausalLM(small_config()).state_dict()) - {"lm_head.weight"}  # tied


@pytest.mark.parametrize("factor", [None, 4])
def test_rope_is_told_to_transformers_4_and_5(tmp_path, factor):
    """The older one reads `rope_theta` and `rope_scaling`, and takes 10,000 without the first."""
    config = small_config()
    if factor:
        stretch(config, factor)
    save_model(LlamaForCausalLM(config), tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    assert told["rope_theta"] == 500_000 == told["rope_parameters"]["rope_theta"]
    expected = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 48}
    assert told["rope_scaling"] == (expected if factor else None)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).config
    assert again.rope_parameters == config.rope_parameters


class TestTokenizer:
    def test_it_is_stock_and_adds_nothing(self, folder, tokenizer):
        told = json.loads((folder / "tokenizer_config.json").read_text())
        assert told["tokenizer_class"] == "PreTrainedTokenizerFast"  # which transformers 4 has too
        assert len(tokenizer) == 4224
        assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 1)
        assert tokenizer.bos_token_id is None and tokenizer.eos_token_id is None
        assert tokenizer("<dna>")["input_ids"] == [2] == tokenizer.encode("<dna>")

    @given(sequence=st.text("ACGTacgt", max_size=80))
    @settings(max_examples=15)
    def test_ids_are_ours(self, tokenizer, sequence):
        tags = ("<fungi_species>", "<transfer_rna>")
        for text, options in ((f"<dna>{sequence}", {}), (f"{''.join(tags)}<dna>{sequence}</dna>",
                              {"tags": tags, "close": True})):  # fmt: skip
            assert tokenizer(text)["input_ids"] == encode(sequence, **options).ids.tolist()

    def test_tokens_come_back_as_bases_one_by_one(self, tokenizer):
        """Servers decode while they generate, by the stream of `tokenizers`."""
        sequence = random_bases(120)
        ids = encode(sequence, close=True).ids.tolist()
        stream = DecodeStream(skip_special_tokens=True)
        parts = [stream.step(tokenizer.backend_tokenizer, i) for i in ids]
        assert [len(part) for part in parts if part] == [6] * 20
        assert "".join(part or "" for part in parts) == sequence
        assert tokenizer.decode(ids, skip_special_tokens=True) == sequence


class TestStockGenerate:
    def test_only_6_mers_and_no_early_end(self, folder, stock, tokenizer):
        inputs = tokenizer(["<dna>"] * 32, return_tensors="pt")
        with torch.inference_mode():
            p = stock(inputs.input_ids[:1]).logits[0, -1].softmax(dim=0)
        assert 1 - (1 - p[:128].sum()) ** (32 * 20) > 0.99  # so it would draw others
        torch.manual_seed(0)
        ids = stock.generate(**inputs, do_sample=True, max_new_tokens=20)
        assert ids.shape == (32, 21) and bool((ids[:, 1:] >= 128).all())
        config = GenerationConfig.from_pretrained(folder)
        assert config.eos_token_id is None and config.bos_token_id is None
        assert config.suppress_tokens == list(range(NATIVE.first_kmer))

    def test_greedy_is_ours(self, model, stock, tokenizer):
        prompt = random_bases(60)
        inputs = tokenizer(f"<dna>{prompt}", return_tensors="pt")
        ids = stock.generate(**inputs, do_sample=False, max_new_tokens=4)[0, -4:]
        assert tokenizer.decode(ids) == model.generate([prompt], 24, temperature=0)[0]


@pytest.fixture(scope="module")
def shown():
    """Run the functions that the page shows."""
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", (DOCS / "serving.md").read_text(), re.S):
        compile(code, "serving.md", "exec")
        if "def " in code:
            exec(code, names)
    return names


class TestScoresFromAServer:
    """A server's answers are made by hand from the stock forward."""

    @pytest.fixture
    def log_p(self, stock):
        with torch.inference_mode():
            ids = torch.from_numpy(encode(random_bases(120)).ids)[None]
            return stock(ids).logits[0].double().log_softmax(dim=1)

    def test_prompt_logprobs_are_the_score(self, shown, model, log_p):
        sequence = random_bases(120)
        ids = encode(sequence).ids.tolist()
        tables = [{str(i): {"logprob": x} for i, x in enumerate(row)} for row in log_p.tolist()]
        (score,) = model.score([sequence])
        found = shown["log_likelihood"](ids, [None, *tables[:-1]])
        assert found == pytest.approx(score.log_likelihood, abs=1e-3)

"""Models in the released layout, with the real Qwen3 vocabulary: everything works, tags too."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.cli import main
from carbon.errors import ModelError, UserError
from carbon.genome import Interval, Reference, Variant, read_sequences
from carbon.inference import load
from carbon.tokenizer import GENE_TAGS, HYBRID, SPECIES_TAGS
from carbon.tokenizer.tokenizers import HybridDNATokenizer
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.reference import INDEX, chunks

TAGS = ("<fungi_species>", "<protein_coding_region>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, real_data):
    """Lay a random network out as a released one: safetensors and the tokenizer's files."""
    folder = tmp_path_factory.mktemp("hybrid")
    config = small_config()
    config.vocab_size, config.pad_token_id = HYBRID.size, HYBRID.pad
    config.eos_token_id = HYBRID.pad
    torch.manual_seed(2)
    LlamaForCausalLM(config).save_pretrained(folder)
    HybridDNATokenizer(real_data / "qwen3_bpe").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    """Load it, and let no product with the other 151,680 rows pass."""

    def refuse(*_):
        raise AssertionError("the whole head was multiplied")

    model = load(folder)
    model.model.network.lm_head.register_forward_hook(refuse)
    return model


@pytest.fixture(scope="module")
def tokenizer(folder):
    return HybridDNATokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def stock(folder, tokenizer):
    """Read text as stock transformers do: to ids, log p over the 6-mers and last states."""
    network = LlamaForCausalLM.from_pretrained(folder).eval()

    def read(text: str):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.inference_mode():
            output = network(ids, output_hidden_states=True)
        log_p = output.logits[0, :, HYBRID.kmer_rows].double().log_softmax(dim=1)
        return ids[0].tolist(), log_p, output.hidden_states[-1][0]

    return read


@pytest.mark.parametrize("tags", [(), TAGS])
def test_score_and_embed_are_those_of_stock_transformers(model, stock, tags):
    sequence = random_bases(120)
    ids, log_p, states = stock(f"{''.join(tags)}<dna>{sequence}")
    first = ids.index(HYBRID.begin)
    expected = sum(log_p[first + t, INDEX[k]].item() for t, k in enumerate(chunks(sequence)))
    (score,) = model.score([sequence], tags=tags)
    assert score.log_likelihood == pytest.approx(expected, abs=1e-3)
    (vector,) = model.embed([sequence], tags=tags)
    np.testing.assert_allclose(vector, states[first + 1 :].mean(dim=0), atol=1e-5)


def test_tags_are_the_text_that_was_trained(model, tokenizer):
    """Written one behind the other, `><` is one token: the ids of two tags are no sum of parts."""
    vocabulary = model.model.vocabulary
    assert set(vocabulary.tags) == set(SPECIES_TAGS + GENE_TAGS) - {"<prokaryote_species>"}
    for tags in ((), *((tag,) for tag in vocabulary.tags), TAGS, TAGS[::-1]):
        assert vocabulary.prefix(tags) == tokenizer("".join(tags) + "<dna>")["input_ids"]
    alone = [len(vocabulary.prefix((tag,))) - 1 for tag in TAGS]
    assert len(vocabulary.prefix(TAGS)) - 1 == sum(alone) - 1
    with pytest.raises(UserError, match="'<dragon>' is not in the hybrid vocabulary: <mammalian"):
        model.score(["ACGT"], tags=["<dragon>"])


@pytest.mark.nightly
def test_generate(model, stock):
    prompt = random_bases(60)
    text = f"{''.join(TAGS)}<dna>{prompt}"
    for _ in range(3):
        _, log_p, _ = stock(text)
        text += next(kmer for kmer, i in INDEX.items() if i == int(log_p[-1].argmax()))
    (found,) = model.generate([prompt], 18, temperature=0, tags=TAGS)
    assert found == text[-18:]


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", ["centered", "right_end"])
def test_variants_and_scan(model, tmp_path, protocol):
    """A delta is a difference of scores, and that of the scan at the same place."""
    bases = random_bases(600)
    with Reference(write_fasta(tmp_path / "r.fa", {"c": bases})) as reference:
        variant = Variant("c", 300, bases[300], "A" if bases[300] != "A" else "C")
        options = {"protocol": protocol, "window_bp": 120, "tags": TAGS, "strands": "forward"}
        (scored,) = model.score_variants(reference, [variant], **options)
        (chunk,) = model.scan(
            reference, Interval("c", 300, 301),
            offsets=[0], window_bp=126, least_context_bp=120, tags=TAGS,
        )  # fmt: skip
    after_bp = 60 if protocol == "centered" else 1
    before = bases[300 - (120 if protocol == "right_end" else 60) : 300]
    windows = [before + base + bases[301 : 300 + after_bp] for base in (variant.ref, variant.alt)]
    ref, alt = (score.log_likelihood for score in model.score(windows, tags=TAGS))
    assert scored.delta == pytest.approx(alt - ref, abs=1e-3)
    if protocol == "right_end":  # 300 is a multiple of 6
        assert chunk.deltas[0]["ACGT".index(variant.alt)] == pytest.approx(alt - ref, abs=1e-3)


@pytest.mark.nightly
def test_without_the_tokenizer_there_are_no_tags(folder, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, tmp_path)
    model = load(tmp_path)
    assert len(list(model.score(["ACGT"]))) == 1
    with pytest.raises(UserError, match="hybrid vocabulary: it has none"):
        model.score(["ACGT"], tags=TAGS)
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(ModelError, match="no byte-pair vocabulary"):
        load(tmp_path)


@pytest.mark.nightly
def test_a_model_of_the_hub_has_its_tags(folder, tmp_path):
    """From the cache that a download leaves, without a network."""
    cached = tmp_path / "hub" / "models--house--hybrid"
    shutil.copytree(folder, cached / "snapshots" / "abc")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    code = "import carbon; print(len(carbon.load('house/hybrid').model.vocabulary.tags))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "13\n"), done.stderr


@pytest.mark.nightly
def test_it_is_tuned_and_stays_what_it_is(folder, tmp_path, monkeypatch):
    (tmp_path / "shares.py").write_text("def g(s): return [x.count('G') / len(x) for x in s]")
    monkeypatch.chdir(tmp_path)
    words = ["--function", "python:shares:g", "--length", "30", "--steps", "2", "--device", "cpu"]
    words += [word for tag in TAGS for word in ("--tag", tag)]
    assert main(["rl", "--model", str(folder), *words, "--output", "tuned"]) == 0
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            assert (tmp_path / "tuned/model" / path.name).read_bytes() == path.read_bytes()
    assert (
        load(tmp_path / "tuned/model").model.vocabulary.tags == load(folder).model.vocabulary.tags
    )
    drawn = [bases for _, bases in read_sequences(tmp_path / "tuned/samples/step_000002.fa")]
    assert len(drawn) == 16 and all(len(bases) == 30 for bases in drawn)

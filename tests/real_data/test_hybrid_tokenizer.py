"""The hybrid tokenizer on the real Qwen3 byte pairs."""

import shutil
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from carbon.errors import ModelError, UserError
from carbon.tokenizer import HYBRID, encode
from carbon.tokenizer.tokenizers import HybridDNATokenizer

# Published: llama.cpp's test vectors of the Carbon vocabulary, and the model card.
VECTORS = {
    "": [],
    "hello": [14990],
    "Hello world!": [9707, 1879, 0],
    "<dna>ATCGAT</dna>": [151669, 152105, 151670],
    "<dna>atcgat</dna>": [151669, 152105, 151670],
    "<dna>ATCGATCGTACG</dna>": [151669, 152105, 154563, 151670],
    "<dna>ATCGAN</dna>": [151669, 151671, 151670],
    "<dna>ATCGA</dna>": [151669, 152104, 151670],
    "<dna>ATCGATCG</dna>": [151669, 152105, 154488, 151670],
    "hi <dna>ATCGAT</dna>!": [6023, 220, 151669, 152105, 151670, 0],
    "<dna></dna>": [151669, 151670],
    "<dna>ATCGAT": [151669, 152105],
    "<dna>ATCGAT</dna> <dna>CGTACG</dna>": [151669, 152105, 151670, 220, 151669, 154563, 151670],
    "CCCCCC": [91443],
    "<dna>CCCCCC</dna>": [151669, 154402, 151670],
    "<dna>ATGCGCTAGCTACGATCGATCGTAGCTAGCTAGCTAGCTACG": [
        151669, 152166, 152924, 154515, 152108, 155334, 152924, 155331,
    ],
    "<dna>ATGCGCTAGCTACGATCGATCGTAGCTAGCTAG</dna>": [
        151669, 152166, 152924, 154515, 152108, 155334, 152888, 151670,
    ],
    "<vertebrate_mammalian><protein_coding_region><dna>ATGCGCTAG": [
        27, 64832, 64116, 717, 8666, 10480, 1784, 78465, 666, 3700, 20627, 29,
        151669, 152166, 152888,
    ],
    "<dna>GGGCTATAAAGGCCATCGATCGATCGATCGATCGATCGATCG</dna>": [
        151669, 155740, 152711, 154259, 152105, 154515, 152105, 154515, 151670,
    ],
}  # fmt: skip
UNTAGGED = "ATGCGCTAGCTACGATCGATCGTAGCTAGCTAG"
UNTAGGED_IDS = [
    828, 38, 8798, 1162, 1890, 1162, 1706, 38, 828, 8798, 828, 8798, 32144, 1162, 1890, 1162, 1890,
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(real_data):
    return real_data / "qwen3_bpe"


@pytest.fixture(scope="module")
def hybrid(folder):
    return HybridDNATokenizer(folder)


def test_published_vectors(hybrid):
    for text, ids in VECTORS.items():
        assert hybrid(text)["input_ids"] == ids


@pytest.mark.nightly
def test_untagged_dna_is_warned_of(hybrid, folder):
    for text in (UNTAGGED, "AUGCGCUAGCUA", "gatcctccat atacaacggt", f"<dna>A</dna> {UNTAGGED}"):
        fresh = HybridDNATokenizer(folder)
        with pytest.warns(UserWarning, match="looks like DNA but is read as text"):
            ids = fresh(text)["input_ids"]
        assert text != UNTAGGED or ids == UNTAGGED_IDS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh(UNTAGGED)  # once a tokenizer is enough
        hybrid("the cat sat; ACGT <dna>" + UNTAGGED)
        auto = HybridDNATokenizer(folder, auto_dna_tags=True)
        found = auto(UNTAGGED, return_offsets_mapping=True)
    assert found["input_ids"] == encode(UNTAGGED, HYBRID, close=True).ids.tolist()
    assert found["offset_mapping"][0] == (0, 0) and found["offset_mapping"][-1] == (33, 33)
    assert found["offset_mapping"][1:3] == [(0, 6), (6, 12)]


@pytest.mark.nightly
@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.json and merges.txt", "released"])
def test_every_kind_of_local_folder(hybrid, folder, files, tmp_path):
    if files == "tokenizer.json":
        hybrid.byte_pairs.save(str(tmp_path / "tokenizer.json"))
    elif files == "released":
        HybridDNATokenizer(folder, auto_dna_tags=True).save_pretrained(tmp_path)
    else:
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(folder / name, tmp_path)
    again = HybridDNATokenizer.from_pretrained(tmp_path)
    assert again.auto_dna_tags == (files == "released")
    for text, ids in VECTORS.items():
        assert again(text)["input_ids"] == ids or (files == "released" and "<dna>" not in text)
    text = "<|im_start|>a <think> b"
    assert again(f"{text}<dna>")["input_ids"][:-1] == hybrid(text)["input_ids"]
    assert again.decode([151_644, 151_667]) == "<|im_start|><think>"
    if files == "released":
        from transformers import AutoTokenizer

        with pytest.raises(ValueError):  # rather than reading DNA as text
            AutoTokenizer.from_pretrained(tmp_path)


@pytest.mark.nightly
@given(text=st.text(max_size=40).filter(lambda text: "<" not in text))
def test_text_is_that_of_qwen2(hybrid, folder, text):
    """Against transformers' own class of the same vocabulary."""
    from transformers import Qwen2Tokenizer

    if not hasattr(hybrid, "_qwen"):
        hybrid._qwen = Qwen2Tokenizer(
            vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt")
        )
    assert hybrid(text + ".")["input_ids"] == hybrid._qwen(text + ".")["input_ids"]


def test_decoding(hybrid):
    ids = hybrid("hi <dna>ACGTACGT</dna>!<|im_end|>")["input_ids"]
    assert hybrid.decode(ids) == "hi <dna>ACGTACGTAAAA</dna>!<|im_end|>"
    assert hybrid.decode(ids, skip_special_tokens=True) == "hi ACGTACGTAAAA!"
    assert hybrid.decode([152105, 152105]) == "ATCGATATCGAT"  # no region needed
    assert hybrid.decode([151669, 152105, 14990, 151671]) == "<dna>ATCGAT<oov>"
    assert hybrid.convert_ids_to_tokens([154402, 91443]) == ["CCCCCC", "CCCCCC"]
    assert len(hybrid) == 155_776 and len(hybrid.get_vocab()) == 155_767


@pytest.mark.nightly
def test_settings_of_the_base_do_not_leak(hybrid, folder, tmp_path):
    """A saved `tokenizer.json` may hold truncation and padding, and tokens of its user's."""
    own = Tokenizer.from_str(hybrid.byte_pairs.to_str())
    own.enable_truncation(3)
    own.enable_padding(length=8)
    own.save(str(tmp_path / "tokenizer.json"))
    text = "one two three four five"
    assert HybridDNATokenizer(tmp_path)(text)["input_ids"] == hybrid(text)["input_ids"]
    own.add_tokens(["<|mine|>"])
    own.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match=r"added token '<\|mine\|>' has an id of the DNA"):
        HybridDNATokenizer(tmp_path)


@pytest.mark.nightly
def test_a_chat_template_is_kept(folder, tmp_path):
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    HybridDNATokenizer(folder, chat_template=template).save_pretrained(tmp_path)
    assert HybridDNATokenizer.from_pretrained(tmp_path).chat_template == template


def test_an_added_token_would_take_the_id_of_a_6mer(hybrid):
    with pytest.raises(UserError, match="'<mask>' is not of the hybrid vocabulary"):
        hybrid.add_special_tokens({"mask_token": "<mask>"})

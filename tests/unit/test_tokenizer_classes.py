"""The `transformers` tokenizers, native and hybrid, and tokens as lines."""

import io
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

from carbon.cli import main
from carbon.errors import ModelError, UserError
from carbon.genome import SequenceChunk, reverse_complement
from carbon.losses import next_kmers
from carbon.tokenizer import (
    HYBRID,
    NATIVE,
    Kmers,
    decode,
    decode_ids,
    decode_kmers,
    encode,
    encode_batch,
    save_stock_tokenizer,
)
from carbon.tokenizer.lines import fasta_lines, token_lines
from carbon.tokenizer.text import tokenize_hybrid
from carbon.tokenizer.tokenizers import HybridDNATokenizer, NativeDNATokenizer

any_dna = st.text(alphabet="ACGTNacgtnRY", max_size=80)
offsets = st.integers(0, 5)
strands = st.sampled_from("+-")


def known_only(sequence):
    return "".join(b if b in "ACGT" else "N" for b in sequence.upper())


@given(any_dna, offsets, strands)
def test_offsets_and_strands(sequence, offset, strand):
    """An offset skips bases; the minus strand is the reverse complement."""
    encoding = encode(sequence, offset=offset, strand=strand, close=True)
    read = reverse_complement(sequence) if strand == "-" else sequence
    assert decode(encoding) == known_only(read[offset:])
    expected = encode(read[offset:], close=True)
    assert encoding.ids.tolist() == expected.ids.tolist()
    assert encoding.offsets_bp[[0, -1]].tolist() == [[0, 0], [0, 0]]
    for (start, end), bits, index in zip(
        encoding.offsets_bp[1:-1], encoding.known[1:-1], encoding.kmers[1:-1], strict=True
    ):
        there = sequence[start:end]
        there = reverse_complement(there) if strand == "-" else there
        kmer = Kmers(np.array([index]), np.array([bits], dtype=np.uint8))
        assert decode_kmers(kmer, len(there)) == known_only(there)


@given(st.lists(any_dna, max_size=5), offsets, strands)
def test_a_batch_is_its_sequences(sequences, offset, strand):
    options = {"offset": offset, "strand": strand, "tags": ("<fungi_species>",)}
    for one, of_batch in zip(
        (encode(s, **options) for s in sequences), encode_batch(sequences, **options), strict=True
    ):
        for a, b in zip(one, of_batch, strict=True):
            assert np.array_equal(a, b)


def test_long_sequences_pass_through_blocks():
    random = np.random.default_rng(0)
    for size in (6 * 32_768 - 1, 6 * 32_768, 6 * 32_768 + 1):
        letters = random.choice(np.frombuffer(b"ACGTacgtNN", dtype=np.uint8), size)
        text = letters.tobytes().decode()
        for form in (text, text.encode(), letters):
            assert decode(encode(form)) == known_only(text)
        assert encode(text).num_known_bases == size - text.count("N")


@given(st.text(alphabet="ACGT", max_size=60))
def test_ids_alone_decode(sequence):
    for vocabulary in (NATIVE, HYBRID):
        ids = encode(sequence + "N" * (-len(sequence) % 6), vocabulary, close=True).ids
        text = decode_ids(ids, vocabulary)
        assert text[: len(sequence) // 6 * 6] == sequence[: len(sequence) // 6 * 6]


@pytest.fixture(scope="module")
def native():
    return NativeDNATokenizer()


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stock")
    save_stock_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder)


parts = st.sampled_from(["<dna>", "</dna>", "<fungi_species>", "<oov>", "<", "<x>", " ", "π", "A"])


@given(st.lists(st.one_of(any_dna, parts), max_size=6).map("".join))
def test_native_ids_and_offsets_are_those_of_stock(native, stock, text):
    ours = native(text, return_offsets_mapping=True)
    theirs = stock(text, return_offsets_mapping=True)
    assert ours["input_ids"] == theirs["input_ids"]
    assert ours["offset_mapping"] == theirs["offset_mapping"]
    assert native.decode(ours["input_ids"]) == stock.decode(theirs["input_ids"])


@pytest.mark.parametrize("side", ["left", "right"])
def test_native_pads_and_truncates_as_stock(native, stock, side):
    texts = ["<dna>ACGTACGTACG", "<dna>A", "<dna>" + "ACGTTT" * 5]
    rows = [{"input_ids": [1, 2]}, {"input_ids": [3]}]
    found = []
    for tokenizer in (native, stock):
        tokenizer.padding_side = tokenizer.truncation_side = side
        batch = tokenizer(texts, padding=True, truncation=True, max_length=4)
        padded = tokenizer.pad(rows, pad_to_multiple_of=4)
        found.append([batch["input_ids"], batch["attention_mask"], padded["input_ids"]])
        tokenizer.padding_side = tokenizer.truncation_side = "right"
    assert found[0] == found[1]


def test_every_call_people_use(native, tmp_path):
    assert native.encode("<dna>acgtac") == [2, 850]
    assert native.tokenize("<dna>ACGTACG") == ["<dna>", "ACGTAC", "GAAAAA"]
    assert native.convert_tokens_to_ids(["<dna>", "ACGTAC", "?"]) == [2, 850, 1]
    assert native.batch_decode([[2, 850], [3]], skip_special_tokens=True) == ["ACGTAC", ""]
    full = native("<dna>ACGNAC", return_special_tokens_mask=True, return_length=True)
    assert (full["special_tokens_mask"], full["length"]) == ([1, 1], 2)
    assert len(native) == native.vocab_size == len(native.get_vocab()) == 4224
    NativeDNATokenizer(padding_side="left", model_max_length=77).save_pretrained(tmp_path)
    again = NativeDNATokenizer.from_pretrained(tmp_path)
    assert (again.padding_side, again.model_max_length) == ("left", 77)
    assert again("<dna>ACGTAC")["input_ids"] == [2, 850]


@pytest.mark.parametrize(("side", "front"), [("left", 2), ("right", 0)])
def test_labels_and_known_bases_are_padded_with_the_ids(native, side, front):
    texts = ["<dna>ACGTACG", "<dna>", "<dna>AN"]
    options = {"return_labels": True, "padding": True, "padding_side": side}
    batch = native(texts, return_offsets_mapping=True, **options)
    assert batch["input_ids"][0] == [2, 850, 3200] and batch["input_ids"][1][front] == 2
    assert batch["labels"][0] == [-100, 850, 3200] and set(batch["labels"][1]) == {-100}
    assert batch["known_bases"][0] == [0, 63, 1] and sorted(batch["known_bases"][2]) == [0, 0, 1]
    assert batch["offset_mapping"][1][front] == (0, 5)
    assert batch["attention_mask"][1][front] == sum(batch["attention_mask"][1]) == 1
    of_sequences = native.pad([{"input_ids": [2], "labels": n} for n in (1, 0)])
    assert of_sequences["labels"] == [1, 0]


def test_a_collator_that_copies_ids_to_labels_trains_no_wrong_base(native):
    rows = [native("<dna>ACGNACACGTAC", return_labels=True)]
    batch = DataCollatorForLanguageModeling(native, mlm=False)(rows)
    kmers, known = next_kmers(batch["labels"], batch["known_bases"], 128)
    assert known.tolist() == [[False] * 6, [True] * 6] and kmers.tolist() == [0, 850 - 128]


def test_what_dna_does_not_have(native):
    for call in (
        lambda: encode("ACGT", offset=6),
        lambda: encode("ACGT", strand=-1),
        lambda: native("ACGT", text_pair="A"),
        lambda: native("ACGT", stride=3),
        lambda: native([1, 2]),
        lambda: native.decode([4224]),
        lambda: native.add_tokens(["<mine>"]),
        lambda: native.add_special_tokens({"mask_token": "<mask>"}),
    ):
        with pytest.raises(UserError):
            call()


# Regions of the hybrid tokenizer; byte pairs are stood in for by one token a character.


def letters(text):
    return [ord(c) for c in text], [(i, i + 1) for i in range(len(text))]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("hi", [104, 105]),
        ("<dna></dna>", [151669, 151670]),
        ("<dna> atcgat\n</dna>", [151669, 152105, 151670]),
        ("<dna>ATC GAT</dna>", [151669, 151671, 152696, 151670]),
        ("ATCG</dna>", [encode("ATCG", HYBRID).ids[1], 151670]),
        ("<dna>A<dna>B</dna></dna>", [151669, 151671, 151671, 151670, 151670]),
        ("a<dna>A</dna>b<dna>A", [97, 151669, 151672, 151670, 98, 151669, 151672]),
        ("</dna>x<dna>", [151670, 120, 151669]),
    ],
)  # fmt: skip
def test_regions(text, ids):
    assert tokenize_hybrid(text, letters).ids.tolist() == ids


def test_a_hybrid_tokenizer_wants_local_files(tmp_path):
    with pytest.raises(ModelError, match="no byte-pair vocabulary"):
        HybridDNATokenizer(tmp_path)
    save_stock_tokenizer(tmp_path)
    with pytest.raises(ModelError, match="is not Qwen3's"):
        HybridDNATokenizer(tmp_path)
    (tmp_path / "dna_config.json").write_text(json.dumps({"k": 3}))
    with pytest.raises(ModelError, match="k is 3, the released tokenizer has 6"):
        HybridDNATokenizer(tmp_path)


# FASTA in pieces, and tokens as lines.

contigs = st.dictionaries(
    st.text(alphabet="abc12", min_size=1, max_size=3),
    st.text(alphabet="ACGTNacgtR", max_size=150),
    min_size=1,
    max_size=4,
)


@given(contigs, st.integers(1, 9))
def test_lines_give_back_the_sequence(contigs, num_kmers):
    size = 6 * num_kmers
    pieces = [
        SequenceChunk(name, at, bases[at : at + size].encode())
        for name, bases in contigs.items()
        for at in range(0, max(len(bases), 1), size)
    ]
    for vocabulary in (NATIVE, HYBRID):
        lines = list(token_lines(pieces, vocabulary))
        found: dict[str, str] = {}
        for line in fasta_lines(lines, "x", vocabulary):
            if line.startswith(">"):
                found[(name := line[1:])] = ""
            else:
                found[name] += line
        assert found == {name: known_only(bases) for name, bases in contigs.items()}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no tokens"),
        (["a\t0\t6\n"], "line 1"),
        (["a\t0\t7\t2 850\t.\n"], "6 bases stand where 7 should"),
        (["a\t6\t12\t2 850\t.\n"], "begins at 6"),
        (["a\t0\t6\t2 99999999999999999999\t.\n"], "line 1"),
        (["a\t0\t6\t2 850\t0:hello!\n"], "0:hello!"),
    ],
)
def test_bad_lines_are_named(lines, message):
    with pytest.raises(UserError, match=message):
        list(fasta_lines(io.StringIO("".join(lines)), "x"))


def test_the_command_reads_and_writes_streams(capsys, monkeypatch):
    def run(given, *words):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(given))))
        assert main(["tokenize", *words]) == 0
        return capsys.readouterr().out

    fasta = ">a\nACGTACGTNACGTA\n>b\n"
    lines = run(fasta.encode(), "--piece-tokens", "3")
    assert lines.splitlines()[1:3] == ["a\t0\t12\t2 850 1\t1:GTNACG", "a\t12\t14\t2 1152\t0:TA"]
    assert run(lines.encode(), "--decode") == fasta
    assert run(b">a\nACGuACGU\n").endswith("a\t0\t8\t2 850 3456\t1:GT\n")

"""Encoding and decoding against published vectors, a dictionary and the stock tokenizer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.tokenizer import (
    HYBRID,
    NATIVE,
    decode,
    decode_kmers,
    encode,
    encode_kmers,
    known_bases,
    reverse_complement_kmers,
    save_stock_tokenizer,
)
from tests.helpers.reference import INDEX, KMERS, chunks

any_dna = st.text(alphabet="ACGTNacgtnRY", max_size=80)
clean_dna = st.text(alphabet="ACGT", max_size=80)

# Published vectors of the hybrid tokenizer: llama.cpp's test file for Carbon, and the model card.
VECTORS = {
    "ATCGAT": [152105],
    "atcgat": [152105],
    "ATCGATCGTACG": [152105, 154563],
    "ATCGAN": [151671],
    "ATCGA": [152104],
    "ATCGATCG": [152105, 154488],
    "CCCCCC": [154402],
    "ATGCGCTAGCTACGATCGATCGTAGCTAGCTAGCTAGCTACG": [
        152166, 152924, 154515, 152108, 155334, 152924, 155331
    ],
    "ATGCGCTAGCTACGATCGATCGTAGCTAGCTAG": [152166, 152924, 154515, 152108, 155334, 152888],
    "": [],
}  # fmt: skip


@pytest.mark.parametrize("sequence", VECTORS)
def test_published_vectors(sequence):
    assert encode(sequence, HYBRID).ids.tolist() == [151669, *VECTORS[sequence]]


def test_the_code_is_that_of_the_dictionary():
    assert encode_kmers("".join(KMERS)).indices.tolist() == list(range(4096))
    assert (INDEX["AAAAAA"], INDEX["GGGGGG"], INDEX["AAAAAT"]) == (0, 4095, 1)


@given(any_dna)
def test_encoding_against_a_dictionary(sequence):
    kmers = encode_kmers(sequence)
    for chunk, index, bits in zip(chunks(sequence.upper()), *kmers, strict=True):
        padded = chunk.ljust(6, "-")
        assert KMERS[index] == "".join(b if b in "ACGT" else "A" for b in padded)
        assert known_bases(np.array(bits)).tolist() == [b in "ACGT" for b in padded]


@given(any_dna)
def test_round_trip(sequence):
    expected = "".join(b if b in "ACGT" else "N" for b in sequence.upper())
    assert decode_kmers(encode_kmers(sequence), len(sequence)) == expected
    for vocabulary in (NATIVE, HYBRID):
        assert decode(encode(sequence, vocabulary, close=True)) == expected
    assert encode(sequence).num_known_bases == len(sequence) - expected.count("N")


@given(any_dna)
def test_the_other_strand_by_table(sequence):
    sequence = sequence[: len(sequence) // 6 * 6]
    there = encode_kmers(reverse_complement(sequence))
    for a, b in zip(reverse_complement_kmers(encode_kmers(sequence)), there, strict=True):
        assert a.tolist() == b.tolist()


@given(any_dna)
def test_the_vocabularies_differ_by_a_constant(sequence):
    native, hybrid = encode(sequence).ids, encode(sequence, HYBRID).ids
    is_kmer = native >= NATIVE.first_kmer
    assert set((hybrid - native)[is_kmer].tolist()) <= {HYBRID.first_kmer - NATIVE.first_kmer}
    assert (hybrid[~is_kmer] < HYBRID.first_kmer).all()


def test_forms_of_input_are_alike():
    for form in (b"ACGTNA", np.frombuffer(b"ACGTNA", dtype=np.uint8)):
        assert encode(form).ids.tolist() == encode("ACGTNA").ids.tolist()
    assert encode("ACGT" + chr(960) + "ACGTACG").known.tolist() == [0, 0b101111, 0b111111]


def test_an_oov_keeps_the_bases_it_knows():
    encoding = encode("ACGTANACGNACGT")
    assert encoding.ids.tolist()[1:3] == [NATIVE.other, NATIVE.other]
    assert encoding.known.tolist() == [0, 0b011111, 0b110111, 0b000011]


def test_tags():
    tags = ("<fungi_species>", "<protein_coding_region>")
    encoding = encode("ACGTAC", tags=tags, close=True)
    assert encoding.ids.tolist() == [8, 11, 2, 850, 3]
    assert decode(encoding) == "ACGTAC"
    with pytest.raises(UserError, match="<dragon>"):
        encode("A", tags=("<dragon>",))


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stock")
    save_stock_tokenizer(folder)
    return folder


def test_stock_transformers_reads_it_without_this_package(stock):
    tokenizer = AutoTokenizer.from_pretrained(stock)
    assert "carbon" not in type(tokenizer).__module__
    for sequence in ("", "A", "acgtac", "ACGTACG", "ACGTNACGTAC", "ACGTACNNN", "G" * 601):
        ids = tokenizer(f"<dna>{sequence}</dna>").input_ids
        assert ids == encode(sequence, close=True).ids.tolist()
    assert tokenizer.decode([850, 850]) == "ACGTACACGTAC"
    assert tokenizer.vocab_size == NATIVE.size


@given(clean_dna)
def test_stock_ids_of_any_length(stock, sequence):
    ids = Tokenizer.from_file(f"{stock}/tokenizer.json").encode(f"<dna>{sequence}").ids
    assert ids == encode(sequence).ids.tolist()

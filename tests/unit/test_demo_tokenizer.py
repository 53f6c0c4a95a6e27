"""The demo's page of tokens."""

import json

import pytest

from carbon.genome.genome import Genome
from carbon.tokenizer import NATIVE
from demo.lab import Lab
from demo.panels.tokenizer import Tokenizer
from tests.helpers.demo import answered, printed_by, visited
from tests.helpers.files import place_gene, write_fasta


@pytest.fixture
def panel(model, tmp_path) -> Tokenizer:
    fasta = write_fasta(tmp_path / "genome.fa", {"c1": place_gene()[0]})
    return Tokenizer(Lab(model, "MODEL", Genome.open(fasta, None), tmp_path))


def ids(result, name, column):
    (reading,) = [r for r in result["readings"] if r["name"] == name]
    return [token[column] for token in reading["tokens"]]


def test_ids_mask_and_places(panel):
    # ACGTAC is 0 2 3 1 0 2 in digits: 2*256 + 3*64 + 16 + 2 = 722.
    result = answered(panel, {"text": "acgtac gtnac", "shift": "1"})
    tokens = result["readings"][0]["tokens"]
    assert [t["native_id"] for t in tokens] == [2, 722 + 128, 1]
    assert [t["hybrid_id"] for t in tokens] == [151_669, 722 + 151_672, 151_671]
    assert [t["known"] for t in tokens] == ["", "111111", "110110"]
    assert [t["span"] for t in tokens] == [None, [1, 6], [7, 11]]
    assert [t["text"] for t in tokens] == ["<dna>", "acgtac", "gtnac"]


def test_text_with_tags(panel):
    text = "<fungi_species><dna>CCCCCCTATAAA</dna> and CCCCCC"
    values, result, shown = visited(panel, text=text)
    native = ids(result, "as written, native", "native_id")
    assert native[:5] == [NATIVE.tag_ids(("<fungi_species>",))[0], 2, 128 + 2730, 128 + 1088, 3]
    assert ids(result, "as written, hybrid", "hybrid_id") == [151_669, 154_402, 152_760, 151_670]
    assert "Qwen3" in result["missing"] and "Qwen3" in shown["tokens"]
    assert result["bases"] == "CCCCCCTATAAA"
    printed = printed_by(panel.python(values))
    assert json.loads(printed[0]) == native
    assert json.loads(printed[1]) == ids(result, "as written, hybrid", "hybrid_id")


def test_text_without_dna_has_no_offsets(panel):
    _, result, shown = visited(panel, text="<dna></dna>")
    assert result["bases"] == "" and len(result["readings"]) == 2 and shown["offsets"] == ""

"""The table of metadata tags, and all that reads it."""

from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.corpus import SpanRows, open_packed, open_store, ordered_rows
from carbon.corpus import store as stores
from carbon.errors import ConfigError, UserError
from carbon.tokenizer import NATIVE, TAGS, Tag, encode, native_tokens, tags_of, vocabulary
from data_pipeline.cuts import _EXACT_TYPES, _TYPE_PATTERNS
from data_pipeline.inputs.files import file_rows
from data_pipeline.recipe import _SPECIES_TYPES, BuildConfig, FilesConfig
from tests.helpers.files import random_bases

# Models are trained with these ids: a tag that is added takes another, and none is given twice.
IDS = {
    "<mammalian_species>": 4,
    "<vertebrate_non_mammalian_species>": 5,
    "<invertebrate_species>": 6,
    "<plant_species>": 7,
    "<fungi_species>": 8,
    "<protozoa_species>": 9,
    "<prokaryote_species>": 10,
    "<protein_coding_region>": 11,
    "<pseudo_gene>": 12,
    "<transfer_rna>": 13,
    "<transfer_messenger_rna>": 14,
    "<non_coding_rna>": 15,
    "<miscellaneous_rna>": 16,
    "<ribosomal_rna>": 17,
}
ADDED = Tag("vir", "<virus_species>", "species", 40, released=False)
MORE = (*TAGS[:3], ADDED, *TAGS[3:])


def test_ids_are_as_they_were_and_unique():
    assert {tag.text: tag.native_id for tag in TAGS if tag.text in IDS} == IDS
    assert len({tag.native_id for tag in TAGS}) == len({tag.text for tag in TAGS}) == len(TAGS)
    for kind in ("species", "gene"):
        assert len({tag.code for tag in tags_of(kind)}) == len(tags_of(kind)) > 0


def test_a_tag_has_a_row_of_the_native_vocabulary():
    for tag in TAGS:
        assert 4 <= tag.native_id <= 127 and tag.kind in ("species", "gene")
        assert native_tokens()[tag.text] == tag.native_id == NATIVE.tag_ids((tag.text,))[0]
        assert encode("ACGTAC", tags=(tag.text,)).ids.tolist() == [tag.native_id, 2, 850]


def test_ids_that_no_tag_has_are_reserved():
    free = set(range(4, 128)) - {tag.native_id for tag in TAGS}
    names = native_tokens()
    assert list(names.values()) == list(range(128))
    assert {i for name, i in names.items() if name == f"<reserved_{i}>"} == free
    assert list(names)[:4] == ["<pad>", "<oov>", "<dna>", "</dna>"]


def test_a_tag_in_the_middle_changes_no_other_id(monkeypatch):
    before = native_tokens()
    monkeypatch.setattr(vocabulary, "TAGS", MORE)
    after = native_tokens()
    assert after.pop("<virus_species>") == before.pop("<reserved_40>") == 40
    assert after == before


def test_a_tag_in_the_middle_changes_no_store(tmp_path, monkeypatch):
    """Stores that lie prepared are read on: what stands in them is no place in the table."""
    codes = [tag.code for tag in tags_of("species")] + [None, "unheard", "<fng>"]
    table = pa.table({"sequence": ["ACGT"] * len(codes), "species_type": codes})
    pq.write_table(table, tmp_path / "t.parquet")
    before = open_store({f"{tmp_path}/t.parquet": None}, tmp_path / "one", "s")
    assert before.species.tolist() == [0, 1, 2, 3, 4, 5, 6, -1, -1, 4]
    monkeypatch.setattr(stores, "TAGS", MORE)
    monkeypatch.setattr(stores, "tags_of", lambda kind: [t for t in MORE if t.kind == kind])
    after = open_store({f"{tmp_path}/t.parquet": None}, tmp_path / "two", "s")
    assert after.species.tolist() == before.species.tolist() and after.tags == before.tags
    assert after.key == before.key


@pytest.mark.parametrize("tag", [tags_of("species")[-1], tags_of("gene")[0]], ids=str)
def test_a_record_is_read_with_its_tag(tmp_path, tag):
    """In a third of the rows, and in none of the others; the store lists it."""
    sequence = random_bases(20_000)
    pq.write_table(
        pa.table({"sequence": [sequence], f"{tag.kind}_type": [tag.code]}), tmp_path / "t.parquet"
    )
    store = open_store({f"{tmp_path}/t.parquet": None}, tmp_path / "cache", "s")
    assert store.tags == (tag,)
    source = open_packed(store, [64], False)
    rows = ordered_rows(0, [SpanRows(60, {"s": 1.0}, 64)], {"s": source})
    assert rows.tags == (tag.text,)
    first = np.array([rows[i].input_ids[0] for i in range(60)])
    assert set(first.tolist()) == {tag.native_id, NATIVE.begin}
    assert 10 <= (first == tag.native_id).sum() <= 30


def test_records_without_codes_have_no_tags(tmp_path):
    pq.write_table(pa.table({"sequence": ["ACGT" * 9]}), tmp_path / "t.parquet")
    assert open_store({f"{tmp_path}/t.parquet": None}, tmp_path / "c", "s").tags == ()


def test_recipes_and_files_know_every_code(tmp_path):
    (tmp_path / "s.fa").write_text(">s\nACGT\n")
    for tag in TAGS:
        known = FilesConfig(path="s.fa", source="mrna")
        object.__setattr__(known, f"{tag.kind}_type", tag.code)
        (row,) = file_rows(tmp_path / "s.fa", known)
        assert row[f"{tag.kind}_type"] == tag.code
        object.__setattr__(known, f"{tag.kind}_type", "dragon")
        with pytest.raises(UserError, match=rf"'dragon' .*\b{tag.code}\b"):
            list(file_rows(tmp_path / "s.fa", known))
    for code in (*(tag.code for tag in tags_of("species")), "dragon"):
        assembly = {"genome": "g", "annotation": "a", "species_type": code}
        refused = pytest.raises(ConfigError, match=r"\bmam\b.* 'dragon'")
        with refused if code == "dragon" else nullcontext():
            given = BuildConfig.from_table({"output": "o", "assemblies": [assembly]}, "f")
            assert given.assemblies[0].species_type == code


def test_what_is_taken_from_annotation_and_taxonomy_is_in_the_table():
    species = {tag.code for tag in tags_of("species")}
    genes = {tag.code for tag in tags_of("gene")}
    assert {code for _, code in _SPECIES_TYPES} <= species
    assert {*_EXACT_TYPES.values(), *(code for _, code in _TYPE_PATTERNS)} <= genes

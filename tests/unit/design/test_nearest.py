"""The nearest record after a known number of edits."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.design.designs import nearest_records, records_of
from carbon.design.distances import edits_between, edits_within
from carbon.errors import CorpusError
from carbon.genome import reverse_complement
from tests.helpers.files import random_bases, write_fasta


def changed(bases: str) -> str:
    """Three edits: a substitution, a deletion, an insertion."""
    other = "A" if bases[40] != "A" else "C"
    more = "A" if bases[100] != "A" else "C"
    return bases[:40] + other + bases[41:70] + bases[71:100] + more + bases[100:]


def test_the_nearest_record_is_the_one_it_was_made_of():
    records = [(f"r{n}", random_bases(900, seed=n)) for n in range(6)]
    piece = records[4][1][200:400]
    designs = [piece, changed(piece), reverse_complement(changed(piece)), random_bases(200, 99)]
    same, three, turned, none = nearest_records(designs, iter(records))
    assert same == ("r4", 1.0, 0)
    assert (three.record, three.edits) == (turned.record, turned.edits) == ("r4", 3)
    # Of 185 16-mers at most 16 + 15 + 15 have one of the changes in them, at three places.
    assert 0.7 < three.shared < 0.9 and three.shared == pytest.approx(turned.shared, abs=0.02)
    assert none is None
    assert nearest_records(designs, []) == [None] * 4


def slow_distance(a: str, b: str, *, inside: bool) -> int:
    """Edit distance (Sellers 1980); with `inside`, the ends of b cost nothing."""
    row = [0 if inside else n for n in range(len(b) + 1)]
    for i, x in enumerate(a, start=1):
        last, row = row, [i]
        for j, y in enumerate(b, start=1):
            row.append(min(last[j - 1] + (x != y), last[j] + 1, row[-1] + 1))
    return min(row) if inside else row[-1]


def test_distances_against_the_table():
    for n in range(20):
        a, b = random_bases(12 + n, seed=n), random_bases(40, seed=n + 100)
        assert edits_between(a, b) == slow_distance(a, b, inside=False)
        assert edits_within(a, b) == min(
            slow_distance(a, b, inside=True), slow_distance(reverse_complement(a), b, inside=True)
        )


def test_records_of_a_corpus_are_those_to_train_on(tmp_path):
    for split, bases in (("train", "ACGT"), ("test", "GGGG")):
        rows = {"record_id": [split], "sequence": [bases], "strand": ["+"]}
        (tmp_path / "dna").mkdir(exist_ok=True)
        pq.write_table(pa.table(rows), tmp_path / "dna" / f"{split}-00000.parquet")
    outputs = {f"dna/{split}-00000.parquet": "" for split in ("train", "test")}
    manifest = {"held_out": [], "outputs": outputs, "sources": {"dna": {}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert list(records_of(tmp_path)) == [("train", "ACGT")]
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(CorpusError, match="is not a corpus"):
        list(records_of(tmp_path))


def test_records_of_a_fasta(tmp_path):
    path = write_fasta(tmp_path / "r.fa.gz", {"one": "ACGT", "two": "GG"})
    assert list(records_of(path)) == [("one", "ACGT"), ("two", "GG")]

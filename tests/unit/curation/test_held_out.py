"""What is held out stays out, through whichever door its bases come in again."""

import shutil

import pytest

from carbon.corpus import read_manifest, read_source
from carbon.genome import read_sequences, reverse_complement
from tests.helpers.curation import assembly, build, rows_of
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.near_duplicates import mutated, substituted

SOURCES = '["eukaryote", "mrna", "mrna_splice", "promoter"]'


@pytest.fixture(scope="module")
def held_out(corpus):
    """Held-out transcripts and gene regions of a simulated genome."""
    rows = [
        row for s in ("mrna", "eukaryote") for row in read_source(corpus, s, "test").to_pylist()
    ]
    assert len({row["source"] for row in rows}) == 2
    return [row["sequence"] for row in rows]


def reasons_of(corpus):
    lines = (corpus / "dropped.tsv").read_text().splitlines()[1:]
    return {tuple(line.split("\t")[:2]): line.split("\t")[2].partition(":")[0] for line in lines}


def test_the_same_genes_in_a_second_assembly(genome, tmp_path):
    """Its bases differ by 4 %, and its recipe holds nothing out."""
    (tmp_path / "second").mkdir()
    shutil.copy(genome / "genes.gff3", tmp_path / "second")
    contigs = dict(read_sequences(genome / "genome.fa"))
    other = {name: substituted(bases, 0.04, i) for i, (name, bases) in enumerate(contigs.items())}
    write_fasta(tmp_path / "second" / "genome.fa", other)
    words = assembly(genome, sources=SOURCES)
    words += assembly(tmp_path / "second", 1, sources=SOURCES, name="second", holdout="[]")
    assert build(tmp_path / "c", *words) == 0
    (region,) = read_manifest(tmp_path / "c")["held_out"]
    contig = region.partition(":")[0]
    for source in ("eukaryote", "mrna", "mrna_splice", "promoter"):
        train = read_source(tmp_path / "c", source, "train").to_pylist()
        assert len(train) > 3 and not any(row["record_id"] == contig for row in train), source
    dropped = read_manifest(tmp_path / "c")["dropped_for_held_out"]
    tests = {s: read_source(tmp_path / "c", s, "test").num_rows for s in dropped}
    for source, counts in dropped.items():
        assert counts == {"equal": 0, "nearly_equal": tests[source]}, source


@pytest.mark.parametrize(("source", "strand"), [("mrna", "-"), ("mine", "+")])
def test_a_file_of_finished_sequences(genome, held_out, tmp_path, source, strand):
    texts = {f"equal{i}": bases for i, bases in enumerate(held_out)}
    texts |= {f"near{i}": mutated(bases, 0.03, i) for i, bases in enumerate(held_out)}
    texts |= {f"far{i}": substituted(bases, 0.16, i) for i, bases in enumerate(held_out)}
    texts |= {f"new{i}": random_bases(500, 70 + i) for i in range(5)}
    if strand == "-":
        texts = {name: reverse_complement(bases) for name, bases in texts.items()}
    write_fasta(tmp_path / "x.fa", texts)
    words = [f"files.0.path={tmp_path}/x.fa", f"files.0.source={source}"]
    words += ["files.0.both_strands=true"] if source == "mine" else []
    assert build(tmp_path / "c", *assembly(genome), *words) == 0
    reasons = {name: why for (of, name), why in reasons_of(tmp_path / "c").items() if of == source}
    for name in texts:
        expected = {"equal": "equals_held_out_record", "near": "nearly_equals_held_out_record"}
        assert reasons.get(name) == expected.get(name.rstrip("0123456789")), name
    dropped = read_manifest(tmp_path / "c")["dropped_for_held_out"][source]
    assert dropped == {"equal": len(held_out), "nearly_equal": len(held_out)}


@pytest.mark.parametrize(("identity", "goes"), [(0.9, True), (0.97, False)])
def test_at_the_identity_asked_for(tmp_path, identity, goes):
    """Between a file's source and that of another, whose records are held out by their bases."""
    tests = {f"t{i}": random_bases(600, i) for i in range(12)}
    write_fasta(tmp_path / "a.fa", tests)
    write_fasta(tmp_path / "b.fa", {n: substituted(bases, 0.06, 1) for n, bases in tests.items()})
    words = [f"files.0.path={tmp_path}/a.fa", "files.0.source=first", "files.0.test_share=0.5"]
    words += [f"files.1.path={tmp_path}/b.fa", "files.1.source=second"]
    words += ["files.0.both_strands=true", "files.1.both_strands=false"]
    assert build(tmp_path / "c", *words, f"keep.near_identity={identity}") == 0
    tested = {row["name"] for row in read_source(tmp_path / "c", "first", "test").to_pylist()}
    trained = {row["name"] for row in rows_of(tmp_path / "c", "second")}
    assert 2 < len(tested) < 10
    assert set(tests) - trained == (tested if goes else set())


def test_what_is_trained_on_may_be_alike(tmp_path):
    """Of two sources without near-duplicates, none goes for want of anything held out."""
    base = random_bases(600, 1)
    write_fasta(tmp_path / "a.fa", {"one": base})
    write_fasta(tmp_path / "b.fa", {"other": substituted(base, 0.03, 1)})
    words = [f"files.{i}.path={tmp_path}/{name}.fa" for i, name in enumerate("ab")]
    words += [f"files.{i}.source=s{i}" for i in range(2)]
    words += [f"files.{i}.both_strands=true" for i in range(2)]
    assert build(tmp_path / "c", *words) == 0
    assert len(rows_of(tmp_path / "c", "s0")) == len(rows_of(tmp_path / "c", "s1")) == 1
    assert read_manifest(tmp_path / "c")["dropped_for_held_out"] == {
        "s0": {"equal": 0, "nearly_equal": 0},
        "s1": {"equal": 0, "nearly_equal": 0},
    }

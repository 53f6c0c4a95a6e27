"""Reads as a source of a corpus: pairs, samples that are held out whole, and broken files."""

import gzip
from pathlib import Path

import pytest

from carbon.corpus import read_manifest, read_source
from carbon.errors import UserError
from data_pipeline.inputs.reads import read_rows
from data_pipeline.split import held_out_samples, sample_of
from tests.helpers.curation import build, rows_of
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.schemas import check_manifest

READS = [random_bases(150, i) for i in range(40)]


def fastq(bases, mate="", first=0):
    return "".join(
        f"@r{first + i}{mate} lane 1\n{read}\n+\n{'I' * len(read)}\n"
        for i, read in enumerate(bases)
    )


def settings_of(path, *more):
    files = [f"files.0.path={path}", "files.0.source=reads", "files.0.both_strands=true"]
    return [*files, *(f"files.0.{each}" for each in more)]


def test_reads_alone_are_records_as_they_are(tmp_path):
    long_read = random_bases(12_000, 99)
    with gzip.open(tmp_path / "gut.fastq.gz", "wt") as sink:
        sink.write(fastq([*READS, long_read]))
    assert build(tmp_path / "c", *settings_of(tmp_path / "gut.fastq.gz")) == 0
    rows = read_source(tmp_path / "c", "reads", "train").to_pylist()
    assert [row["sequence"] for row in rows] == [*READS, long_read]
    assert (rows[3]["name"], rows[3]["assembly"]) == ("r3", "gut")
    assert rows[3]["segments"] == [{"start": 0, "end": 150, "strand": "+"}]
    manifest = read_manifest(tmp_path / "c")
    assert manifest["both_strands"] == {"reads": True}
    check_manifest(manifest)


def test_a_mate_follows_its_read(tmp_path):
    (tmp_path / "a_1.fq").write_text(fastq(READS[:20], "/1"))
    (tmp_path / "a_2.fq").write_text(fastq(READS[20:], "/2"))
    settings = settings_of(tmp_path / "a_1.fq", f"mates={tmp_path}/a_2.fq")
    assert build(tmp_path / "c", *settings) == 0
    rows = rows_of(tmp_path / "c", "reads")
    assert [row["sequence"] for row in rows[:4]] == [READS[0], READS[20], READS[1], READS[21]]
    assert [row["name"] for row in rows[:3]] == ["r0/1", "r0/2", "r1/1"]
    (told,) = read_manifest(tmp_path / "c")["inputs"]
    assert [Path(file["path"]).name for file in told["files"]] == ["a_1.fq", "a_2.fq"]
    assert told["recipe"]["sample"] == "a"


def names_of(tmp_path, first, second):
    """Return the names of the records of two files of one read."""
    paths = tmp_path / "a_1.fq", tmp_path / "a_2.fq"
    for path, header, bases in zip(paths, (first, second), READS, strict=False):
        path.write_text(f"@{header}\n{bases}\n+\n{'I' * 150}\n")
    return [row["name"] for row in read_rows(*paths)]


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("SRR1.7.1 M:7 length=150", "SRR1.7.2 M:7 length=150", "SRR1.7"),
        ("SRR1.1 1 length=150", "SRR1.1 1 length=150", "SRR1.1"),
        ("M0:1:FC:1:1 1:N:0:ACGT", "M0:1:FC:1:1 2:N:0:ACGT", "M0:1:FC:1:1"),
        ("r/1", "r/2", "r"),
        ("lib.r.1", "lib.r.2", "lib.r"),
    ],
)
def test_names_of_mates(tmp_path, first, second, name):
    assert names_of(tmp_path, first, second) == [f"{name}/1", f"{name}/2"]


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("SRR1.1.1", "SRR1.2.2", ("SRR1.1", "SRR1.2")),
        ("SRR1.1", "SRR1.2", ("SRR1.1", "SRR1.2")),  # two spots of a run
        ("SRR1.7.2", "SRR1.7.1", ("SRR1.7.2", "SRR1.7.1")),
        ("r.11", "r.12", ("r.11", "r.12")),
    ],
)
def test_other_reads_are_no_mates(tmp_path, first, second, told):
    with pytest.raises(UserError, match=f"read 1 is '{told[0]}', and that of .* '{told[1]}'"):
        names_of(tmp_path, first, second)


def test_empty_reads_are_dropped_with_a_reason(tmp_path):
    empty = "@b\n\n+\n\n@c\n+\n@d\n\n+d\n\n"
    (tmp_path / "a.fq").write_text(fastq(READS[:2]) + empty + fastq(READS[2:4], first=2))
    assert build(tmp_path / "c", *settings_of(tmp_path / "a.fq")) == 0
    assert [row["sequence"] for row in rows_of(tmp_path / "c", "reads")] == READS[:4]
    assert read_manifest(tmp_path / "c")["steps"]["cut"]["reads"]["records"] == 7
    lines = (tmp_path / "c" / "dropped.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[:4] for line in lines] == [
        ["reads", name, "empty_read", "a"] for name in "bcd"
    ]


def test_the_mate_of_an_empty_read_goes_with_it(tmp_path):
    (tmp_path / "a_1.fq").write_text(fastq(READS[:3], "/1"))
    (tmp_path / "a_2.fq").write_text(fastq([READS[3], "", READS[5]], "/2"))
    settings = settings_of(tmp_path / "a_1.fq", f"mates={tmp_path}/a_2.fq")
    assert build(tmp_path / "c", *settings) == 0
    names = [row["name"] for row in rows_of(tmp_path / "c", "reads")]
    assert names == ["r0/1", "r0/2", "r2/1", "r2/2"]
    lines = (tmp_path / "c" / "dropped.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[1:3] for line in lines] == [
        ["r1/1", "mate_of_empty_read"], ["r1/2", "empty_read"]
    ]  # fmt: skip


@pytest.mark.parametrize(("near", "dropped"), [(False, {}), (True, {"reads:near_duplicate": 1})])
def test_filters_and_copies_and_nearly_equal_reads_if_told(tmp_path, near, dropped):
    short, unknown = READS[0][:40], "N" * 30 + READS[1][:100]
    changed = READS[0][:75] + {"A": "C"}.get(READS[0][75], "A") + READS[0][76:]
    (tmp_path / "a.fq").write_text(fastq([*READS, READS[5], short, unknown, changed]))
    settings = settings_of(tmp_path / "a.fq", f"near_duplicates={str(near).lower()}")
    assert build(tmp_path / "c", *settings) == 0
    assert read_manifest(tmp_path / "c")["dropped"] == dropped | {
        "reads:duplicate_sequence": 1,
        "reads:shorter_than_min_record_bp": 1,
        "reads:too_many_n": 1,
    }


def test_samples_are_held_out_whole_and_their_copies_go(tmp_path):
    """Two lanes of a sample are on one side; a read of a held-out sample is on no other."""
    shared = random_bases(150, 77)
    for number, sample in enumerate(("s1", "s2", "s3", "s4")):
        for lane in (1, 2):
            own = READS[8 * number + 4 * (lane - 1) :][:4]
            path = tmp_path / f"{sample}_S{number}_L00{lane}_R1_001.fastq"
            path.write_text(fastq([*own, shared]))
    assert build(tmp_path / "c", *settings_of(f"{tmp_path}/*.fastq", "test_share=0.25")) == 0
    test = read_source(tmp_path / "c", "reads", "test").to_pylist()
    train = read_source(tmp_path / "c", "reads", "train").to_pylist()
    (held_out,) = {row["assembly"] for row in test}
    assert {row["assembly"] for row in train} == {"s1", "s2", "s3", "s4"} - {held_out}
    assert (len(test), len(train)) == (9, 24)
    assert shared not in {row["sequence"] for row in train}
    sides = {
        told["recipe"]["sample"]: told["recipe"]["split"]
        for told in read_manifest(tmp_path / "c")["inputs"]
    }
    assert [sample for sample, side in sides.items() if side == "test"] == [held_out]


@pytest.mark.parametrize(("second", "is_warned"), [("ERR1_2.fq", True), ("ERR2_2.fq", False)])
def test_files_that_look_like_mates_in_both_splits_are_reported(
    tmp_path, capsys, second, is_warned
):
    for name, reads in (("ERR1_1.fq", READS[:4]), (second, READS[4:8])):
        (tmp_path / name).write_text(fastq(reads))
    assert build(tmp_path / "c", *settings_of(f"{tmp_path}/*.fq", "test_share=0.5")) == 0
    told = capsys.readouterr().err
    assert ("has the mates of" in told) == is_warned
    warned = [each.get("warning", "") for each in read_manifest(tmp_path / "c")["inputs"]]
    assert all(("in the other split" in warning) == is_warned for warning in warned)


@pytest.mark.parametrize(
    ("name", "paired", "sample"),
    [
        ("gut7_S3_L001_R2_001.fastq.gz", False, "gut7"),
        ("patient_1.fq", False, "patient_1"),
        ("run_001.fq", False, "run_001"),
        ("soil.R1.fastq.bgz", False, "soil"),
        ("nanopore.FASTQ", False, "nanopore"),
        ("_1.fq", False, "_1"),
        ("ERR011087_1.fq", True, "ERR011087"),
        ("gut7_S3_L001_R2_001.fq", True, "gut7"),
    ],
)
def test_names_of_samples(name, paired, sample):
    assert sample_of(Path(name), paired=paired) == sample


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.01, 1), (0.3, 3), (0.99, 9)])
def test_shares_of_ten_samples(share, count):
    names = [f"s{i}" for i in range(10)]
    found = held_out_samples(names, share)
    assert len(found) == count
    assert held_out_samples(names[::-1] * 2, share) == found


WHOLE = gzip.compress(fastq(READS).encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.fq.gz", WHOLE[:900]),
        ("a.fq.gz", WHOLE[:-4]),
        ("a.fq", fastq(READS[:2]).replace("III\n", "II\n", 1).encode()),
        ("a.fq", fastq(READS[:2]).replace("I\n", "III\n", 1).encode()),
    ],
)
def test_broken_files_are_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        list(read_rows(tmp_path / name, None))


@pytest.mark.parametrize(("near", "counted"), [("false", 2), ("true", 0)])
def test_reads_that_are_not_compared_with_held_out_records_are_counted(
    tmp_path, capsys, near, counted
):
    """One of the two reads is a held-out record with one base in 150 changed."""
    write_fasta(tmp_path / "g.fa", {"c1": READS[0], "c2": READS[1] + READS[2]})
    changed = READS[0][:75] + {"A": "C"}.get(READS[0][75], "A") + READS[0][76:]
    (tmp_path / "a.fq").write_text(fastq([changed, READS[9]]))
    genome = ["genome=" + str(tmp_path / "g.fa"), 'holdout=["c1"]', 'sources=["genome"]']
    settings = settings_of(tmp_path / "a.fq", f"near_duplicates={near}")
    assert build(tmp_path / "c", *(f"assemblies.0.{each}" for each in genome), *settings) == 0
    manifest = read_manifest(tmp_path / "c")
    assert manifest["sources"]["reads"]["train"]["records"] == (2 if counted else 1)
    _, reads = manifest["inputs"]
    told = f"warning: {tmp_path}/a.fq: 2 reads were not compared for near-equality"
    assert (told in reads.get("warning", "")) == (told in capsys.readouterr().err) == bool(counted)
    check_manifest(manifest)

"""A result in parts by region, joined, has the records of one run."""

import json
import shutil
import subprocess

import pyarrow.parquet as pq
import pyBigWig
import pytest

from carbon.cli import main
from carbon.errors import GenomeError, UserError
from carbon.genome import Interval
from carbon.genome.bed import Regions, read_regions
from carbon.io import join, tables
from carbon.io.tables import chosen_by_ending
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta, write_vcf

BASES = random_bases(500, 4)
LENGTHS_BP = {"c": 500, "d": 90}
REGIONS = ["c:1-120", "c:121-121", "c:122-350", "c:351-500", "d"]
BED = "c\t0\t120\nc\t120\t121\nc\t121\t350\nc\t350\t500\nd\t0\t90\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("parts")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": BASES, "d": "ACGT" * 22 + "AC"})
    records = []
    for n in [1, 40, *range(115, 128), 350, 351, 500]:
        base = BASES[n - 1]
        records.append(f"c\t{n}\t.\t{base}\t{'ACGT'['ACGT'.index(base) - 1]}\t.\t.\t.")
    # Deletions that begin before a border and end after it.
    records.insert(4, f"c\t117\t.\t{BASES[116:124]}\t{BASES[116]}\t.\t.\t.")
    records += ["d\t0\t.\tN\t<DEL>\t.\t.\t.", "d\t9\t.\tA\tC,G\t.\t.\t.", "d\t91\t.\tN\tA\t.\t.\t."]
    # bcftools joins headers that list the same contigs.
    header = "##contig=<ID=c,length=500>\n##contig=<ID=d,length=90>\n"
    write_vcf(folder / "in.vcf", records, header)
    (folder / "regions.bed").write_text(BED)
    return folder


def score(folder, output, *more):
    words = ["variants", "--model", f"{folder}/model", "--reference", f"{folder}/r.fa", "--vcf"]
    words += [f"{folder}/in.vcf", "--window", "60", "--skip-mismatches", "--output", str(output)]
    return main([*words, *more])


@pytest.mark.parametrize("ending", ["tsv", pytest.param("parquet", marks=pytest.mark.nightly)])
def test_joined_parts_are_the_whole(folder, tmp_path, capsys, ending):
    assert score(folder, tmp_path / f"whole.{ending}") == 0
    whole = capsys.readouterr().out
    parts, summaries = [], []
    for number, region in enumerate(REGIONS):
        parts.append(str(tmp_path / f"{number}.{ending}"))
        assert score(folder, parts[-1], "--region", region) == 0
        summaries.append(tmp_path / f"{number}.json")
        summaries[-1].write_text(capsys.readouterr().out)
    assert main(["join", *parts, "--output", str(tmp_path / f"joined.{ending}")]) == 0
    joined = tmp_path / f"joined.{ending}"
    assert joined.read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()
    assert main(["join", *map(str, summaries), "--output", str(tmp_path / "joined.json")]) == 0
    summary = json.loads((tmp_path / "joined.json").read_text())
    assert summary.pop("output") == parts and summary.pop("region") == REGIONS
    expected = json.loads(whole)
    expected.pop("output")
    assert summary == expected


def test_regions_of_a_file_are_those_of_the_whole(folder, tmp_path, capsys):
    assert score(folder, tmp_path / "whole.vcf") == 0
    assert score(folder, tmp_path / "all.vcf", "--regions-file", f"{folder}/regions.bed") == 0
    assert (tmp_path / "all.vcf").read_bytes() == (tmp_path / "whole.vcf").read_bytes()
    capsys.readouterr()
    (tmp_path / "two.bed").write_text("c\t120\t121\nc\t116\t118\n")
    assert score(folder, tmp_path / "two.vcf", "--regions-file", f"{tmp_path}/two.bed") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["records"], summary["region"]) == (4, "two.bed")


@pytest.mark.nightly
def test_parts_of_bgzip_vcfs_are_joined_by_bcftools(folder, tmp_path):
    if shutil.which("bcftools") is None:
        pytest.skip("bcftools is not installed")
    parts = []
    for number, region in enumerate(REGIONS):
        parts.append(str(tmp_path / f"{number}.vcf.gz"))
        assert score(folder, parts[-1], "--region", region) == 0
    joined = tmp_path / "joined.vcf.gz"
    subprocess.run(["bcftools", "concat", "--naive", "-o", joined, *parts], check=True)
    assert score(folder, tmp_path / "whole.vcf") == 0
    text = subprocess.run(["bgzip", "-dc", joined], check=True, capture_output=True).stdout
    assert text == (tmp_path / "whole.vcf").read_bytes()


def test_regions_of_a_scan_are_read_once_and_in_order(folder, tmp_path):
    def scan(name, *place):
        words = ["scan", "--model", f"{folder}/model", "--reference", f"{folder}/r.fa", *place]
        words += ["--window", "120", "--offsets", "0,3", "--strands", "both"]
        assert main([*words, "--output", f"{tmp_path}/{name}.tsv", f"{tmp_path}/{name}.bw"]) == 0
        return (tmp_path / f"{name}.tsv").read_text().splitlines()[2:]

    (tmp_path / "some.bed").write_text("d\t10\t40\nc\t0\t100\nc\t200\t260\nc\t250\t300\n")
    some = scan("some", "--regions-file", f"{tmp_path}/some.bed")
    places = [(row.split("\t")[0], int(row.split("\t")[1])) for row in some]
    assert places == [
        *(("c", n) for n in range(1, 101)), *(("c", n) for n in range(201, 301)),
        *(("d", n) for n in range(11, 41)),
    ]  # fmt: skip
    assert some[:100] == scan("first", "--region", "c:1-100")
    with pyBigWig.open(f"{tmp_path}/some.bw") as track:
        drawn = [(contig, n + 1) for contig in "cd" for n, _, _ in track.intervals(contig)]
        assert drawn == places


def test_summaries_of_both_sides_are_pooled(folder, tmp_path, capsys):
    def scan(name, region):
        words = ["scan", "--model", f"{folder}/model", "--reference", f"{folder}/r.fa", "--sides"]
        words += ["both", "--window", "72", "--downstream", "10", "--region", region]
        assert main([*words, "--output", f"{tmp_path}/{name}.tsv"]) == 0
        summary = capsys.readouterr().out
        (tmp_path / f"{name}.json").write_text(summary)
        return json.loads(summary)

    whole = scan("whole", "c:101-140")
    parts = [scan("a", "c:101-102"), scan("b", "c:103-140")]
    names = [f"{tmp_path}/{name}.json" for name in "ab"]
    assert main(["join", *names, "--output", f"{tmp_path}/o.json"]) == 0
    joined = json.loads((tmp_path / "o.json").read_text())
    assert joined.pop("outputs") == [f"{tmp_path}/{name}.tsv" for name in "ab"]
    assert joined.pop("region") == ["c:101-102", "c:103-140"]
    assert joined.pop("tokens_read") == sum(part["tokens_read"] for part in parts)
    positions = joined.pop("log_p_ref_by_position_in_kmer")
    expected = whole.pop("log_p_ref_by_position_in_kmer")
    for name in ("bases", "mean", "sd"):
        assert positions[name] == pytest.approx(expected[name], rel=1e-9)
    assert None in parts[0]["log_p_ref_by_position_in_kmer"]["mean"]
    assert joined == {name: whole[name] for name in joined} and joined["missing_bases"] == 0


def test_a_position_outside_a_contig_counts_as_its_nearest_base():
    regions = Regions([Interval("c", 0, 10), Interval("c", 490, 500)], LENGTHS_BP)
    assert [regions.holds("c", n) for n in (-1, 0, 9, 10, 489, 490, 499, 500)] == [
        True, True, True, False, False, True, True, True,
    ]  # fmt: skip
    assert not regions.holds("d", 0) and not regions.holds("e", 0)


def write_part(path, rows, by="x", **settings):
    """Write (contig, position, delta) by row."""
    write, columns = chosen_by_ending(path, "table"), {"contig": str, "position": int, "d": float}
    with write(path, columns, {"by": by, **settings}) as write_row:
        for row in rows:
            write_row(row)
    return path


@pytest.mark.parametrize("ending", ["tsv", "parquet"])
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("c:1-9", "c", 1), ("c:1-9", "c", 1), "its region c:1-9 overlaps c:1-9 of"),
        (("c:1-9", "c", 1), ("c:9-20", "c", 9), "its region c:9-20 overlaps"),
        (("c:5-9", "c", 5), ("c", "c", 1), "its region c overlaps c:5-9"),
        (("c:10-19", "c", 10), ("c:1-9", "c", 1), "begins at c:1, which is not after"),
        (("a.bed", "c", 7), ("b.bed", "c", 2), "begins at c:2, which is not after"),
        (("c:1-9", "c", 1), ("c:10-19", "c", 10), None),
        (("d:1-9", "d", 1), ("c:1-9", "c", 1), None),
        (("x.bed", "c", 4), ("x.bed", "c", 4), None),  # two records of one position
    ],
)
def test_parts_that_overlap_or_go_back_are_refused(tmp_path, first, second, message, ending):
    paths = [
        write_part(tmp_path / f"{name}.{ending}", [(contig, start, 0.5)], region=region)
        for name, (region, contig, start) in zip("ab", (first, second), strict=True)
    ]
    output = tmp_path / f"o.{ending}"
    if message:
        with pytest.raises(UserError, match=f"^{paths[1]}: .*{message}"):
            join.join_parts(paths, output)
    else:
        join.join_parts(paths, output)
    assert output.exists() == (message is None)


def test_what_cannot_be_joined(tmp_path):
    write_part(tmp_path / "a.tsv", [("c", 1, 0.5)])
    write_part(tmp_path / "b.tsv", [("c", 200, 0.5)], by="y")
    (tmp_path / "c.tsv").write_text("not a table\n")
    (tmp_path / "d.tsv").write_text((tmp_path / "a.tsv").read_text().rstrip("\n"))
    (tmp_path / "e.parquet").write_text("not a table\n")
    (tmp_path / "f.json").write_text("[]")
    for names, wrong in (
        (["a.tsv", "b.tsv"], "b.tsv: differs from"),
        (["a.tsv", "a.tsv"], "a.tsv: is named twice"),
        (["a.tsv", "c.tsv"], "c.tsv: "),
        (["d.tsv"], "d.tsv: is cut off"),
        (["a.tsv", "e.parquet"], "e.parquet: give parts that end in .tsv"),
        (["e.parquet"], "e.parquet: "),
        (["f.json"], "f.json: "),
    ):
        output = tmp_path / f"o.{names[0].partition('.')[2]}"
        with pytest.raises(UserError, match=wrong):
            join.join_parts([tmp_path / name for name in names], output)
        assert not output.exists()


def test_a_joined_parquet_has_the_row_groups_of_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "PARQUET_ROWS", 7)
    monkeypatch.setattr(join, "PARQUET_ROWS", 7)
    rows = [(f"r{n:02}", n, None if n % 3 else n / 7) for n in range(20)]
    whole = write_part(tmp_path / "whole.parquet", rows)
    cut = [
        write_part(tmp_path / f"{name}.parquet", some)
        for name, some in (("a", rows[:3]), ("b", []), ("c", rows[3:]))
    ]
    join.join_parts(cut, tmp_path / "joined.parquet")
    assert (tmp_path / "joined.parquet").read_bytes() == whole.read_bytes()
    assert pq.ParquetFile(whole).num_row_groups == 3


def test_summaries_that_count_twice_are_refused(tmp_path, capsys):
    for name, summary in (
        ("a", {"output": "1.tsv", "records": 2, "region": ["c:1-9", "d"]}),
        ("b", {"output": "2.tsv", "records": 2, "region": "d:4-5"}),
        ("c", {"output": "1.tsv", "records": 2, "region": "e"}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(summary))
    for name, message in (("b", "region d:4-5 overlaps d of"), ("c", "counts the same output")):
        paths = [str(tmp_path / f"{part}.json") for part in ("a", name)]
        assert main(["join", *paths, "--output", str(tmp_path / "o.json")]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "o.json").exists()


@pytest.mark.parametrize(
    ("text", "intervals"),
    [
        ("c\t9\t9\nc\t20\t30\nc\t40\t40\n", (Interval("c", 20, 30),)),  # and two left out
        ("e\t0\t5\n", "line 1: no contig 'e'"),
        ("c\t0\t501\n", "line 1: ends past the 500 bases"),
        ("c\t9\t9\n", "has no region"),
        ("c\t5\n", "is not a BED line"),
    ],
)
def test_a_file_of_regions(tmp_path, capsys, text, intervals):
    (tmp_path / "r.bed").write_text(text)
    if isinstance(intervals, str):
        with pytest.raises(GenomeError, match=intervals):
            read_regions(None, tmp_path / "r.bed", LENGTHS_BP, {})
        return
    assert read_regions(None, tmp_path / "r.bed", LENGTHS_BP, {}).intervals == intervals
    assert "left out 2 regions without bases" in capsys.readouterr().err

import gzip
import json
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pysam
import pytest

from carbon.cli import main
from carbon.compare.scored_files import read_scored_file
from carbon.inference.identity import checksums_of
from carbon.inference.variants import files as variant_files
from carbon.io.files import MACHINE
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta, write_vcf

BASES = random_bases(500, 4)
HEADER = (
    '##INFO=<ID=AF,Number=A,Type=Float,Description="f">\n'
    '##FILTER=<ID=q10,Description="low">\n##mine=kept\n'
)


def other(base: str) -> str:
    return "ACGT"["ACGT".index(base) - 1]


def snv(position: int, rest: str = ".\t.\t.") -> str:
    base = BASES[position - 1]
    return f"c\t{position}\trs{position}\t{base}\t{other(base)}\t{rest}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("variants")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": BASES, "d": "ACGT" * 50})
    return folder


def score(folder, vcf, output, *more):
    return main(
        ["variants", "--model", str(folder / "model"), "--reference", str(folder / "r.fa"),
         "--vcf", str(vcf), "--output", str(output), *more]
    )  # fmt: skip


def mixed_vcf(path):
    base = BASES[199]
    a, b = (x for x in "ACGT" if x not in (base, other(base)))
    return write_vcf(
        path,
        [
            snv(50, "30.00\tq10\tAF=0.250"),
            f"c\t200\t.\t{base}\t{a},{b},<DEL>\t.\tPASS\tAF=0.1,0.2,0.3",
            f"c\t300\t.\t{BASES[299:303]}\t{BASES[299]}\t.\t.\t.",
            f"c\t310\t.\t{BASES[309]}\t{BASES[309]}TT\t.\t.\t.",
            f"c\t320\t.\t{BASES[319]}\t.\t.\t.\t.",
            "d\t9\t.\tA\tC\t.\t.\t.",
        ],
        HEADER,
    )


def test_vcf_in_vcf_out_keeps_every_field(folder, tmp_path, capsys):
    vcf = mixed_vcf(tmp_path / "in.vcf")
    assert score(folder, vcf, tmp_path / "out.vcf.gz", "--strands", "both", "--window", "120") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["records"], summary["alleles"]) == (6, 7)
    assert (summary["alleles_scored"], summary["alleles_not_scored"]) == (6, 1)
    given = [line.split("\t") for line in vcf.read_text().splitlines() if line[0] != "#"]
    with gzip.open(tmp_path / "out.vcf.gz", "rt") as lines:
        text = lines.read()
    found = [line.split("\t") for line in text.splitlines() if line[0] != "#"]
    for before, after in zip(given, found, strict=True):
        assert after[:7] == before[:7] and after[8:] == before[8:]
        kept = [x for x in after[7].split(";") if not x.startswith("CARBON")]
        assert kept in ([before[7]], [])
    assert found[4] == given[4]
    assert "##mine=kept" in text and "protocol tiled" in text and "strands both" in text
    with pysam.VariantFile(str(tmp_path / "out.vcf.gz")) as scored:
        records = list(scored.fetch("c", 190, 320))  # through the tabix index
        assert [r.pos for r in records] == [200, 300, 310, 320]
        deltas = records[0].info["CARBON_DELTA"]
        assert deltas[2] is None and all(type(d) is float for d in deltas[:2])
        assert records[0].info["CARBON_REASON"][2] == "symbolic_allele"
        assert "CARBON_DELTA" not in records[3].info


def test_rules_and_odd_fields_of_a_vcf(folder, tmp_path, capsys):
    """Warnings are counted; a REF of N, POS 0, an INFO that ends in a semicolon, a CR inside."""
    records = [
        "c\t0\t.\tN\t.[c:20[\t.\t.\t.",
        snv(50, "-1\t.\tDP=1;"),
        "c\t60\t.\tN\t<DEL>\t-1\t.\tEND=70",
        f"c\t70\t.\t{BASES[69]}\t{BASES[69]}.\t.\t.\t.",
        snv(80, ".\t.\tPATH=HYDROCARBON_METABOLISM"),
        snv(90, ".\t.\tT=ab\rcd"),
    ]
    vcf = write_vcf(tmp_path / "a.vcf", records, "##contig=<length=500>\n")
    assert score(folder, vcf, tmp_path / "o.vcf") == 0
    told = capsys.readouterr()
    facts = json.loads(told.out)
    assert (facts["alleles_scored"], facts["reasons"]) == (3, {"symbolic_allele": 3})
    assert facts["warnings"] == {"header_line": 1, "qual": 2}
    assert told.err.count("warning: ") == 2 and "qual, 2 times, first in line 5" in told.err
    lines = [x for x in (tmp_path / "o.vcf").read_bytes().split(b"\n") if x[:1] == b"c"]
    assert lines[1].split(b"\t")[7].startswith(b"DP=1;CARBON_DELTA=")
    assert b"T=ab\rcd;CARBON_DELTA=" in lines[5]
    vcf = write_vcf(tmp_path / "none.vcf", [])
    for name in ("n.vcf", "n.tsv", "n.parquet"):
        assert score(folder, vcf, tmp_path / name) == 0
        assert json.loads(capsys.readouterr().out)["records"] == 0


def test_variants_are_counted_that_are_written_otherwise_or_seen_by_one_strand(
    folder, tmp_path, capsys
):
    """Padded, shifted and plain; and a deletion in a run of A at the end of its contig."""
    contigs = {
        "e": random_bases(200, 6) + "CAAAAAAAA",
        "n": random_bases(60, 7) + "NNNNNN" + random_bases(60, 8),
    }
    write_fasta(tmp_path / "e.fa", contigs)
    bases = contigs["e"]
    snv_of = {base: other(base) for base in "ACGT"}
    written = [(100, bases[100], snv_of[bases[100]]),
               (99, bases[99:102], bases[99] + snv_of[bases[100]] + bases[101]),
               (200, "CA", "C"), (205, "AA", "A")]  # fmt: skip
    records = [f"e\t{at + 1}\t.\t{ref}\t{alt}\t.\t.\t." for at, ref, alt in written]
    records.sort(key=lambda record: int(record.split("\t")[1]))
    next_to_n = contigs["n"][59]
    records.append(f"n\t60\t.\t{next_to_n}\t{snv_of[next_to_n]}\t.\t.\t.")
    vcf = write_vcf(tmp_path / "in.vcf", records)
    more = ("--reference", str(tmp_path / "e.fa"), "--window", "60", "--scores", "jsd")
    more += ("--protocol", "centered")
    for ending in ("tsv", "vcf"):
        assert score(folder, vcf, tmp_path / f"out.{ending}", *more) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    names = ("scored", "normalised", "by_one_strand", "masked", "without")
    counts = [summary[f"alleles_{name}"] for name in names]
    assert counts == [5, 2, 2, 1, {"delta": 0, "jsd": 1}]
    weights = {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in (folder / "model").iterdir()
        if path.name in ("model.safetensors", "tokenizer.json")
    }
    lengths_bp = {contig: len(bases) for contig, bases in contigs.items()}
    expected = checksums_of({"weights": weights}, lengths_bp)
    assert expected == {name: summary[name] for name in expected}
    others = checksums_of({"weights": weights | {"model.safetensors": "0"}}, {"e": 1})
    assert all(expected[name] != others[name] for name in ("model_sha256", "contigs_sha256"))
    names, *rows = [
        line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()[1:]
    ]
    *of_e, masked = (dict(zip(names, row, strict=True)) for row in rows)
    padded, plain, left, right = of_e
    assert (masked["strand_masked"], masked["jsd"], plain["strand_masked"]) == ("both", ".", ".")
    assert [row["position"] for row in (padded, plain, left, right)] == ["100", "101", "201", "206"]
    assert (padded["ref"], right["ref"]) == (bases[99:102], "AA")  # the columns of the file
    forms = [row["scored_as"] for row in (padded, plain, left, right)]
    snv_form = f"e:101:{bases[100]}:{snv_of[bases[100]]}"
    assert forms == [snv_form, ".", ".", "e:201:CA:C"]
    assert padded["delta"] == plain["delta"] and left["delta"] == right["delta"]
    assert [row["strand_left_out"] for row in (plain, right)] == [".", "forward"]
    assert right["forward"] == "." and right["reverse"] == right["delta"]
    *_, right, masked = pysam.VariantFile(str(tmp_path / "out.vcf"))
    assert right.info["CARBON_STRAND_LEFT_OUT"] == ("forward",) and right.ref == "AA"
    assert masked.info["CARBON_STRAND_MASKED"] == ("both",)


def many(path, number=20):
    """More records than two blocks of 8 hold, some at one place."""
    return write_vcf(path, [snv(1 + n // 2) for n in range(number)])


def test_what_disagrees_has_a_reason_of_its_own(tmp_path, folder, capsys):
    """The reference has N from base 101 to 110; contigs and ends of another build."""
    bases = BASES[:100] + "N" * 10 + BASES[110:]
    write_fasta(tmp_path / "r.fa", {"c": bases, "d": "ACGT" * 50})
    shutil.copytree(folder / "model", tmp_path / "model")
    wrong = snv(150).replace(f"\t{BASES[149]}\t", f"\t{other(BASES[149])}\t", 1)
    records = [
        snv(50),
        f"c\t99\t.\t{BASES[98:102]}\tA,<DEL>\t.\t.\t.",  # two of its four bases are N
        snv(105),
        "c\t106\t.\tN\t<DEL>\t.\t.\t.",
        wrong,
        "c\t499\t.\tACGT\tA\t.\t.\t.",
        "c\t501\t.\tA\tC\t.\t.\t.",
        "c\t2147483647\t.\tA\tC\t.\t.\t.",
        "e\t5\t.\tA\tC,G\t.\t.\t.",
    ]
    vcf = write_vcf(tmp_path / "a.vcf", records)
    assert score(tmp_path, vcf, tmp_path / "o.vcf.gz") == 2
    (line,) = capsys.readouterr().err.splitlines()
    for part in (
        "1 of 9 REF alleles differ from",
        "record 5 (c:150) has",
        "2 of 9 REF alleles are not on their contigs: record 6 (c:499): REF ends past",
        "1 of 9 records are on other contigs: no contig 'e' in the FASTA, which has 'c', 'd'",
        f"2 of 9 REF alleles are where {tmp_path / 'r.fa'} has N: record 2 (c:99) has",
    ):
        assert part in line
    assert "off by one" not in line
    more = ("--skip-mismatches", "--window", "60")
    assert score(tmp_path, vcf, tmp_path / "o.vcf.gz", *more) == 0
    told = capsys.readouterr()
    assert "warning: " in told.err and "--skip-mismatches" not in told.err
    facts = json.loads(told.out)
    numbers = {"records": 9, "alleles": 11, "alleles_scored": 1, "alleles_not_scored": 10}
    assert {name: facts[name] for name in numbers} == numbers
    assert facts["reasons"] == {
        "contig_unknown": 2, "ref_mismatch": 1, "ref_past_end": 2, "reference_unknown": 3,
        "symbolic_allele": 1, "telomere": 1,
    }  # fmt: skip
    with pysam.VariantFile(str(tmp_path / "o.vcf.gz")) as file:
        found = [record.info.get("CARBON_REASON") for record in file]
    assert found[1] == ("reference_unknown",) * 2 and found[8] == ("contig_unknown",) * 2
    # Its index has a place for what lies far past the end of the contig.
    assert (tmp_path / "o.vcf.gz.csi").exists()


@pytest.mark.parametrize(("num_unknown", "is_told"), [(1, False), (3, True)])
def test_many_records_where_the_reference_has_n(tmp_path, folder, capsys, num_unknown, is_told):
    """Told where they are more than one in a hundred: it may be another assembly."""
    write_fasta(tmp_path / "r.fa", {"c": "N" * num_unknown + BASES[num_unknown:]})
    shutil.copytree(folder / "model", tmp_path / "model")
    vcf = write_vcf(tmp_path / "a.vcf", [snv(position) for position in range(1, 151)])
    assert score(tmp_path, vcf, tmp_path / "o.tsv", "--window", "60") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["reasons"] == {"reference_unknown": num_unknown}
    warning = f"warning: {vcf}: {num_unknown} of 150 REF alleles are where"
    assert (warning in told.err) == ("is it the assembly" in told.err) == is_told


def test_an_index_for_places_that_are_far(folder, tmp_path, capsys):
    """Past 2^29 the index is a CSI; past 2^31 there is none, which is said before scoring."""
    vcf = write_vcf(tmp_path / "a.vcf", [f"c\t50\t.\t{BASES[49]}\t<DEL>\t.\t.\tEND=2147483647"])
    assert score(folder, vcf, tmp_path / "o.vcf.gz") == 0
    assert sorted(p.name for p in tmp_path.glob("o.*")) == ["o.vcf.gz", "o.vcf.gz.csi"]
    for far in ("END=2147483649", f"END=9{'0' * 5000}", "SVLEN=1,-2147483647"):
        vcf = write_vcf(tmp_path / "b.vcf", [snv(50, f".\t.\t{far}")])
        assert score(folder, vcf, tmp_path / "p.vcf.gz") == 2
        assert "record 1: its END or SVLEN is too far off" in capsys.readouterr().err
    plain = write_vcf(tmp_path / "t.vcf", ["c\t540000001\t.\tA\tC\t.\t.\t."])
    pysam.tabix_compress(str(plain), str(tmp_path / "t.vcf.gz"))
    variant_files.write_index(tmp_path / "t.vcf.gz", 545_000_000)
    with pysam.VariantFile(str(tmp_path / "t.vcf.gz")) as file:
        assert [r.pos for r in file.fetch("c", 539_999_999, 540_000_010)] == [540_000_001]


def test_records_by_qual_and_filter(folder, tmp_path, capsys):
    """The check, the count and the run see the same records; a wrong REF is left out, too."""
    fields = ("40\tPASS", "20\tPASS", ".\tPASS", "40\tq10", "40\t.", "40\tq10;PASS")
    records = [snv(50 + 10 * n, f"{field}\t.") for n, field in enumerate(fields)]
    records[4] = records[4].replace("c\t90\t", "c\t91\t")
    vcf = write_vcf(tmp_path / "a.vcf", records)
    chosen = ("--min-qual", "30", "--filters", "PASS")
    assert score(folder, vcf, tmp_path / "o.vcf", *chosen) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["records"] == summary["alleles_scored"] == 2
    assert summary["records_left_out"] == {"qual": 2, "filter": 2}
    assert (summary["min_qual"], summary["filters"]) == (30, ["PASS"])
    lines = (tmp_path / "o.vcf").read_text().splitlines()
    kept = [line.split("\t")[:7] for line in lines if not line.startswith("#")]
    assert kept == [records[n].split("\t")[:7] for n in (0, 5)]
    # Messages have the number of a record in the file.
    assert score(folder, vcf, tmp_path / "p.vcf", "--region", "c:80-200") == 2
    assert "record 5 (c:91) has" in capsys.readouterr().err


@pytest.mark.parametrize(("step", "way"), [(1, "before"), (-1, "after")])
def test_positions_that_are_off_by_one_are_recognised(folder, tmp_path, capsys, step, way):
    records = [snv(p).replace(f"c\t{p}\t", f"c\t{p + step}\t") for p in range(100, 160)]
    vcf = write_vcf(tmp_path / "a.vcf", records)
    assert score(folder, vcf, tmp_path / "o.vcf") == 2
    assert f"one base {way}: are the positions off by one" in capsys.readouterr().err


def test_every_format_carries_the_spread_and_what_lies_inside_it(folder, tmp_path, capsys):
    vcf = write_vcf(
        tmp_path / "a.vcf",
        [snv(50 + 7 * n) for n in range(12)] + ["c\t400\t.\tN\tA,<DEL>\t.\t.\t."],
    )
    assert score(folder, vcf, tmp_path / "one.tsv", "--strands", "reverse", "--offsets", "2") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["alleles_unsure"] is None and facts["offsets"] == [2]  # one reading has no spread
    read = ("--strands", "both", "--offsets", "0", "--window", "60")
    for name in ("o.vcf", "o.tsv", "o.json", "o.parquet"):
        assert score(folder, vcf, tmp_path / name, *read) == 0
        facts = json.loads(capsys.readouterr().out)
    rows = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert json.loads((tmp_path / "o.json").read_text())["rows"] == rows
    spreads = [(row["spread"], row["unsure"]) for row in rows]
    assert spreads[-2:] == [(None, None)] * 2
    flags = [is_unsure for _, is_unsure in spreads[:12]]
    assert flags == [abs(row["delta"]) < row["spread"] for row in rows[:12]]
    assert facts["alleles_unsure"] == sum(flags) and set(flags) == {True, False}
    _, names, *lines = (line.rstrip("\n").split("\t") for line in (tmp_path / "o.tsv").open())
    assert names == list(rows[0])
    texts = [dict(zip(names, line, strict=True)) for line in lines]
    assert [text["unsure"] for text in texts] == [str(flag).lower() for flag in flags] + [".", "."]
    assert texts[-1]["spread"] == texts[-1]["delta"] == "."
    assert [text["reason"] for text in texts[-2:]] == [row["reason"] for row in rows[-2:]]
    in_tsv = [float(text["delta"]) for text in texts[:12]]
    assert in_tsv == pytest.approx([row["delta"] for row in rows[:12]], rel=1e-4)
    with pysam.VariantFile(str(tmp_path / "o.vcf")) as file:
        infos = [record.info for record in file]
        assert [info["CARBON_UNSURE"] for info in infos[:12]] == [(int(flag),) for flag in flags]
    in_vcf = [info["CARBON_DELTA"][0] for info in infos[:12]]
    assert in_vcf == pytest.approx([row["delta"] for row in rows[:12]], rel=1e-4)
    in_vcf = [info["CARBON_SPREAD"][0] for info in infos[:12]]
    assert in_vcf == pytest.approx([spread for spread, _ in spreads[:12]], rel=1e-6)
    assert "CARBON_SPREAD" not in infos[12]


def test_a_contig_whose_name_begins_as_a_comment(folder, tmp_path):
    """Every score stands beside its own record, and none is lost."""
    contigs = {"a": BASES, "#b": random_bases(500, 8), "c": random_bases(500, 9)}
    write_fasta(tmp_path / "r.fa", contigs)
    shutil.copytree(folder / "model", tmp_path / "model")
    places = [("a", 10), ("#b", 12), ("c", 14), ("c", 15)]

    def deltas(name, places):
        records = []
        for contig, position in places:
            base = contigs[contig][position - 1]
            records.append(f"{contig}\t{position}\t.\t{base}\t{other(base)}\t.\t.\t.")
        vcf = write_vcf(tmp_path / f"{name}.vcf", records)
        assert score(tmp_path, vcf, tmp_path / f"{name}.tsv") == 0
        rows = (tmp_path / f"{name}.tsv").read_text().splitlines()[2:]
        cells = [row.split("\t") for row in rows]
        assert [(c[0], int(c[1])) for c in cells] == places
        return {(c[0], c[1]): c[5] for c in cells}

    few, all_four = deltas("few", [places[0], *places[2:]]), deltas("all", places)
    assert few.items() <= all_four.items()
    assert score(tmp_path, tmp_path / "all.vcf", tmp_path / "scored.vcf") == 0
    alleles = read_scored_file(tmp_path / "scored.vcf").alleles
    assert list(zip(alleles["contig"], alleles["position"], strict=True)) == places


def test_a_new_output_has_no_old_index(folder, tmp_path):
    """htslib takes a .csi before a .tbi, and would not find what it does not list."""
    output = tmp_path / "o.vcf.gz"
    assert score(folder, write_vcf(tmp_path / "a.vcf", [snv(50)]), output) == 0
    pysam.tabix_index(str(output), preset="vcf", csi=True, force=True)
    assert score(folder, many(tmp_path / "b.vcf"), output) == 0
    assert sorted(p.name for p in tmp_path.glob("o.*")) == ["o.vcf.gz", "o.vcf.gz.tbi"]
    with pysam.VariantFile(str(output)) as file:
        assert sum(1 for _ in file.fetch("c")) == 20


def test_variants_of_the_command_line_are_scored_as_those_of_a_vcf(folder, tmp_path, capsys):
    base, reference = BASES[49], ["--reference", str(folder / "r.fa")]
    command = ["variants", "--model", str(folder / "model"), *reference]
    texts = [
        f"c:50 {base}>{other(base)}",
        "d-9-A-C",
        f"chrc:20 {BASES[19].lower()}>{other(BASES[19])}",
    ]
    given = ["--variant", *texts[:2], "--variant", texts[2]]
    assert main([*command, *given, "--output", str(tmp_path / "typed.tsv")]) == 0
    records = [
        f"c\t20\t.\t{BASES[19]}\t{other(BASES[19])}\t.\t.\t.",
        f"c\t50\t.\t{base}\t{other(base)}\t.\t.\t.",
        "d\t9\td-9-A-C\tA\tC\t.\t.\t.",
    ]
    vcf = write_vcf(tmp_path / "in.vcf", records)
    assert score(folder, vcf, tmp_path / "vcf.tsv") == 0
    assert (tmp_path / "typed.tsv").read_text() == (tmp_path / "vcf.tsv").read_text()
    for wrong in ([*given, "--vcf", str(vcf)], []):
        assert main([*command, *wrong, "--output", str(tmp_path / "o.tsv")]) == 2
    assert not list(Path(tempfile.gettempdir()).glob(f"carbon-variants-{MACHINE}-*"))

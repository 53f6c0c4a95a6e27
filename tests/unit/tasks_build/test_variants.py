"""Builders: what they make of genomes written by hand, and what they refuse."""

import gzip
from collections import Counter
from pathlib import Path

import openpyxl
import pytest

from carbon.errors import GenomeError, UserError
from eval.tasks import TASKS
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.tasks import OTHER
from tests.helpers.tasks_build import rows_of, write_listing

CLINVAR_HEADER = (
    "##reference=GRCh38\n"
    '##INFO=<ID=CLNSIG,Number=.,Type=String,Description="x">\n'
    '##INFO=<ID=CLNREVSTAT,Number=.,Type=String,Description="x">\n'
    '##INFO=<ID=MC,Number=.,Type=String,Description="x">\n'
    "##contig=<ID=7>\n##contig=<ID=NW_1>\n"
)


def clinvar_files(folder: Path, wrong: bool = False) -> dict[str, Path]:
    bases = random_bases(2000, seed=41)
    records = []

    def add(position: int, significance: str, terms: str, stars: str = "criteria_provided,_x",
            ref: str = "", alt: str = "", contig: str = "7") -> None:  # fmt: skip
        ref = ref or bases[position]
        alt = alt or OTHER[ref[0]]
        consequences = ",".join(f"SO:1|{term}" for term in terms.split())
        info = f"CLNSIG={significance};CLNREVSTAT={stars}"
        info += f";MC={consequences}" if consequences else ""
        records.append(f"{contig}\t{position + 1}\t{len(records)}\t{ref}\t{alt}\t.\t.\t{info}")

    for n in range(100):
        add(100 + n, ("Pathogenic", "Benign")[n % 2], "missense_variant")
    for n in range(30):
        add(300 + n, ("Likely_pathogenic", "Likely_benign")[n % 3 > 0], "intron_variant")
    add(400, "Pathogenic/Likely_pathogenic", "intron_variant nonsense", "practice_guideline")
    add(401, "Uncertain_significance", "missense_variant")
    add(402, "Pathogenic", "missense_variant", "no_assertion_criteria_provided")
    add(403, "Pathogenic", "")
    add(404, "Benign", "missense_variant", ref=bases[404:406], alt="A")
    add(406, "Benign", "missense_variant", ref=OTHER[bases[406]], alt=bases[406])
    add(407, "Benign", "missense_variant")
    add(5, "Benign", "missense_variant", ref="A", contig="NW_1")
    bases = f"{bases[:407]}N{bases[408:]}"
    if wrong:
        bases = random_bases(2000, seed=42)
    return {
        "vcf": write_vcf(folder / "clinvar.vcf", records, CLINVAR_HEADER),
        "reference": write_fasta(folder / "g.fa", {"chr7": bases}),
    }


def test_clinvar_is_taken_apart(tmp_path):
    files = clinvar_files(tmp_path)
    coding, noncoding = tmp_path / "c.parquet", tmp_path / "n.parquet"
    report = TASKS["clinvar_coding"].build(coding, **files)
    rows = rows_of(coding)
    assert Counter(row["label"] for row in rows) == {0: 50, 1: 51}
    assert rows[-1]["variant_type"] == "nonsense" and rows[-1]["clinvar_id"] == "130"
    assert report.dropped == {
        "contig_not_in_reference": 1,
        "neither_pathogenic_nor_benign": 1,
        "no_consequence": 1,
        "no_star": 1,
        "not_a_single_base_change": 1,
        "other_region": 30,
        "ref_mismatch": 1,
        "reference_unknown": 1,
    }
    report = TASKS["clinvar_noncoding"].build(noncoding, **files)
    rows = rows_of(noncoding)
    assert Counter(row["label"] for row in rows) == {0: 10, 1: 10}
    assert report.dropped["larger_class"] == 10
    assert [row["pos"] for row in rows] == sorted(row["pos"] for row in rows)
    few = TASKS["clinvar_coding"].build(coding, **files, num_examples=7, seed=3)
    assert few.rows == 7 and few.dropped["not_drawn"] == 94


def test_clinvar_of_another_assembly_is_refused(tmp_path):
    files = clinvar_files(tmp_path, wrong=True)
    with pytest.raises(GenomeError, match=r"variants disagree, as 7:\d+ .*is it the assembly"):
        TASKS["clinvar_coding"].build(tmp_path / "c.parquet", **files)
    assert not (tmp_path / "c.parquet").exists()


def listing(bases: str, first: int, num_rows: int) -> list[dict]:
    kinds = ["P strong", "B moderate", "VUS", "LOF", "FUNC", "INT"]
    return [
        {"chrom": "13", "pos": first + n + 1, "ref": bases[first + n],
         "alt": OTHER[bases[first + n]], "class": kinds[n % 6], "score": n / 10, "label": n % 2,
         "consequence": "distal"}
        for n in range(num_rows)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def brca(tmp_path_factory) -> tuple[str, Path]:
    bases = random_bases(9000, seed=51)
    return bases, write_fasta(tmp_path_factory.mktemp("brca") / "g.fa", {"chr13": bases})


def test_a_saturation_table_becomes_windows(tmp_path, brca):
    bases, fasta = brca
    rows = listing(bases, 4200, 60) + listing(bases, 4200, 1) + listing(bases, 30, 2)
    rows += [listing(bases, 4200, 1)[0] | {"chrom": "Un"}]
    rows[5] |= {"ref": "AC"}
    table = write_listing(tmp_path / "t.tsv", rows)
    output = tmp_path / "b.parquet"
    report = TASKS["brca2"].build(output, table=table, reference=fasta)
    found = rows_of(output)
    assert report.dropped == {
        "contig_not_in_reference": 1,
        "near_the_end_of_its_contig": 2,
        "no_label": 10,
        "not_a_single_base_change": 1,
        "stands_twice": 1,
    }
    assert len(found) == 49 and set(found[0]) == {
        "chrom", "pos", "ref", "alt", "score", "class", "ref_seq", "var_seq"
    }  # fmt: skip
    for row in found:
        at = row["pos"] - 1
        assert row["ref_seq"] == bases[at - 4096 : at + 4096]
        assert row["var_seq"] == bases[at - 4096 : at] + row["alt"] + bases[at + 1 : at + 4096]
        kind = ("LOF", "FUNC/INT", "", "LOF", "FUNC/INT", "FUNC/INT")[(at - 4200) % 6]
        assert row["class"] == kind and row["score"] == pytest.approx((at - 4200) / 10)


def write_workbook(path, rows):
    book = openpyxl.Workbook()
    sheet = book.create_sheet("Table S3")
    for row in rows:
        sheet.append(row)
    book.save(path)


def test_the_workbook_of_the_paper_is_read_by_its_places(tmp_path, brca):
    bases, fasta = brca
    rows = [[line] + ["a long header"] * 21 for line in ("Supplementary Table 3", "notes", "exon")]
    for row in listing(bases, 4200, 12):
        cells = ["e1", "chr13", row["pos"], "x", 1, "x", "Exon", row["ref"], row["alt"], "c.1"]
        cells += ["x"] * 6 + [row["score"], row["score"] + 2, None, "x", "x", row["class"]]
        rows.append(cells)
    write_workbook(tmp_path / "huang.xlsx", rows)
    output = tmp_path / "b.parquet"
    report = TASKS["brca2"].build(output, table=tmp_path / "huang.xlsx", reference=fasta)
    assert report.rows == 10 and report.dropped == {"no_label": 2}
    assert [row["score"] for row in rows_of(output)][:2] == pytest.approx([1.0, 1.1])


def test_a_variant_list_becomes_traitgym(tmp_path, brca):
    bases, fasta = brca
    for name, separator in (("t.tsv", "\t"), ("t.csv", ",")):
        table = write_listing(tmp_path / name, listing(bases, 4200, 20), separator)
        output = tmp_path / "t.parquet"
        TASKS["traitgym_mendelian"].build(output, table=table, reference=fasta)
        rows = rows_of(output)
        assert [row["label"] for row in rows] == [0, 1] * 10
        assert {(row["label"], row["class"]) for row in rows} == {(0, "FUNC/INT"), (1, "LOF")}
    assert set(TASKS["traitgym_mendelian"].columns) <= set(rows[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[1].update(alt=" "), "row 2: has no alt"),
        (lambda rows: rows[1].update(label=2), "variant 2: label '2'"),
        (lambda rows: [row.pop("label") for row in rows], "no column 'label'"),
        (lambda rows: [row.update(pos=row["pos"] + 1) for row in rows], "disagree.*assembly"),
    ],
)
def test_lists_that_are_broken_are_refused(tmp_path, brca, change, words):
    bases, fasta = brca
    rows = listing(bases, 4200, 20)
    change(rows)
    table = write_listing(tmp_path / "t.tsv", rows)
    with pytest.raises((UserError, GenomeError), match=words) as raised:
        TASKS["traitgym_mendelian"].build(tmp_path / "t.parquet", table=table, reference=fasta)
    assert "\n" not in str(raised.value) and not (tmp_path / "t.parquet").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("short.xlsx", [["a", "b"]] * 5, "cannot be read"),
        ("empty.csv", b"", "has no row"),
        ("torn.tsv.gz", gzip.compress(b"chrom\tpos\n" * 1000, mtime=0)[:30], "cannot be read"),
        ("binary.tsv", b"chrom\tpos\n\xff\xfe\x00\x81", "cannot be read"),
        ("no.xlsx", b"no", "cannot be read"),
        ("no.parquet", b"no", "is not a whole Parquet file"),
    ],
)
def test_lists_that_cannot_be_read_are_said_in_one_line(tmp_path, brca, name, content, words):
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        write_workbook(tmp_path / name, content)
    with pytest.raises(UserError, match=f"{name}: {words}") as raised:
        TASKS["brca2"].build(tmp_path / "b.parquet", table=tmp_path / name, reference=brca[1])
    assert "\n" not in str(raised.value) and not (tmp_path / "b.parquet").exists()

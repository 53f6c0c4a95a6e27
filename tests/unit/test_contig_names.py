"""Contigs under two names: the switch, the table, and everywhere that a reference meets a file."""

import gzip
import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.cli import main
from carbon.errors import GenomeError
from carbon.genome import Interval, contig_names, region_by_name
from carbon.model import save_model
from tests.helpers.files import place_gene, random_bases, write_fasta, write_vcf

BASES, GFF3, _ = place_gene()
OTHER = random_bases(300, 8)


class TestNames:
    def test_the_switch_adds_and_takes_away(self):
        names = contig_names("chr", ["chr1", "2", "chrX_alt", "Chr4"])
        assert (names["1"], names["chr2"], names["X_alt"], names["chr4"]) == (
            "chr1", "2", "chrX_alt", "Chr4"
        )  # fmt: skip
        assert not {"chr1", "2", "", "chr"} & set(names)

    def test_the_mitochondrion(self):
        assert contig_names("chr", ["chrM"]).items() >= {("MT", "chrM"), ("M", "chrM")}
        assert contig_names("chr", ["MT"]).items() >= {("chrM", "MT"), ("chrMT", "MT")}
        assert contig_names("chr", ["M", "MT"])["chrM"] == "M"  # the nearer one

    @given(st.sets(st.sampled_from(["1", "chr1", "Chr1", "M", "chrM", "MT", "chrMT", "x"])))
    def test_a_contig_keeps_its_own_name(self, contigs):
        names = contig_names("chr", contigs)
        assert not contigs & set(names) and set(names.values()) <= contigs

    def test_a_table(self, tmp_path):
        (tmp_path / "t.tsv").write_bytes(
            "\ufeff# names\r\n\r\nNC_1\tchr1\r\nNC_2 chr2\r\n".encode()
        )
        expected = {"NC_1": "chr1", "NC_2": "chr2"}
        assert contig_names(tmp_path / "t.tsv", ["chr1", "chr9"]) == expected
        assert contig_names(None, ["chr1"]) == contig_names("", ["chr1"]) == {}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (None, r"t.tsv: no such file; give a table .* or chr"),
            ("", "t.tsv: has no row"),
            ("1\n", "t.tsv line 1: 1 columns where there must be two"),
            ("1\tchr1\n2\tchr2\tx\n", "t.tsv line 2: 3 columns where there must be two"),
            ("1\t\n", "line 1: 2 columns where there must be two"),
            ("1\tchr1\n2\tchr1\n", "line 2: 'chr1' occurs twice in the second column"),
            ("1\tx\n", "names 'x' in its second column, but the reference has 'chr1', 'chr2'"),
        ],
    )
    def test_a_broken_table_is_one_line(self, tmp_path, text, message):
        if text is not None:
            (tmp_path / "t.tsv").write_text(text)
        with pytest.raises(GenomeError, match=message):
            contig_names(tmp_path / "t.tsv", ["chr1", "chr2"])

    def test_a_region_under_the_files_name(self):
        lengths_bp = {"chr1": 100, "HLA:1": 50}
        names = {"1": "chr1", "unknown": "chr7"}
        assert region_by_name("1:11-20", lengths_bp, names) == Interval("chr1", 10, 20)
        assert region_by_name("chr1", lengths_bp, names) == Interval("chr1", 0, 100)
        assert region_by_name("HLA:1:2-3", lengths_bp, {}) == Interval("HLA:1", 1, 3)
        with pytest.raises(GenomeError, match=r"'1' is 'chr1'\): give --contigs chr"):
            region_by_name("1:11-20", lengths_bp, {})

    def test_no_table(self, tmp_path):
        with pytest.raises(GenomeError, match=r"absent: no such file; give a table .* or chr"):
            contig_names(tmp_path / "absent", ["chr1"])
        packed = gzip.compress(b"1\tchr1\n" * 900)
        (tmp_path / "t.gz").write_bytes(packed[:20])
        with pytest.raises(GenomeError, match="broken after line"):
            contig_names(tmp_path / "t.gz", ["chr1"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("names")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"chr20": BASES, "chrM": OTHER})
    write_fasta(folder / "as_file.fa", {"20": BASES, "MT": OTHER})
    (folder / "genes.gff3").write_text(GFF3.replace("c1\t", "20\t"))
    (folder / "names.tsv").write_text("20\tchr20\nMT\tchrM\n")
    records = [
        f"20\t{n}\t.\t{BASES[n - 1]}\t{'A' if BASES[n - 1] != 'A' else 'C'}\t.\t.\t."
        for n in (50, 200)
    ]
    records.append(f"MT\t9\t.\t{OTHER[8]}\t{'A' if OTHER[8] != 'A' else 'C'}\t.\t.\t.")
    write_vcf(folder / "in.vcf", records)
    return folder


def run(verb, folder, *words, reference="r.fa"):
    files = ["--model", str(folder / "model"), "--reference", str(folder / reference)]
    return main([verb, *files, "--window", "60", *map(str, words)])


def test_variants_keep_the_names_of_the_vcf(folder, tmp_path, capsys):
    """By the switch and by a table."""
    given = ("--vcf", folder / "in.vcf")
    plain = ("--output", tmp_path / "plain.vcf")
    assert run("variants", folder, *given, *plain, reference="as_file.fa") == 0
    texts = [(tmp_path / "plain.vcf").read_text()]
    for name, contigs in (("switch", "chr"), ("table", folder / "names.tsv")):
        here = ("--output", tmp_path / f"{name}.vcf", "--contigs", contigs)
        capsys.readouterr()
        assert run("variants", folder, *given, *here) == 0
        assert json.loads(capsys.readouterr().out)["contigs"] == str(contigs)
        texts.append((tmp_path / f"{name}.vcf").read_text())
    plain, *renamed = ([x for x in text.splitlines() if x[0] != "#"] for text in texts)
    assert renamed == [plain] * 2 and all("CARBON_DELTA" in line for line in plain)
    assert [line.split("\t")[0] for line in plain] == ["20", "20", "MT"]
    assert '"contigs": "chr"' in texts[1] and '"contigs"' not in texts[0]


def test_a_table_is_not_overwritten(folder, tmp_path):
    """test_resumes.py has that another table is another run."""
    table = tmp_path / "names.tsv"
    table.write_text("20\tchr20\nMT\tchrM\n")
    words = ("--vcf", folder / "in.vcf", "--contigs", table, "--output", table)
    assert run("variants", folder, *words) == 2
    assert table.read_text() == "20\tchr20\nMT\tchrM\n"


def test_a_scan_takes_region_contig_and_gene_under_the_files_names(folder, tmp_path, capsys):
    capsys.readouterr()
    for words, region in (
        (("--region", "20:101-280"), "chr20:101-280"),
        (("--gene", "ABC", "--annotation", folder / "genes.gff3"), "chr20:101-280"),
        (("--contig", "20"), "chr20:1-400"),
    ):
        output = tmp_path / "o.parquet"
        assert run("scan", folder, *words, "--output", output, "--contigs", "chr") == 0
        assert json.loads(capsys.readouterr().out)["region"] == region
        assert set(pq.read_table(output)["contig"].to_pylist()) == {"chr20"}

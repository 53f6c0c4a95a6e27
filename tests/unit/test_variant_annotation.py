"""`carbon variants --annotation`: consequences beside the scores, in every format."""

import json
from urllib.parse import unquote

import pyarrow.parquet as pq
import pysam
import pytest

from carbon.cli import main
from carbon.model import save_model
from tests.helpers.files import place_gene, write_fasta, write_vcf

BASES, GFF3, _ = place_gene()
NAME = "a;b=c,d%e\té f"
FIELDS = ("gene", "transcript", "consequence", "codon", "codons", "amino_acids")
# A synonymous change and a stop in one record, a frameshift, an intron, no gene.
EXPECTED = [
    [(NAME, "t1", "synonymous_variant", 2, "TAC/TAT", "Y"),
     (NAME, "t1", "stop_gained", 2, "TAC/TAA", "Y/*"),
     (None,) * 6],
    [(NAME, "t1", "frameshift_variant", 5, None, None)],
    [(NAME, "t1", "intron_variant", None, None, None)],
    [(None, None, "intergenic_variant", None, None, None)],
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("annotated")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c1": BASES})
    encoded = "a%3Bb%3Dc%2Cd%25e%09é f"
    (folder / "g.gff3").write_text(GFF3.replace("Name=ABC", f"Name={encoded}"), encoding="utf-8")
    base = BASES[299]
    write_vcf(
        folder / "in.vcf",
        [
            f"c1\t115\t.\t{BASES[114]}\tT,A,<DEL>\t.\t.\tX=1",
            f"c1\t122\t.\t{BASES[121:123]}\t{BASES[121]}\t.\t.\t.",
            f"c1\t190\t.\t{BASES[189]}\t{'A' if BASES[189] != 'A' else 'C'}\t.\t.\t.",
            f"c1\t300\t.\t{base}\t{'A' if base != 'A' else 'C'}\t.\t.\t.",
        ],
        '##INFO=<ID=X,Number=1,Type=Integer,Description="x">\n',
    )
    return folder


def score(folder, output, *more):
    return main(
        ["variants", "--model", str(folder / "model"), "--reference", str(folder / "r.fa"),
         "--vcf", str(folder / "in.vcf"), "--output", str(output), "--window", "48", *more]
    )  # fmt: skip


def test_consequences_in_a_vcf(folder, tmp_path):
    output = tmp_path / "out.vcf"
    assert score(folder, output, "--annotation", str(folder / "g.gff3")) == 0
    text = output.read_text(encoding="utf-8")
    assert "CARBON_GENE=a%3Bb%3Dc%2Cd%25e%09é%20f,a%3Bb" in text
    assert '##INFO=<ID=CARBON_CODON,Number=A,Type=Integer,Description="Number of' in text
    with pysam.VariantFile(str(output)) as scored:
        records = list(scored)
    for record, expected in zip(records, EXPECTED, strict=True):
        for name, values in zip(FIELDS, zip(*expected, strict=True), strict=True):
            found = record.info.get(f"CARBON_{name.upper()}", (None,) * len(expected))
            # pysam gives back a missing text as it stands.
            read = [None if value == "." else value for value in found]
            read = [unquote(value) if name == "gene" and value else value for value in read]
            assert read == list(values), name
    assert records[0].info["X"] == 1 and len(records[0].info["CARBON_DELTA"]) == 3


def test_consequences_in_tables(folder, tmp_path):
    for ending in ("tsv", "parquet"):
        output = tmp_path / f"out.{ending}"
        assert score(folder, output, "--annotation", str(folder / "g.gff3")) == 0
    expected = [each for record in EXPECTED for each in record]
    table = pq.read_table(tmp_path / "out.parquet")
    assert [tuple(row[name] for name in FIELDS) for row in table.to_pylist()] == expected
    assert str(table.schema.field("codon").type) == "int64"
    settings, names, *lines = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert json.loads(settings[2:])["annotation"] == "g.gff3"
    found = [dict(zip(names.split("\t"), line.split("\t"), strict=True)) for line in lines]
    for row, values in zip(found, expected, strict=True):
        for name, value in zip(FIELDS, values, strict=True):
            assert row[name] == ("." if value is None else str(value).replace("\t", "%09"))

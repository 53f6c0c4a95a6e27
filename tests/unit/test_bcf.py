"""BCF is read wherever a VCF is, and gives what the same VCF gives."""

import gzip
import re

import pandas as pd
import pyarrow.parquet as pq
import pysam
import pytest

from carbon.cli import main
from carbon.compare.scored_files import read_scored_file
from carbon.errors import GenomeError
from carbon.finetune.config import DataConfig
from carbon.finetune.predict_job import form_of
from carbon.finetune.readers import read_rows
from carbon.genome import Reference, VcfReader
from carbon.genome.vcf import holds_variants, variant_lines
from carbon.model import save_model
from eval.tasks import TASKS
from tests.helpers.files import random_bases, write_bcf, write_fasta, write_vcf
from tests.unit.tasks_build.test_variants import clinvar_files

BASES = random_bases(500, 4)
HEADER = (
    '##INFO=<ID=AF,Number=A,Type=Float,Description="f">\n'
    '##INFO=<ID=LABEL,Number=1,Type=Integer,Description="l">\n'
    '##FILTER=<ID=q10,Description="low">\n'
    '##ALT=<ID=DEL,Description="d">\n##contig=<ID=c,length=500>\n'
)


@pytest.fixture
def vcf(tmp_path):
    records = [
        f"c\t50\trs1\t{BASES[49]}\t{'A' if BASES[49] != 'A' else 'C'}\t30\tq10\tAF=0.25;LABEL=1",
        f"c\t200\t.\t{BASES[199]}\t{BASES[199]}TT,<DEL>\t.\tPASS\tAF=0.1,0.2;LABEL=0",
        f"c\t300\t.\t{BASES[299:303]}\t{BASES[299]}\t.\t.\tLABEL=1",
    ]
    write_fasta(tmp_path / "r.fa", {"c": BASES})
    return write_vcf(tmp_path / "in.vcf", records, HEADER)


@pytest.mark.parametrize("mode", ["b", "u"])
def test_records_are_those_of_the_vcf(tmp_path, vcf, mode):
    bcf = write_bcf(tmp_path / "odd_name", vcf, mode)
    assert holds_variants(bcf) and holds_variants(vcf)
    with Reference(tmp_path / "r.fa") as reference:
        expected = list(VcfReader(vcf, reference))
        reader = VcfReader(bcf, reference, strict=True)
        assert list(reader) == list(reader) == expected
        assert reader.header[-1] == "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"


def unpacked(bcf):
    """Return the bytes of a BCF that bcftools wrote without compression, in blocks or not."""
    raw = bcf.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def test_scores_of_a_bcf(tmp_path, vcf, network):
    save_model(network, tmp_path / "model")
    records = []
    for source in (vcf, write_bcf(tmp_path / "in.bcf", vcf)):
        words = f"variants --model {tmp_path}/model --reference {tmp_path}/r.fa --vcf {source}"
        assert main([*words.split(), "--output", f"{source}.vcf.gz", "--window", "120"]) == 0
        with gzip.open(f"{source}.vcf.gz", "rt") as lines:
            records.append([line for line in lines if not line.startswith("#")])
    assert records[0] == records[1] and len(records[0]) == 3
    # A scored file that became a BCF has the same alleles; its floats have six digits.
    scored = write_bcf(tmp_path / "scored.bcf", tmp_path / "in.bcf.vcf.gz")
    expected = read_scored_file(tmp_path / "in.bcf.vcf.gz").alleles
    pd.testing.assert_frame_equal(read_scored_file(scored).alleles, expected, rtol=1e-5)


def cut(data):
    return data[: len(data) // 2]


def damaged(data):
    return data[: len(data) // 2] + b"\xff" * 40 + data[len(data) // 2 + 40 :]


def without_end(data):
    return data[:-28]


@pytest.mark.parametrize(
    ("mode", "damage"),
    [("b", cut), ("b", damaged), ("b", without_end), ("u", cut), ("u", without_end)],
)
def test_a_broken_bcf_is_refused_by_name(tmp_path, vcf, mode, damage):
    """Without its last block, or with its last record shortened."""
    bcf = write_bcf(tmp_path / "x.bcf", vcf, mode)
    bcf.write_bytes(damage(bcf.read_bytes()))
    with pytest.raises(GenomeError) as refused:
        list(variant_lines(bcf))
    assert re.match(rf"{bcf}( record \d+)?: is broken or cut off \(", str(refused.value))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("line", [b"##contig", b"##INFO=<ID=AF", b"##FILTER=<ID=q10"])
def test_a_bcf_that_does_not_declare_what_a_record_has(tmp_path, vcf, line):
    """The header is text of a known length, and records refer to its lines by number."""
    raw = unpacked(write_bcf(tmp_path / "raw.bcf", vcf, "u"))
    (tmp_path / "x.bcf.gz").write_bytes(gzip.compress(raw))
    with pytest.raises(GenomeError, match=r"x\.bcf\.gz: is a BCF packed by plain gzip; unpack"):
        list(variant_lines(tmp_path / "x.bcf.gz"))
    end = 9 + int.from_bytes(raw[5:9], "little")
    header = b"\n".join(each for each in raw[9:end].split(b"\n") if not each.startswith(line))
    with pysam.BGZFile(str(tmp_path / "x.bcf"), "wb") as sink:
        sink.write(raw[:5] + len(header).to_bytes(4, "little") + header + raw[end:])
    with pytest.raises(GenomeError, match=r"x\.bcf record 1: is broken or cut off"):
        list(variant_lines(tmp_path / "x.bcf"))


def test_labels_of_a_bcf(tmp_path, vcf):
    common = {"reference": str(tmp_path / "r.fa"), "labels": ("LABEL",), "window_bp": 100}
    expected = read_rows(DataConfig(path=str(vcf), **common), 6)
    found = read_rows(DataConfig(path=str(write_bcf(tmp_path / "labels", vcf)), **common), 6)
    assert (found.sequences, found.labels) == (expected.sequences, expected.labels)
    assert found.names == expected.names and len(found) == 3


def test_the_content_says_what_predictions_are_of(tmp_path, vcf):
    assert form_of(write_bcf(tmp_path / "calls", vcf)) == "vcf"
    assert form_of(write_bcf(tmp_path / "calls.bed", vcf)) == "vcf"
    (tmp_path / "x.bed").write_text("c\t1\t2\n")
    assert form_of(tmp_path / "x.bed") == "bed"
    assert form_of(tmp_path / "r.fa") == "sequences"
    assert form_of(tmp_path / "absent.bcf") == "vcf"


@pytest.mark.parametrize("task", ["labelled_variants", "clinvar_coding"])
def test_a_dataset_is_built_from_a_bcf(tmp_path, task):
    records = [
        f"c\t{at}\t.\t{BASES[at - 1]}\t{'A' if BASES[at - 1] != 'A' else 'C'}\t.\t.\t"
        f"LABEL={at % 20 // 10}"
        for at in range(20, 400, 10)
    ]
    files = {"vcf": write_vcf(tmp_path / "v.vcf", records, HEADER)}
    files["reference"] = write_fasta(tmp_path / "r.fa", {"c": BASES})
    if task == "clinvar_coding":
        files = clinvar_files(tmp_path)
    tables, dropped = [], []
    for name, vcf in (("a", files["vcf"]), ("b", write_bcf(tmp_path / "v.bcf", files["vcf"]))):
        output = tmp_path / f"{name}.parquet"
        dropped.append(TASKS[task].build(output, **{**files, "vcf": vcf}).dropped)
        tables.append(pq.read_table(output).to_pylist())
    assert tables[0] == tables[1] and dropped[0] == dropped[1]
    assert len(tables[0]) == (38 if task == "labelled_variants" else 101)

"""Small inputs from public reports about symbolic variants and reads, with the right values."""

import csv
from collections import Counter

import pysam
import pytest

from carbon.corpus import read_manifest, read_source
from carbon.genome import Reference, VcfReader
from data_pipeline.inputs.evaluations import evaluation_places
from data_pipeline.inputs.variant_places import variant_places
from data_pipeline.recipe import AssemblyConfig, EvaluationConfig
from tests.helpers.curation import build, rows_of
from tests.helpers.files import write_bcf

CHR20 = "variants_chr20/1000G_phase3.chr20_1M_2M.vcf.gz"
CHR20_REFERENCE = "variants_chr20/GRCh37.chr20_1M_2M.fa.gz"


@pytest.fixture
def cases(real_data):
    return real_data.parent / "cases"


@pytest.mark.parametrize("name", ["sv.vcf", "full.vcf", "sv.bed", "sv.bcf"])
def test_a_symbolic_deletion_protects_all_its_bases(cases, tmp_path, name):
    """[11999, 42000) are 30,001 bases, and with chunks of 500 lie in those from 11,500 on."""
    folder = cases / "08_symbolic_deletion"
    path = folder / name
    if name == "sv.bcf":
        path = write_bcf(tmp_path / name, folder / "sv.vcf")
    evaluation = EvaluationConfig(path=str(path), assembly="g")
    assembly = AssemblyConfig(genome=str(folder / "g.fa"))
    ((place,), warnings) = evaluation_places(evaluation, assembly, {"c1": 60_000})
    assert (place.start, place.end, place.length_bp) == (11_999, 42_000, 30_001)
    assert warnings == []
    settings = [f"genome={folder}/g.fa", "name=g", "holdout=[]", "sources=['genome']"]
    settings = [f"assemblies.0.{each}" for each in settings]
    settings += [f"evaluations.0.path={path}", "evaluations.0.assembly=g", "cut.chunk_bp=500"]
    assert build(tmp_path / "c", *settings) == 0
    starts = [row["start"] for row in read_source(tmp_path / "c", "genome", "train").to_pylist()]
    assert starts == [*range(0, 11_500, 500), *range(42_000, 60_000, 500)]
    assert read_manifest(tmp_path / "c")["dropped"] == {"genome:overlaps_evaluation": 61}


def reads(path, *more):
    files = [f"files.0.path={path}", "files.0.source=reads", "files.0.both_strands=true"]
    return [*files, *(f"files.0.{each}" for each in more)]


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("SRR1_1.fastq", "SRR1_2.fastq", "SRR1.1"),
        ("cas_R1.fastq", "cas_R2.fastq", "M0:1:FC:1:1:1:1"),
    ],
)
def test_mates_of_archives_and_of_casava(cases, tmp_path, first, second, name):
    folder = cases / "09_mates"
    assert build(tmp_path / "c", *reads(folder / first, f"mates={folder / second}")) == 0
    texts = [(folder / each).read_text().splitlines() for each in (first, second)]
    expected = [
        bases for pair in zip(*(text[1::4] for text in texts), strict=True) for bases in pair
    ]
    rows = rows_of(tmp_path / "c", "reads")
    assert [row["sequence"] for row in rows] == expected
    assert [row["name"] for row in rows[:2]] == [f"{name}/1", f"{name}/2"]


def test_mates_of_two_runs_are_refused(cases, tmp_path, capsys):
    folder = cases / "09_mates"
    settings = reads(folder / "SRR1_1.fastq", f"mates={folder}/cas_R2.fastq")
    assert build(tmp_path / "c", *settings) == 2
    assert "SRR1_1.fastq read 1 is 'SRR1.1.1', and that of" in capsys.readouterr().err


def test_empty_reads_are_dropped_with_a_reason(cases, tmp_path):
    assert build(tmp_path / "c", *reads(cases / "09_mates/emp.fastq")) == 0
    with (tmp_path / "c" / "dropped.tsv").open(newline="") as lines:
        dropped = {row["name"]: row["reason"] for row in csv.DictReader(lines, delimiter="\t")}
    names = [row["name"] for row in rows_of(tmp_path / "c", "reads")]
    # `a` repeats ACGT: four trimers, log2(4) / log2(64) = 1/3, less than min_complexity, 0.5.
    assert dropped == {"a": "low_complexity", "b": "empty_read"}
    assert names == ["c"]


def test_places_of_chr20_are_those_of_htslib(real_data):
    """Among them are SNVs, indels, copy number variants with END and insertions of elements."""
    path, shortened = real_data / CHR20, Counter()
    places = [(place.start, place.end) for place in variant_places(path, shortened)]
    with pysam.VariantFile(str(path)) as records:
        assert places == [(record.start, record.stop) for record in records]
    assert not shortened and max(end - start for start, end in places) > 10_000


@pytest.mark.nightly
def test_a_bcf_of_chr20_has_the_records_of_its_vcf(real_data, tmp_path):
    bcf = write_bcf(tmp_path / "x", real_data / CHR20)
    with Reference(real_data / CHR20_REFERENCE) as reference:
        pairs = zip(VcfReader(real_data / CHR20, reference), VcfReader(bcf, reference), strict=True)
        assert sum(left == right for left, right in pairs) == 28_998

"""Records as streams, and records and regions of other libraries."""

from types import SimpleNamespace

import pandas as pd
import pysam
import pytest

import carbon
from carbon.errors import GenomeError, UserError
from carbon.genome.records import intervals_of, variants_of
from tests.helpers.files import random_bases, write_fasta, write_vcf

BASES = random_bases(300, 9)
PLACES = (5, 50, 51, 120, 200)


def lines():
    """Yield SNVs, one of them with two ALT, and one record without any."""
    for place in PLACES:
        ref = BASES[place - 1]
        alts = [base for base in "ACGT" if base != ref]
        yield f"c\t{place}\tid{place}\t{ref}\t{','.join(alts[: 1 + (place == 51)])}\t.\t.\t."
    yield f"c\t250\t.\t{BASES[249]}\t.\t.\t.\t."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    header = "##contig=<ID=c,length=300>\n##contig=<ID=d:1-2,length=9>\n"
    write_vcf(folder / "v.vcf", list(lines()), header)
    write_vcf(folder / "plain.vcf", list(lines()))
    write_fasta(folder / "r.fa", {"c": BASES, "d:1-2": "ACGTACGTA"})
    return folder


def positions(reader):
    return [int(record.columns[1]) for record in reader]


def test_records_of_a_vcf(folder):
    reader = carbon.read_vcf(folder / "v.vcf")
    assert positions(reader) == [*PLACES, 250] == positions(reader)
    third = list(reader)[2]
    first, second = third.variants
    assert (first.contig, first.position, first.ref) == ("c", 50, BASES[50])
    assert {first.alt, second.alt} < set("ACGT") - {BASES[50]}
    assert third.disagreement is None and third.number == 3


@pytest.mark.parametrize("name", ["v.vcf", "plain.vcf"])
@pytest.mark.parametrize(
    "region",
    [
        "c:50-120",
        "c:50-1,200,000",
        carbon.Interval("c", 49, 120),
        [carbon.Interval("c", 49, 51), carbon.Interval("c", 100, 120)],
        pd.DataFrame({"Chromosome": ["c", "c"], "Start": [119, 49], "End": [120, 51]}),
        SimpleNamespace(chrom="c", start=49, end=120),
    ],
)
def test_regions_of_a_vcf(folder, name, region):
    is_long = isinstance(region, str) and region.endswith("000")
    expected = [50, 51, 120, 200, 250] if is_long else [50, 51, 120]
    assert positions(carbon.read_vcf(folder / name, region)) == expected
    assert positions(carbon.read_vcf(folder / name, "c")) == [*PLACES, 250]


@pytest.mark.parametrize("name", ["v.vcf", "plain.vcf"])
def test_regions_without_two_positions(folder, name):
    """The same with and without contigs in the header."""
    assert positions(carbon.read_vcf(folder / name, "c:51-")) == [51, 120, 200, 250]
    for region in ("c:51", "c:-51", "c:"):
        with pytest.raises(GenomeError, match="write"):
            carbon.read_vcf(folder / name, region)


def test_what_is_no_region(folder):
    assert positions(carbon.read_vcf(folder / "v.vcf", "d:1-2")) == []
    with pytest.raises(GenomeError, match="the header declares no contig 'chrc'"):
        carbon.read_vcf(folder / "v.vcf", "chrc:1-9")
    with pytest.raises(GenomeError, match="within them"):
        carbon.read_vcf(folder / "v.vcf", "c:9-1")
    for wrong in (7, [7], ["c:1-9"], pd.DataFrame({"Start": [1]})):
        with pytest.raises(TypeError, match=r'write carbon\.Interval\("chr1", 0, 600\)'):
            carbon.read_vcf(folder / "v.vcf", wrong)
    for empty in ([], [carbon.Interval("c", 5, 5)]):
        with pytest.raises(GenomeError, match=r"has no (intervals|bases)"):
            carbon.read_vcf(folder / "v.vcf", empty)
    old = SimpleNamespace(df=pd.DataFrame({"Chromosome": ["c"], "Start": [3], "End": [7]}))
    assert intervals_of(old) == [carbon.Interval("c", 3, 7)]


def test_records_of_a_fasta(folder):
    first, second = carbon.read_fasta(folder / "r.fa")
    assert (first.name, first.bases, second.name) == ("c", BASES, "d:1-2")


def test_variants_of_other_libraries(folder):
    """pysam is installed; of cyvcf2 the attributes are known, and the package is tried if it is."""
    own = [variant for record in carbon.read_vcf(folder / "v.vcf") for variant in record.variants]
    with pysam.VariantFile(str(folder / "v.vcf")) as records:
        assert [each for record in records for each in variants_of(record)] == own
    fields = [line.split("\t") for line in lines()]
    like_cyvcf2 = [
        SimpleNamespace(CHROM=c, POS=int(p), REF=r, ALT=[] if alt == "." else alt.split(","))
        for c, p, _, r, alt, *_ in fields
    ]
    assert [each for record in like_cyvcf2 for each in variants_of(record)] == own
    with pytest.raises(TypeError, match="pysam or cyvcf2"):
        variants_of("c:5 A>T")


def test_variants_and_regions_of_cyvcf2_and_pyranges(folder):
    pyranges, cyvcf2 = (pytest.importorskip(name) for name in ("pyranges", "cyvcf2"))
    table = pd.DataFrame({"Chromosome": ["c"], "Start": [49], "End": [120]})
    assert positions(carbon.read_vcf(folder / "v.vcf", pyranges.PyRanges(table))) == [50, 51, 120]
    own = [variant for record in carbon.read_vcf(folder / "v.vcf") for variant in record.variants]
    records = cyvcf2.VCF(str(folder / "v.vcf"))
    assert [each for record in records for each in variants_of(record)] == own


def test_a_model_scores_records_where_it_scores_variants(folder, model):
    own = [variant for record in carbon.read_vcf(folder / "v.vcf") for variant in record.variants]
    with carbon.Reference(folder / "r.fa") as reference:
        expected = list(model.score_variants(reference, own, window_bp=60))
        records = list(carbon.read_vcf(folder / "v.vcf"))
        assert list(model.score_variants(reference, records, window_bp=60)) == expected
        with pysam.VariantFile(str(folder / "v.vcf")) as source:
            assert list(model.score_variants(reference, source, window_bp=60)) == expected
        method = model.variant_method(window_bp=60)
        by_alts = {len(record.variants): record for record in records}
        assert model.compare_alleles(reference, by_alts[1], method)[0] in expected
        for several in by_alts.keys() - {1}:
            with pytest.raises(UserError, match=f"a record with {several} ALT"):
                model.compare_alleles(reference, by_alts[several], method)
    assert len(expected) == 6 and len(by_alts) > 1

"""The VCF files of the hts-specs test-suite, and VCFs of the wild, held against the rules.

`tests/golden/vcf_files.tsv` is the table of outcomes. After a change that is meant, write it anew
with `CARBON_GOLDEN=write`, and read the difference.
"""

import gzip
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pysam
import pytest

from carbon.errors import GenomeError
from carbon.genome import Reference, VcfReader
from data_pipeline.inputs.variant_places import variant_places
from tests.helpers.files import write_bcf, write_vcf

CHR20 = "variants_chr20/1000G_phase3.chr20_1M_2M.vcf.gz"
GOLDEN = Path(__file__).parents[1] / "golden" / "vcf_files.tsv"
ANYWHERE = SimpleNamespace(disagreement=lambda *_: None)
HINTS = "(a warning without `--strict`)", "(not checked without `--strict`)"

# Right by the rules, but not sorted, which we demand of every file.
NOT_SORTED = {
    "4.1/passed/complexfile_passed_000.vcf",
    "4.2/passed/complexfile_passed_000.vcf",
    "4.3/passed/complexfile_passed_000.vcf",
    "4.5/passed/zero_length_LAA.vcf",
}


def outcome_of(path, *, strict=True):
    try:
        return f"{len(list(VcfReader(path, ANYWHERE, strict=strict)))} records"
    except GenomeError as error:
        assert str(error).startswith(f"{path}") and "\n" not in str(error)
        return f"error: {error}".replace(f"{path.parent}/", "")


@pytest.fixture(scope="module")
def suite(real_data):
    return real_data / "malformed" / "hts_specs_vcf"


@pytest.fixture(scope="module")
def outcomes(suite):
    paths = sorted(suite.glob("4.*/*/*.vcf"))
    return {str(path.relative_to(suite)): outcome_of(path) for path in paths}


def test_outcomes(outcomes):
    rows = [f"{name}\t{outcome}\n" for name, outcome in outcomes.items()]
    if os.environ.get("CARBON_GOLDEN") == "write":
        GOLDEN.write_text("".join(rows), encoding="utf-8")
    assert len(rows) == 683
    assert rows == GOLDEN.read_text(encoding="utf-8").splitlines(keepends=True)


def test_sorted_these_are_read_too(suite, tmp_path):
    for name in NOT_SORTED:
        lines = (suite / name).read_text().splitlines()
        header = [line for line in lines if line.startswith("#")]
        records = [line for line in lines if not line.startswith("#")]
        records.sort(key=lambda line: (line.split("\t")[0], int(line.split("\t")[1])))
        path = tmp_path / "sorted.vcf"
        path.write_text("".join(f"{line}\n" for line in header + records))
        assert outcome_of(path) == f"{len(records)} records"


def test_the_hint_is_true(suite, outcomes):
    """With it a file is read by default, unless it breaks another rule; without it, it is not."""
    read = 0
    for name, outcome in outcomes.items():
        if outcome.startswith("error"):
            by_default = outcome_of(suite / name, strict=False)
            assert not by_default.endswith(HINTS), name
            if outcome.endswith(HINTS):
                read += by_default.endswith("records")
            else:
                assert by_default == outcome, name
    assert read > 100


def test_vcfs_of_the_wild(real_data, tmp_path):
    with gzip.open(real_data / "invertebrates_and_cress/C.elegans.vcf.gz", "rt") as lines:
        worm = write_vcf(tmp_path / "worm.vcf", [line.rstrip("\n") + "\t.\t.\t." for line in lines])
    for path, outcome in (
        (real_data / CHR20, "28998 records"),
        (real_data / "human_chr21/test.vcf", "132 records"),
        (worm, "8713 records"),
    ):
        assert outcome_of(path) == outcome
    assert "not sorted" in outcome_of(real_data / "human_chr21/test_not_ordered.vcf")


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
    with Reference(real_data / "variants_chr20/GRCh37.chr20_1M_2M.fa.gz") as reference:
        pairs = zip(VcfReader(real_data / CHR20, reference), VcfReader(bcf, reference), strict=True)
        assert sum(left == right for left, right in pairs) == 28_998

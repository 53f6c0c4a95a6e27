"""What becomes of a VCF that breaks a rule: scores rest on it, or it is a warning and counted."""

import gzip
import random
from types import SimpleNamespace
from typing import NamedTuple

import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import VcfReader, streams
from carbon.genome.vcf_findings import RULES, Severity

ANYWHERE = SimpleNamespace(disagreement=lambda *_: None)
HEADER = [
    "##fileformat=VCFv4.3",
    '##INFO=<ID=XF,Number=1,Type=Float,Description="one">',
    '##INFO=<ID=XA,Number=A,Type=Integer,Description="for each ALT">',
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="genotype">',
    "##contig=<ID=c,length=500>",
]
COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts1\ts2"
RECORD = ["c", "1", ".", "A", "C", ".", "PASS", "XF=0.5", "GT", "0/1", "0/0"]


class Mutation(NamedTuple):
    """A rule, and how a file comes to break it: lines of the header, columns of a record."""

    rule: str
    header: tuple[str, ...] = ()
    columns: tuple[tuple[int, str], ...] = ()


def header(rule, *lines):
    return Mutation(rule, header=lines)


def columns(rule, *changes):
    return Mutation(rule, columns=changes)


# Whatever of these a file has, htslib reads it (asserted below), and so it is scored.
HARMLESS = {
    "no quotes": header("header_text", "##INFO=<ID=YA,Number=1,Type=Float,Description=one>"),
    "a sample line": header("header_keys", '##SAMPLE=<Description="no name">'),
    "a tumour of 4.1": header("header_id", "##SAMPLE=<ID=a;b,Genomes=Germline>"),
    "a pedigree": header("header_keys", "##PEDIGREE=<Child=s1,Mother=s2>"),
    "a number": header("header_number", '##INFO=<ID=Y,Number=X,Type=Float,Description="">'),
    "an unknown type": header("header_type", '##INFO=<ID=YC,Number=1,Type=Double,Description="">'),
    "free text": header("header_line", "##hello"),
    "AF as one text": header("reserved_key", '##INFO=<ID=AF,Number=1,Type=String,Description="">'),
    "declared twice": header("declared_twice", HEADER[1]),
    "keys in another order": header(
        "header_keys", '##INFO=<Number=1,ID=YD,Type=Float,Description="">'
    ),
    "a count": columns("info_values", (7, "XF=0.5,0.6")),
    "a count for each ALT": columns("info_values", (4, "C,G"), (7, "XA=1")),
    "a number that is none": columns("info_values", (7, "XF=high")),
    "an item twice": columns("info", (7, "DB;DB")),
    "an id twice": columns("id", (2, "rs1;rs1")),
    "a blank in an id": columns("id", (2, "rs 1")),
    "a quality below 0": columns("qual", (5, "-3")),
    "a filter twice": columns("filter", (6, "PASS;PASS")),
    "GT comes last": columns("format", (8, "DP:GT"), (9, "3:0/1"), (10, "3:0/1")),
    "an allele too many": columns("sample_values", (9, "0/7")),
    "a code in REF": columns("ambiguity_code", (3, "R")),
    "a code in ALT": columns("ambiguity_code", (4, "C,Y")),
}  # fmt: skip
GRAVE = {
    "a blank in CHROM": columns("chrom", (0, "c 1")),
    "POS that is no number": columns("pos", (1, "1.0")),
    "POS past 32 bits": columns("pos", (1, "4294967297")),
    "REF that is missing": columns("ref", (3, ".")),
    "two REFs": columns("ref", (3, "A,C")),
    "a blank in ALT": columns("alt", (4, "A C")),
    "an ALT of VCF 3": columns("alt", (4, "D4")),
    "a tab too many": columns("num_columns", (10, "0/0\t")),
    "a blank for a tab": columns("num_columns", (0, "c 1\t."), (1, "")),
}


def write(path, mutations, version="4.3", columns=COLUMNS):
    """Write a file of two right records, and one more for each mutation of a record."""
    lines = [f"##fileformat=VCFv{version}", *HEADER[1:]]
    lines += [line for mutation in mutations for line in mutation.header]
    records = [dict(enumerate(RECORD)), *(m.columns for m in mutations if m.columns), {}]
    rows = []
    for number, changes in enumerate(records, start=1):
        row = dict(enumerate(RECORD)) | {1: str(number)} | dict(changes)
        rows.append("\t".join(row[place] for place in range(len(RECORD)) if row[place] != ""))
    path.write_text("".join(f"{line}\n" for line in (*lines, columns, *rows)))
    return len(rows)


def htslib_reads(path):
    pysam.set_verbosity(0)
    try:
        with path.open("rb") as source, pysam.VariantFile(source) as file:
            return sum(1 for _ in file)
    except (ValueError, OSError):
        return 0


@pytest.mark.parametrize("name", HARMLESS)
def test_what_htslib_reads_is_a_warning(tmp_path, name):
    path, mutation = tmp_path / "x.vcf", HARMLESS[name]
    num_records = write(path, [mutation])
    assert htslib_reads(path) == num_records
    vcf = VcfReader(path, ANYWHERE)
    assert len(list(vcf)) == num_records
    assert list(vcf.findings.by_rule) == [mutation.rule]
    with pytest.raises(GenomeError, match=r"\(a warning without `--strict`\)$"):
        list(VcfReader(path, ANYWHERE, strict=True))


@pytest.mark.parametrize("name", GRAVE)
def test_what_scores_rest_on_is_refused(tmp_path, name):
    path = tmp_path / "x.vcf"
    write(path, [GRAVE[name]])
    assert RULES[GRAVE[name].rule] is Severity.REFUSED
    errors = set()
    for strict in (False, True):
        with pytest.raises(GenomeError, match=f"^{path} record 2") as error:
            list(VcfReader(path, ANYWHERE, strict=strict))
        errors.add(str(error.value))
    assert len(errors) == 1 and "--strict" not in errors.pop()


@settings(max_examples=60)
@given(
    harmless=st.lists(st.sampled_from(sorted(HARMLESS)), max_size=5),
    grave=st.lists(st.sampled_from(sorted(GRAVE)), max_size=1),
    seed=st.integers(0, 9),
)
def test_any_mixture(tmp_path_factory, harmless, grave, seed):
    """A file is refused if and only if something of it is grave, whatever else there is."""
    path = tmp_path_factory.mktemp("made") / "x.vcf"
    mutations = [HARMLESS[name] for name in harmless] + [GRAVE[name] for name in grave]
    random.Random(seed).shuffle(mutations)
    num_records = write(path, mutations)
    vcf = VcfReader(path, ANYWHERE)
    if grave:
        with pytest.raises(GenomeError) as error:
            list(vcf)
        assert "--strict" not in str(error.value) and "\n" not in str(error.value)
        return
    for _ in range(2):  # the second pass counts nothing again
        assert len(list(vcf)) == num_records
        found = {rule: counted.times for rule, counted in vcf.findings.by_rule.items()}
        repeated = sum(n - 1 for n in map(harmless.count, set(harmless)) if n > 1)
        assert set(found) >= {HARMLESS[name].rule for name in harmless}
        assert sum(found.values()) >= len(harmless) - repeated


def test_a_warning_tells_how_often_and_where_first(tmp_path):
    path = tmp_path / "x.vcf"
    write(path, [HARMLESS["a count"], HARMLESS["a quality below 0"], HARMLESS["a count"]])
    vcf = VcfReader(path, ANYWHERE)
    assert list(vcf.findings.told()) == []
    next(iter(vcf))  # a pass that is broken off counts nothing twice
    list(vcf)
    # Five lines of header, the columns, a right record: the first that is wrong is line 8.
    assert list(vcf.findings.told()) == [
        f"warning: {path}: info_values, 2 times, first in line 8: INFO XF: '0.5,0.6' counts 2, and "
        "Number=1 asks for 1 here; mend it, or write '.'",
        f"warning: {path}: qual, line 9: QUAL '-3' is not a number, 0 or more; mend it, or write "
        "'.'",
    ]


def test_records_are_held_against_what_their_file_declares(tmp_path):
    """AF for the whole record, though the specification has one for each ALT: told once."""
    path = tmp_path / "x.vcf"
    use = columns("", (4, "C,G"), (7, "AF=half"))
    write(path, [HARMLESS["AF as one text"], use])
    vcf = VcfReader(path, ANYWHERE)
    list(vcf)
    assert list(vcf.findings.by_rule) == ["reserved_key"]


@pytest.mark.parametrize("version", ["4.9", "5.0", "3.3"])
def test_a_version_that_is_not_known(tmp_path, version):
    path = tmp_path / "x.vcf"
    num_records = write(path, [], version)
    vcf = VcfReader(path, ANYWHERE)
    assert len(list(vcf)) == num_records == htslib_reads(path)
    assert list(vcf.findings.by_rule) == ["fileformat"]


def test_the_true_obstacle_is_named(tmp_path):
    """A tab behind the columns, and not the FORMAT line before it, which is a warning."""
    path = tmp_path / "x.vcf"
    write(path, [header("header_keys", "##FORMAT=<ID=DP>")], columns=f"{COLUMNS}\t")
    with pytest.raises(GenomeError, match=r"line 7: a sample has no name; remove the tab"):
        VcfReader(path, ANYWHERE)


def test_a_line_without_end(tmp_path, monkeypatch):
    """A gzip of some bytes may unpack to gigabytes; memory holds no more than the bound."""
    monkeypatch.setattr(streams, "MOST_LINE_BYTES", 1000)
    path = tmp_path / "x.vcf.gz"
    text = "\n".join([*HEADER, COLUMNS, "\t".join(RECORD)])
    for rest, line in ((f"\n##{'x' * 2000}", 6), (f"\n{COLUMNS}\n{'A' * 2000}", 7)):
        path.write_bytes(gzip.compress(("\n".join(HEADER) + rest).encode()))
        with pytest.raises(
            GenomeError, match=rf"x\.vcf\.gz line {line}: a line of more than 1,000"
        ):
            list(VcfReader(path, ANYWHERE))
    path.write_bytes(gzip.compress(f"{text}\n".encode()))
    assert len(list(VcfReader(path, ANYWHERE))) == 1


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("lines", [HEADER[:1], HEADER])
def test_a_file_that_ends_in_its_header_is_told(tmp_path, lines, end):
    (tmp_path / "a.vcf").write_text("\n".join(lines) + end)
    with pytest.raises(GenomeError, match=f"line {len(lines)}: .* neither a ##key=value line nor"):
        VcfReader(tmp_path / "a.vcf", ANYWHERE)


@pytest.mark.parametrize("ending", ["vcf", "vcf.gz"])
def test_a_byte_order_mark_is_not_there(tmp_path, ending):
    text = "\r\n".join([*HEADER, COLUMNS, "\t".join(RECORD), ""]).encode("utf-8-sig")
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(text) if ending == "vcf.gz" else text)
    reader = VcfReader(path, ANYWHERE)
    assert [row.columns for row in reader] == [tuple(RECORD)]
    assert reader.header == [*HEADER, COLUMNS] and not reader.findings.by_rule

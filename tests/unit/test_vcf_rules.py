"""The rules of VCF: what is right, what breaks a rule, and records made to be right.

A rule that scores rest on is refused; any other is a warning that is counted, unless `--strict`.
"""

import gzip
import random
import re
from itertools import combinations_with_replacement
from types import SimpleNamespace
from typing import NamedTuple

import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import VcfReader, streams
from carbon.genome.vcf_findings import RULES, Findings, Severity
from carbon.genome.vcf_header_rules import check_header
from carbon.genome.vcf_record_rules import _SampleRules

ANYWHERE = SimpleNamespace(disagreement=lambda *_: None)
HINT = "(a warning without `--strict`)"


def info(rest):
    return f"##INFO=<{rest}>"


HEADER = [
    info('ID=XF,Number=1,Type=Float,Description="one"'),
    info('ID=XA,Number=A,Type=Integer,Description="for each ALT"'),
    info('ID=X3,Number=3,Type=Float,Description="three"'),
    info('ID=XC,Number=1,Type=Character,Description="a letter"'),
    '##FORMAT=<ID=NONE,Number=0,Type=String,Description="no values">',
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="genotype">',
    "##contig=<ID=c,length=9999>",
]
COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"
CHROM, POS, ID, REF, ALT, QUAL, FILTER, INFO, FORMAT, SAMPLE, OTHER = range(11)
RECORD = dict(enumerate(["c", "1", ".", "AT", "A,G", ".", ".", ".", "GT", "0/1", "."]))
COLUMNS_OF_TWO = f"{COLUMNS}\tFORMAT\ts1\ts2"


def record(changes, position=1):
    """Return a line; a column that becomes empty is left out with its tab."""
    return "\t".join(each for each in (RECORD | {POS: str(position)} | changes).values() if each)


def write(path, records=(), header=(), version="4.3", columns=COLUMNS_OF_TWO, end="\n"):
    """Write a file of records, each a line or changes of the plain record."""
    lines = [f"##fileformat=VCFv{version}", *HEADER, *header, columns]
    lines += [
        each if isinstance(each, str) else record(each, number)
        for number, each in enumerate(records, start=1)
    ]
    path.write_bytes((end.join(lines) + end).encode())
    return path


def read(path, strict=True):
    return list(VcfReader(path, ANYWHERE, strict=strict))


RIGHT_HEADERS = {
    "4.1": [
        '##ALT=<ID=CN0,Description="of the 1000 Genomes">',
        '##SAMPLE=<ID=S,Genomes=a;b,Mixture=.3;.7,Description="">',
    ],
    "4.2": [
        info('ID=GERP++_RS,Number=R,Type=Flag,Description=""'),
        '##FORMAT=<ID=AD,Number=.,Type=Integer,Description="not reserved yet">',
        '##FORMAT=<ID=MIN_DP,Number=1,Type=Integer,Description="of GATK">',
        "##contig=<ID=HLA-DRB1*15:01:01:04,length=11056>",
        "##pedigreeDB=<ftp://user@host:80/x>",
        "##assembly=GRCh38",
        '##source="anything <goes, here" = yes',
        "##bcftools_viewCommand=view -i 'AF<0.1' x.vcf; Date=Mon",
        info('ID=MQ,Number=1,Type=Float,Description="of GATK"'),
        info('ID=MQ,Number=1,Type=Integer,Description="of samtools, declared twice"'),
    ],
    "4.3": [
        info('ID=Y,Number=1,Type=Integer,Description="one \\"two\\", three",Source="s"'),
        "##META=<ID=Tissue,Type=String,Number=.,Values=[Blood, ?]>",
        "##PEDIGREE=<ID=C,Father=F,Mother=M>",
    ],
    "4.5": ['##ALT=<ID=INS:ME:ALU,Description="x">'],
}
RIGHT_RECORDS = [
    {POS: "0"},
    {POS: "1"},
    {POS: "1"},  # a collection of variants has one for each report
    {ID: "rs1;x,y"},
    {REF: "acgtn"},
    *({ALT: alt} for alt in (".", "*,<DEL>", "<DUP:TANDEM>", ".A", "A.", "AT<ctg>,<*>")),
    *({ALT: alt} for alt in ("A]2:30]", "A[<c>:30[", "]c:1:30]AG", "[2:0[.", "<NON_REF>")),
    *({QUAL: qual} for qual in ("30", "1e-5", "3.", ".5", "+Inf", "nan", "-0.0")),
    *({FILTER: text} for text in ("PASS", "q10;s50")),
    *({INFO: text} for text in ("DB", "DB=1", "AC=1,.", "AC=.", "AF=0.1,1e-9", "X=a=b")),
    *({INFO: text} for text in ("CIGAR=1M,3M2D", "free_text=no", "END=5")),
    {INFO: "AC=1;AF=.5", ALT: ".", SAMPLE: "0/0"},
    *(
        {FORMAT: format_, SAMPLE: sample}
        for format_, sample in (
            ("GT", "./."), ("GT:DP:HQ", "0:5"), ("GT:HQ", ".:.,3"), ("GL", "-1,-2,-3,-4,-5,-6"),
            ("GT:PL", ".:1,2,3,4,5,6"), ("GT:AD", "0/1:1,2,3"), ("GT:OWN_KEY", "0/1:anything"),
            (".", "."), ("NONE", "."),
        )
    ),
    {CHROM: "HLA-A*01:01:01:01"},
    {CHROM: "<ctg1>"},
]  # fmt: skip


@pytest.mark.parametrize("version", RIGHT_HEADERS)
def test_what_is_right_is_read(tmp_path, version):
    rows = [record({POS: str(n)} | changes) for n, changes in enumerate(RIGHT_RECORDS)]
    path = write(tmp_path / "x.vcf", rows, RIGHT_HEADERS[version], version)
    assert [row.columns for row in read(path)] == [tuple(row.split("\t")) for row in rows]


class Broken(NamedTuple):
    """A rule, how a file comes to break it, and what the message says.

    Attributes:
        rule: a key of `RULES`.
        match: of the message.
        header: a line that is added.
        columns: changes of a record.
        version: of the file.
        htslib_reads: whether htslib reads such a file.
    """

    rule: str
    match: str
    header: str = ""
    columns: dict = {}  # noqa: RUF012
    version: str = "4.3"
    htslib_reads: bool = True


def in_header(rule, line, match, **more):
    return Broken(rule, match, header=line, **more)


def in_record(rule, match, columns, **more):
    return Broken(rule, match, columns=columns, **more)


BROKEN = [
    in_header("header_line", "##no value", "not of the form ##key=value"),
    in_header("header_line", "##reference=", "not of the form"),
    in_header("header_line", "##fileformat=VCFv4.3", "for the second time"),
    in_header("header_line", info('ID=Y,Number=1,Type=Integer,Description="a "b""'), "value must"),
    in_header("header_line", info('ID=Y,Number=1,Type=Integer,Description="a'), "value must be"),
    in_header("header_line", "##assembly=ftp://8080:8080/x", "is not a URL"),
    in_header("header_line", "##pedigreeDB=<>", "is not a URL"),
    in_header(
        "header_keys", info('ID=Y,ID=Z,Number=1,Type=Integer,Description=""'), "key stands twice"
    ),
    in_header("header_keys", info('ID=Y,Number=1,Description=""'), "INFO Y: Type is missing"),
    in_header("header_keys", info('Number=1,Type=Integer,ID=Y,Description=""'), "order Number, T"),
    in_header("header_keys", "##contig=<length=5>", "ID is missing"),
    in_header("header_keys", '##SAMPLE=<Description="no name">', "ID is missing"),
    in_header("header_keys", "##PEDIGREE=<Original=x>", "ID is missing"),
    in_header("header_id", "##PEDIGREE=<Original=x y>", "is not a name", version="4.2"),
    in_header("header_id", info('ID=GERP++,Number=1,Type=Float,Description=""'), "is not a name"),
    in_header("header_id", '##FILTER=<ID=0,Description="">', "ID '0' is not a name"),
    in_header("header_id", '##ALT=<ID=MY:OWN,Description="">', "begins with one of DEL"),
    in_header("header_id", "##contig=<ID=chr 1>", "is not a name"),
    in_header("header_id", "##SAMPLE=<ID=a;b,Genomes=Germline>", "is not a name"),
    in_header("header_number", info('ID=Y,Number=N,Type=Integer,Description=""'), "Number 'N'"),
    in_header("header_type", info('ID=Y,Number=1,Type=Int,Description=""'), "Type 'Int'"),
    in_header("header_type", '##FORMAT=<ID=Y,Number=0,Type=Flag,Description="">', "Type 'Flag'"),
    in_header("header_text", info("ID=Y,Number=1,Type=Integer,Description=none"), "double quotes"),
    in_header("header_text", '##SAMPLE=<ID=S,Genomes="a;b">', "remove the quotes", version="4.2"),
    in_header("header_text", "##META=<ID=Y,Number=1,Type=String,Values=a>", "square brackets"),
    in_header("reserved_key", info('ID=AF,Number=1,Type=Float,Description=""'), "with Number=A"),
    in_header("declared_twice", HEADER[0], "INFO XF: is declared twice"),
    in_record("chrom", "CHROM 'c 1'", {CHROM: "c 1"}),
    in_record("chrom", r"CHROM '\*1'", {CHROM: "*1"}),
    in_record("pos", "POS '1.0' is not", {POS: "1.0"}),
    in_record("pos", "does not fit into 32 bits", {POS: "2147483648"}),
    *(in_record("ref", "REF", {REF: ref}) for ref in (".", "A,T")),
    *(in_record("alt", "is no allele", {ALT: x}) for x in ("A,,T", "<A>B>", "[1:5[", "A.T", "A,.")),
    *(in_record("alt", "is no allele", {ALT: x}) for x in ("A C", "A]1:5[", "D4")),
    in_record("num_columns", "columns", {OTHER: "0/0\t"}),
    in_record("num_columns", "columns", {CHROM: "c 1", POS: ""}),
    in_record("ambiguity_code", "REF 'R' must be bases", {REF: "R"}),
    in_record("ambiguity_code", "ALT 'Y' is no allele", {ALT: "C,Y"}),
    in_record("id", "ID 'a b' must", {ID: "a b"}),
    in_record("id", "ID 'a;' must", {ID: "a;"}),
    in_record("id", "ID 'a;a' has a name twice", {ID: "a;a"}),
    in_record("qual", "QUAL 'high' is not a number", {QUAL: "high"}),
    in_record("qual", "QUAL '-1'", {QUAL: "-1"}),
    *(in_record("filter", "FILTER", {FILTER: x}) for x in ("a b", "a;", "a;.", "0", "a;0", "a;a")),
    in_record("info", "INFO 'DB' stands twice", {INFO: "DB;DB"}),
    in_record("info", "INFO 'DP' stands twice", {INFO: "DP=1;DP=2"}),
    in_record("info", "INFO '' is not a key", {INFO: "DP=1;"}),
    in_record("info", "INFO 'a b' is not a key", {INFO: "a b=1"}),
    in_record("info_values", "INFO DB: 'yes' is not allowed", {INFO: "DB=yes"}),
    in_record("info_values", "INFO DP: '1.5' is not a whole number", {INFO: "DP=1.5"}),
    in_record("info_values", "does not fit into 32 bits", {INFO: "DP=2147483648"}),
    in_record("info_values", "INFO DP: '' is not a whole number", {INFO: "DP="}),
    in_record("info_values", "INFO AF: '0.1,-1' is not a number, 0", {INFO: "AF=0.1,-1"}),
    in_record("info_values", "counts 1, and Number=A asks for 2", {INFO: "XA=1"}),
    in_record("info_values", "Number=R asks for 3", {INFO: "AD=1,2"}),
    in_record("info_values", "Number=1 asks for 1", {INFO: "XF=0.5,0.6"}),
    in_record("info_values", "Number=3 asks for 3", {INFO: "X3=1,2"}),
    in_record("info_values", "operations of an alignment", {INFO: "CIGAR=M,1M"}),
    in_record("info_values", "'a,b,c' is not a number", {INFO: "X3=a,b,c"}),
    in_record("info_values", "'ab' is not one letter", {INFO: "XC=ab"}),
    in_record("format", "FORMAT 'GT:': '' is not a key", {FORMAT: "GT:"}),
    in_record("format", "'A B' is not a key", {FORMAT: "GT:A B"}),
    in_record("format", "a key stands twice", {FORMAT: "GT:DP:DP"}, htslib_reads=False),
    in_record("format", "GT must be the first key", {FORMAT: "DP:GT", SAMPLE: "1:0/1"}),
    *(
        in_record("sample_values", match, {FORMAT: format_, SAMPLE: sample}, **more)
        for format_, sample, match, more in (
            ("GT", "0/1:5", "sample 's1': has 2 values and FORMAT 1", {"htslib_reads": False}),
            ("GT", "0/|1", "is no genotype", {"htslib_reads": False}),
            ("GT", "A/T", "is no genotype", {"htslib_reads": False}),
            ("GT", "0/3", "an allele that ALT does not have", {}),
            ("GT:DP", "0/1:few", "DP: 'few' is not a whole number", {}),
            ("GT:HQ", "0/1:1", "Number=2 asks for 2", {}),
            ("GT:NONE", "0/1:1", "Number=0 asks for 0", {}),
            ("GT:PL", "0/1:1,2,3", "Number=G asks for 6", {}),
            ("PL", "1,2,3", "Number=G asks for 6", {}),
        )
    ),
]  # fmt: skip
GRAVE = [each for each in BROKEN if RULES[each.rule] is Severity.REFUSED]
HARMLESS = [each for each in BROKEN if RULES[each.rule] is Severity.WARNED]


def write_broken(path, several):
    """Write two right records, and one more for each of these that is of a record."""
    header = [each.header for each in several if each.header]
    records = [{}, *(each.columns for each in several if each.columns), {}]
    version = several[0].version if several else "4.3"
    write(path, records, header, version)
    return len(records)


def htslib_reads(path):
    pysam.set_verbosity(0)
    try:
        with path.open("rb") as source, pysam.VariantFile(source) as file:
            return sum(1 for _ in file)
    except (ValueError, OSError):
        return 0


def name_of(broken):
    return f"{broken.rule} {broken.header or list(broken.columns.values())}"


@pytest.mark.parametrize("broken", HARMLESS, ids=name_of)
def test_a_rule_that_no_score_rests_on_is_a_warning(tmp_path, broken):
    path = tmp_path / "x.vcf"
    num_records = write_broken(path, [broken])
    vcf = VcfReader(path, ANYWHERE)
    assert len(list(vcf)) == num_records
    assert list(vcf.findings.by_rule) == [broken.rule]
    assert (htslib_reads(path) == num_records) == broken.htslib_reads
    place = f"line {len(HEADER) + 2}: " if broken.header else "record 2 "
    with pytest.raises(GenomeError, match=broken.match) as error:
        read(path)
    assert str(error.value).startswith(f"{path} {place}") and str(error.value).endswith(HINT)


@pytest.mark.parametrize("broken", GRAVE, ids=name_of)
def test_a_rule_that_scores_rest_on_is_refused(tmp_path, broken):
    path = tmp_path / "x.vcf"
    write_broken(path, [broken])
    for strict in (False, True):
        with pytest.raises(GenomeError, match=broken.match) as error:
            read(path, strict)
        assert str(error.value).startswith(f"{path} record 2") and HINT not in str(error.value)


@settings(max_examples=40)
@given(
    harmless=st.lists(st.sampled_from([e for e in HARMLESS if e.version == "4.3"]), max_size=5),
    grave=st.lists(st.sampled_from(GRAVE), max_size=1),
    seed=st.integers(0, 9),
)
def test_any_mixture(tmp_path_factory, harmless, grave, seed):
    """A file is refused if and only if something of it is grave, whatever else there is."""
    path = tmp_path_factory.mktemp("made") / "x.vcf"
    several = harmless + grave
    random.Random(seed).shuffle(several)
    num_records = write_broken(path, several)
    vcf = VcfReader(path, ANYWHERE)
    if grave:
        with pytest.raises(GenomeError) as error:
            list(vcf)
        assert HINT not in str(error.value) and "\n" not in str(error.value)
        return
    for _ in range(2):  # the second pass counts nothing again
        assert len(list(vcf)) == num_records
        found = {rule: counted.times for rule, counted in vcf.findings.by_rule.items()}
        assert set(found) >= {each.rule for each in harmless}
        repeated = sum(n - 1 for n in map(harmless.count, harmless) if n > 1)
        assert sum(found.values()) >= len(harmless) - repeated


def test_a_warning_counts_how_often_and_where_first(tmp_path):
    path = write(tmp_path / "x.vcf", [{}, {INFO: "XF=1,2"}, {QUAL: "-3"}, {INFO: "XF=3,4"}])
    vcf = VcfReader(path, ANYWHERE)
    next(iter(vcf))  # a pass that is broken off counts nothing twice
    list(vcf)
    first = len(HEADER) + 3  # the line of the first record
    found = {rule: (c.first_line, c.times) for rule, c in vcf.findings.by_rule.items()}
    assert found == {"info_values": (first + 1, 2), "qual": (first + 2, 1)}
    told = list(vcf.findings.told())
    assert len(told) == 2 and f"info_values, 2 times, first in line {first + 1}" in told[0]


def test_records_are_held_against_what_their_file_declares(tmp_path):
    """AF for the whole record, though the specification has one for each ALT: counted once."""
    declared = info('ID=AF,Number=1,Type=String,Description=""')
    vcf = VcfReader(write(tmp_path / "x.vcf", [{INFO: "AF=half"}], [declared]), ANYWHERE)
    list(vcf)
    assert list(vcf.findings.by_rule) == ["reserved_key"]


@pytest.mark.parametrize("version", ["4.6", "5.0", "3.3", " 4.2"])
def test_a_version_that_is_not_known(tmp_path, version):
    path = write(tmp_path / "x.vcf", [{}, {}], version=version)
    vcf = VcfReader(path, ANYWHERE)
    assert len(list(vcf)) == 2 and list(vcf.findings.by_rule) == ["fileformat"]
    with pytest.raises(GenomeError, match=r"line 1: .* is no known version"):
        read(path)


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (COLUMNS.replace("POS", "POSITION"), "the line of columns"),
        (COLUMNS.replace("\tID", " ID"), "the line of columns"),
        (f"{COLUMNS}\t", "ends in a tab"),
        (f"{COLUMNS}\tFORMAT\t", "a sample has no name"),
        (f"{COLUMNS}\tFORMAT", "no sample"),
        (f"{COLUMNS}\tFORMAT\ta\tb\ta", "sample 'a' stands twice"),
        ("more text", "'more text' is neither"),
    ],
)
def test_the_line_of_columns(tmp_path, columns, match):
    """It is refused in any case, and before a warning of the header."""
    path = write(tmp_path / "x.vcf", [{}], ["##FORMAT=<ID=DP>"], columns=columns)
    with pytest.raises(GenomeError, match=f"line {len(HEADER) + 3}: .*{match}") as error:
        VcfReader(path, ANYWHERE)
    assert HINT not in str(error.value)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_that_ends_in_its_header(tmp_path, end):
    (tmp_path / "a.vcf").write_text("\n".join(["##fileformat=VCFv4.3", *HEADER]) + end)
    with pytest.raises(GenomeError, match=f"line {len(HEADER) + 1}: .* the line of columns"):
        VcfReader(tmp_path / "a.vcf", ANYWHERE)


def test_a_phase_before_the_first_allele(tmp_path):
    for version in ("4.3", "4.4"):
        write(tmp_path / version, [{SAMPLE: "|0|2"}], version=version)
    assert len(read(tmp_path / "4.4")) == 1
    with pytest.raises(GenomeError, match="is no genotype"):
        read(tmp_path / "4.3")


@pytest.mark.parametrize(("ploidy", "num_alts"), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 2), (3, 3)])
def test_one_value_for_each_genotype(tmp_path, ploidy, num_alts):
    """Counted by writing every genotype down."""
    genotypes = len(list(combinations_with_replacement(range(num_alts + 1), ploidy)))
    alt, gt = ",".join("CGT"[:num_alts]), "/".join("0" * ploidy)
    for wrong in (-1, 0, 1):
        values = ",".join("7" * (genotypes + wrong))
        sample = {ALT: alt, FORMAT: "GT:PL", SAMPLE: f"{gt}:{values}"}
        path = write(tmp_path / "x.vcf", [sample])
        if wrong:
            with pytest.raises(GenomeError, match=f"asks for {genotypes} "):
                read(path)
        else:
            assert len(read(path)) == 1


@settings(max_examples=150)
@given(
    columns=st.lists(
        st.lists(
            st.sampled_from(["0", "0/1", "1|2|0", "./.", ".", "3", "1,2,3", "1,2", "a", "", "5,x"]),
            min_size=1,
            max_size=4,
        ).map(":".join),
        min_size=2,
        max_size=2,
    ),
    format_=st.sampled_from(["GT", "GT:PL", "GT:FREE:GL:AD", "PL:AD", "GT:FT:HQ", "DP:EC"]),
    num_alts=st.integers(0, 3),
)
def test_the_glance_at_all_samples_is_not_kinder_than_the_look_at_each(columns, format_, num_alts):
    lines = [(1, "##fileformat=VCFv4.3"), (2, COLUMNS_OF_TWO)]
    header = check_header(lines, Findings("x", strict=True))
    both, each = _SampleRules(header), _SampleRules(header)
    each._usual = lambda *_: re.compile("never")
    found = each.complaint(format_, columns, num_alts)
    assert both.complaint(format_, columns, num_alts) == found


@pytest.mark.parametrize(("version", "is_refused"), [("4.3", True), ("4.2", False)])
def test_the_last_line_has_an_end(tmp_path, version, is_refused):
    path = write(tmp_path / "x.vcf", [{}], version=version)
    path.write_bytes(path.read_bytes()[:-1])
    assert len(read(path, strict=False)) == 1
    if is_refused:
        with pytest.raises(GenomeError, match=f"line {len(HEADER) + 3}: has no line end"):
            read(path)
    else:
        assert len(read(path)) == 1


def bgzip(path):
    pysam.tabix_compress(str(path), f"{path}.gz", force=True)
    return path.with_name(f"{path.name}.gz").read_bytes()


@pytest.mark.parametrize(
    ("packed", "end", "mark"),
    [("plain", "\r\n", b"\xef\xbb\xbf"), ("gzip", "\r\n", b"\xef\xbb\xbf"), ("bgzip", "\n", b""),
     ("plain", "\n", b"")],
)  # fmt: skip
def test_line_ends_compression_and_a_byte_order_mark(tmp_path, packed, end, mark):
    path = write(tmp_path / "x.vcf", [{INFO: "AF=0.1,0.2"}, {ID: "a"}], end=end)
    path.write_bytes(mark + path.read_bytes())
    if packed != "plain":
        pack = {"gzip": lambda: gzip.compress(path.read_bytes()), "bgzip": lambda: bgzip(path)}
        path.write_bytes(pack[packed]())
    vcf = VcfReader(path, ANYWHERE, strict=True)
    assert [row.columns[INFO] for row in vcf] == ["AF=0.1,0.2", "."]
    assert vcf.header == ["##fileformat=VCFv4.3", *HEADER, COLUMNS_OF_TWO]


def test_the_order_is_demanded_before_the_rules(tmp_path):
    path = write(tmp_path / "x.vcf", [{POS: "5"}, {POS: "4", QUAL: "high"}])
    with pytest.raises(GenomeError, match="not sorted"):
        read(path)


def test_many_records_do_not_fill_the_memory(tmp_path):
    """What was right is remembered, and forgotten before it grows: the last one is still seen."""
    rows = [{INFO: f"DP={number}"} for number in range(9000)]
    path = write(tmp_path / "x.vcf", [*rows, {INFO: "DP=x"}])
    with pytest.raises(GenomeError, match="record 9001"):
        read(path)


def test_a_line_without_end(tmp_path, monkeypatch):
    """A gzip of some bytes may unpack to gigabytes; memory holds no more than the bound."""
    monkeypatch.setattr(streams, "MOST_LINE_BYTES", 1000)
    path = write(tmp_path / "x.vcf", [{}])
    whole = path.read_bytes()
    before_columns = whole[: whole.index(b"#CHROM")]
    for text, line in ((before_columns + b"##" + b"x" * 2000, len(HEADER) + 2),
                       (whole + b"A" * 2000, len(HEADER) + 4)):  # fmt: skip
        path.write_bytes(gzip.compress(text))
        with pytest.raises(GenomeError, match=rf"x\.vcf line {line}: a line of more than 1,000"):
            read(path)
    path.write_bytes(gzip.compress(whole))
    assert len(read(path)) == 1


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_what_is_no_text_is_no_vcf(tmp_path, packed):
    (tmp_path / "x.vcf").write_bytes(packed(bytes(range(253, 0, -1)) * 40))
    with pytest.raises(GenomeError, match="is not a VCF"):
        read(tmp_path / "x.vcf")


def test_a_bgzip_that_is_cut_off(tmp_path):
    """At any place, the end mark of the format alone included."""
    whole = bgzip(write(tmp_path / "x.vcf", [{} for _ in range(5000)]))
    for cut_bytes in (28, 100, len(whole) // 2):
        (tmp_path / "cut.vcf.gz").write_bytes(whole[:-cut_bytes])
        with pytest.raises(GenomeError, match=r"cut\.vcf\.gz"):
            read(tmp_path / "cut.vcf.gz")


NUMBERS = {"Integer": st.integers(-(2**31) + 8, 2**31 - 1).map(str),
           "Float": st.floats(width=32).map(str),
           "Character": st.sampled_from(["a", "%3A", "é"]),
           "String": st.text("abc_|/-", min_size=1)}  # fmt: skip
KEYS = {
    ("INFO", kind, number): f"I{kind[0]}{number if number != '.' else 'x'}"
    for kind in NUMBERS
    for number in (".", "1", "2", "A", "R")
} | {
    ("FORMAT", kind, number): f"F{kind[0]}{number if number != '.' else 'x'}"
    for kind in NUMBERS
    for number in (".", "1", "2", "A", "R", "G")
}
DECLARED = [
    f'##{column}=<ID={key},Number={number},Type={kind},Description="made">'
    for (column, kind, number), key in KEYS.items()
]
ALLELES = st.one_of(
    st.text("ACGTN", min_size=1, max_size=6),
    st.sampled_from(["*", "<DEL>", "<INS:ME:ALU>", "G]2:7]", "[2:7[TT", "A."]),
)


@st.composite
def values_of(draw, kind, number, num_alts, ploidy):
    genotypes = len(list(combinations_with_replacement(range(num_alts + 1), ploidy)))
    counts = {"A": num_alts, "R": num_alts + 1, "G": genotypes, ".": draw(st.integers(1, 4))}
    count = counts[number] if number in counts else int(number)
    one = st.one_of(st.just("."), NUMBERS[kind])
    listed = draw(st.lists(one, min_size=count, max_size=count))
    return draw(st.sampled_from([",".join(listed), "."]))


@st.composite
def records(draw):
    """Up to five records of two samples, as rows of text, each at a place of its own."""
    rows = []
    for step in range(draw(st.integers(1, 5))):
        ref = draw(st.text("ACGTN", min_size=1, max_size=6))
        alts = draw(st.lists(ALLELES, min_size=1, max_size=3, unique=True))
        ploidy = draw(st.integers(1, 3))
        columns = {"INFO": [], "FORMAT": []}
        for (column, kind, number), key in KEYS.items():
            if draw(st.integers(0, 4)) == 0:
                columns[column].append((key, kind, number))
        items = [
            f"{key}={draw(values_of(kind, number, len(alts), ploidy))}"
            for key, kind, number in columns["INFO"]
        ]
        flags = draw(st.lists(st.sampled_from(["DB", "H2", "free", "SOMATIC"]), unique=True))
        samples = []
        for _ in range(2):
            alleles = [str(draw(st.integers(0, len(alts)))) for _ in range(ploidy)]
            fields = ["|".join(alleles)] + [
                draw(values_of(kind, number, len(alts), ploidy))
                for _, kind, number in columns["FORMAT"]
            ]
            samples.append(":".join(fields[: draw(st.integers(1, len(fields)))]))
        rows.append("\t".join([
            "chr1", str(10 * step + draw(st.integers(0, 3))),
            draw(st.sampled_from([".", "rs1", "a;b"])), ref, ",".join(alts),
            draw(st.sampled_from([".", "3", "1e-7"])), draw(st.sampled_from([".", "PASS", "x;y"])),
            ";".join(items + flags) or ".",
            ":".join(["GT", *(key for key, _, _ in columns["FORMAT"])]), *samples,
        ]))  # fmt: skip
    return rows


@settings(max_examples=25)
@given(rows=records(), version=st.sampled_from(["4.1", "4.2", "4.3", "4.4", "4.5"]))
def test_records_that_are_right_are_never_refused(tmp_path_factory, rows, version):
    path = write(tmp_path_factory.mktemp("made") / "x.vcf", rows, DECLARED, version)
    assert [row.columns for row in read(path)] == [tuple(row.split("\t")) for row in rows]

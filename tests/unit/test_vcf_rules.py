"""The rules of VCF: what is right, what breaks a rule, and records made to be right.

A rule that scores rest on is refused; any other is a warning that is counted, unless `--strict`.
With it htslib has to parse each line to what its text says.
"""

import gzip
import random
from itertools import combinations_with_replacement
from types import SimpleNamespace
from typing import NamedTuple

import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError, UserError
from carbon.genome import Interval, VcfReader
from carbon.genome.bed import Regions
from carbon.genome.vcf import _PATTERNS, _RIGHT, RecordFilter

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
        info('ID=Z,Number=1,Type=Integer,Description="one",Source=s,Version=1.0'),
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
    """A rule by its name in `VcfReader.warnings`, and a header line or a record that breaks it."""

    rule: str
    header: str = ""
    columns: dict = {}  # noqa: RUF012


def in_record(rule, column, *texts):
    return [Broken(rule, columns={column: text}) for text in texts]


GRAVE = [
    *in_record("chrom", CHROM, "c 1", "*1"),
    *in_record("pos", POS, "1.0", "2147483648"),
    *in_record("ref", REF, ".", "A,T"),
    *in_record("alt", ALT, "A,,T", "<A>B>", "[1:5[", "A.T", "A,.", "A C", "A]1:5[", "D4", "<DE L>"),
    *in_record("num_columns", OTHER, "0/0\t"),
    Broken("num_columns", columns={CHROM: "c 1", POS: ""}),
]
HARMLESS = [
    *(
        Broken("header_line", header=line)
        for line in (
            "##contig=<length=5>",
            "##contig=<ID=chr 1>",
            info('ID=Y,Number=N,Type=Integer,Description=""'),
            info('ID=Y,Number=1,Type=Int,Description=""'),
            info('ID=Y,Number=1,Description=""'),
            info('Number=1,Type=Integer,ID=Y,Description=""'),
            info("ID=Y,Number=1,Type=Integer,Description=none"),
            info('ID=Y,Number=1,Type=Integer,Description="a "b""'),
            info('ID=Y,Number=1,Type=Integer,Description="a'),
            '##FORMAT=<ID=Y,Number=0,Type=Flag,Description="">',
        )
    ),
    *in_record("ambiguity_code", REF, "R"),
    *in_record("ambiguity_code", ALT, "C,Y"),
    *in_record("id", ID, "a b", "a;"),
    *in_record("qual", QUAL, "high", "-1"),
    *in_record("filter", FILTER, "a b", "a;", "a;.", "0", "a;0"),
]


def write_broken(path, several):
    """Write two right records, and one more for each of these that is of a record."""
    records = [{}, *(each.columns for each in several if each.columns), {}]
    write(path, records, [each.header for each in several if each.header])
    return len(records)


@pytest.mark.parametrize("broken", [*HARMLESS, *GRAVE], ids=lambda each: ascii(each[1:]))
def test_a_broken_rule_is_named_and_refused_if_scores_rest_on_it(tmp_path, broken):
    path = tmp_path / "x.vcf"
    num_records = write_broken(path, [broken])
    is_harmless = broken in HARMLESS
    column = [*COLUMNS[1:].split("\t"), *["columns"] * 3][min(broken.columns, default=0)]
    place = f"line {len(HEADER) + 2}: " if broken.header else f"record 2.*{column}"
    for strict in (True, False):
        if is_harmless and not strict:
            vcf = VcfReader(path, ANYWHERE)
            assert len(list(vcf)) == num_records and list(vcf.warnings) == [broken.rule]
            continue
        with pytest.raises(GenomeError, match=f"^{path} {place}") as error:
            read(path, strict)
        assert str(error.value).endswith(HINT) == is_harmless


BY_HTSLIB = [
    ("##no value", {}),
    ("##pedigreeDB=<>", {}),
    *(("", {INFO: text}) for text in ("XF=half", "XA=1.5,2", "XA=1,99999999999", "XF=1;")),
    *(
        ("", {FORMAT: format_, SAMPLE: sample})
        for format_, sample in (("GT", "0/1:5"), ("GT", "0/|1"), ("GT", "A/T"), ("GT:XA:XA", "0/1"))
    ),
]


@pytest.mark.parametrize(("header", "columns"), BY_HTSLIB)
def test_what_htslib_repairs_in_silence_is_refused(tmp_path, header, columns):
    path = write(tmp_path / "x.vcf", [{}, columns, {}], [header] if header else [])
    vcf = VcfReader(path, ANYWHERE)
    assert len(list(vcf)) == 3 and not vcf.warnings
    place = f"line {len(HEADER) + 2}: htslib" if header else r"record 2 \(c:2\): htslib"
    with pytest.raises(GenomeError, match=place) as error:
        read(path)
    assert str(error.value).endswith("(not checked without `--strict`)")


def test_what_htslib_writes_in_another_way_is_read(tmp_path):
    """Six digits of a float, values at the end of a sample, names that need no declaration."""
    header = [f'##FORMAT=<ID={key},Number=1,Type=Integer,Description="">' for key in ("XI", "XI2")]
    several = [
        {INFO: "XF=0.123456789"}, {INFO: "XF=1e-60"}, {INFO: "XF=nan"}, {QUAL: "30.00"},
        {QUAL: "1234567.9"}, {FORMAT: "GT:XI:XI2", SAMPLE: "0/1"}, {INFO: "not_declared=1"},
        {FILTER: "not_declared"}, {FORMAT: "GT:NEW", SAMPLE: "0/1:x"},
    ]  # fmt: skip
    assert len(read(write(tmp_path / "x.vcf", several, header))) == 9


def test_a_contig_that_other_contigs_are_declared_beside(tmp_path):
    """It is no error by any version of VCF, so `strict` counts it, too."""
    path = write(tmp_path / "x.vcf", [{}, {CHROM: "d"}, {CHROM: "<d>"}])
    vcf = VcfReader(path, ANYWHERE, strict=True)
    assert len(list(vcf)) == 3
    assert [line.partition(": contig, ")[2] for line in vcf.warning_lines()] == [
        f"line {len(HEADER) + 4}: CHROM 'd' has no ##contig line, and others have; add it"
    ]


@settings(max_examples=40)
@given(
    harmless=st.lists(st.sampled_from(HARMLESS), max_size=5),
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
        found = {rule: warned.num_lines for rule, warned in vcf.warnings.items()}
        assert set(found) >= {each.rule for each in harmless}
        repeated = sum(n - 1 for n in map(harmless.count, harmless) if n > 1)
        assert sum(found.values()) >= len(harmless) - repeated


def test_a_warning_counts_how_often_and_where_first(tmp_path):
    path = write(tmp_path / "x.vcf", [{}, {ID: "a b"}, {QUAL: "-3"}, {ID: "a;"}])
    vcf = VcfReader(path, ANYWHERE)
    next(iter(vcf))  # a pass that is broken off counts nothing, two at once count nothing twice
    assert len(list(zip(vcf, vcf, strict=True))) == 4
    first = len(HEADER) + 3  # the line of the first record
    found = {rule: (c.first_line, c.num_lines) for rule, c in vcf.warnings.items()}
    assert found == {"id": (first + 1, 2), "qual": (first + 2, 1)}
    lines = list(vcf.warning_lines())
    assert len(lines) == 2 and f"id, 2 times, first in line {first + 1}" in lines[0]


FILTERED = [
    {POS: "1", QUAL: "30", FILTER: "PASS"},
    {POS: "2", QUAL: "29.9", FILTER: "PASS"},
    {POS: "3", QUAL: ".", FILTER: "q10;s50"},
    {POS: "4", QUAL: "1e3", FILTER: "."},
    {POS: "5", QUAL: "nan", FILTER: "s50"},
]


@pytest.mark.parametrize(("conditions", "kept", "left_out"), [
    ({}, [1, 2, 3, 4, 5], {}),
    ({"min_qual": 30.0}, [1, 4], {"qual": 3}),
    ({"min_qual": 0.0}, [1, 2, 4], {"qual": 2}),
    ({"filters": ("PASS",)}, [1, 2], {"filter": 3}),
    ({"filters": ("PASS", ".")}, [1, 2, 4], {"filter": 2}),
    ({"filters": ("s50",)}, [3, 5], {"filter": 3}),
    ({"min_qual": 30.0, "filters": (".",)}, [4], {"qual": 3, "filter": 1}),
    ({"first": 2, "min_qual": 30.0}, [4], {"region": 1, "qual": 3}),
])  # fmt: skip
def test_the_reader_leaves_records_out_and_counts_them(tmp_path, conditions, kept, left_out):
    """All passes agree, and a record keeps its number in the file."""
    if first := conditions.pop("first", None):
        conditions["regions"] = Regions([Interval("c", first - 1, 9)], {"c": 9})
    keep = RecordFilter(**conditions)
    vcf = VcfReader(write(tmp_path / "x.vcf", FILTERED), ANYWHERE, keep=keep)
    for _ in range(2):
        assert [row.number for row in vcf] == kept
        assert vcf.left_out == left_out


def bgzip(path):
    pysam.tabix_compress(str(path), f"{path}.gz", force=True)
    return path.with_name(f"{path.name}.gz").read_bytes()


@pytest.mark.parametrize(
    ("packed", "end", "mark"),
    [("plain", "\r\n", b"\xef\xbb\xbf"), ("gzip", "\n", b"\xef\xbb\xbf"), ("bgzip", "\r\n", b"")],
)
def test_line_ends_compression_and_a_byte_order_mark(tmp_path, packed, end, mark):
    path = write(tmp_path / "x.vcf", [{INFO: "AF=0.1,0.2"}, {ID: "a"}], end=end)
    path.write_bytes(mark + path.read_bytes())
    if packed != "plain":
        pack = {"gzip": lambda: gzip.compress(path.read_bytes()), "bgzip": lambda: bgzip(path)}
        path.write_bytes(pack[packed]())
    # htslib reads no mark.
    vcf = VcfReader(path, ANYWHERE, strict=not mark)
    assert [row.columns[INFO] for row in vcf] == ["AF=0.1,0.2", "."]
    assert vcf.header == ["##fileformat=VCFv4.3", *HEADER, COLUMNS_OF_TWO]


@pytest.mark.parametrize(
    "columns",
    [
        COLUMNS.replace("POS", "POSITION"),
        COLUMNS.replace("\tID", " ID"),
        f"{COLUMNS}\t",
        f"{COLUMNS}\tFORMAT\t",
        f"{COLUMNS}\tFORMAT",
        f"{COLUMNS}\tFORMAT\ta\tb\ta",
        "more text",
    ],
)
def test_the_line_of_columns(tmp_path, columns):
    """It is refused in any case, and before a warning of the header."""
    path = write(tmp_path / "x.vcf", [{}], ["##contig=<length=5>"], columns=columns)
    with pytest.raises(GenomeError, match=f"line {len(HEADER) + 3}: ") as error:
        VcfReader(path, ANYWHERE)
    assert HINT not in str(error.value)


def test_minimum_of_a_qual_and_names_of_filters(tmp_path):
    path = write(tmp_path / "x.vcf", [{QUAL: "high"}])  # a warning otherwise
    with pytest.raises(GenomeError, match=r"record 1 \(c:1\): QUAL 'high'") as error:
        list(VcfReader(path, ANYWHERE, keep=RecordFilter(min_qual=3)))
    assert HINT not in str(error.value)
    with pytest.raises(UserError, match="minimum QUAL nan"):
        RecordFilter(min_qual=float("nan"))
    for name in ("", "a;b", "a b", "0"):
        with pytest.raises(UserError, match=f"FILTER '{name}': give a name"):
            RecordFilter(filters=("PASS", name))


def test_versions_and_the_order_of_records(tmp_path):
    for version in ("4.6", "5.0", "3.3", " 4.2"):
        path = write(tmp_path / "x.vcf", [{}, {}], version=version)
        vcf = VcfReader(path, ANYWHERE)
        assert len(list(vcf)) == 2 and list(vcf.warnings) == ["fileformat"]
        with pytest.raises(GenomeError, match=r"line 1: .* is not a known version"):
            read(path)
    path = write(tmp_path / "x.vcf", [{POS: "5"}, {POS: "4", QUAL: "high"}])
    with pytest.raises(GenomeError, match="not sorted"):  # rather than a rule
        read(path)


def test_files_that_are_no_vcf_or_cut_off(tmp_path):
    """Some at any place: in the header, without a last line end, or without the mark of bgzip."""
    whole = write(tmp_path / "x.vcf", [{}]).read_bytes()
    path, line = tmp_path / "cut.vcf.gz", len(HEADER) + 3
    for cut, strict, message in (
        (whole[: whole.index(b"#CHROM")], False, f"line {line - 2}: .* the line of columns"),
        (whole[: whole.index(b"\n#CHROM")], False, f"line {line - 2}: .* the line of columns"),
        (whole[:-1], True, f"line {line}: has no line end"),
        (whole.replace(b"GT", b"\xe9"), False, f"line {len(HEADER)}: is not UTF-8"),
        (bytes(range(253, 0, -1)) * 40, False, "is not a VCF"),
    ):
        for pack in (bytes, gzip.compress):
            path.write_bytes(pack(cut))
            with pytest.raises(GenomeError, match=rf"cut\.vcf\.gz:? {message}"):
                read(path, strict)
    path.write_bytes(whole[:-1])
    assert len(read(path, strict=False)) == 1
    whole = bgzip(write(tmp_path / "x.vcf", [{} for _ in range(5000)]))
    for cut_bytes in (28, 100, len(whole) // 2):
        path.write_bytes(whole[:-cut_bytes])
        with pytest.raises(GenomeError, match=r"cut\.vcf\.gz"):
            read(path)


@settings(max_examples=150)
@given(
    columns=st.tuples(
        st.sampled_from(["c", "*1", "<x>", "c 1", ""]),
        st.sampled_from(["0", "12", "-1", "1.0"]),
        st.sampled_from([".", "a;b", "a;", "a b"]),
        st.sampled_from(["A", "acgtn", "R", "", "."]),
        st.sampled_from([".", "A,C", "*", "A,.", "<D E>", "A[c:1[", "A[c:1]", "A,,C", "."]),
        st.sampled_from([".", "3", "1e3", "nan", "-1", "-0.0"]),
        st.sampled_from([".", "PASS", "0", "a;0", "0;a", "a;.", "00", ";"]),
    )
)
def test_one_pattern_of_a_line_is_that_of_each_column(columns):
    each = all(p.fullmatch(text) for p, text in zip(_PATTERNS.values(), columns, strict=True))
    assert bool(_RIGHT.match("\t".join([*columns, "INFO"]))) == each


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

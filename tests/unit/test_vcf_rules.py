"""The rules of VCF: for each group a right and a wrong example, and records made to be right."""

import gzip
import re
from itertools import combinations_with_replacement
from pathlib import Path
from types import SimpleNamespace

import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import VcfReader
from carbon.genome.vcf_findings import Findings
from carbon.genome.vcf_header_rules import check_header
from carbon.genome.vcf_record_rules import RecordRules, _SampleRules

COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"
ANYWHERE = SimpleNamespace(disagreement=lambda *_: None)
AF = '##INFO=<ID=AF,Number=A,Type=Float,Description="f">'

NONE = '##FORMAT=<ID=NONE,Number=0,Type=String,Description="no values">'


def info(rest):
    return f"##INFO=<{rest}>"


def write(folder, records, header=(), version="4.3", samples=(), end="\n"):
    columns = "\t".join([COLUMNS, *(["FORMAT", *samples] if samples else [])])
    lines = [f"##fileformat=VCFv{version}", *header, columns, *records]
    path = folder / "x.vcf"
    path.write_bytes((end.join(lines) + end).encode())
    return path


def read(path, strict=True):
    return list(VcfReader(path, ANYWHERE, strict=strict))


def record(**changes):
    fields = dict(chrom="1", pos="5", id=".", ref="AT", alt="A,G", qual=".", filter=".", info=".")
    return "\t".join((fields | changes).values())


def sample(format_, text, **changes):
    return "\t".join([record(**changes), format_, text])


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("4.3", info('ID=X,Number=1,Type=Integer,Description="one \\"two\\", three",Source="s"')),
        ("4.2", info('ID=GERP++_RS,Number=R,Type=Flag,Description=""')),
        ("4.2", '##FORMAT=<ID=AD,Number=.,Type=Integer,Description="not reserved yet">'),
        ("4.2", '##FORMAT=<ID=MIN_DP,Number=1,Type=Integer,Description="of GATK">'),
        ("4.1", '##ALT=<ID=CN0,Description="of the 1000 Genomes">'),
        ("4.5", '##ALT=<ID=INS:ME:ALU,Description="x">'),
        ("4.2", "##contig=<ID=HLA-DRB1*15:01:01:04,length=11056>"),
        ("4.1", "##SAMPLE=<ID=S,Genomes=a;b,Mixture=.3;.7,Description=none>".replace("none", '""')),
        ("4.3", "##META=<ID=Tissue,Type=String,Number=.,Values=[Blood, ?]>"),
        ("4.3", "##PEDIGREE=<ID=C,Father=F,Mother=M>"),
        ("4.2", "##pedigreeDB=<ftp://user@host:80/x>"),
        ("4.2", "##assembly=GRCh38"),
        ("4.2", '##source="anything <goes, here" = yes'),
        ("4.2", "##bcftools_viewCommand=view -i 'AF<0.1' x.vcf; Date=Mon"),
        ("4.2", '##INFO=<ID=MQ,Number=1,Type=Float,Description="of GATK">'),
        ("4.2", '##INFO=<ID=MQ,Number=1,Type=Integer,Description="of samtools">'),
    ],
)
def test_header_lines_that_are_right(tmp_path, version, line):
    assert read(write(tmp_path, [], [line], version)) == []


@pytest.mark.parametrize(
    ("version", "line", "match"),
    [
        ("4.2", "##no value", "line 3: '##no value' is not of the form ##key=value"),
        ("4.2", "##reference=", "not of the form"),
        ("4.2", "##fileformat=VCFv4.2", "for the second time"),
        ("4.2", info('ID=X,Number=1,Type=Integer,Description="a "b""'), "the value must be"),
        ("4.2", info('ID=X,Number=1,Type=Integer,Description="a'), "the value must be"),
        ("4.2", info('ID=X,ID=Y,Number=1,Type=Integer,Description=""'), "a key stands twice"),
        ("4.2", info('ID=X,Number=1,Description=""'), "INFO X: Type is missing"),
        ("4.2", info('Number=1,Type=Integer,ID=X,Description=""'), "order Number, Type, ID, Desc"),
        ("4.3", info('ID=GERP++,Number=1,Type=Float,Description=""'), r"ID 'GERP\+\+' is not a"),
        ("4.2", info('ID=X,Number=N,Type=Integer,Description=""'), "Number 'N' is not known"),
        ("4.2", info('ID=X,Number=1,Type=Int,Description=""'), "Type 'Int' is not known"),
        ("4.2", '##FORMAT=<ID=X,Number=0,Type=Flag,Description="">', "Type 'Flag' is not known"),
        ("4.2", info("ID=X,Number=1,Type=Integer,Description=none"), "in double quotes"),
        ("4.2", info('ID=AF,Number=1,Type=Float,Description=""'), "is reserved, with Number=A"),
        ("4.3", info('ID=AD,Number=A,Type=Integer,Description=""'), "is reserved, with Number=R"),
        ("4.2", '##FILTER=<ID=0,Description="">', "ID '0' is not a name"),
        ("4.2", '##ALT=<ID=MY:OWN,Description="">', "begins with one of DEL"),
        ("4.2", "##contig=<length=5>", "ID is missing"),
        ("4.2", "##contig=<ID=chr 1>", "is not a name"),
        ("4.3", "##PEDIGREE=<Original=x>", "ID is missing"),
        ("4.2", "##PEDIGREE=<Original=x y>", "is not a name"),
        ("4.2", '##SAMPLE=<ID=S,Genomes="a;b">', "remove the quotes"),
        ("4.3", "##META=<ID=X,Number=1,Type=String,Values=a>", "square brackets"),
        ("4.2", "##assembly=ftp://8080:8080/x", "is not a URL"),
        ("4.2", "##pedigreeDB=<>", "is not a URL"),
    ],
)  # fmt: skip
def test_header_lines_that_are_wrong(tmp_path, version, line, match):
    path = write(tmp_path, [], ["##ours=1", line], version)
    with pytest.raises(GenomeError, match=match) as error:
        read(path)
    assert str(error.value).startswith(f"{path} line 3: ")
    assert str(error.value).endswith("(a warning without `--strict`)")
    assert read(path, strict=False) == []


def test_a_key_is_declared_once(tmp_path):
    assert read(write(tmp_path, [], [AF, AF], "4.2")) == []
    with pytest.raises(GenomeError, match="line 3: INFO AF: is declared twice"):
        read(write(tmp_path, [], [AF, AF], "4.3"))


@pytest.mark.parametrize("version", ["4.6", "3.3", " 4.2"])
def test_versions(tmp_path, version):
    with pytest.raises(GenomeError, match=r"line 1: .* is no known version"):
        read(write(tmp_path, [], version=version))


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (COLUMNS.replace("POS", "POSITION"), "the line of columns"),
        (COLUMNS.replace("\tID", " ID"), "the line of columns"),
        (f"{COLUMNS}\t", "the line of columns ends in a tab; remove it"),
        (f"{COLUMNS}\tFORMAT\t", "a sample has no name; remove the tab too many"),
        (f"{COLUMNS}\tFORMAT", "no sample"),
        (f"{COLUMNS}\tFORMAT\ta\tb\ta", "sample 'a' stands twice"),
        ("more text", "'more text' is neither"),
    ],
)
def test_the_line_of_columns(tmp_path, columns, match):
    """They are refused in any case, so there is no hint that one may read on."""
    path = tmp_path / "x.vcf"
    path.write_text(f"##fileformat=VCFv4.2\n{columns}\n{record()}\n")
    for strict in (True, False):
        with pytest.raises(GenomeError, match=f"line 2: .*{match}") as error:
            VcfReader(path, ANYWHERE, strict=strict)
        assert "--strict" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"chrom": "HLA-A*01:01:01:01"},
        {"chrom": "<ctg1>"},
        {"pos": "0"},
        {"id": "rs1;x,y"},
        {"ref": "acgtn"},
        *({"alt": alt} for alt in (".", "*,<DEL>", "<DUP:TANDEM>", ".A", "A.", "AT<ctg>,<*>")),
        *({"alt": alt} for alt in ("A]2:30]", "A[<c>:30[", "]c:1:30]AG", "[2:0[.", "<NON_REF>")),
        *({"qual": qual} for qual in ("30", "1e-5", "3.", ".5", "+Inf", "nan", "-0.0")),
        *({"filter": text} for text in ("PASS", "q10;s50")),
        *({"info": text} for text in ("DB", "DB=1", "AC=1,.", "AC=.", "AF=0.1,1e-9", "X=a=b")),
        *({"info": text} for text in ("CIGAR=1M,3M2D", "free text=no".replace(" ", "_"), "END=5")),
        {"info": "AC=1;AF=.5", "alt": "."},
    ],
)
def test_columns_that_are_right(tmp_path, changes):
    assert len(read(write(tmp_path, [record(**changes)]))) == 1


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"chrom": "chr 1"}, "CHROM 'chr 1'"),
        ({"chrom": "*1"}, "CHROM"),
        ({"pos": "5x"}, "POS '5x' is not"),
        ({"pos": "2147483648"}, "POS '2147483648' does not fit into 32 bits"),
        ({"id": "a b"}, "ID 'a b' must"),
        ({"id": "a;"}, "ID 'a;' must"),
        ({"id": "a;a"}, "ID 'a;a' has a name twice"),
        ({"ref": "R"}, "REF 'R' must be bases"),
        ({"ref": "A,T"}, "REF 'A,T'"),
        *(({"alt": x}, "is no allele") for x in ("R", "A,,T", "<A>B>", "[1:5[", "A.T", "A,.")),
        ({"alt": "A]1:5["}, "is no allele"),
        ({"qual": "high"}, "QUAL 'high' is not a number"),
        ({"qual": "-1"}, "QUAL '-1'"),
        *(({"filter": x}, "FILTER") for x in ("a b", "a;", "a;.", "0", "a;0", "a;a")),
        ({"info": "DB;DB"}, "INFO 'DB' stands twice"),
        ({"info": "DP=1;DP=2"}, "INFO 'DP' stands twice"),
        ({"info": "DP=1;"}, "INFO '' is not a key"),
        ({"info": "a b=1"}, "INFO 'a b' is not a key"),
        ({"info": "DB=yes"}, "INFO DB: 'yes' is not allowed: a flag has no value"),
        ({"info": "DP=1.5"}, "INFO DP: '1.5' is not a whole number, 0 or more"),
        ({"info": "DP="}, "INFO DP: '' is not a whole number"),
        ({"info": "AF=0.1,-1"}, "INFO AF: '0.1,-1' is not a number, 0 or more"),
        ({"info": "AC=1"}, "INFO AC: '1' counts 1, and Number=A asks for 2 here"),
        ({"info": "AD=1,2"}, "Number=R asks for 3"),
        ({"info": "AA=A,T"}, "Number=1 asks for 1"),
        ({"info": "CIGAR=M,1M"}, "operations of an alignment"),
        ({"info": "DP=2147483648"}, "does not fit into 32 bits"),
        ({"info": "X=1,2"}, "INFO X: '1,2' counts 2, and Number=3 asks for 3"),
        ({"info": "X=a,b,c"}, "INFO X: 'a,b,c' is not a number"),
        ({"info": "C=ab"}, "INFO C: 'ab' is not one letter"),
        ({"info": "DP=1\tGT"}, "has 9 columns and the #CHROM line 8"),
        ({"id": ""}, "ID '' must be names"),
    ],
)  # fmt: skip
def test_columns_that_are_wrong(tmp_path, changes, match):
    header = [
        info('ID=X,Number=3,Type=Float,Description=""'),
        info('ID=C,Number=1,Type=Character,Description=""'),
    ]
    path = write(tmp_path, [record(pos="1"), record(**changes)], header)
    with pytest.raises(GenomeError, match=match) as error:
        read(path)
    assert str(error.value).startswith(f"{path} record 2")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "columns",
    [
        ("GT", "0/1"),
        ("GT", "./."),
        ("GT:DP:HQ", "0:5"),
        ("GT:HQ", ".:.,3"),
        ("GL", "-1,-2,-3,-4,-5,-6"),
        ("GT:PL", ".:1,2,3,4,5,6"),
        ("GT:AD", "0/1:1,2,3"),
        ("GT:OWN_KEY", "0/1:anything"),
        (".", "."),
        ("NONE", "."),
    ],
)
def test_samples_that_are_right(tmp_path, columns):
    assert len(read(write(tmp_path, [sample(*columns)], [NONE], samples=["s"]))) == 1


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (("GT:", "0/1"), "FORMAT 'GT:': '' is not a key"),
        (("GT:A B", "0/1"), "'A B' is not a key"),
        (("GT:DP:DP", "0/1"), "a key stands twice"),
        (("DP:GT", "1:0/1"), "GT must be the first key"),
        (("GT", "0/1:5"), "sample 's': has 2 values and FORMAT 1 keys"),
        (("GT", "0/|1"), "GT '0/|1' is no genotype".replace("|", r"\|")),
        (("GT", "A/T"), "is no genotype"),
        (("GT", "0/3"), "an allele that ALT does not have"),
        (("GT:DP", "0/1:few"), "sample 's': DP: 'few' is not a whole number"),
        (("GT:HQ", "0/1:1"), "Number=2 asks for 2"),
        (("GT:NONE", "0/1:1"), "Number=0 asks for 0"),
        (("GT:PL", "0/1:1,2,3"), "Number=G asks for 6"),
        (("PL", "1,2,3"), "Number=G asks for 6"),
    ],
)
def test_samples_that_are_wrong(tmp_path, columns, match):
    with pytest.raises(GenomeError, match=match):
        read(write(tmp_path, [sample(*columns)], [NONE], samples=["s"]))


def test_a_phase_before_the_first_allele(tmp_path):
    row = sample("GT", "|0|2")
    assert len(read(write(tmp_path, [row], version="4.4", samples=["s"]))) == 1
    with pytest.raises(GenomeError, match="is no genotype"):
        read(write(tmp_path, [row], version="4.3", samples=["s"]))


@pytest.mark.parametrize("ploidy", [1, 2, 3])
@pytest.mark.parametrize("num_alts", [1, 2, 3])
def test_one_value_for_each_genotype(tmp_path, ploidy, num_alts):
    """Counted by writing every genotype down."""
    genotypes = len(list(combinations_with_replacement(range(num_alts + 1), ploidy)))
    alt, gt = ",".join("CGT"[:num_alts]), "/".join("0" * ploidy)
    for wrong in (-1, 0, 1):
        values = ",".join("7" * (genotypes + wrong)) or "7,7,7,7,7,7,7"
        path = write(tmp_path, [sample("GT:PL", f"{gt}:{values}", alt=alt)], samples=["s"])
        if wrong:
            with pytest.raises(GenomeError, match=f"asks for {genotypes} "):
                read(path)
        else:
            assert len(read(path)) == 1


@settings(max_examples=500)
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
    header = check_header(
        [(1, "##fileformat=VCFv4.3"), (2, f"{COLUMNS}\tFORMAT\ta\tb")], Findings("x", strict=True)
    )
    both, each = _SampleRules(header), _SampleRules(header)
    each._usual = lambda *_: re.compile("never")
    found = each.complaint(format_, columns, num_alts)
    assert both.complaint(format_, columns, num_alts) == found


def test_a_variant_may_stand_twice(tmp_path):
    """Collections of variants give one name to each report; the text does not forbid it."""
    assert len(read(write(tmp_path, [record(), record()]))) == 2


def test_an_end_of_line(tmp_path):
    path = write(tmp_path, [record()])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(GenomeError, match="line 3: has no line end"):
        read(path)
    assert len(read(path, strict=False)) == 1
    path = write(tmp_path, [record()], version="4.2")
    path.write_bytes(path.read_bytes()[:-1])
    assert len(read(path)) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", ["plain", "gzip", "bgzip"])
def test_line_ends_and_compression(tmp_path, end, packed):
    path = write(tmp_path, [record(info="AF=0.1,0.2"), record(pos="9")], [AF], end=end)
    text = path.read_bytes()
    if packed == "gzip":
        path.write_bytes(gzip.compress(text))
    elif packed == "bgzip":
        path = tmp_path / "x.vcf.gz"
        with pysam.BGZFile(str(path), "wb") as sink:
            sink.write(text)
    rows = read(path)
    assert [row.columns[7] for row in rows] == ["AF=0.1,0.2", "."]


def test_what_pysam_needs_is_demanded_all_the_same(tmp_path):
    path = write(tmp_path, [record(pos="here")])
    for strict in (True, False):
        with pytest.raises(GenomeError, match="record 1: ") as error:
            read(path, strict=strict)
        assert "--strict" not in str(error.value)


def test_the_order_is_demanded_before_the_rules(tmp_path):
    path = write(tmp_path, [record(), record(pos="1", qual="high")])
    with pytest.raises(GenomeError, match="not sorted"):
        read(path)


def test_records_are_held_against_the_rules_once(tmp_path, monkeypatch):
    path = write(tmp_path, [record(pos=str(pos)) for pos in (1, 2, 3)])
    seen = []
    monkeypatch.setattr(RecordRules, "complaints", lambda _, columns: seen.append(columns) or [])
    vcf = VcfReader(path, ANYWHERE)
    next(iter(vcf))
    assert len(seen) == 1
    first, second = list(vcf), list(vcf)
    assert first == second and len(first) == 3
    assert len(seen) == 1 + 3


def test_many_records_do_not_fill_the_memory(tmp_path):
    """What was right is remembered, and forgotten before it grows: the last one is still seen."""
    rows = [record(pos=str(i + 1), info=f"DP={i}") for i in range(9000)]
    path = write(tmp_path, [*rows, record(pos="9999", info="DP=x")])
    with pytest.raises(GenomeError, match="record 9001"):
        read(path)


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


@settings(max_examples=40)
@given(rows=records(), version=st.sampled_from(["4.1", "4.2", "4.3", "4.4", "4.5"]))
def test_records_that_are_right_are_never_refused(tmp_path_factory, rows, version):
    path = write(tmp_path_factory.mktemp("made"), rows, DECLARED, version, ["one", "two"])
    assert [row.columns for row in read(path)] == [tuple(row.split("\t")) for row in rows]


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_what_is_no_text_is_no_vcf(tmp_path, packed):
    path = tmp_path / "x.vcf"
    path.write_bytes(packed(bytes(range(253, 0, -1)) * 40))
    with pytest.raises(GenomeError, match="is not a VCF"):
        read(path)


def test_a_bgzip_that_is_cut_off_is_said_to_be(tmp_path):
    records = [f"c\t{n}\t.\tA\tC\t.\t.\t." for n in range(1, 20_000)]
    plain = write(tmp_path, records, [f"##contig=<ID=c,length={10**6}>"])
    whole, cut = str(tmp_path / "whole.vcf.gz"), tmp_path / "cut.vcf.gz"
    pysam.tabix_compress(str(plain), whole)
    cut.write_bytes(Path(whole).read_bytes()[:-100])
    with pytest.raises(GenomeError, match="cut off"):
        read(cut)

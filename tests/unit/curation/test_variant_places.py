"""What an evaluation VCF protects: all bases that its records span, from any of its formats."""

import gzip
from collections import Counter

import pysam
import pytest

from carbon.corpus import read_manifest, read_source
from carbon.errors import UserError
from carbon.genome import Interval
from data_pipeline.inputs.evaluations import evaluation_places
from data_pipeline.inputs.variant_places import Shortened, variant_places
from data_pipeline.recipe import AssemblyConfig, EvaluationConfig
from tests.helpers.curation import build
from tests.helpers.files import random_bases, write_bcf, write_fasta, write_vcf

LENGTH_BP = 30_000
HEADER = (
    "##fileformat=VCFv4.4\n"
    '##INFO=<ID=END,Number=1,Type=Integer,Description="e">\n'
    '##INFO=<ID=SVLEN,Number=A,Type=Integer,Description="l">\n'
    '##INFO=<ID=SVTYPE,Number=1,Type=String,Description="t">\n'
    f"##contig=<ID=c1,length={LENGTH_BP}>\n"
    "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
)
DELETION = "c1\t12000\tx\tT\t<DEL>\t.\t.\tSVTYPE=DEL;SVLEN=-6000\n"


def place_of(tmp_path, columns):
    """Return start and end of a record, and what was counted."""
    path = write_vcf(tmp_path / "x.vcf", ["\t".join(columns)])
    shortened = Counter()
    (place,) = variant_places(path, shortened)
    return (place.start, place.end), dict(shortened)


def test_a_contig_may_begin_as_a_comment_below_the_header(tmp_path):
    lines = ["##x=y", "# note", "", "#CHROM\tPOS", "c1\t5\t.\tT", "", "#c\t9\t.\tTA"]
    (tmp_path / "x.vcf").write_text("\n".join(lines))
    places = list(variant_places(tmp_path / "x.vcf", Counter()))
    assert places == [Interval("c1", 4, 5), Interval("#c", 8, 10)]


@pytest.mark.parametrize(
    ("ref", "alt", "info", "end"),
    [
        # POS is 101, so the anchor base is [100, 101).
        ("T", "C", ".", 101),
        ("TACG", "T", ".", 104),
        ("T", "<DEL>", "END=150", 150),
        ("T", "<DEL>", "SVTYPE=DEL;SVLEN=-49", 150),
        ("T", "<DEL>", "SVLEN=49", 150),  # VCF 4.4
        ("T", "<DEL>", "END=120;SVLEN=-49", 150),  # the further of the two
        ("T", "<DEL>", "END=150;SVLEN=.", 150),
        ("T", "<DEL>", "END=90;SVLEN=49", 150),  # before POS
        ("T", "<DEL:ME>", "SVLEN=49", 150),
        ("T", "<DUP>", "SVLEN=49", 150),
        ("T", "<DUP:TANDEM>", "SVLEN=49", 150),
        ("T", "<INV>", "SVLEN=49", 150),
        ("T", "<CNV:TR>", "SVLEN=49", 150),
        ("T", "<CN0>,<CN2>", "SVTYPE=CNV;END=150", 150),
        ("T", "<INS>", "SVLEN=49", 101),
        ("T", "<INS>", "SVTYPE=DUP;SVLEN=49", 150),  # rather more than less
        ("T", "<del>", "SVTYPE=del;SVLEN=-49", 150),
        ("T", "T[c1:150[", "SVTYPE=DEL;END=150;SVLEN=-49", 150),
        ("T", "T]c1:150]", "SVTYPE=INV;END=150", 150),
        ("T", "<INS:ME:ALU>", "SVTYPE=INS;SVLEN=280;END=101", 101),
        ("T", "<DEL>,<INS>", "SVLEN=-20,400", 121),
        ("T", "<INS>,<DEL>,<DUP>", "SVLEN=400,-20,49", 150),
        ("T", "<DEL>,<INS>", "SVLEN=-20", 121),  # one value for two ALT
        ("T", "C,<DEL>", "SVLEN=.,-49", 150),
        ("N", "N", "SVTYPE=DEL;SVLEN=-49", 150),  # callers that write no symbol
        ("T", "TACGTACGT", "SVTYPE=INS;SVLEN=8", 101),
        ("T", "<NON_REF>", "END=150", 150),
        ("T", "C,<NON_REF>", "DP=3", 101),
        ("T", ".", "END=150", 150),
        ("T", "*", ".", 101),
    ],
)
def test_ends_of_records(tmp_path, ref, alt, info, end):
    columns = ("c1", "101", ".", ref, alt, ".", ".", info)
    assert place_of(tmp_path, columns) == ((100, end), {})


def test_a_reference_block_of_version_4_5_and_a_telomere(tmp_path):
    """LEN counts from POS: 101 and 50 bases are [100, 150). POS 0 is before the first base."""
    block = ("c1", "101", ".", "T", "<*>", ".", ".", ".", "GT:LEN:DP", "0/0:50:3", "0/0:20", ".")
    assert place_of(tmp_path, block) == ((100, 150), {})
    assert place_of(tmp_path, ("c1", "0", ".", "N", "C", ".", ".", ".")) == ((0, 1), {})


@pytest.mark.parametrize(
    ("alt", "info", "why"),
    [
        ("G]c2:500]", "SVTYPE=BND", Shortened.BREAKEND),
        ("[c1:500[G", ".", Shortened.BREAKEND),
        ("G.", "SVTYPE=BND", Shortened.BREAKEND),
        (".G", ".", Shortened.BREAKEND),
        ("<BND>", "SVTYPE=BND;CHR2=c2;END=20000", Shortened.BREAKEND),
        ("<TRA>", "SVTYPE=TRA;CHR2=c2;END=20000", Shortened.BREAKEND),  # END on the other contig
        ("G]c2:500],C", ".", Shortened.BREAKEND),
        ("<DEL>", "SVTYPE=DEL", Shortened.NO_LENGTH),
        ("<INV>", "END=101", Shortened.NO_LENGTH),
        ("<UNKNOWN>", ".", Shortened.NO_LENGTH),
    ],
)
def test_what_is_not_protected_whole_is_counted(tmp_path, alt, info, why):
    columns = ("c1", "101", ".", "T", alt, ".", ".", info)
    assert place_of(tmp_path, columns) == ((100, 101), {why: 1})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("c1\tten\t.\tT\tC", "is no line of VCF"),
        ("c1\t10", "is no line of VCF"),
        ("c1\t10\t.\tT\t<DEL>\t.\t.\tEND=far", "END=far"),
        ("c1\t10\t.\tT\t<DEL>\t.\t.\tSVLEN=1.5", "SVLEN=1.5"),
    ],
)
def test_broken_lines_are_named(tmp_path, line, message):
    path = write_vcf(tmp_path / "x.vcf", [line])
    with pytest.raises(UserError, match=f"x.vcf line 3: {message}"):
        list(variant_places(path, Counter()))


def written(tmp_path, form, text=HEADER + DELETION):
    """Write a VCF in one of the forms, and return its path."""
    plain = tmp_path / "plain.vcf"
    plain.write_text(text)
    path = tmp_path / form
    if form.endswith(".bcf"):
        write_bcf(path, plain)
    elif form.endswith(("bgz", "bgzip")):
        with pysam.BGZFile(str(path), "w", index=None) as sink:
            sink.write(text.encode())
    else:
        data = text.encode()
        path.write_bytes(gzip.compress(data) if "gz" in form else data)
    return path


FORMS = ["e.vcf", "e.VCF", "e.vcf.gz", "e.vcf.bgz", "e.bcf", "e.bed", "e.txt", "e_gz", "e_bgzip"]


@pytest.mark.parametrize("form", FORMS)
def test_the_content_tells_a_vcf_whatever_its_name(tmp_path, form):
    config = EvaluationConfig(path=str(written(tmp_path, form)), assembly="g")
    assembly = AssemblyConfig(genome="g.fa")
    places, warnings = evaluation_places(config, assembly, {"c1": LENGTH_BP})
    assert [(place.start, place.end) for place in places] == [(11_999, 18_000)]
    assert warnings == []


@pytest.fixture
def genome(tmp_path):
    return write_fasta(tmp_path / "g.fa", {"c1": random_bases(LENGTH_BP, 8)})


def settings_of(genome, evaluation):
    settings = [f"genome={genome}", "name=g", "holdout=[]", "sources=['genome']"]
    settings = [f"assemblies.0.{each}" for each in settings]
    settings += [f"evaluations.0.path={evaluation}", "evaluations.0.assembly=g"]
    return [*settings, "cut.chunk_bp=1000", "keep.near_identity=1.0"]


def test_a_symbolic_deletion_leaves_no_record_inside(tmp_path, genome):
    """[11999, 18000) shares a base with the chunks of 1,000 from 11,000 to 17,999."""
    assert build(tmp_path / "c", *settings_of(genome, written(tmp_path, "e.bcf"))) == 0
    starts = [row["start"] for row in read_source(tmp_path / "c", "genome", "train").to_pylist()]
    assert starts == [*range(0, 11_000, 1000), *range(18_000, 30_000, 1000)]
    assert read_manifest(tmp_path / "c")["dropped"] == {"genome:overlaps_evaluation": 7}


def test_what_is_left_out_is_reported(tmp_path, capsys, genome):
    more = (
        "c1\t20001\tb\tT\tT[c1:500[\t.\t.\tSVTYPE=BND\n"
        "c1\t25001\ts\tT\t<DUP>\t.\t.\tSVTYPE=DUP\n"
        "c9\t20001\tb\tT\tC\t.\t.\t.\n"
    )
    path = written(tmp_path, "e.vcf", HEADER + DELETION + more)
    assert build(tmp_path / "c", *settings_of(genome, path)) == 0
    warnings = [
        f"warning: {path}: 1 breakends: only REF is protected, not the place of the mate",
        f"warning: {path}: 1 symbolic alleles without END or SVLEN: only REF is protected",
        f"warning: {path}: 1 of 4 places lie outside of assembly 'g'",
    ]
    told = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert told == warnings
    assert read_manifest(tmp_path / "c")["inputs"][0]["warning"].splitlines() == warnings


def test_places_need_an_assembly(tmp_path, capsys, genome):
    path = written(tmp_path, "e.bcf")
    settings = [x for x in settings_of(genome, path) if x != "evaluations.0.assembly=g"]
    assert build(tmp_path / "c", *settings) == 2
    assert "e.bcf: has places and no sequences" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["e.vcf.bgz", "e.bcf"])
def test_a_file_that_is_cut_off_is_refused(tmp_path, form):
    path = written(tmp_path, form)
    path.write_bytes(path.read_bytes()[:-28])
    with pytest.raises(UserError, match=f"{form}: is broken or cut off"):
        list(variant_places(path, Counter()))


@pytest.mark.parametrize(
    ("circular", "expected"),
    [((), [(0, 105), (898, 1099)]), ({"c1"}, [(902, 1000), (0, 105), (898, 1000), (0, 99)])],
)
def test_a_margin_goes_over_the_origin_of_a_circular_contig(tmp_path, circular, expected):
    """A contig of 1,000 bp, and places at 2-5 and 998-999 with 100 bp on either side."""
    (tmp_path / "e.bed").write_text("c1\t2\t5\nc1\t998\t999\n")
    config = EvaluationConfig(path=str(tmp_path / "e.bed"), assembly="g", margin_bp=100)
    assembly = AssemblyConfig(genome="g.fa")
    places, warnings = evaluation_places(config, assembly, {"c1": 1000}, circular)
    assert [(place.start, place.end) for place in places] == expected
    assert warnings == []


def test_the_margin_of_a_place_on_another_contig_brings_it_nowhere(tmp_path):
    """A place at the beginning of c9, which the assembly lacks, counts as outside of it."""
    (tmp_path / "e.bed").write_text("c1\t2\t5\nc9\t2\t5\n")
    config = EvaluationConfig(path=str(tmp_path / "e.bed"), assembly="g", margin_bp=100)
    places, warnings = evaluation_places(config, AssemblyConfig(genome="g.fa"), {"c1": 1000})
    assert [(place.contig, place.start, place.end) for place in places] == [("c1", 0, 105)]
    assert [line.partition(": ")[2].partition(": ")[2] for line in warnings] == [
        "1 of 2 places lie outside of assembly 'g'"
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["path=e.fa", "margin_bp=5"], "evaluations.0.margin_bp: is of places"),
        (["path=e.bed", "assembly=g", "shared=0.9"], "evaluations.0.shared: is of sequences"),
    ],
)
def test_keys_of_the_other_kind_of_evaluation_are_refused(tmp_path, capsys, settings, message):
    genome = ["assemblies.0.genome=g.fa", "assemblies.0.name=g"]
    assert build(tmp_path / "c", *genome, *(f"evaluations.0.{each}" for each in settings)) == 2
    assert message in capsys.readouterr().err

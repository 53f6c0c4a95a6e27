"""GenBank flat files written by hand, so that every place is known."""

import gzip

import pytest

from carbon.errors import GenomeError
from carbon.genome import (
    Interval,
    Reference,
    is_genbank,
    reverse_complement,
    spliced,
    unpack_genbank,
)
from tests.helpers.files import random_bases

BASES = random_bases(300, 7)


def flat_file(features, bases=BASES, topology="circular", locus_bp=None, name="AB1", kind="DNA"):
    """Return a record; `features` are (kind, location, *qualifiers)."""
    lines = [
        f"LOCUS       {name:<16} {locus_bp or len(bases):>11} bp    {kind:<6}  {topology} BCT "
        "01-JAN-2020",
        "DEFINITION  made by hand.",
        f"ACCESSION   {name}",
        f"VERSION     {name}.1",
        "SOURCE      Testus testus",
        "  ORGANISM  Testus testus",
        "            Bacteria; Proteobacteria; Testales.",
        "FEATURES             Location/Qualifiers",
    ]
    for what, location, *qualifiers in features:
        lines.append(f"     {what:<16}{location}")
        lines += [" " * 21 + qualifier for qualifier in qualifiers]
    lines.append("ORIGIN")
    for at in range(0, len(bases), 60):
        row = bases[at : at + 60].lower()
        lines.append(f"{at + 1:>9} " + " ".join(row[i : i + 10] for i in range(0, len(row), 10)))
    return "\n".join([*lines, "//", ""])


def read(tmp_path, text):
    (tmp_path / "x.gb").write_text(text)
    return unpack_genbank(tmp_path / "x.gb", tmp_path / "x.fa")


@pytest.mark.parametrize(
    ("features", "biotype"),
    [
        ([("gene", "1..9", '/gene="g"'), ("tRNA", "1..9", '/gene="g"')], "tRNA"),
        ([("gene", "1..9", '/gene="g"', "/pseudo")], "pseudogene"),
        ([("CDS", "1..9", '/gene="g"', "/pseudo")], "pseudogene"),
        ([("ncRNA", "1..9", '/gene="g"', '/ncRNA_class="other"')], "ncRNA"),
        ([("tmRNA", "1..9", '/gene="g"')], "tmRNA"),
    ],
)
def test_biotypes(tmp_path, features, biotype):
    (gene,) = read(tmp_path, flat_file(features)).annotation.genes
    assert gene.biotype == biotype


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no record that begins with LOCUS"),
        (">a\nACGT\n", "has no record that begins with LOCUS"),
        (flat_file([], locus_bp=400), "LOCUS says 400 bases, and 300 are there"),
        (flat_file([]) * 2, r"record 2 \(AB1\.1\): occurs twice"),
        (flat_file([], bases=""), "has no sequence"),
        (flat_file([])[:600], "not GenBank|has no sequence|are there"),
    ],
)
def test_damage_is_named(tmp_path, text, message):
    with pytest.raises(GenomeError, match=message) as error:
        read(tmp_path, text)
    assert "x.gb" in str(error.value) and "\n" not in str(error.value)
    packed = gzip.compress(flat_file([("CDS", "1..9", '/gene="g"')]).encode())
    (tmp_path / "x.gb.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(GenomeError, match=r"x\.gb\.gz: broken after line"):
        unpack_genbank(tmp_path / "x.gb.gz", tmp_path / "x.fa")


def test_what_is_genbank(tmp_path):
    (tmp_path / "a").write_text(flat_file([]))
    (tmp_path / "b").write_bytes(gzip.compress(flat_file([]).encode()))
    (tmp_path / "c").write_text(">LOCUS\nACGT\n")
    (tmp_path / "d").write_text("")
    assert [is_genbank(tmp_path / name) for name in "abcd"] == [True, True, False, False]


PLACES = [  # the bases of c1 that are read, and whether along the reverse strand
    ("11..40", [(10, 40)], "+"),
    ("complement(11..40)", [(10, 40)], "-"),
    ("join(11..20,31..40)", [(10, 20), (30, 40)], "+"),
    ("complement(join(11..20,31..40))", [(10, 20), (30, 40)], "-"),
    ("join(complement(31..40),complement(11..20))", [(10, 20), (30, 40)], "-"),
    ("join(281..300,1..10)", [(280, 300), (0, 10)], "+"),
    ("complement(join(281..300,1..10))", [(280, 300), (0, 10)], "-"),
    ("join(270..280,291..300,1..9)", [(269, 280), (290, 300), (0, 9)], "+"),
    ("join(11..40,40..60)", [(10, 40), (39, 60)], "+"),  # a base read twice
]


@pytest.mark.parametrize(("location", "spans", "strand"), PLACES)
def test_places(tmp_path, location, spans, strand):
    slips = ["/ribosomal_slippage"] * (location == "join(11..40,40..60)")
    found = read(tmp_path, flat_file([("CDS", location, '/locus_tag="a1"', *slips)]))
    ((transcript,),) = (gene.transcripts for gene in found.annotation.genes)
    assert transcript.strand == strand
    assert transcript.exons == (((10, 60),) if slips else transcript.cds)
    expected = "".join(BASES[start:end] for start, end in spans)
    with Reference(tmp_path / "x.fa") as reference:
        bases = spliced(reference, "AB1.1", transcript.cds, strand)
    assert bases == (expected if strand == "+" else reverse_complement(expected))
    assert found.annotation.circular == {"AB1.1"}
    assert (found.organism, found.taxonomy[0]) == ("Testus testus", "Bacteria")


@pytest.mark.parametrize(
    ("location", "topology", "reason"),
    [
        ("J00194.1:11..20", "circular", "lies_on_another_record"),
        ("order(11..20,31..40)", "circular", "location_not_exact"),
        ("join(281..300,1..10)", "linear  ", "parts_out_of_order"),
    ],
)
def test_what_cannot_be_placed_is_dropped_with_its_reason(tmp_path, location, topology, reason):
    features = [("CDS", location, '/locus_tag="odd"'), ("CDS", "50..79", '/locus_tag="fine"')]
    annotation = read(tmp_path, flat_file(features, topology=topology)).annotation
    assert [(each.name, each.reason) for each in annotation.left_out] == [("odd", reason)]
    assert [gene.gene_id for gene in annotation.genes] == ["fine"]
    if "order" in reason:
        places = [(each.start, each.end) for each in annotation.left_out[0].intervals]
        assert places == [(0, 10), (280, 300)]


def test_a_cds_finds_the_messenger_that_is_spliced_as_it_is(tmp_path):
    features = [
        ("gene", "11..200", '/gene="g"'),
        ("mRNA", "join(11..50,101..200)", '/gene="g"', '/transcript_id="T1"'),
        ("mRNA", "join(11..60,121..200)", '/gene="g"', '/transcript_id="T2"'),
        ("CDS", "join(31..60,121..150)", '/gene="g"', '/protein_id="P2"'),
        ("CDS", "join(31..50,101..120)", '/gene="g"', '/protein_id="P1"'),
        ("CDS", "31..90", '/gene="g"', '/protein_id="P3"'),
    ]
    (gene,) = read(tmp_path, flat_file(features)).annotation.genes
    assert (gene.biotype, gene.interval) == ("protein_coding", Interval("AB1.1", 10, 200))
    assert {t.transcript_id: (t.exons, t.cds) for t in gene.transcripts} == {
        "T1": (((10, 50), (100, 200)), ((30, 50), (100, 120))),
        "T2": (((10, 60), (120, 200)), ((30, 60), (120, 150))),
        "P3": (((30, 90),), ((30, 90),)),
    }


@pytest.mark.parametrize(
    ("qualifier", "location", "incomplete"),
    [
        ("/pseudo", "1..9", True),
        ('/exception="RNA editing"', "1..9", True),
        ("/transl_except=(pos:7..9,aa:TERM)", "1..9", True),
        ("/transl_except=(pos:4..6,aa:Sec)", "1..9", False),
        ('/note="x"', "<1..9", True),
        ('/note="x"', "1..>9", True),
        ('/note="x"', "1..9", False),
    ],
)
def test_incomplete_cds_are_marked(tmp_path, qualifier, location, incomplete):
    (gene,) = read(
        tmp_path, flat_file([("CDS", location, '/gene="g"', qualifier)])
    ).annotation.genes
    assert gene.transcripts[0].incomplete == incomplete


def test_genes_of_one_name_and_parts_behind_the_origin(tmp_path):
    features = [
        ("tRNA", "11..40", '/gene="trnM"'),
        ("tRNA", "211..240", '/gene="trnM"'),
        ("CDS", "51..80", '/product="hypothetical protein"'),
        ("CDS", "101..130", '/product="hypothetical protein"'),
    ]
    genes = read(tmp_path, flat_file(features)).annotation.genes
    spans = [(gene.interval.start, gene.interval.end) for gene in genes]
    assert spans == [(10, 40), (50, 80), (100, 130), (210, 240)]
    across = ("gene", "join(281..300,1..60)", '/gene="g"')
    (gene,) = read(tmp_path, flat_file([across, ("CDS", "11..40", '/gene="g"')])).annotation.genes
    assert gene.interval == Interval("AB1.1", 280, 360)
    assert gene.transcripts[0].cds == ((310, 340),)

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
    ("location", "expected", "strand"),
    [
        ("11..40", BASES[10:40], "+"),
        ("complement(11..40)", reverse_complement(BASES[10:40]), "-"),
        ("join(11..20,31..40)", BASES[10:20] + BASES[30:40], "+"),
        (
            "complement(join(11..20,31..40))",
            reverse_complement(BASES[10:20] + BASES[30:40]),
            "-",
        ),
        (
            "join(complement(31..40),complement(11..20))",
            reverse_complement(BASES[10:20] + BASES[30:40]),
            "-",
        ),
        ("join(281..300,1..10)", BASES[280:] + BASES[:10], "+"),
        ("complement(join(281..300,1..10))", reverse_complement(BASES[280:] + BASES[:10]), "-"),
        ("join(270..280,291..300,1..9)", BASES[269:280] + BASES[290:] + BASES[:9], "+"),
    ],
)
def test_places(tmp_path, location, expected, strand):
    found = read(tmp_path, flat_file([("CDS", location, '/locus_tag="a1"')]))
    ((transcript,),) = (gene.transcripts for gene in found.annotation.genes)
    assert transcript.strand == strand
    with Reference(tmp_path / "x.fa") as reference:
        assert spliced(reference, "AB1.1", transcript.cds, strand) == expected
    assert found.annotation.circular == {"AB1.1"}
    assert (found.organism, found.taxonomy[0]) == ("Testus testus", "Bacteria")


def test_slippage_reads_a_base_twice(tmp_path):
    told = ('/gene="s"', "/ribosomal_slippage")
    found = read(tmp_path, flat_file([("CDS", "join(11..40,40..60)", *told)]))
    ((transcript,),) = (gene.transcripts for gene in found.annotation.genes)
    assert transcript.cds == ((10, 40), (39, 60)) and transcript.exons == ((10, 60),)
    with Reference(tmp_path / "x.fa") as reference:
        bases = spliced(reference, "AB1.1", transcript.cds, "+")
    assert bases == BASES[10:40] + BASES[39:60]


@pytest.mark.parametrize(
    ("location", "qualifier", "reason"),
    [
        ("J00194.1:11..20", '/gene="x"', "lies_on_another_record"),
        ("order(11..20,31..40)", '/gene="x"', "location_not_exact"),
    ],
)
def test_what_cannot_be_placed_is_dropped_with_its_reason(tmp_path, location, qualifier, reason):
    whole = ("CDS", "50..79", '/locus_tag="fine"')
    odd = ("CDS", location, '/locus_tag="odd"', qualifier)
    found = read(tmp_path, flat_file([odd, whole]))
    assert [(each.name, each.reason) for each in found.annotation.left_out] == [("odd", reason)]
    assert [gene.gene_id for gene in found.annotation.genes] == ["fine"]


def test_parts_out_of_order_on_a_line(tmp_path):
    text = flat_file([("CDS", "join(281..300,1..10)", '/gene="g"')], topology="linear  ")
    (left_out,) = read(tmp_path, text).annotation.left_out
    assert (left_out.name, left_out.reason, left_out.gene) == ("g", "parts_out_of_order", "g")
    assert left_out.intervals == (Interval("AB1.1", 0, 10), Interval("AB1.1", 280, 300))


def test_a_cds_finds_the_messenger_that_is_spliced_as_it_is(tmp_path):
    found = read(
        tmp_path,
        flat_file(
            [
                ("gene", "11..200", '/gene="g"'),
                ("mRNA", "join(11..50,101..200)", '/gene="g"', '/transcript_id="T1"'),
                ("mRNA", "join(11..60,121..200)", '/gene="g"', '/transcript_id="T2"'),
                ("CDS", "join(31..60,121..150)", '/gene="g"', '/protein_id="P2"'),
                ("CDS", "join(31..50,101..120)", '/gene="g"', '/protein_id="P1"'),
                ("CDS", "31..90", '/gene="g"', '/protein_id="P3"'),
            ]
        ),
    )
    (gene,) = found.annotation.genes
    assert gene.biotype == "protein_coding" and (gene.interval.start, gene.interval.end) == (
        10,
        200,
    )
    spans = {t.transcript_id: (t.exons, t.cds) for t in gene.transcripts}
    assert spans == {
        "T1": (((10, 50), (100, 200)), ((30, 50), (100, 120))),
        "T2": (((10, 60), (120, 200)), ((30, 60), (120, 150))),
        "P3": (((30, 90),), ((30, 90),)),
    }


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
    found = read(tmp_path, flat_file([("CDS", location, '/gene="g"', qualifier)]))
    ((transcript,),) = (gene.transcripts for gene in found.annotation.genes)
    assert transcript.incomplete == incomplete


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


def test_a_broken_gzip_stream(tmp_path):
    packed = gzip.compress(flat_file([("CDS", "1..9", '/gene="g"')]).encode())
    (tmp_path / "x.gb.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(GenomeError, match=r"x\.gb\.gz: broken after line"):
        unpack_genbank(tmp_path / "x.gb.gz", tmp_path / "x.fa")
    with pytest.raises(GenomeError, match="no such file"):
        unpack_genbank(tmp_path / "none.gb", tmp_path / "x.fa")


def test_what_is_genbank(tmp_path):
    (tmp_path / "a").write_text(flat_file([]))
    (tmp_path / "b").write_bytes(gzip.compress(flat_file([]).encode()))
    (tmp_path / "c").write_text(">LOCUS\nACGT\n")
    (tmp_path / "d").write_text("")
    assert [is_genbank(tmp_path / name) for name in "abcd"] == [True, True, False, False]


def test_two_genes_of_one_name_are_two(tmp_path):
    found = read(
        tmp_path,
        flat_file(
            [
                ("tRNA", "11..40", '/gene="trnM"'),
                ("tRNA", "211..240", '/gene="trnM"'),
                ("CDS", "51..80", '/product="hypothetical protein"'),
                ("CDS", "101..130", '/product="hypothetical protein"'),
            ]
        ),
    )
    spans = [(gene.interval.start, gene.interval.end) for gene in found.annotation.genes]
    assert spans == [(10, 40), (50, 80), (100, 130), (210, 240)]


def test_parts_behind_the_origin_are_brought_to_their_gene(tmp_path):
    gene = ("gene", "join(281..300,1..60)", '/gene="g"')
    found = read(tmp_path, flat_file([gene, ("CDS", "11..40", '/gene="g"')]))
    (gene,) = found.annotation.genes
    assert (gene.interval.start, gene.interval.end) == (280, 360)
    assert gene.transcripts[0].cds == ((310, 340),)

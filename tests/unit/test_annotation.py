"""What annotations leave unsaid or say in other words, each on random bases that are known.

Spans below are 0-based and half-open; lines of files are 1-based and inclusive.
"""

import gc
import gzip
from dataclasses import replace
from itertools import pairwise

import pytest
from Bio.Seq import Seq

from carbon.errors import GenomeError
from carbon.genome import (
    Consequences,
    Interval,
    Reference,
    Variant,
    intergenic,
    read_annotation,
    unpack_genbank,
)
from carbon.genome.annotation import cds_of_unknown_code, rare_collections
from data_pipeline.variants import _intergenic
from demo.pieces import pieces_of_kinds
from tests.helpers.files import random_bases, write_fasta
from tests.unit.test_genbank import flat_file

BP = 900
BASES = {"c1": random_bases(BP, 11), "c2": random_bases(BP, 12)}


def gff3(*lines):
    """Return lines of GFF3; each is (kind, first, last, strand, phase, attributes[, contig])."""
    return "##gff-version 3\n" + "".join(
        f"{(rest or ['c1'])[0]}\tx\t{kind}\t{first}\t{last}\t.\t{strand}\t{phase}\t{attributes}\n"
        for kind, first, last, strand, phase, attributes, *rest in lines
    )


def read(tmp_path, text, name="a.gff3"):
    path = tmp_path / name
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    reference = Reference(write_fasta(tmp_path / "g.fa", BASES))
    return reference, read_annotation(path, reference)


def transcripts_of(annotation):
    return [t for gene in annotation.genes for t in gene.transcripts]


def snv(contig, position):
    ref = BASES[contig][position]
    return Variant(contig, position, ref, "A" if ref != "A" else "C")


def term_at(reference, annotation, position, contig="c1"):
    return Consequences(reference, annotation).of(snv(contig, position))


# Exons and CDS: (first and last line numbers of the format, 0-based spans of the transcripts).

GTF = 'gene_id "g"; transcript_id "t";'
T = "ID=t;Parent=g"
GENE = ("gene", 101, 400, "+", ".", "ID=g")
MRNA = ("mRNA", 101, 400, "+", ".", T)
TWO_EXONS = [("exon", 101, 190, "+", ".", "Parent=t"), ("exon", 301, 400, "+", ".", "Parent=t")]


def utrs_and_cds(strand):
    left, right = ("five", "three") if strand == "+" else ("three", "five")
    return [
        ("gene", 101, 400, strand, ".", "ID=g"),
        ("mRNA", 101, 400, strand, ".", T),
        (f"{right}_prime_UTR", 381, 400, strand, ".", "Parent=t"),
        ("CDS", 301, 380, strand, 0, "ID=p;Parent=t"),
        ("CDS", 151, 190, strand, 0, "ID=p;Parent=t"),
        (f"{left}_prime_UTR", 141, 150, strand, ".", "Parent=t"),
        (f"{left}_prime_UTR", 101, 120, strand, ".", "Parent=t"),
    ]


def exons_numbered(*numbers):
    spans = ((101, 140), (201, 260), (401, 470))
    return [
        ("exon", *span, "+", ".", GTF + f' exon_number "{n}";' * (n is not None))
        for span, n in zip(spans, numbers, strict=True)
    ]


UNION = [(((100, 120), (140, 190), (300, 400)), ((150, 190), (300, 380)))]
EXONS = {
    "the union of UTRs and CDS": ("a.gff3", utrs_and_cds("+"), UNION),
    "the same on the reverse strand, gzip": ("a.gff3.gz", utrs_and_cds("-"), UNION),
    **{
        f"a GTF without exons, its stop codon between CDS and {utr3}": (
            "a.gtf",
            [(utr5, 101, 120, "+", ".", GTF), ("CDS", 121, 150, "+", 0, GTF),
             ("stop_codon", 151, 153, "+", 0, GTF), (utr3, 154, 180, "+", ".", GTF)],
            [(((100, 180),), ((120, 153),))],
        )
        for utr5, utr3 in (("five_prime_utr", "three_prime_utr"), ("UTR", "UTR"),
                           ("5UTR", "3UTR"), ("5'UTR", "3'UTR"))
    },
    "exons of the file stand, whatever a UTR over the intron says": (
        "a.gff3",
        [GENE, MRNA, *TWO_EXONS, ("five_prime_UTR", 101, 310, "+", ".", "Parent=t"),
         ("CDS", 311, 340, "+", 0, "Parent=t")],
        [(((100, 190), (300, 400)), ((310, 340),))],
    ),
    "exons that are given in part are completed": (
        "a.gff3",
        [("mRNA", 101, 400, "+", ".", "ID=t"), TWO_EXONS[0],
         ("CDS", 161, 190, "+", 0, "Parent=t"), ("CDS", 301, 330, "+", 0, "Parent=t"),
         ("three_prime_UTR", 331, 400, "+", ".", "Parent=t")],
        [(((100, 190), (300, 400)), ((160, 190), (300, 330)))],
    ),
    **{
        f"a {kind} is an exon": (
            "a.gff3",
            [GENE, MRNA, (kind, 101, 190, "+", ".", "Parent=t"),
             ("CDS", 131, 190, "+", 0, "Parent=t")],
            [(((100, 190),), ((130, 190),))],
        )
        for kind in ("noncoding_exon", "Exon")
    },
    "a UTR that juts out of its exon": (
        "a.gff3",
        [("gene", 201, 450, "+", ".", "ID=q"), ("mRNA", 201, 450, "+", ".", "ID=t;Parent=q"),
         ("exon", 291, 340, "+", ".", "Parent=t"), ("exon", 381, 420, "+", ".", "Parent=t"),
         ("five_prime_UTR", 201, 300, "+", ".", "Parent=t"),
         ("CDS", 301, 340, "+", 0, "ID=p;Parent=t"), ("CDS", 381, 410, "+", 2, "ID=p;Parent=t"),
         ("three_prime_UTR", 411, 450, "+", ".", "Parent=t")],
        [(((200, 340), (380, 450)), ((300, 340), (380, 410)))],
    ),
    "UTRs below the gene are of its one coding transcript": (
        "a.gff3",
        [GENE, ("five_prime_UTR", 101, 120, "+", ".", "Parent=g"), MRNA,
         ("CDS", 121, 180, "+", 0, "ID=p;Parent=t")],
        [(((100, 180),), ((120, 180),))],
    ),
    "one transcript ID of two genes": (
        "a.gff3",
        [line for at, gene in ((101, "g"), (501, "h")) for line in (
            ("gene", at, at + 89, "+", ".", f"ID={gene}"),
            ("mRNA", at, at + 89, "+", ".", f"ID=rna-NM_1;Parent={gene}"),
            ("CDS", at, at + 89, "+", 0, "ID=p;Parent=rna-NM_1"))],
        [(((100, 190),),) * 2, (((500, 590),),) * 2],
    ),
    "one transcript ID on two strands of a GTF": (
        "a.gtf",
        [("CDS", 101, 190, "+", 0, GTF), ("CDS", 501, 590, "-", 0, GTF)],
        [(((100, 190),),) * 2, (((500, 590),),) * 2],
    ),
    "parts of one CDS with IDs of their own": (
        "a.gff3",
        [("gene", 101, 190, "+", ".", "ID=g"), ("CDS", 161, 190, "+", 0, "ID=p.2;Parent=g"),
         ("CDS", 101, 140, "+", 0, "ID=p.1;Parent=g")],
        [(((100, 140), (160, 190)),) * 2],
    ),
    "IDs that are escaped": (
        "a.gff3",
        [("mRNA", 101, 190, "+", ".", "ID=t%2C1"), ("exon", 101, 190, "+", ".", "Parent=t%2C1"),
         ("exon", 301, 390, "+", ".", "Parent=t%2c1")],
        [(((100, 190), (300, 390)), ())],
    ),
    "a base that the ribosome skips is no intron": (
        "a.gff3",
        [("gene", 101, 190, "+", ".", "ID=g"),
         *(("CDS", *span, "+", 0, "ID=p;Parent=g;exception=ribosomal slippage")
           for span in ((101, 130), (132, 161)))],
        [(((100, 161),), ((100, 130), (131, 161)))],
    ),
    **{
        f"a GTF whose CDS ends at {last}, with {len(stop)} stop_codon": (
            "a.gtf",
            [*stop, ("CDS", 111, last, "+", 0, GTF), ("exon", 111, 160, "+", ".", GTF)],
            [(((110, 160),), ((110, end),))],
        )
        for stop, last, end in (
            ([("stop_codon", 138, 140, "+", 0, GTF)], 137, 140),
            ([("stop_codon", 138, 140, "+", 0, GTF)], 140, 140),
            ([], 137, 137),
        )
    },
    **{
        f"exons with the numbers {numbers} are one transcript": (
            "a.gtf", exons_numbered(*numbers), [(((100, 140), (200, 260), (400, 470)), ())]
        )
        for numbers in ((1, 1, 1), (3, 2, 1), (None, None, None))
    },
    "a transcript of several lines below one gene is one": (
        "a.gff3",
        [("gene", 101, 590, "+", ".", "ID=g"), ("mRNA", 101, 190, "+", ".", T),
         ("mRNA", 501, 590, "+", ".", T), ("CDS", 101, 190, "+", 0, "ID=p;Parent=t"),
         ("CDS", 501, 590, "+", 0, "ID=p;Parent=t")],
        [(((100, 190), (500, 590)),) * 2],
    ),
    "a gene over the origin in two lines is one": (
        "a.gff3",
        [("region", 1, BP, "+", ".", "ID=c;Is_circular=true"),
         ("gene", 871, BP, "+", ".", "ID=g"), ("gene", 1, 30, "+", ".", "ID=g"),
         ("CDS", 871, BP, "+", 0, "ID=p;Parent=g"), ("CDS", 1, 30, "+", 0, "ID=p;Parent=g")],
        [(((870, BP + 30),),) * 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EXONS)
def test_exons_and_cds(tmp_path, case):
    name, lines, expected = EXONS[case]
    _, annotation = read(tmp_path, gff3(*lines), name)
    assert [(t.exons, t.cds) for t in transcripts_of(annotation)] == expected
    assert {t.strand for t in transcripts_of(annotation)} == {line[3] for line in lines}
    assert annotation.left_out == ()
    for transcript, (exons, _) in zip(transcripts_of(annotation), expected, strict=True):
        introns = pairwise(exons)
        assert transcript.introns == tuple((left[1], right[0]) for left, right in introns)


@pytest.mark.parametrize("with_gene", [True, False])
def test_a_genbank_record_with_utrs_and_no_messenger(tmp_path, with_gene):
    features = [("gene", "101..200", '/gene="g"')] * with_gene + [
        ("5'UTR", "101..120", '/gene="g"'),
        ("CDS", "join(121..140,161..180)", '/gene="g"'),
        ("3'UTR", "181..200", '/gene="g"'),
        ("CDS", "231..260", '/gene="h"'),
        ("5'UTR", "211..230"),  # of no gene
    ]
    (tmp_path / "x.gb").write_text(flat_file(features))
    annotation = unpack_genbank(tmp_path / "x.gb", tmp_path / "x.fa").annotation
    assert [t.exons for t in transcripts_of(annotation)] == [
        ((100, 140), (160, 200)), ((230, 260),)
    ]  # fmt: skip
    assert annotation.genes[0].interval == Interval("AB1.1", 100, 200)


# Marks.

AS_GFF3 = [
    ("PSEUDO=TRUE", True), ("pseudo=1", True), ("pseudo", True), (" pseudo = true ", True),
    ("Pseudogene=allelic", True), ("pseudo=%74rue", True),
    ("exception=RNA%20editing", True), ("exception=ribosomal slippage,RNA editing", True),
    ("pseudo=false", False), ("pseudo=0", False), ("pseudogene=no", False),
    ("Note=pseudo=true is not meant", False), ("product=exception=none", False),
    ("Exception=Ribosomal_Slippage", False), ("ribosomal_slippage=true", False),
    ("Note=partial=true", False), ("Note=with cds_start_NF in it", False),
]  # fmt: skip
AS_GTF = [
    ('pseudo "True";', True), ("pseudo;", True), ("pseudo 1 ;", True), ('exception "a; b";', True),
    ('gene_biotype "unprocessed_pseudogene";', True),
    ('note "pseudo "; note "exception of x";', False), ('pseudo "false";', False),
    ('exception "ribosomal slippage";', False), ('note "x; pseudo; y";', False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "mark", "is_marked"),
    [("a.gff3", *row) for row in AS_GFF3] + [("a.gtf", *row) for row in AS_GTF],
)
def test_marks_are_read_by_key(tmp_path, name, mark, is_marked):
    text = gff3(
        ("gene", 101, 190, "+", ".", "ID=g"),
        ("CDS", 101, 190, "+", 0, f"ID=p;Parent=g;{mark}"),
    )
    if name == "a.gtf":
        told = f"{GTF} {mark}"
        text = gff3(("exon", 101, 190, "+", ".", told), ("CDS", 101, 190, "+", 0, told))
    (transcript,) = transcripts_of(read(tmp_path, text, name)[1])
    assert (transcript.phase_bp is None) == is_marked and transcript.incomplete == is_marked
    assert transcript.cds == ((100, 190),)


PSEUDOGENES = [
    ("pseudogene", "", True),
    ("gene", ";pseudogene=unitary", True),
    ("gene", ";gene_biotype=pseudogene", True),
    ("gene", ";biotype=transcribed_processed_pseudogene", True),
    ("gene", ";biotype=polymorphic_pseudogene", False),
    ("gene", ";biotype=protein_coding", False),
]


@pytest.mark.parametrize(("kind", "more", "is_pseudo"), PSEUDOGENES)
def test_a_pseudogene_by_its_own_line(tmp_path, kind, more, is_pseudo):
    lines = [
        (kind, 201, 500, "+", ".", f"ID=q{more}"),
        ("mRNA", 201, 500, "+", ".", "ID=t;Parent=q"),
        ("CDS", 301, 390, "+", 0, "ID=p;Parent=t"),
    ]
    (transcript,) = transcripts_of(read(tmp_path, gff3(*lines))[1])
    assert (transcript.phase_bp is None, transcript.incomplete) == (is_pseudo, is_pseudo)


PARTIAL = [
    ("+", "partial=10", False, True), ("-", "partial=10", True, True),
    ("-", "partial=01", False, True), ("+", "partial=11", False, True),
    ("+", "partial=00", True, False), ("+", "Partial=TRUE", False, True),
    ("+", "start_range=.,101", False, True), ("-", "partial=true;start_range=.,101", True, True),
    ("+", "partial=true;end_range=190,.", True, True), ("+", "partial=false", True, False),
    ("+", "tag=basic,cds_start_NF", False, True),
]  # fmt: skip


@pytest.mark.parametrize(("strand", "mark", "has_start", "incomplete"), PARTIAL)
def test_partial_ends(tmp_path, strand, mark, has_start, incomplete):
    """Left and right are of the contig, whatever the strand."""
    pairs = [pair.split("=") for pair in mark.split(";")]
    gtf = GTF + "".join(
        f' {key} "{each}";'
        for key, value in pairs
        for each in (value.split(",") if key == "tag" else [value])
    )
    for name, told in (("a.gff", f"ID=p;{mark};start_type=Edge"), ("a.gtf", gtf)):
        (found,) = transcripts_of(read(tmp_path, gff3(("CDS", 101, 190, strand, 0, told)), name)[1])
        assert (found.has_start, found.incomplete, found.phase_bp) == (has_start, incomplete, 0)


def test_keys_and_values_in_other_spellings(tmp_path):
    """The key of the format has the capital; spaces and quotes do not turn GFF3 into GTF."""
    for told in ("id=12;name=x y;ID=g;Name=abc", 'ID = g ; Name = abc;transl_table="4"'):
        (gene,) = read(tmp_path, gff3(("gene", 101, 190, "+", ".", told)))[1].genes
        assert (gene.gene_id, gene.name) == ("g", "abc")
    lines = [
        ("gene", 301, 390, "+", ".", 'ID=q;transl_table="4"'),
        ("CDS", 301, 390, "+", 0, "ID=p;Parent=q"),
    ]
    (transcript,) = transcripts_of(read(tmp_path, gff3(*lines))[1])
    assert transcript.genetic_code == 4
    for value in ("TRUE", "1", "yes"):
        circle = ("region", 1, BP, "+", ".", f"ID=c;Is_circular={value}")
        gene = ("gene", BP - 20, BP + 30, "+", ".", "ID=g")
        _, annotation = read(tmp_path, gff3(circle, gene))
        assert annotation.circular == {"c1"} and annotation.genes[0].interval.end == BP + 30


# One identifier at several places.

BLOCK = [
    ("gene", "ID=b;Name=abc"), ("mRNA", "ID=bt;Parent=b"), ("exon", "ID=be;Parent=bt"),
    ("CDS", "ID=bp;Parent=bt"),
]  # fmt: skip


def block(first, strand="+", contig="c1", name="abc"):
    return [
        (kind, first, first + 59, strand, 0 if kind == "CDS" else ".",
         told.replace("abc", name), contig)
        for kind, told in BLOCK
    ]  # fmt: skip


@pytest.mark.parametrize(
    "second",
    [block(301, "-", "c2", "def"), block(501, name="def"), block(501, "-", name="def")],
)
def test_one_id_at_two_places_is_two_genes(tmp_path, second):
    first = block(101)
    reference, annotation = read(tmp_path, gff3(*first, *second))
    assert annotation.left_out == ()
    for name, (_, start, end, strand, _, _, contig) in (("abc", first[0]), ("def", second[0])):
        (gene,) = (each for each in annotation.genes if each.name == name)
        assert gene.interval == Interval(contig, start - 1, end) and gene.strand == strand
        ((transcript,),) = (gene.transcripts,)
        assert transcript.cds == transcript.exons == ((start - 1, end),)
    assert term_at(reference, annotation, 250).consequence == "intergenic_variant"


@pytest.mark.parametrize(
    ("lines", "strand"),
    [("transcripts", "+"), ("genes", "-"), ("numbers", "+"), ("numbers", "-")],
)
def test_one_transcript_id_at_two_loci_of_a_gtf(tmp_path, lines, strand):
    rows = []
    for at in (101, 501):
        told = 'gene_id "G"; transcript_id "NM_1";'
        numbers = (1, 2) if strand == "+" else (2, 1)
        if lines == "transcripts":
            rows.append(("transcript", at, at + 99, strand, ".", told))
        if lines == "genes":
            rows.append(("gene", at, at + 99, strand, ".", 'gene_id "G"; transcript_id "";'))
        for start, number in zip((at, at + 60), numbers, strict=True):
            more = f' exon_number "{number}";' if lines == "numbers" else ""
            rows.append(("exon", start, start + 39, strand, ".", told + more))
            rows.append(("CDS", start, start + 29, strand, 0, told + more))
    reference, annotation = read(tmp_path, gff3(*rows), "a.gtf")
    assert annotation.left_out == ()
    assert [(gene.interval, gene.transcripts[0].exons) for gene in annotation.genes] == [
        (Interval("c1", 100, 200), ((100, 140), (160, 200))),
        (Interval("c1", 500, 600), ((500, 540), (560, 600))),
    ]
    assert term_at(reference, annotation, 350).consequence == "intergenic_variant"


# What has no consequence, and is never intergenic: lines, what is left out, gene and places.

WIDE = ("gene", 201, 300, "+", ".", "ID=q;Name=q")
SPLICED = "ID=p;Parent=g;exception=trans-splicing"
UTRS = [(f"{end}_prime_UTR", at, at + 19, "+", ".", "Parent=t")
        for end, at in (("five", 101), ("three", 381))]  # fmt: skip
UNTOLD = {
    "a gene without a strand": (
        [("gene", 301, 390, ".", ".", "ID=g;Name=x")], [("g", "no_strand")], "x", [300, 389]),
    "a gene of an unknown strand with a CDS": (
        [("gene", 301, 390, "?", ".", "ID=g;Name=x"), ("CDS", 321, 350, ".", 0, "ID=p;Parent=g")],
        [("g", "no_strand")], "x", [330, 380]),
    "a CDS whose parent is not there": (
        [("CDS", 301, 330, "+", 0, "ID=p;Parent=y;gene=x"),
         ("CDS", 361, 390, "+", 0, "ID=p;Parent=y;gene=x")],
        [("y", "parent_not_in_file")], "x", [300, 345]),
    "a CDS whose parent is elsewhere": (
        [("CDS", 301, 330, "+", 0, "ID=p;Parent=y"), ("mRNA", 1, 30, "+", ".", "ID=y", "c2")],
        [("y", "parent_on_another_contig"), ("y", "transcript_without_exons")], None, [310]),
    "a transcript without exons": (
        [("tRNA", 301, 390, "+", ".", "ID=r;gene=x")], [("r", "transcript_without_exons")], "x",
        [350]),
    "parts whose order nothing tells": (
        [("gene", 301, 330, "+", ".", "ID=g;Name=x"), ("gene", 361, 390, "-", ".", "ID=g"),
         ("CDS", 301, 330, "+", 0, SPLICED), ("CDS", 361, 390, "-", 0, SPLICED)],
        [("g", "trans_splicing")], "x", [310, 370]),
    "UTRs below a gene of two coding transcripts": (
        [GENE, ("five_prime_UTR", 101, 120, "+", ".", "Parent=g"),
         *(line for name, at in (("t", 121), ("u", 201)) for line in (
             ("mRNA", 101, 400, "+", ".", f"ID={name};Parent=g"),
             ("CDS", at, at + 59, "+", 0, f"ID=p{name};Parent={name}")))],
        [("g", "utr_without_cds")], "g", [100, 110, 350]),
    "UTRs without a CDS": ([GENE, MRNA, *UTRS], [("t", "utr_without_cds")], "g", [110, 200, 390]),
    "a feature past the end that nothing uses": (
        [("tmRNA", BP - 50, BP + 40, "+", ".", "ID=s;gene=x")],
        [("s", "past_the_end_of_the_contig")], "x", [BP - 51, BP - 1]),
    "a transcript without exons that is wider than its gene": (
        [WIDE, ("mRNA", 201, 300, "+", ".", "ID=t;Parent=q"),
         ("exon", 201, 300, "+", ".", "Parent=t"), ("mRNA", 201, 450, "+", ".", "ID=w;Parent=q")],
        [("w", "transcript_without_exons")], "w", [350, 449]),
    **{
        f"a gene line of strand {strand} over a CDS of strand -": (
            [("gene", 201, 500, strand, ".", "ID=q;Name=q"),
             ("CDS", 301, 390, "-", 0, "ID=p;Parent=q")],
            [], "q", [200, 250, 480, 499])
        for strand in ".+"
    },
    "a gene line without a strand over transcripts of both": (
        [("gene", 201, 500, ".", ".", "ID=q;Name=q"),
         ("mRNA", 301, 330, "+", ".", "ID=a;Parent=q"), ("exon", 301, 330, "+", ".", "Parent=a"),
         ("mRNA", 361, 390, "-", ".", "ID=b;Parent=q"), ("exon", 361, 390, "-", ".", "Parent=b")],
        [], "q", [200, 345, 499]),
    "a transcript line wider than its gene and exons": (
        [WIDE, ("mRNA", 201, 450, "+", ".", "ID=t;Parent=q"),
         ("exon", 211, 300, "+", ".", "Parent=t")],
        [], "q", [200, 350, 449]),
    "a transcript line wider than its exons": (
        [("mRNA", 201, 450, "+", ".", "ID=q;Name=q"), ("exon", 211, 300, "+", ".", "Parent=q")],
        [], "q", [200, 350, 449]),
}  # fmt: skip


@pytest.mark.parametrize("case", UNTOLD)
def test_what_has_no_consequence_is_never_intergenic(tmp_path, capsys, case):
    lines, left_out, gene, places = UNTOLD[case]
    reference, annotation = read(tmp_path, gff3(*block(101, contig="c2"), *lines))
    assert [(each.name, each.reason) for each in annotation.left_out] == left_out
    error = capsys.readouterr().err
    assert all(f"1 {reason} (e.g. {name})" in error for name, reason in left_out)
    assert term_at(reference, annotation, 80).consequence == "intergenic_variant"
    gaps = [gap for gap in intergenic(annotation, reference.contig_lengths_bp)]
    pieces = list(pieces_of_kinds(reference, annotation, 100, 10))
    starts = [int(p.name.split(":")[1].split("-")[0]) - 1 for p in pieces
              if p.description == "intergenic" and p.name.startswith("c1:")]  # fmt: skip
    for place in places:
        assert term_at(reference, annotation, place) == (gene, *[None] * 5)
        assert not any(gap.contig == "c1" and gap.start <= place < gap.end for gap in gaps)
        assert starts and not any(start <= place < start + 10 for start in starts)
    if case.endswith("over a CDS of strand -"):
        (found,) = (each for each in annotation.genes if each.name == "q")
        assert (found.interval, found.strand) == (Interval("c1", 200, 500), "-")


def test_no_simulated_control_lies_in_what_is_left_out(tmp_path):
    import numpy as np

    text = gff3(*block(101), ("gene", 501, 560, ".", ".", "ID=h"))
    reference, annotation = read(tmp_path, text)
    whole = [Interval("c1", 0, BP)]
    found = _intergenic(reference, annotation, whole, BP, np.random.default_rng(0))
    places = {labelled.variant.position for labelled in found}
    # Each gene and 100 bases on either side of it: 0-259 and 400-659.
    assert places == {*range(260, 400), *range(660, BP - 1)}
    # A variant of a gene that is read keeps its consequence under a gene without a strand.
    text = gff3(*block(101), ("gene", 91, 390, ".", ".", "ID=h;Name=def"))
    reference, annotation = read(tmp_path, text)
    assert term_at(reference, annotation, 95) == ("def", *[None] * 5)
    assert term_at(reference, annotation, 130)[::3] == ("abc", 11)  # base 31 of the CDS


# Features past the end of a contig.


@pytest.mark.parametrize(
    "lines",
    [
        [("gene", 801, BP + 40, "+", ".", "ID=g2")],
        [("CDS", 801, BP + 40, "+", 0, "ID=p2")],
        [("tmRNA", 801, BP + 40, "+", ".", "ID=r"), ("exon", 801, BP, "+", ".", "Parent=r")],
        [("five_prime_UTR", 801, BP + 40, "+", ".", "Parent=bt")],
        [("chromosome", 1, BP + 40, ".", ".", "ID=c")],
    ],
)
def test_a_feature_past_the_end_that_is_used_is_refused(tmp_path, lines):
    with pytest.raises(GenomeError, match=f"ends at {BP + 40}, but contig 'c1'"):
        read(tmp_path, gff3(*block(101), *lines))


# Trans-splicing.

RPS = "join(complement(101..150),301..350,401..441)"


def trans_spliced_protein(parts):
    """Return the codons of parts in reading order, by Biopython."""
    cds = "".join(
        str(Seq(BASES["c1"][s:e]).reverse_complement() if strand == "-" else BASES["c1"][s:e])
        for s, e, strand in parts
    )
    return [cds[at : at + 3] for at in range(0, len(cds) - 2, 3)]


PARTS = [(100, 150, "-"), (300, 350, "+"), (400, 441, "+")]


def trans_spliced_lines(tmp_path, form):
    """`part` stands on the gene, on its exons, or exons have numbers.

    The random bases have stop codons inside, which a stated genetic code explains.
    """
    if form == "gtf":
        told = 'gene_id "g"; gene_name "rps"; transcript_id "t";'
        lines = [("gene", 101, 441, "-", ".", told), ("transcript", 101, 441, "-", ".", told)]
        for number, (start, end, strand) in enumerate(PARTS, start=1):
            more = f'{told} exon_number "{number}"; transl_table "1";'
            lines.append(("exon", start + 1, end, strand, ".", more))
            lines.append(("CDS", start + 1, end, strand, 0, more))
        return read(tmp_path, gff3(*lines), "a.gtf")
    lines = [
        ("gene", 101, 150, "-", ".", "ID=g;Name=rps" + ";part=1/2" * (form == "gene")),
        ("gene", 301, 441, "+", ".", "ID=g;Name=rps" + ";part=2/2" * (form == "gene")),
    ]
    told = "ID=p;Parent=g;exception=trans-splicing;transl_table=1"
    for part, (start, end, strand) in zip((1, 2, 2), PARTS, strict=True):
        more = f";part={part}" if form == "exon" else ""
        lines.append(("CDS", start + 1, end, strand, 0, told + more))
    return read(tmp_path, gff3(*lines[::-1]))


def trans_spliced_genbank(tmp_path):
    text = flat_file(
        [
            ("gene", "join(complement(101..150),301..441)", '/gene="rps"', "/trans_splicing"),
            ("CDS", RPS, '/gene="rps"', "/trans_splicing", "/codon_start=1", "/transl_table=1"),
        ],
        bases=BASES["c1"], topology="linear  ",
    )  # fmt: skip
    (tmp_path / "x.gb").write_text(text.replace("AB1", "c1").replace("c1.1", "c1"))
    annotation = unpack_genbank(tmp_path / "x.gb", tmp_path / "x.fa").annotation
    return Reference(tmp_path / "x.fa"), annotation


@pytest.mark.parametrize("form", ["gene", "exon", "gtf", "genbank"])
def test_a_trans_spliced_gene_has_codons(tmp_path, form):
    """47 codons of 50 + 50 + 41 bases, two of which go over a joint."""
    if form == "genbank":
        reference, annotation = trans_spliced_genbank(tmp_path)
    else:
        reference, annotation = trans_spliced_lines(tmp_path, form)
    assert annotation.left_out == ()
    # 50 bases are 16 codons and two bases of one more: the next part begins with its third.
    phases = {t.cds[0][0]: t.phase_bp for t in transcripts_of(annotation)}
    assert phases == {100: 0, 300: 1}
    codons = trans_spliced_protein(PARTS)
    contig = next(iter(reference.contig_lengths_bp))
    consequences = Consequences(reference, annotation)
    places = [
        (place, strand)
        for start, end, strand in PARTS
        for place in (range(start, end) if strand == "+" else range(end - 1, start - 1, -1))
    ]
    assert len(places) == 141
    for offset, (place, strand) in enumerate(places):
        variant = replace(snv("c1", place), contig=contig)
        found = consequences.of(variant)
        assert found.gene == "rps"
        codon, within = codons[offset // 3], offset % 3
        read_alt = variant.alt if strand == "+" else str(Seq(variant.alt).complement())
        changed = codon[:within] + read_alt + codon[within + 1 :]
        old, new = str(Seq(codon).translate()), str(Seq(changed).translate())
        if old != "*":  # a stop codon inside of random bases
            assert (found.codon, found.codons) == (offset // 3 + 1, f"{codon}/{changed}")
            assert found.amino_acids == (old if old == new else f"{old}/{new}")
    between, intron = (
        consequences.of(replace(snv("c1", place), contig=contig)) for place in (250, 370)
    )
    # The GTF has one line of a gene, over all.
    assert between.consequence == (None if form == "gtf" else "intergenic_variant")
    assert intron.consequence == "intron_variant"


def test_a_trans_spliced_cds_without_a_genetic_code_is_not_judged_by_its_stops(tmp_path):
    """A part alone has no stop codon inside, which the whole CDS of both parts has."""
    first, second = "ATGGCTGCTGCTGCTTG", "AGCTGCTGCTGCTGCTTAA"  # codon 6, TGA, is over the joint
    codons = [(first + second)[at : at + 3] for at in range(0, 36, 3)]
    assert codons[5] == "TGA" and "TGA" not in codons[:5]
    bases = "C" * 20 + first + "C" * 30 + second + "C" * 20
    (tmp_path / "t.fa").write_text(f">c1\n{bases}\n")
    told = "ID=p;Parent=g;exception=trans-splicing"
    lines = [
        ("gene", 21, 37, "+", ".", "ID=g;part=1/2"),
        ("gene", 68, 86, "+", ".", "ID=g;part=2/2"),
        ("CDS", 21, 37, "+", 0, told),
        ("CDS", 68, 86, "+", 1, told),
    ]
    (tmp_path / "t.gff3").write_text(gff3(*lines))
    reference = Reference(tmp_path / "t.fa")
    annotation = read_annotation(tmp_path / "t.gff3", reference)
    assert cds_of_unknown_code(reference, annotation)["stop_codon_inside"] >= 1
    # TAA to TAC at the end would be `stop_lost`.
    lost = Consequences(reference, annotation).of(Variant("c1", 85, "A", "C"))
    assert lost.consequence == "coding_sequence_variant"


@pytest.mark.parametrize("strand", ["+", "."])
def test_a_feature_that_begins_past_the_end_of_a_circular_contig(tmp_path, strand):
    """902 to 910 of a circle of 900 bases are 2 to 10."""
    lines = [
        ("region", 1, BP, "+", ".", "ID=c1;Is_circular=true"),
        ("gene", 51, 60, "+", ".", "ID=h"),
        ("exon", 51, 60, "+", ".", "Parent=h"),
        ("gene", BP + 2, BP + 10, strand, ".", "ID=g"),
        ("exon", BP + 2, BP + 10, strand, ".", "Parent=g"),
    ]
    reference, annotation = read(tmp_path, gff3(*lines))
    free = [i for i in intergenic(annotation, reference.contig_lengths_bp) if i.contig == "c1"]
    assert [(i.start, i.end) for i in free] == [(0, 1), (10, 50), (60, BP)]
    terms = [term_at(reference, annotation, place).consequence for place in (1, 5, 9, 12)]
    assert [term == "intergenic_variant" for term in terms] == [False, False, False, True]


def test_rare_collections_end_with_an_error_too():
    before = gc.get_threshold()
    with pytest.raises(GenomeError), rare_collections():
        assert gc.get_threshold()[0] > before[0]
        raise GenomeError("malformed")
    assert gc.get_threshold() == before

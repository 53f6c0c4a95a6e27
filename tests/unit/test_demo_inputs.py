"""The one input of the demo: every kind of text is recognised, in any spelling."""

import pytest

from carbon.errors import TypedError, UserError
from carbon.genome import Consequences, Interval
from carbon.genome.genome import Genome
from demo.coding import ProteinChange, variant_of_change
from demo.inputs import contig_aliases, detect
from demo.letters import check_is_dna, check_is_protein
from demo.uploads import genome_in_text
from tests.helpers.demo import GENE, add_transcript, write_genome
from tests.helpers.files import random_bases, write_fasta

# Coding bases of ABC, from base 111 of the contig: ATG TAC CAA TTA GGA GCA TAC ...
STOP = "c1:116 C>A"  # codon 2, TAC, becomes TAA
GENBANK = """LOCUS       own  12 bp    DNA     linear   UNK 01-JAN-2020
ORIGIN
        1 acgttgcaac gt
//"""


@pytest.fixture(scope="module")
def genome(tmp_path_factory):
    return Genome.open(*write_genome(tmp_path_factory.mktemp("genome")))


def found(text, genome, gene=""):
    return detect(text, genome, genome_in_text, gene)


@pytest.mark.parametrize(
    ("text", "kind", "canonical"),
    [
        ("ABC", "gene", "ABC"),
        (" abc ", "gene", "ABC"),
        ("g1", "gene", "g1"),
        ("T1", "gene", "t1"),
        ("c1", "region", "c1"),
        ("chrC1:20-1,000", "region", "c1:20-1000"),
        ("C1:20..30", "region", "c1:20-30"),
        (STOP, "variant", STOP),
        ("chrc1:116:c:a", "variant", STOP),
        ("c1\t116\trs123\tC\tA\t50\tPASS\t.", "variant", STOP),
        ("abc:c.6c>a", "variant", STOP),
        ("ABC:p.Tyr2Ter", "variant", STOP),
        ("Y2*", "variant", STOP),
        ("Y2* of abc", "variant", STOP),
        ("ABC:c.4del", "variant", "c1:113 GT>G"),
        ("acgtnacgtt", "bases", "acgtnacgtt"),
        ("ACGU\nACGU", "bases", "ACGU\nACGU"),
        (">one\nACGTACGT", "fasta", ">one\nACGTACGT"),
        (GENBANK, "genbank", GENBANK),
    ],
)
def test_a_text_of_each_kind_is_recognised(genome, text, kind, canonical):
    given = found(text, genome, "ABC")
    assert (given.kind, given.text) == (kind, canonical)
    again = found(given.text, genome, "ABC")
    assert (again.kind, again.text, again.interval) == (kind, canonical, given.interval)


def test_what_is_detected_lies_where_it_says(genome):
    assert found("abc", genome).interval.to_region() == "c1:101-1000"
    stop = found("Y2*", genome, "ABC")
    assert (stop.interval.to_region(), stop.gene.name, stop.variant.to_text()) == (
        "c1:116-116", "ABC", STOP
    )  # fmt: skip
    assert found("c1:1-50", genome).gene is None
    pasted = found(">one\nACGTTGCA\nAC\n>two\nAC", genome)
    assert pasted.genome is not genome and pasted.bases == "ACGTTGCAAC"
    assert found(GENBANK, genome).bases == "ACGTTGCAACGT"


def test_a_long_paste_without_genes_is_read_whole(genome):
    bases = random_bases(3000)
    pasted = found(f">one\n{bases}\n>two\nACGT", genome)
    assert pasted.interval.to_region() == "one:1-3000"
    assert pasted.opening_bases(366)[-6:] == bases[-6:]  # which Inside predicts


def test_messages_name_a_paste_without_its_folder():
    pasted = genome_in_text("ACGTTGCAAC")
    with pytest.raises(UserError, match=r"^pasted\.fa: "):
        pasted.reference.fetch(Interval("pasted", 5, 90))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing is given"),
        ("ABD", "near names: ABC"),
        ("c9:1-10", "no contig 'c9'.*c1"),
        ("c1:30-20", "reversed; give c1:20-30"),
        ("rs123", "row of a VCF"),
        ("c1\t116\t.\tC\tA,G", "several ALT"),
        ("ABC:p.Lys2*", "residue 2 of ABC is Y, not K"),
        ("ABC:p.Y999*", "240 residues"),
        ("ABD:c.4T>A", "near names: ABC"),
        ("c1:116 Q>A", "REF, in bases"),
        ("MAVSKVYARSVYDSRGN", "looks like a protein"),
    ],
)
def test_other_texts_are_refused_with_a_remedy(genome, text, message):
    with pytest.raises(UserError, match=message):
        found(text, genome)


def test_a_coding_position_refers_to_the_typed_transcript(tmp_path):
    """The first transcript has base 391 of the CDS at 601, and the second has no such base."""
    fasta, gff = write_genome(tmp_path)
    add_transcript(gff)
    own = Genome.open(fasta, gff)
    assert found("T1:c.391del", own).interval.to_region() == "c1:600-601"
    with pytest.raises(UserError, match="the CDS has 390 bases"):
        found("T2:c.391del", own)
    with pytest.raises(TypedError, match="name a transcript instead, such as t1") as raised:
        found("abc:c.391del", own)
    assert (raised.value.wrong, raised.value.near) == (GENE, ("t1",))
    # Residue 131, the first of the second exon, is bases 391 to 393; the second transcript has 130.
    assert found("T1:p.A131P", own).interval.start == 600
    with pytest.raises(TypedError, match="2 transcripts of gene 'ABC' number this position diff"):
        found("abc:p.A131P", own)
    assert found("abc:p.Y2*", own).text == STOP  # both number it alike


def test_a_change_without_a_gene_needs_one(genome):
    with pytest.raises(UserError, match="in which gene"):
        found("Y2*", genome)


@pytest.mark.parametrize("strand", ["+", "-"])
def test_a_protein_change_has_the_named_consequence(tmp_path, strand):
    """Against the library's consequences, which read the codon from the annotation."""
    own = Genome.open(*write_genome(tmp_path, strand=strand))
    consequences, (gene,) = Consequences(own.reference, own.annotation), own.annotation.genes
    terms = {"*": "stop_gained", "N": "missense_variant", "Y": "synonymous_variant"}
    for number in (2, 7, 132):  # codon 132 is the second of the second exon
        for alt, term in terms.items():
            variant = variant_of_change(
                own, gene, *gene.transcripts, ProteinChange("Y", number, alt)
            )
            assert consequences.of(variant).consequence == term
            assert consequences.of(variant).codon == number


@pytest.mark.parametrize(
    "name", ["VIII", "viii", "8", "chr8", "chrVIII", "NC_001140", "nc_001140.6"]
)
def test_a_chromosome_of_yeast_has_many_names(tmp_path, name):
    fasta = write_fasta(tmp_path / "y.fa", {"VIII": random_bases(562_643)})
    assert found(f"{name}:11-20", Genome.open(fasta, None)).text == "VIII:11-20"


def test_a_sex_chromosome_is_no_tenth():
    assert "10" not in contig_aliases({"chrX": 1000})


def test_proteins_and_dna_are_told_apart():
    with pytest.raises(TypedError, match="looks like a protein") as raised:
        check_is_dna(">My MV\nAC\n>b\nMAVSKVYARSVYDSRGN")
    assert (raised.value.text[raised.value.at], raised.value.at) == ("M", 13)
    check_is_dna("ACGTNNNNNNNRYSWKM")
    check_is_dna("ATGGCTGTCTCTAAAGTTTAC")
    check_is_protein("MAVSKVYARSVYDSRGN")
    with pytest.raises(UserError, match="looks like DNA"):
        check_is_protein("ATGGCTGTCTCTAAAG")

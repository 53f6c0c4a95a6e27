"""First coding bases of a gene against a walk along the contig, base by base."""

import random

import pytest

from carbon.genome import Reference, Transcript
from carbon.genome.genome import Genome
from demo.coding import described, first_coding_bases
from demo.gene_examples import Example
from tests.helpers.files import place_gene, random_bases, write_fasta

BASES = random_bases(400, seed=7)
COMPLEMENT = dict(zip("ACGT", "TGCA", strict=True))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    fasta = write_fasta(tmp_path_factory.mktemp("genome") / "g.fa", {"c1": BASES})
    with Reference(fasta) as opened:
        yield opened


def transcript(strand, exons, cds, phase_bp=0):
    return Transcript("t", "c1", strand, exons, cds, False, "here", phase_bp=phase_bp)


def walked(gene, length_bp):
    """Bases by a walk from one end of the contig to the other."""
    places = [at for start, end in gene.cds for at in range(800) if start <= at < end]
    if gene.strand == "-":
        places.reverse()
    letters = [BASES[at % len(BASES)] for at in places[gene.phase_bp :][:length_bp]]
    return "".join(letters if gene.strand == "+" else [COMPLEMENT[letter] for letter in letters])


def test_a_coding_sequence_that_is_too_short_has_none(reference):
    cds = ((20, 85),)
    assert first_coding_bases(reference, transcript("+", cds, cds), 66) is None
    assert len(first_coding_bases(reference, transcript("+", cds, cds), 65)) == 65
    assert first_coding_bases(reference, transcript("+", cds, cds, phase_bp=1), 65) is None
    assert first_coding_bases(reference, transcript("+", cds, ()), 1) is None


def open_gene(folder, strand="+", gff3=None):
    bases, written, _ = place_gene(strand)
    gff = folder / "g.gff3"
    gff.write_text(gff3 or written)
    return Genome.open(write_fasta(folder / "g.fa", {"c1": bases}), gff), bases


@pytest.mark.parametrize("strand", ["+", "-"])
def test_bases_of_an_example_gene(tmp_path, strand):
    genome, _ = open_gene(tmp_path, strand)
    assert Example(genome, "ABC").bases(66) == "ATG" + ("TACCAATTAGGAGCA" * 5)[:63]


def test_the_summary_of_a_gene(tmp_path):
    genome, _ = open_gene(tmp_path, "-")
    (gene,) = genome.annotation.genes
    summary = described(genome.reference, gene)
    expected = {"name": "ABC", "length_bp": 180, "coding_bp": 72, "introns": ["GT…AG"]}
    assert summary == expected


@pytest.mark.parametrize("strand", ["+", "-"])
def test_first_bases_of_odd_genes_against_the_walk(reference, strand):
    """A short exon, a gene past the origin, and a ribosome that slips: it reads 59 twice."""
    short, across = ((20, 47), (60, 63), (90, 180)), ((350, 380), (395, 460))
    for exons, cds in ((short, short), (across, across), (((20, 140),), ((20, 60), (59, 140)))):
        gene = transcript(strand, exons, cds, 1)
        assert first_coding_bases(reference, gene, 66) == walked(gene, 66)


def test_random_genes_against_the_walk(reference):
    draw = random.Random(0)
    for _ in range(30):
        edges = sorted(draw.sample(range(0, 400, 4), 12))
        spans = tuple(zip(edges[::2], edges[1::2], strict=True))
        gene = transcript(draw.choice("+-"), spans, spans, draw.randrange(3))
        length_bp = draw.randrange(1, sum(end - start for start, end in spans) - gene.phase_bp)
        assert first_coding_bases(reference, gene, length_bp) == walked(gene, length_bp)

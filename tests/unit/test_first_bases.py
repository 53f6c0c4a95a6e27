"""First coding bases of a gene against a walk along the contig, base by base."""

import random
from itertools import pairwise

import pytest

from carbon.errors import GenomeError, UserError
from carbon.genome import Reference, Transcript
from carbon.genome.genome import Genome
from demo.central_dogma import told_in_cell
from demo.gene_examples import Example
from demo.gene_summary import FirstBases, first_bases_at, first_coding_bases
from tests.helpers.files import place_gene, random_bases, write_fasta

BASES = random_bases(400, seed=7)
COMPLEMENT = dict(zip("ACGT", "TGCA", strict=True))
ONE = ((20, 140),)
MICRO = ((20, 47), (60, 63), (90, 180))
UTR = ((5, 12), (20, 60), (100, 190))
PAST_ORIGIN = ((350, 380), (395, 460))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    fasta = write_fasta(tmp_path_factory.mktemp("genome") / "g.fa", {"c1": BASES})
    with Reference(fasta) as opened:
        yield opened


def transcript(strand, exons, cds, phase_bp=0):
    return Transcript("t", "c1", strand, exons, cds, False, "here", phase_bp=phase_bp)


def walked(found, length_bp):
    """Bases, their places and their exons by a walk from one end of the contig to the other."""
    places = [at for start, end in found.cds for at in range(800) if start <= at < end]
    exons = list(found.exons)
    if found.strand == "-":
        places.reverse()
        exons.reverse()
    places = places[found.phase_bp :][:length_bp]
    letters = [BASES[at % len(BASES)] for at in places]
    if found.strand == "-":
        letters = [COMPLEMENT[letter] for letter in letters]
    numbers = {n for at in places for n, (start, end) in enumerate(exons, 1) if start <= at < end}
    return "".join(letters), places, tuple(sorted(numbers))


@pytest.mark.parametrize("strand", ["+", "-"])
@pytest.mark.parametrize("phase_bp", [0, 1, 2])
@pytest.mark.parametrize(
    ("exons", "cds"),
    [
        (ONE, ONE),
        (MICRO, MICRO),
        (UTR, ((25, 60), (100, 150))),
        (PAST_ORIGIN, PAST_ORIGIN),
        # The ribosome slips back by a base: 59 is read twice.
        (ONE, ((20, 60), (59, 140))),
    ],
)
def test_first_bases_against_a_walk(reference, strand, phase_bp, exons, cds):
    gene = transcript(strand, exons, cds, phase_bp)
    found = first_coding_bases(reference, gene, 66)
    bases, places, numbers = walked(gene, 66)
    assert (found.bases, found.exons) == (bases, numbers)
    marked = [at for start, end in found.spans for at in range(start, end)]
    assert marked == sorted(places) and list(found.spans) == sorted(found.spans)
    assert all(left[1] != right[0] for left, right in pairwise(found.spans))
    along = found.spans if strand == "+" else found.spans[::-1]
    assert found.regions == [f"c1:{start + 1}-{end}" for start, end in along]


def test_a_coding_sequence_that_is_too_short_has_none(reference):
    cds = ((20, 85),)
    assert first_coding_bases(reference, transcript("+", cds, cds), 66) is None
    assert len(first_coding_bases(reference, transcript("+", cds, cds), 65).bases) == 65
    assert first_coding_bases(reference, transcript("+", cds, cds, phase_bp=1), 65) is None
    assert first_coding_bases(reference, transcript("+", cds, ()), 1) is None


@pytest.mark.parametrize("strand", ["+", "-"])
@pytest.mark.parametrize("spans", [ONE, MICRO, PAST_ORIGIN])
def test_the_last_base_is_changed_into_that_of_its_kind(reference, tmp_path, strand, spans):
    gene = transcript(strand, spans, spans)
    first = first_coding_bases(reference, gene, 66)
    change = first.last_transition(len(BASES))
    assert BASES[change.position] == change.ref
    changed = BASES[: change.position] + change.alt + BASES[change.position + 1 :]
    with Reference(write_fasta(tmp_path / "changed.fa", {"c1": changed})) as other:
        now = first_coding_bases(other, gene, 66).bases
    assert now[:-1] == first.bases[:-1]
    assert {now[-1], first.bases[-1]} in ({"A", "G"}, {"C", "T"})


def test_an_unknown_base_has_no_other_of_its_kind():
    assert FirstBases("ACN", "c1", "+", ((0, 3),)).last_transition(10) is None


def open_gene(folder, strand="+", gff3=None):
    bases, written, _ = place_gene(strand)
    gff = folder / "g.gff3"
    gff.write_text(gff3 or written)
    return Genome.open(write_fasta(folder / "g.fa", {"c1": bases}), gff), bases


@pytest.mark.parametrize("strand", ["+", "-"])
def test_a_gene_by_its_name_or_by_a_place_that_it_touches(tmp_path, strand):
    genome, _ = open_gene(tmp_path, strand)
    named = first_bases_at(genome, "ABC", 66, 400)
    assert named.bases == "ATG" + ("TACCAATTAGGAGCA" * 5)[:63] and named.exons == (1, 2)
    assert first_bases_at(genome, "c1:150-160" if strand == "+" else "c1:250-260", 66, 400) == named
    assert Example(genome, "ABC").bases(66) == named.bases


def test_a_place_without_a_gene_or_with_too_short_a_one(tmp_path):
    genome, bases = open_gene(tmp_path)
    for place, start, length_bp in (("c1:1-90", 0, 66), ("c1:300-320", 299, 21)):
        found = first_bases_at(genome, place, 66, 400)
        assert found.bases == bases[start : start + length_bp]
        assert found.spans == ((start, start + length_bp),)
        assert (found.strand, found.exons) == ("+", ())
    short = first_bases_at(genome, "ABC", 73, 400)
    assert (short.bases, short.spans, short.exons) == (bases[100:173], ((100, 173),), ())
    with pytest.raises(GenomeError, match="gene 'nowhere'"):
        first_bases_at(genome, "nowhere", 66, 400)
    with pytest.raises(UserError, match="give 90 at most"):
        first_bases_at(genome, "ABC", 66, 90)


def test_genes_are_named_once_and_sorted(tmp_path):
    genome, _ = open_gene(tmp_path)
    assert genome.gene_names == ("ABC",)
    assert Genome.open(tmp_path / "g.fa", None).gene_names == ()


def test_what_is_said_of_a_gene_and_its_first_bases(tmp_path):
    told = told_in_cell(open_gene(tmp_path, "-")[0], "ABC")
    # Forward, the coding bases are 110 to 160 and 221 to 241; of the second exon 15 are left.
    assert told["regions"] == ["c1:241-291", "c1:166-180"] and told["variant"].startswith("c1:166 ")
    said = told["said"]
    assert "c1:121-300 on the reverse strand" in said["place"]
    assert "180 bases, of which 72 are coding" in said["splicing"] and "GT…AG" in said["splicing"]
    assert "exons 1 and 2" in said["exons"]


def test_what_is_said_without_a_gene_and_of_too_short_a_one(tmp_path):
    genome, _ = open_gene(tmp_path)
    told = told_in_cell(genome, "c1:1-90")
    assert told["regions"] == ["c1:1-66"] and told["said"]["splicing"] == ""
    lines = (tmp_path / "g.gff3").read_text().splitlines(keepends=True)
    shorter = "".join(line for line in lines if "\tCDS\t110" not in line)
    genome, bases = open_gene(tmp_path, gff3=shorter)
    told = told_in_cell(genome, "ABC")
    assert told["sequence"] == bases[100:166] and told["gene"]["coding_bp"] == 21
    assert "21 coding bases, too few" in told["said"]["origin"]


def test_an_own_sequence_is_told_of_beside_the_gene(tmp_path):
    told = told_in_cell(open_gene(tmp_path)[0], "ABC", "ACGTTGCA")
    assert (told["sequence"], told["regions"], told["protein"]) == ("ACGTTGCA", [], "TL")
    assert told["reverse_complement"] == "TGCAACGT" and told["gene"]["name"] == "ABC"


def test_random_genes_against_the_walk(reference):
    draw = random.Random(0)
    for _ in range(30):
        edges = sorted(draw.sample(range(0, 400, 4), 12))
        spans = tuple(zip(edges[::2], edges[1::2], strict=True))
        gene = transcript(draw.choice("+-"), spans, spans, draw.randrange(3))
        length_bp = draw.randrange(1, sum(end - start for start, end in spans) - gene.phase_bp)
        found = first_coding_bases(reference, gene, length_bp)
        bases, places, numbers = walked(gene, length_bp)
        assert (found.bases, found.exons) == (bases, numbers)
        assert [at for start, end in found.spans for at in range(start, end)] == sorted(places)

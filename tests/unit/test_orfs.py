"""Open reading frames, and amino acids with their places."""

import re

from hypothesis import given
from hypothesis import strategies as st

from carbon.genome import GENETIC_CODE, Reference, read_annotation, reverse_complement, translate
from demo.coding import residues
from demo.open_frames import OpenFrame, open_frames
from tests.helpers.demo import write_genome

_OPEN = re.compile("(?=(ATG(?:(?!TAA|TAG|TGA)[ACGT]{3})*(TAA|TAG|TGA)?))")


def slow_frames(bases):
    """Every ATG by a regular expression; the first of those that end at one place stays."""
    first = {}
    for match in _OPEN.finditer(bases):
        codons, stop = match[1], match[2] or ""
        protein = "".join(GENETIC_CODE[codons[n : n + 3]] for n in range(0, len(codons), 3))
        end = match.start() + len(codons)
        first.setdefault((end, bool(stop)), (match.start(), end, protein.rstrip("*"), bool(stop)))
    return list(first.values())


@given(st.text("ACGT", max_size=120), st.integers(1, 5))
def test_frames_are_those_of_a_regular_expression(bases, least):
    expected = [OpenFrame(start, end, "+", *rest) for start, end, *rest in slow_frames(bases)]
    for start, end, *rest in slow_frames(reverse_complement(bases)):
        expected.append(OpenFrame(len(bases) - end, len(bases) - start, "-", *rest))
    assert open_frames(bases, least) == sorted(f for f in expected if len(f.protein) >= least)


def test_residues_of_both_strands(tmp_path):
    for strand in "+-":
        fasta, gff = write_genome(tmp_path, "c1", strand)
        with Reference(fasta) as reference:
            (gene,) = read_annotation(gff, reference).genes
            found = residues(reference, gene.transcripts[0])
            contig = reference.fetch(type(gene.interval)("c1", 0, 1400))
        assert len(found) == 240 and found[0].amino_acid == "M" and found[-1].amino_acid == "*"
        for residue in found:
            codon = "".join(contig[place] for place in residue.places)
            if strand == "-":
                codon = codon.translate(str.maketrans("ACGT", "TGCA"))
            assert translate(codon) == residue.amino_acid
        # The 131st codon spans no intron; the first exon codes 390 bases, 130 codons.
        assert abs(found[129].places[2] - found[130].places[0]) == 101

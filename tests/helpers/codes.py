"""Genes of any genetic code, written as GFF3, GTF and GenBank, and what SNVs do to them."""

import random
from itertools import product

from Bio.Data.CodonTable import unambiguous_dna_by_id
from Bio.Seq import Seq

from carbon.genome import reverse_complement

CODONS = ["".join(bases) for bases in product("TCAG", repeat=3)]
FLANK_BP = 30


def random_cds(table: int, seed: int, *, start: str = "ATG", more: tuple[str, ...] = ()) -> str:
    """Return a start codon, 12 random codons that are never a stop, `more` codons, and a stop."""
    code = unambiguous_dna_by_id[table]
    sense = [codon for codon in CODONS if codon not in code.stop_codons]
    inside = random.Random(seed).choices(sense, k=12)
    return "".join((start, *inside, *more, code.stop_codons[0]))


def contig_of(cds: str, strand: str) -> str:
    """Return a contig of one CDS between flanks."""
    flank = "".join(random.Random(7).choices("ACGT", k=FLANK_BP))
    return flank + (cds if strand == "+" else reverse_complement(cds)) + flank


def gff3_of(cds: str, strand: str, attributes: str = "", contig: str = "c1") -> str:
    place = f"{FLANK_BP + 1}\t{FLANK_BP + len(cds)}\t.\t{strand}\t"
    return (
        f"{contig}\tx\tgene\t{place}.\tID=gene:M1\n"
        f"{contig}\tx\tmRNA\t{place}.\tID=transcript:T1;Parent=gene:M1\n"
        f"{contig}\tx\texon\t{place}.\tParent=transcript:T1\n"
        f"{contig}\tx\tCDS\t{place}0\tID=CDS:P1;Parent=transcript:T1{attributes}\n"
    )


def gtf_of(cds: str, strand: str, attributes: str = "", contig: str = "c1") -> str:
    """The stop codon stands outside of the CDS."""
    first, last = FLANK_BP + 1, FLANK_BP + len(cds)
    coding = (first, last - 3) if strand == "+" else (first + 3, last)
    stop = (last - 2, last) if strand == "+" else (first, first + 2)
    names = f'gene_id "M1"; transcript_id "T1";{attributes}'
    return "".join(
        f"{contig}\tx\t{kind}\t{a}\t{b}\t.\t{strand}\t0\t{names}\n"
        for kind, (a, b) in (("exon", (first, last)), ("CDS", coding), ("stop_codon", stop))
    )


def genbank_of(cds: str, strand: str, qualifiers: str = "", contig: str = "c1") -> str:
    bases, place = contig_of(cds, strand), f"{FLANK_BP + 1}..{FLANK_BP + len(cds)}"
    place = place if strand == "+" else f"complement({place})"
    origin = "".join(
        f"{at + 1:>9} {bases[at : at + 10].lower()}\n" for at in range(0, len(bases), 10)
    )
    lines = "".join(f"{'':21}{line}\n" for line in qualifiers.split("\n") if line)
    return (
        f"LOCUS       {contig:<17}{len(bases):>10} bp    DNA     linear   BCT 01-JAN-2000\n"
        f"ACCESSION   {contig}\nVERSION     {contig}\nFEATURES             Location/Qualifiers\n"
        f'     CDS             {place}\n{"":21}/locus_tag="M1"\n{lines}ORIGIN\n{origin}//\n'
    )


def read_by(table: int, cds: str) -> str:
    """Translate by Biopython; a codon that may be a stop is one only at the end of the CDS."""
    code = unambiguous_dna_by_id[table]
    letters = [code.forward_table.get(cds[at : at + 3], "*") for at in range(0, len(cds), 3)]
    if not set(code.stop_codons) & set(code.forward_table):
        assert "".join(letters) == str(Seq(cds).translate(table=table))
    if cds[-3:] in code.stop_codons:
        letters[-1] = "*"
    return "".join(letters)


def expected_term(table: int, cds: str, index: int, base: str, starts: set[str]) -> str:
    """Return what a base in place of that of an index does, by the two whole proteins."""
    changed = cds[:index] + base + cds[index + 1 :]
    old, new, codon = read_by(table, cds), read_by(table, changed), index // 3
    if codon == len(old) - 1:
        return "stop_retained_variant" if new[-1] == "*" else "stop_lost"
    if new[codon] == "*":
        return "stop_gained"
    if codon == 0 and cds[:3] in starts:
        kept = changed[:3] in starts and new[0] == "M"
        return "start_retained_variant" if kept else "start_lost"
    return "synonymous_variant" if old == new else "missense_variant"

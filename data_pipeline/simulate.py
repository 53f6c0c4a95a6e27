"""A small annotated genome with a known truth, to learn on and to test with.

Genes are a leader peptide and a string of protein domains. A family of either has one ancestral
coding sequence, drawn with a real organism's codon usage, and every copy of it has diverged under
purifying selection: a synonymous change is kept, one that replaces an amino acid rarely, one that
makes a stop codon never. Around and between the domains lie a eukaryote's elements: TATA box and
initiator, UTRs, Kozak context, introns from GT to AG with branch point and pyrimidine tract, a
polyadenylation signal. Between genes lie random bases and diverged copies of repeats.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from carbon.genome import (
    GENETIC_CODE,
    Interval,
    Reference,
    Strand,
    read_annotation,
    reverse_complement,
)
from carbon.genome.sequences import fasta_text
from data_pipeline.variants import write_labelled_variants

# Drosophila melanogaster (taxon 7227), share of each codon among the codons of its amino acid.
# Source: Codon Usage Database, Kazusa DNA Research Institute (Nakamura, Gojobori and Ikemura 2000).
FLY_CODON_USAGE: dict[str, dict[str, float]] = {
    "*": {"TAA": 0.41, "TAG": 0.33, "TGA": 0.25},
    "A": {"GCA": 0.17, "GCC": 0.45, "GCG": 0.19, "GCT": 0.19},
    "C": {"TGC": 0.71, "TGT": 0.29},
    "D": {"GAC": 0.47, "GAT": 0.53},
    "E": {"GAA": 0.33, "GAG": 0.67},
    "F": {"TTC": 0.62, "TTT": 0.38},
    "G": {"GGA": 0.29, "GGC": 0.43, "GGG": 0.07, "GGT": 0.21},
    "H": {"CAC": 0.60, "CAT": 0.40},
    "I": {"ATA": 0.19, "ATC": 0.47, "ATT": 0.34},
    "K": {"AAA": 0.30, "AAG": 0.70},
    "L": {"CTA": 0.09, "CTC": 0.15, "CTG": 0.43, "CTT": 0.10, "TTA": 0.05, "TTG": 0.18},
    "M": {"ATG": 1.00},
    "N": {"AAC": 0.56, "AAT": 0.44},
    "P": {"CCA": 0.25, "CCC": 0.33, "CCG": 0.29, "CCT": 0.13},
    "Q": {"CAA": 0.30, "CAG": 0.70},
    "R": {"AGA": 0.09, "AGG": 0.11, "CGA": 0.15, "CGC": 0.33, "CGG": 0.15, "CGT": 0.16},
    "S": {"AGC": 0.25, "AGT": 0.14, "TCA": 0.09, "TCC": 0.24, "TCG": 0.20, "TCT": 0.08},
    "T": {"ACA": 0.20, "ACC": 0.38, "ACG": 0.26, "ACT": 0.17},
    "V": {"GTA": 0.11, "GTC": 0.24, "GTG": 0.47, "GTT": 0.19},
    "W": {"TGG": 1.00},
    "Y": {"TAC": 0.63, "TAT": 0.37},
}

Random = np.random.Generator
AMINO_ACIDS = tuple(sorted(set(FLY_CODON_USAGE) - {"*"}))
NUM_FAMILIES = 8
DOMAIN_CODONS = (70, 110)
# Proposed changes a base, and the share of replacing ones that selection keeps (dN/dS): with the
# two, copies of a domain differ from their ancestor at about 5 % of their bases.
PROPOSED_CHANGES = 0.16
REPLACEMENTS_KEPT = 0.1
LEADER_FAMILIES, LEADER_CODONS = 2, 15
INTRON_SHARE = 0.6  # of the linkers between domains
REPEAT_FAMILIES = 3
REPEAT_DIVERGENCE = 0.1
# Shares of the chromosomes; the last one carries the variants and is meant to be held out.
CHROMOSOME_SHARES = (0.26, 0.22, 0.18, 0.14, 0.11, 0.09)


@dataclass(frozen=True, slots=True)
class Families:
    """The ancestors that genes and repeats are copies of."""

    domains: list[str]
    leaders: list[str]
    repeats: list[str]


@dataclass(slots=True)
class SimulatedGene:
    """A gene in its own orientation: bases from the first exon's start, spans within them."""

    sequence: str
    exons: list[tuple[int, int]]
    cds: list[tuple[int, int]]


@dataclass(slots=True)
class Chromosome:
    """Bases so far, and the genes placed on them as `(start, strand, gene)`."""

    name: str
    parts: list[str] = field(default_factory=list)
    length_bp: int = 0
    genes: list[tuple[int, Strand, SimulatedGene]] = field(default_factory=list)

    def add(self, bases: str) -> None:
        """Append bases."""
        self.parts.append(bases)
        self.length_bp += len(bases)


def simulate(output: Path, genome_bp: int, seed: int, num_variants: int) -> None:
    """Write `genome.fa`, `genes.gff3` and `variants.vcf` into the folder `output`."""
    random = np.random.default_rng(seed)
    families = Families(
        domains=[_coding(random, int(n)) for n in random.integers(*DOMAIN_CODONS, NUM_FAMILIES)],
        leaders=[_coding(random, LEADER_CODONS) for _ in range(LEADER_FAMILIES)],
        repeats=[_random_bases(random, int(n)) for n in random.integers(200, 400, REPEAT_FAMILIES)],
    )
    chromosomes = [
        _chromosome(random, f"chr{i}", round(share * genome_bp), families)
        for i, share in enumerate(CHROMOSOME_SHARES, start=1)
    ]
    _write_fasta(output / "genome.fa", chromosomes)
    _write_gff3(output / "genes.gff3", chromosomes)
    with Reference(output / "genome.fa") as reference:
        annotation = read_annotation(output / "genes.gff3", reference)
        last = chromosomes[-1]
        region = Interval(last.name, 0, last.length_bp)
        write_labelled_variants(
            output / "variants.vcf", reference, annotation, [region], num_variants, seed
        )


def _chromosome(random: Random, name: str, length_bp: int, families: Families) -> Chromosome:
    chromosome = Chromosome(name)
    chromosome.add(_intergenic(random, families.repeats))
    while chromosome.length_bp < length_bp:
        gene = _gene(random, families)
        promoter = _promoter(random)
        strand: Strand = "+" if random.random() < 0.5 else "-"
        start = chromosome.length_bp + (len(promoter) if strand == "+" else 0)
        whole = promoter + gene.sequence
        chromosome.add(whole if strand == "+" else reverse_complement(whole))
        chromosome.genes.append((start, strand, gene))
        chromosome.add(_intergenic(random, families.repeats))
    return chromosome


def _random_bases(random: Random, length_bp: int, gc: float = 0.42) -> str:
    half_at, half_gc = (1 - gc) / 2, gc / 2
    return "".join(random.choice(list("ACGT"), length_bp, p=[half_at, half_gc, half_gc, half_at]))


def _intergenic(random: Random, repeats: list[str]) -> str:
    bases = _random_bases(random, int(random.integers(150, 500)))
    if random.random() < 0.15:
        repeat = _substituted(random, _one_of(random, repeats), REPEAT_DIVERGENCE)
        bases += repeat if random.random() < 0.5 else reverse_complement(repeat)
    return bases + _random_bases(random, 60)


def _substituted(random: Random, bases: str, rate: float) -> str:
    return "".join(
        str(random.choice([b for b in "ACGT" if b != base])) if random.random() < rate else base
        for base in bases
    )


def _promoter(random: Random) -> str:
    """Return 100 bp that end at the transcription start: TATA box at -31, initiator at the end."""
    box, initiator = "TATAAAAG", "TCA"
    return (
        _random_bases(random, 69)
        + box
        + _random_bases(random, 31 - len(box) - len(initiator))
        + initiator
    )


def _codon(random: Random, amino_acid: str) -> str:
    usage = FLY_CODON_USAGE[amino_acid]
    weights = np.array(list(usage.values()))
    return str(random.choice(list(usage), p=weights / weights.sum()))


def _coding(random: Random, num_codons: int) -> str:
    return "".join(_codon(random, str(a)) for a in random.choice(AMINO_ACIDS, num_codons))


def _diverged(random: Random, ancestor: str) -> str:
    """Copy a domain: every proposed change passes selection or is lost."""
    bases = list(ancestor)
    for i in np.flatnonzero(random.random(len(bases)) < PROPOSED_CHANGES):
        at = i - i % 3
        old = "".join(bases[at : at + 3])
        new = old[: i - at] + str(random.choice(list("ACGT"))) + old[i - at + 1 :]
        before, after = GENETIC_CODE[old], GENETIC_CODE[new]
        if before == after or (after != "*" and random.random() < REPLACEMENTS_KEPT):
            bases[at : at + 3] = new
    return "".join(bases)


def _gene(random: Random, families: Families) -> SimulatedGene:
    """Join a leader peptide and two to four domains by linkers; introns lie in linkers."""
    coding = "ATG" + _diverged(random, _one_of(random, families.leaders))
    places = []
    for number in range(int(random.integers(2, 5))):
        linker = _coding(random, int(random.integers(4, 12)))
        if number and random.random() < INTRON_SHARE:
            places.append(len(coding) + int(random.integers(len(linker))))
        coding += linker + _diverged(random, _one_of(random, families.domains))
    coding += _codon(random, "*")
    five_prime = _random_bases(random, int(random.integers(30, 90))) + "CAAA"
    three_prime = (
        _random_bases(random, int(random.integers(50, 120))) + "AATAAA" + _random_bases(random, 18)
    )
    transcript = five_prime + coding + three_prime
    places = [len(five_prime) + place for place in places]
    return _with_introns(random, transcript, len(five_prime), len(coding), places)


def _one_of(random: Random, sequences: list[str]) -> str:
    return sequences[random.integers(len(sequences))]


def _with_introns(
    random: Random, transcript: str, cds_start: int, cds_bp: int, places: list[int]
) -> SimulatedGene:
    sequence, exons, cds = "", [], []
    for number, (start, end) in enumerate(pairwise([0, *places, len(transcript)])):
        if number:
            sequence += _intron(random)
        shift = len(sequence) - start
        exons.append((start + shift, end + shift))
        coding = max(start, cds_start), min(end, cds_start + cds_bp)
        if coding[0] < coding[1]:
            cds.append((coding[0] + shift, coding[1] + shift))
        sequence += transcript[start:end]
    return SimulatedGene(sequence, exons, cds)


def _intron(random: Random) -> str:
    donor = "GTAAGT" if random.random() < 0.8 else "GTGAGT"
    tract = "".join(random.choice(list("TC"), 12, p=[0.7, 0.3]))
    middle = _random_bases(random, int(random.integers(30, 90)), gc=0.3)
    return donor + middle + "CTAAC" + _random_bases(random, 8, gc=0.3) + tract + "CAG"


def _write_fasta(path: Path, chromosomes: list[Chromosome]) -> None:
    named = ((f"{each.name} simulated", "".join(each.parts)) for each in chromosomes)
    path.write_text(fasta_text(named, 60), encoding="ascii")


def _write_gff3(path: Path, chromosomes: list[Chromosome]) -> None:
    with path.open("w", encoding="ascii") as sink:
        sink.write("##gff-version 3\n")
        for chromosome in chromosomes:
            sink.write(f"##sequence-region {chromosome.name} 1 {chromosome.length_bp}\n")
            for number, (start, strand, gene) in enumerate(chromosome.genes, start=1):
                sink.writelines(_gff3_lines(chromosome.name, number, start, strand, gene))


def _gff3_lines(
    contig: str, number: int, start: int, strand: Strand, gene: SimulatedGene
) -> list[str]:
    length_bp = len(gene.sequence)

    def placed(span: tuple[int, int]) -> tuple[int, int]:
        first, last = span if strand == "+" else (length_bp - span[1], length_bp - span[0])
        return start + first, start + last

    def line(kind: str, span: tuple[int, int], phase: str, attributes: str) -> str:
        columns = (contig, "carbon", kind, span[0] + 1, span[1], ".", strand, phase, attributes)
        return "\t".join(map(str, columns)) + "\n"

    name = f"{contig}g{number:04d}"
    whole = placed((0, length_bp))
    lines = [
        line("gene", whole, ".", f"ID=gene:{name};Name={name};biotype=protein_coding"),
        line("mRNA", whole, ".", f"ID=transcript:{name}.1;Parent=gene:{name}"),
    ]
    parent = f"Parent=transcript:{name}.1"
    lines += [line("exon", placed(span), ".", parent) for span in gene.exons]
    coded = 0
    for span in gene.cds:
        lines.append(line("CDS", placed(span), str(-coded % 3), parent))
        coded += span[1] - span[0]
    return lines

"""Genes whose codons are known by construction: laid out base by base, each with what it is."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from Bio.Seq import Seq

from carbon.genome import reverse_complement


class Base(NamedTuple):
    """A base of a gene, as the strand reads it; `codon` counts whole codons from 0."""

    letter: str
    kind: str  # utr5, cds, utr3, intron; before or after the whole codons: partial5, partial3
    codon: int | None = None


@dataclass
class BuiltGene:
    """A contig with one gene, whose every base is known."""

    strand: str
    phase_bp: int
    leftover_bp: int
    bases: list[Base]
    flank: tuple[str, str]
    parts: list[tuple[str, int, int, int]] = field(default_factory=list)  # kind, start, end, phase

    @property
    def contig(self) -> str:
        """The forward strand."""
        read = "".join((self.flank[0], *(base.letter for base in self.bases), self.flank[1]))
        return read if self.strand == "+" else reverse_complement(read)

    def position(self, index: int) -> int:
        """Return where the base of an index lies on the contig."""
        ahead = len(self.flank[0]) + index
        return ahead if self.strand == "+" else len(self.contig) - 1 - ahead

    def runs(self, kinds: set[str]) -> list[tuple[int, int, int]]:
        """Return ascending spans of consecutive bases of these kinds, and the phase of each."""
        found, index = [], 0
        while index < len(self.bases):
            end = index
            while end < len(self.bases) and self.bases[end].kind in kinds:
                end += 1
            if end > index:
                places = sorted((self.position(index), self.position(end - 1)))
                found.append((places[0], places[1] + 1, self._phase(index, end)))
            index = max(end, index + 1)
        return sorted(found)

    def _phase(self, first: int, end: int) -> int:
        """Count the bases of a part that belong to a codon which began before it."""
        codons = [b.codon for b in self.bases]
        earlier = [c for c in codons[:first] if c is not None]
        phase = 0
        for base in self.bases[first:end]:
            begun = base.kind == "partial5" or (base.codon is not None and base.codon in earlier)
            if not begun:
                break
            phase += 1
        return phase


def translated(bases: list[Base]) -> str:
    """Translate the bases of whole codons by Biopython."""
    return str(Seq("".join(b.letter for b in bases if b.kind == "cds")).translate())


CODING = {"cds", "partial5", "partial3"}


def build_gene(seed: int, strand: str, phase_bp: int, leftover_bp: int) -> BuiltGene:
    """Build a gene of twelve codons with introns that cut it anywhere.

    Without phase and leftover it begins with ATG and ends with a stop codon; with one of them, that
    end is cut.
    """
    draw = random.Random(seed)

    def letters(number: int) -> str:
        return "".join(draw.choices("ACGT", k=number))

    sense = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    sense = [codon for codon in sense if codon not in ("TAA", "TAG", "TGA")]
    codons = draw.choices(sense, k=10)
    codons = [draw.choice(sense) if phase_bp else "ATG", *codons]
    codons.append(draw.choice(sense if leftover_bp else ["TAA", "TAG", "TGA"]))
    bases = [Base(b, "utr5") for b in letters(0 if phase_bp else 7)]
    bases += [Base(b, "partial5") for b in letters(phase_bp)]
    bases += [Base(b, "cds", n) for n, codon in enumerate(codons) for b in codon]
    bases += [Base(b, "partial3") for b in letters(leftover_bp)]
    bases += [Base(b, "utr3") for b in letters(0 if leftover_bp else 7)]
    for place in sorted(draw.sample(range(2, len(bases) - 1), 3), reverse=True):
        bases[place:place] = [Base(b, "intron") for b in f"GT{letters(draw.randint(4, 24))}AG"]
    return BuiltGene(strand, phase_bp, leftover_bp, bases, (letters(9), letters(5)))


def as_gff3(gene: BuiltGene, mark: str = "") -> str:
    """Write the gene as GFF3; `mark` is an attribute of its CDS."""
    rows = [("mRNA", *_whole(gene), ".", "ID=t1;Parent=g1")]
    rows += [("exon", s, e, ".", "Parent=t1") for s, e, _ in gene.runs(CODING | {"utr5", "utr3"})]
    rows += [("CDS", s, e, p, f"ID=p1;Parent=t1{mark}") for s, e, p in gene.runs(CODING)]
    head = ("gene", *_whole(gene), ".", "ID=g1;Name=ABC")
    return "##gff-version 3\n" + "".join(_line(gene, *row) for row in [head, *rows])


def as_gtf(gene: BuiltGene, mark: str = "") -> str:
    """Write the gene as GTF, with its stop codon in the CDS."""
    ids = f'gene_id "g1"; transcript_id "t1"; gene_name "ABC";{mark}'
    rows = [("exon", s, e, ".", ids) for s, e, _ in gene.runs(CODING | {"utr5", "utr3"})]
    rows += [("CDS", s, e, p, ids) for s, e, p in gene.runs(CODING)]
    return "".join(_line(gene, *row) for row in rows)


def as_genbank(gene: BuiltGene) -> str:
    """Write contig and gene as GenBank; ends that are cut are told by `<` and `>`."""
    low, high = gene.phase_bp, gene.leftover_bp
    low, high = (low, high) if gene.strand == "+" else (high, low)

    def location(kinds: set[str]) -> str:
        spans = gene.runs(kinds)
        texts = [[str(s + 1), str(e)] for s, e, _ in spans]
        texts[0][0] = "<" * bool(low) + texts[0][0]
        texts[-1][1] = ">" * bool(high) + texts[-1][1]
        text = f"join({','.join('..'.join(each) for each in texts)})"
        return text if gene.strand == "+" else f"complement({text})"

    bases = gene.contig
    features = [("mRNA", CODING | {"utr5", "utr3"}, ""), ("CDS", CODING, gene.phase_bp + 1)]
    lines = [f"LOCUS       c1 {len(bases):>20} bp    DNA     linear   PLN 01-JAN-2000",
             "VERSION     c1", "FEATURES             Location/Qualifiers"]  # fmt: skip
    for kind, kinds, codon_start in features:
        lines.append(f"     {kind:<16}{location(kinds)}")
        lines.append('                     /gene="ABC"')
        lines += [f"                     /codon_start={codon_start}"] * (kind == "CDS")
    return "\n".join([*lines, "ORIGIN", f"        1 {bases.lower()}", "//", ""])


def _whole(gene: BuiltGene) -> tuple[int, int]:
    ends = sorted((gene.position(0), gene.position(len(gene.bases) - 1)))
    return ends[0], ends[1] + 1


def _line(gene: BuiltGene, kind: str, start: int, end: int, phase: object, attributes: str) -> str:
    return f"c1\tx\t{kind}\t{start + 1}\t{end}\t.\t{gene.strand}\t{phase}\t{attributes}\n"

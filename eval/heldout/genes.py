"""The genes of what a corpus held out, and the states of all bases that it did not."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.corpus import read_manifest
from carbon.errors import GenomeError
from carbon.genome import (
    Annotation,
    Gene,
    Interval,
    Reference,
    Transcript,
    contig_names,
    from_region,
    read_annotation,
    spliced,
    translate,
)
from carbon.genome.annotation import reads_standard_code
from carbon.genome.genes import parts_on_contig
from eval.heldout.markov import base_codes
from eval.heldout.mixed_markov import Labelled
from eval.heldout.periodic import states_of


class CodingGene(NamedTuple):
    """A gene whose CDS is a plain open reading frame.

    Attributes:
        gene_id: of the annotation.
        name: of the gene.
        cds: capitals, from the start codon to the stop codon, along the strand.
    """

    gene_id: str
    name: str
    cds: str


class HeldOutGenes:
    """An annotated genome, of which some regions are held out.

    Attributes:
        reference: the genome.
        annotation: its genes.
        regions: what is held out.
    """

    def __init__(
        self,
        corpus: str,
        reference: Reference,
        annotation: Path,
        contigs: str | None = None,
        genetic_code: str | None = None,
    ) -> None:
        """Read the annotation and what the corpus held out.

        Args:
            corpus: its folder.
            reference: the genome that the corpus was made from.
            annotation: GFF3, GTF or BED of it.
            contigs: what the annotation calls contigs, as `contig_names` reads it.
            genetic_code: NCBI translation table where the annotation states none, as
                `read_annotation` takes it.

        Raises:
            GenomeError: nothing of this genome is held out, or the annotation is not of it.
        """
        self.reference = reference
        names = contig_names(contigs, reference.contig_lengths_bp)
        self.annotation: Annotation = read_annotation(
            annotation, reference, contig_names=names, genetic_code=genetic_code
        )
        texts: list[str] = read_manifest(corpus)["held_out"]
        lengths_bp = reference.contig_lengths_bp
        known = [
            text for text in texts if text in lengths_bp or text.rpartition(":")[0] in lengths_bp
        ]
        self.regions = [from_region(text, lengths_bp) for text in known]
        if not self.regions:
            raise GenomeError(
                f"{reference.path}: has no contig of what {corpus} held out "
                f"({', '.join(texts) or 'nothing'}); give the genome that the corpus was made from"
            )

    def coding(self) -> list[CodingGene]:
        """Return the genes inside the regions with the longest CDS of each.

        A CDS that is marked as incomplete, is read by another code, has unknown bases, or does not
        go from ATG to its only stop codon is left out.
        """
        return list(self._coding(inside=True))

    def coding_outside(self) -> list[CodingGene]:
        """Return the genes that share no base with the regions, likewise."""
        return list(self._coding(inside=False))

    def _coding(self, inside: bool) -> Iterator[CodingGene]:
        for gene in self.annotation.genes:
            belongs = any(_holds(region, gene.interval) for region in self.regions)
            apart = not any(region.overlaps(gene.interval) for region in self.regions)
            found = coding_gene(self.reference, gene) if (belongs if inside else apart) else None
            if found:
                yield found

    def training(self) -> list[Labelled]:
        """Return the bases outside of the regions with the states that the annotation gives.

        Where the reader left something out, no state is known.
        """
        by_contig: dict[str, list[Any]] = {
            contig: [] for contig in self.reference.contig_lengths_bp
        }
        for gene in self.annotation.genes:
            for each in gene.transcripts:
                if each.cds and each.phase_bp is not None:
                    by_contig[each.contig].append((each.strand, each.cds, each.phase_bp))
        parts = []
        for contig, length_bp in self.reference.contig_lengths_bp.items():
            states = states_of(length_bp, by_contig[contig])
            for start, end in self._outside(contig, length_bp):
                codes = base_codes(self.reference.fetch(Interval(contig, start, end)))
                parts.append(Labelled(codes.astype(np.uint8), states[start:end]))
        return parts

    def _outside(self, contig: str, length_bp: int) -> Iterator[tuple[int, int]]:
        free = 0
        unread = [
            part
            for each in self.annotation.left_out
            for place in each.intervals
            if place.contig == contig
            for part in parts_on_contig(place, length_bp)
        ]
        for region in sorted(each for each in [*self.regions, *unread] if each.contig == contig):
            yield free, max(free, region.start)
            free = max(free, region.end)
        yield free, length_bp

    def owners(self, interval: Interval) -> NDArray[np.int64]:
        """Return the number of the gene that each base belongs to, (bases,).

        A gene owns what lies behind the gene before it up to its own end, so that every base has
        one owner; what is behind the last gene of a contig is that gene's.
        """
        ends = [
            (gene.interval.end, number)
            for number, gene in enumerate(self.annotation.genes)
            if gene.interval.contig == interval.contig
        ]
        if not ends:
            return np.full(interval.length_bp, -1, dtype=np.int64)
        reached = np.maximum.accumulate([end for end, _ in ends])
        which = np.searchsorted(reached, np.arange(interval.start, interval.end), side="right")
        numbers = np.array([number for _, number in ends], dtype=np.int64)
        result: NDArray[np.int64] = numbers[np.minimum(which, len(numbers) - 1)]
        return result


def _holds(region: Interval, interval: Interval) -> bool:
    same = region.contig == interval.contig
    return same and region.start <= interval.start and interval.end <= region.end


def coding_gene(reference: Reference, gene: Gene) -> CodingGene | None:
    """Return a gene with the longest CDS that is a plain open frame, None if it has none."""
    found = [_open_frame(reference, each) for each in gene.transcripts]
    cds = max(found, key=len, default="")
    return CodingGene(gene.gene_id, gene.name, cds) if cds else None


def _open_frame(reference: Reference, transcript: Transcript) -> str:
    """Return the CDS of a transcript in capitals, or nothing if it is no plain open frame."""
    if not transcript.cds or transcript.incomplete or not reads_standard_code(transcript):
        return ""
    cds = spliced(reference, transcript.contig, transcript.cds, transcript.strand).upper()
    if len(cds) % 3 or set(cds) - set("ACGT"):
        return ""
    protein = translate(cds)
    is_open = protein.startswith("M") and protein.find("*") == len(protein) - 1
    return cds if is_open else ""


def clusters_of(genes: Sequence[Gene], owners: NDArray[np.int64]) -> list[str]:
    """Return the identifiers of the genes with these numbers."""
    return [genes[number].gene_id if number >= 0 else "" for number in owners]

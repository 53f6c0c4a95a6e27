"""A reference and its annotation, opened together, with look-up of places by name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from carbon.errors import UserError
from carbon.genome.annotation import read_gene_file
from carbon.genome.contig_names import CHR, contig_names, region_by_name
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, Gene, find_gene
from carbon.genome.interval import Interval, Variant
from carbon.genome.notation import read_variant


@dataclass(frozen=True, slots=True)
class Genome:
    """A reference and its genes.

    Attributes:
        reference: reference sequence.
        annotation: genes of the reference; None without an annotation.
        shown_files: names of FASTA and annotation for a command line; uploads by their file names.
    """

    reference: Reference
    annotation: Annotation | None
    shown_files: tuple[str, ...]

    @property
    def gene_names(self) -> tuple[str, ...]:
        """Names of all genes, sorted, without repeats."""
        genes = self.annotation.genes if self.annotation else ()
        return tuple(sorted({gene.name for gene in genes}))

    @classmethod
    def open(
        cls,
        fasta: str | Path,
        annotation: str | Path | None,
        contigs: str | None = None,
        genetic_code: str | int | None = None,
    ) -> Self:
        """Open a FASTA and its annotation, whose contigs may have other names.

        Args:
            fasta: reference sequence.
            annotation: annotation file, or None.
            contigs: option for `contig_names`.
            genetic_code: NCBI translation table for CDS without one in the annotation, as for
                `read_annotation`.

        Raises:
            GenomeError: a file is malformed, or the two do not belong together.
        """
        reference = Reference(fasta)
        names = contig_names(contigs, reference.contig_lengths_bp)
        genes = None
        if annotation:
            genes = read_gene_file(annotation, reference, names, genetic_code)
        return cls(reference, genes, tuple(str(f) for f in (fasta, annotation) if f))

    def place(self, text: str, flank_bp: int, most_bp: int) -> Interval:
        """Return the interval of a `contig:first-last`, or of a gene's name with flanks.

        Raises:
            GenomeError: the gene or region does not exist.
            UserError: the interval is longer than `most_bp`, or `text` is empty.
        """
        if not text:
            raise UserError("no place is given; type a gene's name or contig:first-last")
        lengths_bp = self.reference.contig_lengths_bp
        names = contig_names(CHR, lengths_bp)
        if ":" in text or text in {*lengths_bp, *names} or self.annotation is None:
            interval = region_by_name(text, lengths_bp, names)
        else:
            gene = find_gene(self.annotation, text).interval
            interval = gene.widened(flank_bp, lengths_bp[gene.contig])
        if interval.length_bp > most_bp:
            raise UserError(
                f"{interval.to_region()} has {interval.length_bp:,} bases; give "
                f"{most_bp:,} at most, such as a region within it"
            )
        return interval

    def variant(self, text: str) -> Variant:
        """Return the variant that a text denotes; see `carbon.genome.notation.read_variant`."""
        return read_variant(text, self.reference, self.annotation)

    def genes_in(self, interval: Interval) -> list[Gene]:
        """Return the genes that overlap an interval."""
        genes = self.annotation.genes if self.annotation else ()
        return [gene for gene in genes if gene.interval.overlaps(interval)]

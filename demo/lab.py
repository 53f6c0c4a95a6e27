"""What the panels share: the model, the genome beside it, and genomes that visitors bring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Self

from carbon.errors import UserError
from carbon.files import scratch_folder
from carbon.genome import (
    CHR,
    Annotation,
    Gene,
    Interval,
    Reference,
    contig_names,
    from_region,
    is_genbank,
    read_gene_file,
    unpack_genbank,
)
from carbon.genome.gene_lookup import find_gene
from carbon.inference import Carbon
from carbon.inference.learning import Learning

FASTA_ENDINGS = (".fa", ".fasta", ".fna")
ANNOTATION_ENDINGS = (".gff", ".gff3", ".gtf", ".bed")
GENBANK_ENDINGS = (".gb", ".gbk", ".gbff", ".genbank")
GENOME_ENDINGS = FASTA_ENDINGS + ANNOTATION_ENDINGS + GENBANK_ENDINGS
_KEPT_GENOMES = 8
_EXAMPLE_BP = (600, 2500)


@dataclass(frozen=True, slots=True)
class Genome:
    """A reference and its genes.

    Attributes:
        reference: the sequence.
        annotation: its genes; None where there are none.
        shown_files: FASTA and annotation as a command line names them; uploads by their names.
    """

    reference: Reference
    annotation: Annotation | None
    shown_files: tuple[str, ...]

    @classmethod
    def open(
        cls, fasta: str | Path, annotation: str | Path | None, contigs: str | None = None
    ) -> Self:
        """Open a FASTA and the annotation beside it, whose contigs may have other names.

        Raises:
            GenomeError: a file is malformed, or the two do not belong together.
        """
        reference = Reference(fasta)
        names = contig_names(contigs, reference.contig_lengths_bp)
        genes = None
        if annotation:
            genes = read_gene_file(annotation, reference, names)
        return cls(reference, genes, tuple(str(f) for f in (fasta, annotation) if f))

    def place(self, text: str, flank_bp: int, most_bp: int) -> Interval:
        """Return the interval of a gene's name, with a flank, or of a `contig:first-last`.

        Raises:
            GenomeError: there is no such gene or region.
            UserError: it is longer than `most_bp`.
        """
        if not text:
            raise UserError("no place is given; type a gene's name or contig:first-last")
        if ":" in text or text in self.reference.contig_lengths_bp or self.annotation is None:
            interval = from_region(text, self.reference.contig_lengths_bp)
        else:
            gene = find_gene(self.annotation, text).interval
            length_bp = self.reference.contig_lengths_bp[gene.contig]
            interval = gene.widened(flank_bp, length_bp)
        if interval.length_bp > most_bp:
            raise UserError(
                f"{interval.to_region()} has {interval.length_bp:,} bases; this page reads "
                f"{most_bp:,} at most: give a region within it"
            )
        return interval

    def genes_in(self, interval: Interval) -> list[Gene]:
        """Return the genes that an interval touches."""
        genes = self.annotation.genes if self.annotation else ()
        return [gene for gene in genes if gene.interval.overlaps(interval)]


class Lab:
    """The model and the genomes.

    Attributes:
        model: what answers.
        model_name: as a command line names it.
        genome: the one that is there from the start.
        runs: folder under which run folders may be opened.
        known_genes: genes of that genome that people know, each with a sentence that says why.
        learned: how the model learned a region of that genome; None where nobody kept it.
        told_variants: variants of that genome by label, with what the model says of them.
        example_gene: name of a gene of that genome, or a region where it has none.
    """

    def __init__(
        self,
        model: Carbon,
        model_name: str,
        genome: Genome,
        runs: Path,
        known_genes: Mapping[str, str] = MappingProxyType({}),
        learned: Learning | None = None,
        told_variants: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> None:
        """Keep them."""
        self.model = model
        self.model_name = model_name
        self.genome = genome
        self.runs = runs
        self.known_genes = known_genes
        self.learned = learned
        self.told_variants = told_variants
        self.example_gene = next(iter(known_genes), None) or _example_gene(genome)
        self._read_upload = lru_cache(_KEPT_GENOMES)(_read_upload)

    def genome_of(self, files: Sequence[str]) -> Genome:
        """Return the genome in uploaded files, or the one that is there from the start.

        The last few are kept, so that a visitor's next question need not read them again.

        Raises:
            UserError: the files are not one FASTA, with or without annotation, or one GenBank.
            GenomeError: a file is malformed.
        """
        return self._read_upload(tuple(sorted(files))) if files else self.genome


def _example_gene(genome: Genome) -> str:
    """Return a gene of a few exons that a page reads at once, on the last contig that has one."""
    genes = genome.annotation.genes if genome.annotation else ()
    fit = [
        gene
        for gene in genes
        if _EXAMPLE_BP[0] <= gene.interval.length_bp <= _EXAMPLE_BP[1] and gene.transcripts
    ]
    if fit:
        last = [gene for gene in fit if gene.interval.contig == fit[-1].interval.contig]
        return max(last, key=lambda gene: len(gene.transcripts[0].exons)).name
    contig, length_bp = next(iter(genome.reference.contig_lengths_bp.items()))
    return Interval(contig, 0, min(length_bp, _EXAMPLE_BP[1])).to_region()


def _read_upload(files: tuple[str, ...]) -> Genome:
    fastas = [f for f in files if f.lower().endswith(FASTA_ENDINGS)]
    annotations = [f for f in files if f.lower().endswith(ANNOTATION_ENDINGS)]
    genbanks = [f for f in files if f.lower().endswith(GENBANK_ENDINGS)]
    try:
        if len(genbanks) == len(files) == 1:
            return _read_genbank(genbanks[0])
        if len(fastas) == 1 and len(annotations) <= 1 and not genbanks:
            found = Genome.open(fastas[0], annotations[0] if annotations else None, CHR)
            return replace(found, shown_files=tuple(Path(path).name for path in files))
    except UserError as error:
        raise UserError(without_folders(str(error), files)) from None
    raise UserError("upload one GenBank file, or one FASTA with or without one GFF3, GTF or BED")


def _read_genbank(path: str) -> Genome:
    if not is_genbank(path):
        raise UserError(f"{path}: does not begin as a GenBank flat file does (LOCUS)")
    with scratch_folder("genbank") as folder:
        fasta = folder / "genome.fa"
        annotation = unpack_genbank(path, fasta).annotation
        # An open reference needs its file no more by name.
        return Genome(Reference(fasta), annotation, (Path(path).name,))


def without_folders(message: str, files: Sequence[str]) -> str:
    """Return a message that names files without the folders of this machine."""
    for path in files:
        message = message.replace(path, Path(path).name)
    return message

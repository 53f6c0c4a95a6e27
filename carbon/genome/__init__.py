"""Sequences, intervals, genes and variants, and readers for their file formats.

Nothing here imports torch.
"""

from carbon.genome.alphabet import (
    GENETIC_CODE,
    IUPAC_DNA,
    STOP_CODONS,
    reverse_complement,
    translate,
)
from carbon.genome.annotation import read_annotation, read_gene_file
from carbon.genome.consequences import (
    Consequence,
    Consequences,
    Effect,
    SnvEffect,
    effect_on,
    snv_effect,
)
from carbon.genome.contig_names import CHR, contig_names, region_by_name
from carbon.genome.fasta import Disagreement, Reference, short
from carbon.genome.genbank import GenBank, is_genbank, unpack_genbank
from carbon.genome.genes import Annotation, Gene, Span, Transcript, intergenic, spliced
from carbon.genome.interval import Interval, Strand, Variant, from_region
from carbon.genome.records import read_fasta, read_vcf
from carbon.genome.sequences import (
    SequenceChunk,
    SequenceRecord,
    fasta_text,
    read_chunks,
    read_records,
    read_sequences,
)
from carbon.genome.vcf import VcfReader, VcfRow

__all__ = [
    "CHR",
    "GENETIC_CODE",
    "IUPAC_DNA",
    "STOP_CODONS",
    "Annotation",
    "Consequence",
    "Consequences",
    "Disagreement",
    "Effect",
    "GenBank",
    "Gene",
    "Interval",
    "Reference",
    "SequenceChunk",
    "SequenceRecord",
    "SnvEffect",
    "Span",
    "Strand",
    "Transcript",
    "Variant",
    "VcfReader",
    "VcfRow",
    "contig_names",
    "effect_on",
    "fasta_text",
    "from_region",
    "intergenic",
    "is_genbank",
    "read_annotation",
    "read_chunks",
    "read_fasta",
    "read_gene_file",
    "read_records",
    "read_sequences",
    "read_vcf",
    "region_by_name",
    "reverse_complement",
    "short",
    "snv_effect",
    "spliced",
    "translate",
    "unpack_genbank",
]

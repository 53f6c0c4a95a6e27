"""Sequences, intervals and variants, and the files they come in. Knows no torch."""

from carbon.genome.alphabet import (
    GENETIC_CODE,
    IUPAC_DNA,
    STOP_CODONS,
    reverse_complement,
    translate,
)
from carbon.genome.annotation import read_annotation
from carbon.genome.effects import SnvEffect, snv_effect
from carbon.genome.fasta import Reference, short
from carbon.genome.genbank import GenBank, is_genbank, unpack_genbank
from carbon.genome.genes import Annotation, Gene, Span, Transcript, intergenic, spliced
from carbon.genome.interval import Interval, Strand, from_region
from carbon.genome.pieces import Piece, read_pieces
from carbon.genome.sequences import SequenceRecord, read_records, read_sequences
from carbon.genome.variant import Variant
from carbon.genome.vcf import VcfReader, VcfRow

__all__ = [
    "GENETIC_CODE",
    "IUPAC_DNA",
    "STOP_CODONS",
    "Annotation",
    "GenBank",
    "Gene",
    "Interval",
    "Piece",
    "Reference",
    "SequenceRecord",
    "SnvEffect",
    "Span",
    "Strand",
    "Transcript",
    "Variant",
    "VcfReader",
    "VcfRow",
    "from_region",
    "intergenic",
    "is_genbank",
    "read_annotation",
    "read_pieces",
    "read_records",
    "read_sequences",
    "reverse_complement",
    "short",
    "snv_effect",
    "spliced",
    "translate",
    "unpack_genbank",
]

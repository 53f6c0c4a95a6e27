"""The bases from which the model writes on, or of which it predicts the last."""

from carbon.genome import reverse_complement
from carbon.tokenizer import K
from demo.gene_summary import first_coding_bases
from demo.inputs import Detected


def opening_bases(detected: Detected, length_bp: int) -> str:
    """Return DNA of an input, in upper case.

    Args:
        detected: of a gene, the first coding bases, or the first bases on its strand if it has too
            few; of a variant, the reference bases up to a 6-mer that begins at it; otherwise all
            bases of the region or sequence.
        length_bp: number of bases of a gene or before a variant.
    """
    reference = detected.genome.reference
    if detected.variant:
        start, contig = detected.variant.position, detected.variant.contig
        place = detected.interval.widened(length_bp, reference.contig_lengths_bp[contig])
        return reference.fetch(place).upper()[: start - place.start + K]
    if detected.kind != "gene" or detected.gene is None:
        return detected.bases
    transcripts = detected.gene.transcripts
    if transcripts and (first := first_coding_bases(reference, transcripts[0], length_bp)):
        return first
    along = detected.bases if detected.gene.strand == "+" else reverse_complement(detected.bases)
    return along[:length_bp]

"""Bases of the lab's genome that pages begin with."""

from carbon.genome import Interval, Transcript, spliced
from demo.lab import Lab


def example_transcript(lab: Lab) -> Transcript | None:
    """Return the first transcript of the example gene; None where the genome has no genes."""
    genes = lab.genome.annotation.genes if lab.genome.annotation else ()
    named = (gene for gene in genes if gene.name == lab.example_gene and gene.transcripts)
    return next((gene.transcripts[0] for gene in named), None)


def example_bases(lab: Lab, length_bp: int) -> str:
    """Return coding bases from the example gene's start codon on, or where the genome begins."""
    transcript = example_transcript(lab)
    reference = lab.genome.reference
    if transcript and transcript.cds_length_bp >= length_bp:
        coding = spliced(reference, transcript.contig, transcript.cds, transcript.strand)
        return coding[:length_bp].upper()
    contig, contig_bp = max(reference.contig_lengths_bp.items(), key=lambda item: item[1])
    return reference.fetch(Interval(contig, 0, min(length_bp, contig_bp))).upper()


def example_donor(lab: Lab, before_bp: int, after_bp: int) -> str | None:
    """Return bases around the start of an intron, along its strand; None where there is none."""
    transcript = example_transcript(lab)
    if transcript is None or not transcript.introns:
        return None
    start, end = transcript.introns[0]
    if transcript.strand == "+":
        span = (start - before_bp, start + after_bp)
    else:
        span = (end - after_bp, end + before_bp)
    length_bp = lab.genome.reference.contig_lengths_bp[transcript.contig]
    if span[0] < 0 or span[1] > length_bp:
        return None
    return spliced(lab.genome.reference, transcript.contig, [span], transcript.strand).upper()

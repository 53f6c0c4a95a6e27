"""Pieces of a genome by kind: coding, intron and intergenic."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from carbon.genome.alphabet import reverse_complement
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, intergenic
from carbon.genome.interval import Interval, Strand
from carbon.genome.sequences import SequenceRecord

T = TypeVar("T")
_Site = tuple[Interval, Strand]


def pieces_of_kinds(
    reference: Reference, annotation: Annotation | None, per_kind: int, piece_bp: int
) -> Iterator[SequenceRecord]:
    """Yield coding, intron and intergenic sequences across the genome; genes along their strand.

    Args:
        reference: the reference sequence.
        annotation: its genes, whose first transcripts provide the sequences; without genes, the
            kinds are the contigs.
        per_kind: maximum number of sequences of each kind.
        piece_bp: length of a sequence; shorter regions are skipped.

    Yields:
        Records named by region and strand, with the kind as description. Sequences without a
        known base are omitted.
    """
    for kind, sites in _sites_of_kinds(reference, annotation).items():
        for interval, strand in _windows(sites, per_kind, piece_bp):
            bases = reference.fetch(interval)
            if any(letter in "ACGTacgt" for letter in bases):
                name = f"{interval.to_region()}({strand})"
                yield SequenceRecord(
                    name, kind, bases if strand == "+" else reverse_complement(bases)
                )


def _sites_of_kinds(reference: Reference, annotation: Annotation | None) -> dict[str, list[_Site]]:
    """Return coding spans, introns and intergenic regions; contigs if no gene is known."""
    lengths_bp = reference.contig_lengths_bp
    if annotation is None:
        return {name: [(Interval(name, 0, bp), "+")] for name, bp in lengths_bp.items()}
    genes = annotation.genes
    transcripts = [gene.transcripts[0] for gene in genes if gene.transcripts]
    spans = {
        "coding": [(t, span) for t in transcripts for span in t.cds],
        "intron": [(t, span) for t in transcripts for span in t.introns],
    }
    sites: dict[str, list[_Site]] = {
        kind: [
            (Interval(t.contig, start, end), t.strand)
            for t, (start, end) in kind_spans
            if end <= lengths_bp[t.contig]  # a span of a circular contig may pass its end
        ]
        for kind, kind_spans in spans.items()
    }
    return sites | {"intergenic": [(gap, "+") for gap in intergenic(annotation, lengths_bp)]}


def _windows(sites: Iterable[_Site], number: int, piece_bp: int) -> list[_Site]:
    """Return `number` sites of length `piece_bp`, from as many of the given sites as possible."""
    sites = _evenly([site for site in sites if site[0].length_bp >= piece_bp], number)
    per_site = -(-number // max(len(sites), 1))
    windows = [
        (Interval(site.contig, start, start + piece_bp), strand)
        for site, strand in sites
        for start in _evenly(range(site.start, site.end - piece_bp + 1, piece_bp), per_site)
    ]
    return _evenly(windows, number)


def _evenly(items: Sequence[T], number: int) -> list[T]:
    """Return `number` evenly spaced items, or all items if there are fewer."""
    if len(items) <= number:
        return list(items)
    return [items[n * len(items) // number] for n in range(number)]

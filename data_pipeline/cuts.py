"""Cuts of an annotated assembly, one function each; bases are fetched later.

Which source a record is of, the table in `data_pipeline.sources` says.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from carbon.errors import GenomeError
from carbon.genome import Annotation, Gene, Interval, Span, Transcript
from carbon.tokenizer import GENE_TAG_OF
from data_pipeline.limits import CutConfig, KeepConfig
from data_pipeline.records import Record, Segment
from data_pipeline.split import split_of


class Dropped(NamedTuple):
    """What did not become a record, and why."""

    name: str
    reason: str


Found = Iterator[Record | Dropped]


class AnnotatedAssembly(NamedTuple):
    """An assembly for the functions below, with the settings of the recipe for records."""

    annotation: Annotation
    contig_lengths_bp: dict[str, int]
    held_out: list[Interval]
    cut: CutConfig
    keep: KeepConfig


def check_cds(annotation: Annotation) -> None:
    """Raise GenomeError at the first CDS that is out of frame for no stated reason."""
    coding = [t for gene in annotation.genes for t in gene.transcripts if t.cds]
    broken = [t for t in coding if t.leftover_bp and not t.incomplete]
    if broken:
        first = broken[0]
        raise GenomeError(
            f"{first.where}: the CDS of '{first.transcript_id}' has {first.cds_length_bp} bases, "
            f"not a multiple of three, and is not marked as partial; so it is with {len(broken):,} "
            f'of {len(coding):,} CDS; set incomplete_cds = "drop" for this assembly to leave such '
            "transcripts out, or mend the annotation"
        )


def gene_regions(assembly: AnnotatedAssembly) -> Found:
    """Yield genes with their flanks along their strand; touching genes share a region."""
    most_bp = assembly.keep.max_record_bp
    for genes, interval in _joined_genes(assembly):
        for start in range(interval.start, interval.end, most_bp):
            segment = Segment(start, min(start + most_bp, interval.end), genes[0].strand)
            yield _record(genes, interval.contig, segment)


def runs_of_gene_regions(assembly: AnnotatedAssembly) -> Found:
    """Yield runs of consecutive regions of one contig, each along its strand, joined."""
    size_bp = assembly.cut.concatenated_bp  # may be more than any other record has
    waiting: list[tuple[list[Gene], Interval]] = []
    side: tuple[str, str | None] | None = None  # contig and split of the regions that wait
    for genes, interval in [*_joined_genes(assembly), ([], None)]:
        full = sum(i.length_bp for _, i in waiting) + (interval.length_bp if interval else 0)
        here = (interval.contig, _split(assembly, interval)) if interval else None
        if full > size_bp or here != side:
            if len(waiting) > 1:
                yield _run(waiting)
            elif waiting:
                yield _not_joined(waiting[0][0], "alone_in_its_run")
            waiting, side = [], here
        if interval is not None and interval.length_bp <= size_bp:
            waiting.append((genes, interval))
        elif interval is not None:
            yield _not_joined(genes, "longer_than_concatenated_bp")


def _not_joined(genes: list[Gene], reason: str) -> Dropped:
    return Dropped(",".join(gene.name for gene in genes), reason)


def _run(run: list[tuple[list[Gene], Interval]]) -> Record:
    segments = [Segment(i.start, i.end, genes[0].strand) for genes, i in run]
    genes = [gene for genes, _ in run for gene in genes]
    return _record(genes, run[0][1].contig, *segments)


def _split(assembly: AnnotatedAssembly, interval: Interval) -> str | None:
    length_bp = assembly.contig_lengths_bp[interval.contig]
    record = Record(interval.contig, (Segment(interval.start, interval.end, "+"),), "", "")
    return split_of(record.intervals(length_bp), assembly.held_out)


def spliced_transcripts(assembly: AnnotatedAssembly) -> Found:
    """Yield the exons of coding transcripts, spliced."""
    return _of_coding(assembly, lambda transcript: transcript.exons)


def transcripts_in_context(assembly: AnnotatedAssembly) -> Found:
    """Yield transcripts with the promoter before them and a little of each intron's two ends."""
    return _of_coding(assembly, partial(_in_context, assembly))


def five_prime_utrs(assembly: AnnotatedAssembly) -> Found:
    """Yield what of the exons lies before the CDS, spliced along the strand, once each."""
    return _of_coding(assembly, partial(_utr, before=True), gene_type="", once=True)


def three_prime_utrs(assembly: AnnotatedAssembly) -> Found:
    """Yield the parts of exons after the stop codon, spliced along the strand, once each."""
    return _of_coding(assembly, partial(_utr, before=False), gene_type="", once=True)


def _of_coding(
    assembly: AnnotatedAssembly,
    spans_of: Callable[[Transcript], Sequence[Span]],
    gene_type: str = "cds",
    once: bool = False,
) -> Found:
    """Yield spans of each coding transcript, which ascend, spliced along its strand.

    Transcripts without spans give no record, and with `once` neither those whose spans another has.
    """
    seen: set[tuple[str, tuple[Segment, ...]]] = set()
    for transcript in (t for gene in assembly.annotation.genes for t in gene.transcripts if t.cds):
        if reason := _why_no_transcript(transcript):
            yield Dropped(transcript.transcript_id, reason)
            continue
        spans = spans_of(transcript)
        in_order = spans if transcript.strand == "+" else spans[::-1]
        segments = tuple(Segment(start, end, transcript.strand) for start, end in in_order)
        if segments and (transcript.contig, segments) not in seen:
            yield Record(transcript.contig, segments, gene_type, transcript.transcript_id)
            if once:
                seen.add((transcript.contig, segments))


def _why_no_transcript(transcript: Transcript) -> str:
    if transcript.trans_spliced:
        return "trans_splicing"
    if transcript.incomplete:
        return "cds_marked_incomplete"
    return "cds_not_multiple_of_three" if transcript.leftover_bp else ""


def _in_context(assembly: AnnotatedAssembly, transcript: Transcript) -> list[Span]:
    length_bp = assembly.contig_lengths_bp[transcript.contig]
    promoter_bp, splice_bp = assembly.cut.promoter_bp, assembly.cut.splice_bp
    if transcript.contig not in assembly.annotation.circular:
        return _widened(transcript, splice_bp, promoter_bp, length_bp)
    covered_bp = transcript.exons[-1][1] - transcript.exons[0][0]
    promoter_bp = max(0, min(promoter_bp, length_bp - covered_bp))  # no further than once around
    spans = _widened(transcript, splice_bp, promoter_bp, None)
    turn_bp = length_bp if spans[0][0] < 0 else 0  # a promoter before base 0 of a circle
    return [(start + turn_bp, end + turn_bp) for start, end in spans]


def _widened(
    transcript: Transcript, splice_bp: int, promoter_bp: int, length_bp: int | None
) -> list[Span]:
    """Widen exons into introns, and the first one of the transcript over its promoter."""
    spans = [[start - splice_bp, end + splice_bp] for start, end in transcript.exons]
    spans[0][0] = transcript.exons[0][0]
    spans[-1][1] = transcript.exons[-1][1]
    if transcript.strand == "+":
        spans[0][0] -= promoter_bp
    else:
        spans[-1][1] += promoter_bp
    if length_bp is not None:
        spans[0][0], spans[-1][1] = max(0, spans[0][0]), min(length_bp, spans[-1][1])
    result: list[Span] = []
    for start, end in spans:
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return result


def promoter_windows(assembly: AnnotatedAssembly) -> Found:
    """Yield the window around every transcription start, once each."""
    seen: set[tuple[str, int, str]] = set()
    for gene in assembly.annotation.genes:
        for transcript in gene.transcripts:
            if transcript.trans_spliced:
                yield Dropped(transcript.transcript_id, "trans_splicing")
                continue
            forward = transcript.strand == "+"
            tss = transcript.exons[0][0] if forward else transcript.exons[-1][1]
            key = (transcript.contig, tss, transcript.strand)
            if key in seen:
                continue
            seen.add(key)
            before, after = assembly.cut.upstream_bp, assembly.cut.downstream_bp
            start, end = (tss - before, tss + after) if forward else (tss - after, tss + before)
            length_bp = assembly.contig_lengths_bp[transcript.contig]
            if end - start > length_bp:
                yield Dropped(transcript.transcript_id, "window_longer_than_contig")
                continue
            if transcript.contig in assembly.annotation.circular:
                turn_bp = length_bp if start < 0 else 0
                start, end = start + turn_bp, end + turn_bp
            elif start < 0 or end > length_bp:
                yield Dropped(transcript.transcript_id, "window_past_contig_end")
                continue
            yield _record([gene], transcript.contig, Segment(start, end, gene.strand))


def contig_chunks(assembly: AnnotatedAssembly) -> Found:
    """Yield consecutive chunks of every contig, cut where the held-out regions begin and end."""
    size_bp = min(assembly.cut.chunk_bp, assembly.keep.max_record_bp)
    for contig, length_bp in assembly.contig_lengths_bp.items():
        ends = {0, length_bp}
        for region in assembly.held_out:
            if region.contig == contig:
                ends |= {region.start, region.end}
        for first, last in itertools.pairwise(sorted(ends)):
            for start in range(first, last, size_bp):
                end = min(start + size_bp, last)
                segment = Segment(start, end, "+")
                yield Record(contig, (segment,), "", f"{contig}:{start + 1}-{end}")


def _joined_genes(assembly: AnnotatedAssembly) -> list[tuple[list[Gene], Interval]]:
    """Group genes of one strand whose flanked intervals touch."""
    result: list[tuple[list[Gene], Interval]] = []
    last: dict[tuple[str, str], int] = {}
    for gene in assembly.annotation.genes:
        interval = _flanked(gene, assembly)
        key = (interval.contig, gene.strand)
        at = last.get(key)
        if at is not None and interval.start <= result[at][1].end:
            genes, before = result[at]
            end = max(before.end, interval.end)
            result[at] = ([*genes, gene], replace(before, end=end))
        else:
            last[key] = len(result)
            result.append(([gene], interval))
    return result


def _flanked(gene: Gene, assembly: AnnotatedAssembly) -> Interval:
    flank_bp = assembly.cut.flank_bp
    length_bp = assembly.contig_lengths_bp[gene.interval.contig]
    if gene.interval.end > length_bp:  # goes over the origin, as its flanks may, but once around
        flank_bp = max(0, min(flank_bp, (length_bp - gene.interval.length_bp) // 2))
        start, end = gene.interval.start - flank_bp, gene.interval.end + flank_bp
        turn_bp = length_bp if start < 0 else 0
        return Interval(gene.interval.contig, start + turn_bp, end + turn_bp)
    return gene.interval.widened(flank_bp, length_bp)


def _record(genes: list[Gene], contig: str, *segments: Segment) -> Record:
    name = ",".join(gene.name for gene in genes)
    return Record(contig, segments, _type_of(genes), name)


def _type_of(genes: list[Gene]) -> str:
    """Return the type of a region: coding if any gene is, else the type of its first gene."""
    types = [gene_type_of(gene.biotype) for gene in genes]
    return "cds" if "cds" in types else types[0]


def _utr(transcript: Transcript, *, before: bool) -> list[Span]:
    """Return the exons on one side of the CDS; none if they end with the CDS."""
    first, last = transcript.cds[0][0], max(end for _, end in transcript.cds)
    exons: list[Span] = (
        [(start, min(end, first)) for start, end in transcript.exons]
        if (transcript.strand == "+") == before
        else [(max(start, last), end) for start, end in transcript.exons]
    )
    return [(start, end) for start, end in exons if start < end]


_EXACT_TYPES = {
    **{gene_type.lower(): gene_type for gene_type in GENE_TAG_OF},
    "protein_coding": "cds",
    "mrna": "cds",
}
# A word that ends with tRNA is not one, such as vaultRNA; a pseudogenic_tRNA is a pseudogene.
_TYPE_PATTERNS = (
    ("pseudogen", "pseudo"),
    ("(?<![a-z])trna$", "tRNA"),
    ("(?<![a-z])rrna$", "rRNA"),
    ("rna$", "ncRNA"),
)


def gene_type_of(biotype: str) -> str:
    """Return the corpus's gene type of an annotation's biotype, or an empty string.

    >>> gene_type_of("Protein_coding"), gene_type_of("ncRNA_gene"), gene_type_of("TEC")
    ('cds', 'ncRNA', '')
    """
    name = biotype.lower().removesuffix("_gene")
    kinds = (kind for pattern, kind in _TYPE_PATTERNS if re.search(pattern, name))
    return _EXACT_TYPES.get(name) or next(kinds, "")

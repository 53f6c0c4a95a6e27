"""The untranslated ends of coding transcripts."""

from carbon.genome import Span, Transcript
from data_pipeline.records.record import Record, Segment
from data_pipeline.sources.cuts import AnnotatedAssembly, Dropped, Found
from data_pipeline.sources.limits import CutConfig, KeepConfig


def five_prime_utrs(assembly: AnnotatedAssembly, cut: CutConfig, keep: KeepConfig) -> Found:
    """Yield what of the exons lies before the CDS, spliced along the strand, once each."""
    del cut, keep
    return _utrs(assembly, before=True)


def three_prime_utrs(assembly: AnnotatedAssembly, cut: CutConfig, keep: KeepConfig) -> Found:
    """Yield what of the exons lies behind the stop codon, spliced along the strand, once each."""
    del cut, keep
    return _utrs(assembly, before=False)


def _utrs(assembly: AnnotatedAssembly, *, before: bool) -> Found:
    seen: set[tuple[str, tuple[Segment, ...]]] = set()
    for gene in assembly.annotation.genes:
        for transcript in filter(lambda each: each.cds, gene.transcripts):
            if transcript.trans_spliced:
                yield Dropped(transcript.transcript_id, "trans_splicing")
                continue
            if transcript.incomplete:
                yield Dropped(transcript.transcript_id, "cds_marked_incomplete")
                continue
            segments = _utr(transcript, before=before)
            if segments and (transcript.contig, segments) not in seen:
                seen.add((transcript.contig, segments))
                yield Record(transcript.contig, segments, "", transcript.transcript_id)


def _utr(transcript: Transcript, *, before: bool) -> tuple[Segment, ...]:
    """Return the exons on one side of the CDS in reading order; none if they end with the CDS."""
    forward = transcript.strand == "+"
    first, last = transcript.cds[0][0], max(end for _, end in transcript.cds)
    exons: list[Span] = (
        [(start, min(end, first)) for start, end in transcript.exons]
        if forward == before
        else [(max(start, last), end) for start, end in transcript.exons]
    )
    spans = [(start, end) for start, end in exons if start < end]
    in_order = spans if forward else spans[::-1]
    return tuple(Segment(start, end, transcript.strand) for start, end in in_order)

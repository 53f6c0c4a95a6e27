"""What a change of bases does to a transcript.

Terms are those of the Sequence Ontology. Codons are the whole ones of the CDS, read by the standard
code: bases that its phase leaves before the first one, and what is left over behind the last, are
none. The first whole codon has the number 1, as the protein of a partial record begins with it.
"""

from typing import NamedTuple

from carbon.genome.alphabet import reverse_complement, translate
from carbon.genome.fasta import Reference
from carbon.genome.genes import Span, Transcript, spliced
from carbon.genome.normalize import normalize_variant
from carbon.genome.variant import Variant

_SPLICE_BP = 2  # GT and AG, at either end of an intron
_CODON_BP = 3
_STANDARD_CODES = {1, 11}  # NCBI translation tables whose codons mean the same
# ATG, and what begins proteins besides (NCBI translation tables 1 and 11).
_START_CODONS = {"ATG", "GTG", "TTG", "CTG"}
_UNTOLD = "coding_sequence_variant"


class Effect(NamedTuple):
    """An effect on a transcript.

    Attributes:
        term: of the Sequence Ontology.
        codon: number of the first codon that changes, from 1; None where no whole codon does.
        codons: the codons before and after, such as `CAG/TAG`; `-` where there are none. Empty
            where `codon` is None or the reading frame shifts.
        amino_acids: what they stand for, such as `Q/*`; one letter if that stays the same.
    """

    term: str
    codon: int | None = None
    codons: str = ""
    amino_acids: str = ""


class SnvEffect(NamedTuple):
    """An effect of one base, named as the Sequence Ontology does.

    Attributes:
        term: `synonymous_variant`, `missense_variant`, `start_lost`, `start_retained_variant`,
            `stop_gained`, `stop_lost`, `stop_retained_variant`, `splice_donor_variant` or
            `splice_acceptor_variant`.
        change: the amino acid before, the number of its codon from 1, and the amino acid after it,
            such as `Q39*`; empty for those of an intron.
    """

    term: str
    change: str


def snv_effect(reference: Reference, transcript: Transcript, variant: Variant) -> SnvEffect | None:
    """Return what an SNV does to a codon or a splice site.

    None if it is no SNV or does nothing to either, or if `effect_on` does not tell its codon.
    """
    variant = normalize_variant(reference, variant)
    if not len(variant.ref) == len(variant.alt) == 1:
        return None
    effect = effect_on(reference, transcript, variant)
    if effect is None or not (effect.codon or effect.term.startswith("splice_")):
        return None
    before, _, after = effect.amino_acids.partition("/")
    number = effect.codon or ""
    return SnvEffect(effect.term, f"{before}{number}{after or before}")


def effect_on(reference: Reference, transcript: Transcript, variant: Variant) -> Effect | None:
    """Return what a variant does to a transcript, where that can be told exactly.

    The variant is trimmed and left-aligned first (`carbon.genome.normalize`), without the anchor
    base. A place in the CDS of which no codon can be told is a
    `coding_sequence_variant`: where the frame is unknown, the code another, a base unknown, a stop
    codon inside the CDS (selenocysteine), or what changes is not all in one coding exon.

    Args:
        reference: of the annotation.
        transcript: of it.
        variant: with bases as alleles, REF as in the reference.

    Returns:
        None where the variant lies outside of the transcript, or across an edge between its exons,
        introns and UTRs, so that none of these terms fits.
    """
    if variant.contig != transcript.contig or variant.why_unscorable():
        return None
    start, end, alt = trimmed(normalize_variant(reference, variant))
    exons = transcript.exons
    if start < exons[0][0] and exons[-1][1] > reference.contig_lengths_bp[variant.contig]:
        turn_bp = reference.contig_lengths_bp[variant.contig]  # the transcript is over the origin
        start, end = start + turn_bp, end + turn_bp
    touched, is_insertion = _touched(start, end), start == end
    if not alt and start <= exons[0][0] and end >= exons[-1][1]:
        return Effect("transcript_ablation")
    if site := _splice_site(transcript, touched, is_insertion):
        return Effect(site)
    if (inside := _in_cds(transcript, touched)) is None:
        term = _region(transcript, touched, is_insertion)
        return Effect(term) if term else None
    first, last = (inside[0] + 1, inside[1] - 1) if is_insertion else inside
    read = alt if transcript.strand == "+" else reverse_complement(alt)
    return _coding_effect(reference, transcript, first, last, read)


def touched_span(variant: Variant) -> Span:
    """Return the bases of the contig that a variant replaces, or the two beside an insertion.

    At the edge of a contig one of the two is not there.
    """
    return _touched(*trimmed(variant)[:2])


def _touched(start: int, end: int) -> Span:
    # An insertion lies within what both of its neighbours lie in.
    return (start - 1, start + 1) if start == end else (start, end)


def trimmed(variant: Variant) -> tuple[int, int, str]:
    """Return start and end of the bases that change, and what stands there instead.

    Bases that REF and ALT have in common are taken off, the last first.
    """
    ref, alt = variant.ref.upper(), variant.alt.upper()
    while ref and alt and ref[-1] == alt[-1]:
        ref, alt = ref[:-1], alt[:-1]
    same = 0
    while same < min(len(ref), len(alt)) and ref[same] == alt[same]:
        same += 1
    start = variant.position + same
    return start, start + len(ref) - same, alt[same:]


def _splice_site(transcript: Transcript, touched: Span, is_insertion: bool) -> str | None:
    found = set()
    for start, end in transcript.introns:
        for site, is_left in (
            ((start, start + _SPLICE_BP), True),
            ((end - _SPLICE_BP, end), False),
        ):
            hit = _holds(site, touched) if is_insertion else _meets(site, touched)
            if hit:
                found.add("donor" if is_left == (transcript.strand == "+") else "acceptor")
    return f"splice_{min(found)}_variant" if found else None


def _in_cds(transcript: Transcript, touched: Span) -> Span | None:
    """Return where bases of the contig stand in the CDS, as the strand reads it.

    None if they are not all in one part of it, or are read twice where a ribosome slips.
    """
    found = []
    before_bp = 0
    for start, end in transcript.cds:
        if _holds((start, end), touched):
            found.append((before_bp + touched[0] - start, before_bp + touched[1] - start))
        before_bp += end - start
    if len(found) != 1:
        return None
    return found[0] if transcript.strand == "+" else _turned(found[0], before_bp)


def _region(transcript: Transcript, touched: Span, is_insertion: bool) -> str | None:
    """Return the term of the part of a transcript that holds bases."""
    cds = transcript.cds
    if any(_holds(span, touched) for span in cds) or (
        not is_insertion and any(_meets(span, touched) for span in cds)
    ):
        return _UNTOLD
    if any(_holds(intron, touched) for intron in transcript.introns):
        return "intron_variant"
    if not any(_holds(exon, touched) for exon in transcript.exons):
        return None
    if not cds:
        return "non_coding_transcript_exon_variant"
    is_left, is_right = touched[1] <= cds[0][0], touched[0] >= cds[-1][1]
    if not is_left and not is_right:
        return None
    return f"{5 if is_left == (transcript.strand == '+') else 3}_prime_UTR_variant"


def _coding_effect(
    reference: Reference, transcript: Transcript, first: int, last: int, alt: str
) -> Effect:
    """Return the effect of other bases in place of those from `first` to `last` of the CDS."""
    phase_bp, cds_bp = transcript.phase_bp, transcript.cds_length_bp
    if phase_bp is None or not reads_standard_code(transcript) or first < phase_bp:
        return Effect(_UNTOLD)
    if last > cds_bp - transcript.leftover_bp:
        is_behind = first >= cds_bp - transcript.leftover_bp
        return Effect("incomplete_terminal_codon_variant" if is_behind else _UNTOLD)
    start = first - (first - phase_bp) % _CODON_BP
    end = last + (phase_bp - last) % _CODON_BP
    number = (start - phase_bp) // _CODON_BP + 1
    if (len(alt) - (last - first)) % _CODON_BP:
        return Effect("frameshift_variant", number)
    before = _cds_bases(reference, transcript, (start, end))
    after = before[: first - start] + alt + before[last - start :]
    old, new = translate(before), translate(after)
    ends_cds = end == cds_bp and old.endswith("*")
    if "X" in old + new or "*" in (old[:-1] if ends_cds else old):
        return Effect(_UNTOLD)
    term = _stop_term(old, new, ends_cds)
    if not term and start == 0 and transcript.has_start:
        following = _cds_bases(reference, transcript, (end, end + _CODON_BP))
        term = _start_term(before[:_CODON_BP], (after + following)[:_CODON_BP])
    term = term or _term(old, new, len(alt), last - first)
    amino_acids = old if old == new else f"{old or '-'}/{new or '-'}"
    return Effect(term, number, f"{before or '-'}/{after or '-'}", amino_acids)


def _stop_term(old: str, new: str, ends_cds: bool) -> str | None:
    if not ends_cds:
        return "stop_gained" if "*" in new else None
    protein, stop, _ = new.partition("*")
    if not stop:
        return "stop_lost"
    if protein == old[:-1]:
        return "stop_retained_variant"
    return "stop_gained" if len(protein) < len(new) - 1 else None


def _start_term(before: str, after: str) -> str | None:
    """Return what becomes of the first codon; one that begins no protein is like any other."""
    if before not in _START_CODONS or before == after:
        return None
    return "start_retained_variant" if after == "ATG" else "start_lost"


def _term(old: str, new: str, alt_bp: int, ref_bp: int) -> str:
    if alt_bp == ref_bp:
        return "synonymous_variant" if old == new else "missense_variant"
    if alt_bp and ref_bp:
        return "protein_altering_variant"
    return "inframe_insertion" if alt_bp else "inframe_deletion"


def reads_standard_code(transcript: Transcript) -> bool:
    """Tell whether codons mean what they do in the standard code, as far as is stated."""
    if transcript.genetic_code is None:
        return not transcript.is_mitochondrial
    return transcript.genetic_code in _STANDARD_CODES


def _cds_bases(reference: Reference, transcript: Transcript, part: Span) -> str:
    """Return a part of the CDS, in capitals, as the strand reads it."""
    wanted = part if transcript.strand == "+" else _turned(part, transcript.cds_length_bp)
    spans = []
    before_bp = 0
    for start, end in transcript.cds:
        first = max(start, start + wanted[0] - before_bp)
        last = min(end, start + wanted[1] - before_bp)
        if first < last:
            spans.append((first, last))
        before_bp += end - start
    return spliced(reference, transcript.contig, spans, transcript.strand).upper()


def _turned(span: Span, length_bp: int) -> Span:
    return length_bp - span[1], length_bp - span[0]


def _holds(whole: Span, part: Span) -> bool:
    return whole[0] <= part[0] and part[1] <= whole[1]


def _meets(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]

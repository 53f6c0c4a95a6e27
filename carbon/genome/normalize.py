"""Trim and left-align variants, to one form for each variant, as `bcftools norm` does.

A VCF can write one change in many ways: padded with bases that REF and ALT share, or, in a repeat,
at any copy of the repeated unit (Tan, Abecasis and Kang 2015, doi:10.1093/bioinformatics/btv112).
"""

from carbon.genome.fasta import Reference
from carbon.genome.interval import BASES, Interval, Variant, allele_key

_FIRST_FETCH_BP = 64  # doubled with each further fetch, so that a long repeat takes linear time


def normalize_variant(reference: Reference, variant: Variant) -> Variant:
    """Return a variant trimmed and left-aligned.

    Shared bases at the ends of REF and ALT are removed, first at the right end. A pure insertion or
    deletion moves left as far as the sequence allows and keeps one anchor base, the base before it.
    At the start of a contig, and after a base that is not one of ACGT, the anchor is the base after
    it. A base that is not one of ACGT also stops the move. Case is ignored.

    Args:
        reference: reference of the variant.
        variant: its REF must agree with the reference.

    Returns:
        The same object if the variant has this form already, `why_unscorable` returns a reason
        (symbolic alleles, `*`, unknown bases, REF equal to ALT), or REF is not on a contig of the
        reference. Otherwise a variant with alleles in upper case.
    """
    ref, alt = variant.ref.upper(), variant.alt.upper()
    if len(ref) == len(alt) == 1 or variant.why_unscorable() or not _is_on(reference, variant):
        return variant
    after_bp = common_start_bp(ref[::-1], alt[::-1])
    ref_bp, alt_bp = len(ref) - after_bp, len(alt) - after_bp
    before_bp = common_start_bp(ref[:ref_bp], alt[:alt_bp])
    if before_bp < min(ref_bp, alt_bp):
        first = variant.position + before_bp
        plain = Variant(variant.contig, first, ref[before_bp:ref_bp], alt[before_bp:alt_bp])
    else:
        plain = _left_aligned(reference, variant, before_bp, after_bp)
    is_same = (plain.position, plain.ref, plain.alt) == (variant.position, ref, alt)
    return variant if is_same else plain


def other_form(reference: Reference, variant: Variant, contig: str | None = None) -> str | None:
    """Return the normalised form `contig:position:REF:ALT`; None if the variant has this form.

    Args:
        reference: reference of the variant.
        variant: its REF must agree with the reference.
        contig: contig name to write; the name in the variant if None.
    """
    plain = normalize_variant(reference, variant)
    if plain is variant:
        return None
    return allele_key(contig or plain.contig, plain.position + 1, *plain.alleles)


def common_start_bp(first: str, second: str) -> int:
    """Return the length of the common prefix of two sequences.

    >>> common_start_bp("ACGT", "ACT")
    2
    """
    pairs = zip(first, second, strict=False)
    differing = (number for number, (a, b) in enumerate(pairs) if a != b)
    return next(differing, min(len(first), len(second)))


def _is_on(reference: Reference, variant: Variant) -> bool:
    length_bp = reference.contig_lengths_bp.get(variant.contig, 0)
    return variant.position >= 0 and variant.interval.end <= length_bp


def _left_aligned(reference: Reference, variant: Variant, before_bp: int, after_bp: int) -> Variant:
    """Return an insertion or deletion at its leftmost place, with an anchor base.

    Args:
        reference: reference of the variant.
        variant: REF and ALT differ by one run of bases, the unit.
        before_bp: number of bases that REF and ALT share before the unit.
        after_bp: number of bases that they share after it.
    """
    ref, alt = variant.ref.upper(), variant.alt.upper()
    longer = max(ref, alt, key=len)
    unit_bp = len(longer) - before_bp - after_bp
    text, start = longer[: before_bp + unit_bp], variant.position
    fetch_bp, moved_bp = _FIRST_FETCH_BP, _moved_bp(text, unit_bp, 0)
    while moved_bp + unit_bp == len(text) and start:
        first = max(0, start - fetch_bp)
        text = reference.fetch(Interval(variant.contig, first, start)).upper() + text
        start, fetch_bp = first, 2 * fetch_bp
        moved_bp = _moved_bp(text, unit_bp, moved_bp)
    at = len(text) - moved_bp - unit_bp
    unit, anchor, place = text[at : at + unit_bp], text[at - 1 : at], start + at
    if anchor in BASES:
        short, long, place = anchor, anchor + unit, place - 1
    else:
        anchor = (text + longer[before_bp + unit_bp :])[at + unit_bp]
        short, long = anchor, unit + anchor
    is_insertion = len(alt) > len(ref)
    return Variant(variant.contig, place, *((short, long) if is_insertion else (long, short)))


def _moved_bp(text: str, unit_bp: int, moved_bp: int) -> int:
    """Return how far the last `unit_bp` bases of a text can move left with the same result.

    Args:
        text: bases in upper case.
        unit_bp: number of bases that are inserted or deleted.
        moved_bp: distance that is already known to be possible.
    """
    last = len(text) - 1
    while moved_bp + unit_bp <= last and text[last - moved_bp] == text[last - moved_bp - unit_bp]:
        moved_bp += 1
    return moved_bp

"""Sequences that are cut from a reference: around a place, and with a variant in them."""

from carbon.errors import ConfigError, UserError
from carbon.genome import Interval, Reference, Strand, Variant, contig_names, reverse_complement
from carbon.genome.normalize import normalize_variant


def window_of(
    reference: Reference, contig: str, start: int, end: int, strand: Strand, window_bp: int
) -> str:
    """Return the bases of a place, or `window_bp` around its middle, cut at the contig's ends.

    Raises:
        GenomeError: the place is not in the reference.
    """
    place = Interval(contig, start, end)
    if window_bp:
        reference.fetch(Interval(contig, end, end))  # the contig is there, and long enough
        first = (start + end) // 2 - window_bp // 2
        last = min(first + window_bp, reference.contig_lengths_bp[contig])
        place = Interval(contig, max(0, first), max(0, last))
    bases = reference.fetch(place)
    return bases if strand == "+" else reverse_complement(bases)


def alleles_of(reference: Reference, variant: Variant, window_bp: int) -> tuple[str, str]:
    """Return the bases around a variant with REF and with ALT, each of `window_bp`.

    The variant is trimmed and left-aligned first, so that the windows do not depend on how it is
    written. Both begin with the same half window before it; what is cut at a contig's end is
    shorter.
    """
    variant = normalize_variant(reference, variant)
    start = max(0, variant.position - window_bp // 2)
    behind = variant.position + len(variant.ref)
    length_bp = reference.contig_lengths_bp[variant.contig]
    before = reference.fetch(Interval(variant.contig, start, variant.position))
    last = min(length_bp, max(behind, start + window_bp + len(variant.ref)))
    after = reference.fetch(Interval(variant.contig, behind, last))
    ref, alt = ((before + bases + after)[:window_bp] for bases in (variant.ref, variant.alt))
    return ref, alt


def fits_window(reference: Reference, variant: Variant, window_bp: int) -> bool:
    """Tell whether half of a window holds the longer allele, trimmed and left-aligned."""
    plain = normalize_variant(reference, variant)
    return max(len(plain.ref), len(plain.alt)) <= window_bp // 2


def checked_alleles_of(reference: Reference, variant: Variant, window_bp: int) -> tuple[str, str]:
    """Return what `alleles_of` does, of a variant that was typed.

    Raises:
        UserError: REF does not stand there, or the alleles do not fit, and why.
    """
    found = reference.disagreement(variant.contig, variant.position, variant.ref)
    reason = found.reason if found else variant.why_unscorable()
    if reason:
        told = reason.replace("_", " ")
        raise UserError(f"variant {variant.to_text()} cannot be predicted: {told}")
    if not fits_window(reference, variant, window_bp):
        raise UserError(f"an allele is longer than half of the window of {window_bp} bases")
    return alleles_of(reference, variant, window_bp)


def opened(path: str, reference: str, contigs: str) -> tuple[Reference, dict[str, str]]:
    """Return the reference of a file, and the names of its contigs that are others there.

    Raises:
        UserError: none is named, or it is not there.
    """
    if not reference:
        raise ConfigError(f"{path}: has places, and no sequence; give data.reference, a FASTA")
    found = Reference(reference)
    return found, contig_names(contigs or None, found.contig_lengths_bp)

"""A variant among the SNVs around it: read by its protocol, told by consequence."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from carbon.errors import UserError
from carbon.genome import Interval, Variant
from carbon.genome.normalize import normalize_variant
from carbon.genome.opened import Genome
from carbon.genome.typed import read_variant
from carbon.genome.vcf import Listed
from carbon.inference.reading.reader import Reader
from carbon.inference.scan import join_chunks, scan_method_for, scan_region
from carbon.inference.variants.by_consequence import (
    SnvsByConsequence,
    consequences_in,
    deltas_in,
    some_of_each,
)
from carbon.inference.variants.method import Method
from carbon.inference.variants.scores import score_variants

_CENTERED_WINDOW_BP = 384  # each SNV has one, so that a second's work reads many


def place_around(genome: Genome, variant: Variant, most_bp: int) -> Interval:
    """Return the first gene that a variant lies in, or as much of it as lies around the variant.

    Where there is no gene it is `most_bp` around the variant.
    """
    place = window_around(genome, variant, most_bp)
    variant = normalize_variant(genome.reference, variant)
    if genes := genome.genes_in(variant.interval):
        gene = genes[0].interval
        return Interval(place.contig, max(place.start, gene.start), min(place.end, gene.end))
    return place


def window_around(genome: Genome, variant: Variant, window_bp: int) -> Interval:
    """Return the window with the variant in its middle, cut at the contig's ends."""
    start = max(0, normalize_variant(genome.reference, variant).position - window_bp // 2)
    length_bp = genome.reference.contig_lengths_bp[variant.contig]
    return Interval(variant.contig, start, min(start + window_bp, length_bp))


def variant_or_first(text: str, listed: Sequence[Listed], genome: Genome) -> Variant:
    """Return the variant that is typed, or the first of a VCF that has bases.

    Raises:
        UserError: it cannot be read, or there is none.
    """
    if text:
        return read_variant(text, genome.reference, genome.annotation)
    fit = (v for v, reason in listed if reason is None and v.why_unscorable() is None)
    if variant := next(fit, None):
        return variant
    missing = "the VCF has none that can be scored here" if listed else "no variant is given"
    raise UserError(f"{missing}; type one as contig:position REF>ALT")


def short_method(method: Method) -> Method:
    """Return the method by which SNVs of a stretch are read: windows of `centered` are short."""
    if method.protocol == "right_end":
        return method
    return method._replace(window_bp=min(_CENTERED_WINDOW_BP, method.window_bp))


def read_snvs(
    reader: Reader, genome: Genome, place: Interval, method: Method, most: int
) -> SnvsByConsequence:
    """Return the SNVs of a stretch: all of them by `right_end`, else a draw of each consequence.

    Args:
        reader: of the model.
        genome: whose annotation tells consequences.
        place: the stretch.
        method: of `short_method`; `right_end` reads all of them by one scan in frame 0.
        most: of each consequence, where each takes a window of its own.
    """
    terms = consequences_in(genome.reference, place, genome.annotation)
    if method.protocol == "right_end":
        scanning = scan_method_for(reader, window_bp=method.window_bp, strands=method.strands)
        scan = join_chunks(scan_region(reader, genome.reference, place, scanning))
        return SnvsByConsequence(terms, deltas_in(scan))
    some = sorted(some_of_each(terms, most), key=lambda variant: variant.position)
    return SnvsByConsequence(terms, _deltas(reader, genome, some, method))


def told_among(
    reader: Reader, genome: Genome, variant: Variant, snvs: SnvsByConsequence, method: Method
) -> dict[str, Any]:
    """Return the SNVs and where a variant stands among them, ready for JSON.

    Returns:
        `window_bp`; by consequence `all`, their number, and `deltas` of those that were read;
        `this`, the fields of `Standing`, or None of a variant that is no SNV of the stretch.
    """
    own, variant = None, normalize_variant(genome.reference, variant)
    if variant in snvs.consequences:
        read = snvs.deltas
        if variant not in read:
            read = _deltas(reader, genome, [variant], method)
        own = snvs.standing(variant, read[variant])
    return {
        "window_bp": method.window_bp,
        "all": dict(Counter(snvs.consequences.values())),
        "deltas": snvs.by_consequence,
        "this": own._asdict() if own else None,
    }


def _deltas(
    reader: Reader, genome: Genome, variants: list[Variant], method: Method
) -> dict[Variant, float]:
    scores = score_variants(reader, genome.reference, variants, method)
    return {score.variant: score.delta for score in scores if score.delta is not None}

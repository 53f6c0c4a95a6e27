"""Kinds of variants: those of one kind are compared with one another.

A variant has a path of kinds, the narrowest first. `change` tells what becomes of the bases and
nothing of what that does, so that a percentile among them still tells harmful from harmless.
`consequence` tells what it does to a gene: a percentile among them is within one consequence.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.genome.consequences import SEVERITY
from carbon.genome.effects import trimmed

LONGEST_INDEL_BP = 12
INDELS = ("deletion", "insertion")
Path = tuple[str, ...]

_BASES = "ACGT"
_PYRIMIDINES = "CT"
# What becomes of a codon or of the reading frame; of other terms the consequence is not coding.
_CODING = frozenset(
    (
        *("stop_gained", "frameshift_variant", "stop_lost", "start_lost", "inframe_insertion"),
        *("inframe_deletion", "missense_variant", "protein_altering_variant"),
        *("incomplete_terminal_codon_variant", "start_retained_variant"),
        *("stop_retained_variant", "synonymous_variant", "coding_sequence_variant"),
    )
)
# Consequences of SNVs with a kind of their own, and the few that share one.
_SNV_TERMS = {
    "splice_acceptor_variant": "splice_variant",
    "splice_donor_variant": "splice_variant",
    "5_prime_UTR_variant": "UTR_variant",
    "3_prime_UTR_variant": "UTR_variant",
} | {
    term: term
    for term in (
        *("stop_gained", "stop_lost", "start_lost", "missense_variant", "synonymous_variant"),
        *("non_coding_transcript_exon_variant", "intron_variant", "intergenic_variant"),
    )
}


class Kinds(NamedTuple):
    """One way to tell variants apart.

    Attributes:
        path_of: from reference, variant and its consequence to the kinds of a variant, the
            narrowest first; empty for one of no kind.
        narrowest_snvs: kinds of SNVs that variants are drawn for.
        narrowest_indels: from `deletion` or `insertion` and a length in bp to those of indels.
        needs_consequence: whether the consequence is looked at.
    """

    path_of: Callable[[Reference, Variant, str | None], Path]
    narrowest_snvs: tuple[str, ...]
    narrowest_indels: Callable[[str, int], tuple[str, ...]]
    needs_consequence: bool


def _change(reference: Reference, variant: Variant, consequence: str | None) -> Path:
    """Tell SNVs by their change and the base on either side, indels by their length."""
    return _indel(variant) or _snv_in_context(reference, variant)


def _consequence(reference: Reference, variant: Variant, consequence: str | None) -> Path:
    """Tell SNVs by their consequence, indels by their length and whether they are in a CDS."""
    if broad := _indel(variant):
        return (_indel_where(broad[0], consequence), *broad) if consequence in SEVERITY else broad
    if not _is_snv(variant):
        return ()
    term = _SNV_TERMS.get(consequence or "")
    return (f"snv {term}", "snv") if term else ("snv",)


def _is_snv(variant: Variant) -> bool:
    start, end, alt = trimmed(variant)
    return not variant.why_unscorable() and end - start == len(alt) == 1


def _indel(variant: Variant) -> Path:
    """Return the kinds of a short insertion or deletion that replaces nothing; otherwise none."""
    if variant.why_unscorable():
        return ()
    start, end, alt = trimmed(variant)
    lengths_bp = end - start, len(alt)
    if min(lengths_bp) or max(lengths_bp) > LONGEST_INDEL_BP:
        return ()
    name = "deletion" if lengths_bp[0] else "insertion"
    return f"{name} {max(lengths_bp)}", name


def _indel_where(kind: str, consequence: str | None) -> str:
    return f"{kind} {'coding' if consequence in _CODING else 'noncoding'}"


def _snv_in_context(reference: Reference, variant: Variant) -> Path:
    """Return the kinds of an SNV, told on the strand where REF is C or T."""
    if not _is_snv(variant):
        return ()
    start, end, alt = trimmed(variant)
    length_bp = reference.contig_lengths_bp[variant.contig]
    around = Interval(variant.contig, max(0, start - 1), min(end + 1, length_bp))
    left, right = start - around.start, around.end - end
    bases = reference.fetch(around).upper()
    # REF may be one of several bases that a code of the reference stands for.
    bases = bases[:left] + variant.ref[start - variant.position].upper() + bases[left + 1 :]
    if bases[left] not in _PYRIMIDINES:
        bases, alt, left = reverse_complement(bases), reverse_complement(alt), right
    change = f"{bases[left]}>{alt}"
    broad = (f"snv {change}", "snv")
    if len(bases) != 3 or not set(bases) <= set(_BASES):
        return broad
    return f"snv {bases[0]}[{change}]{bases[2]}", *broad


_CONTEXTS = tuple(
    f"snv {left}[{ref}>{alt}]{right}"
    for ref, alt, left, right in product(_PYRIMIDINES, _BASES, _BASES, _BASES)
    if ref != alt
)

KINDS: dict[str, Kinds] = {
    "change": Kinds(
        _change,
        narrowest_snvs=_CONTEXTS,
        narrowest_indels=lambda name, bp: (f"{name} {bp}",),
        needs_consequence=False,
    ),
    "consequence": Kinds(
        _consequence,
        narrowest_snvs=tuple(f"snv {term}" for term in dict.fromkeys(_SNV_TERMS.values())),
        narrowest_indels=lambda name, bp: (f"{name} {bp} coding", f"{name} {bp} noncoding"),
        needs_consequence=True,
    ),
}

"""Sequence Ontology terms for the consequences of variants: one table, most severe first.

The order follows Ensembl's Variant Effect Predictor (VEP, "Calculated variant consequences"),
without the terms that Carbon does not distinguish.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

VOCABULARY_VERSION = 2
"""Version of the table. It rises whenever a term is added or removed, or an SNV of one term is
compared with other SNVs, so that a background of random variants of an older table is refused.
Version 1 had no `splice_region_variant` and was not written to backgrounds."""


class EvaluationRole(NamedTuple):
    """Role of SNVs with a term when likelihoods are evaluated without labels.

    Attributes:
        group: `damaging` variants are compared with `control` variants.
        order: order of the class in results, from 0.
        label: name of the class in results, such as `splice_site`.
    """

    group: Literal["damaging", "control"]
    order: int
    label: str


@dataclass(frozen=True, slots=True)
class ConsequenceTerm:
    """A consequence of a variant for a transcript.

    Attributes:
        name: Sequence Ontology term.
        accession: Sequence Ontology accession.
        label: short name for display, such as `stop codon gained`.
        is_coding: whether the variant changes a codon or the reading frame.
        snv_kind: random SNVs that an SNV with this term is compared with; None for all SNVs.
        role: role in the evaluation; None if SNVs with this term take no part.
        aliases: names that ClinVar uses for the same consequence.
    """

    name: str
    accession: str
    label: str
    is_coding: bool = False
    snv_kind: str | None = None
    role: EvaluationRole | None = None
    aliases: tuple[str, ...] = ()


_STOP_GAINED = EvaluationRole("damaging", 0, "stop_gained")
_START_LOST = EvaluationRole("damaging", 1, "start_lost")
_SPLICE_SITE = EvaluationRole("damaging", 2, "splice_site")
_SYNONYMOUS = EvaluationRole("control", 0, "synonymous")
_INTRONIC = EvaluationRole("control", 1, "intronic")
_INTERGENIC = EvaluationRole("control", 2, "intergenic")

_TABLE = (
    ConsequenceTerm("transcript_ablation", "SO:0001893", "transcript deleted"),
    ConsequenceTerm(
        "splice_acceptor_variant", "SO:0001574", "splice acceptor lost",
        snv_kind="splice_variant", role=_SPLICE_SITE,
    ),
    ConsequenceTerm(
        "splice_donor_variant", "SO:0001575", "splice donor lost",
        snv_kind="splice_variant", role=_SPLICE_SITE,
    ),
    ConsequenceTerm(
        "stop_gained", "SO:0001587", "stop codon gained", is_coding=True,
        snv_kind="stop_gained", role=_STOP_GAINED, aliases=("nonsense",),
    ),
    ConsequenceTerm(
        "frameshift_variant", "SO:0001589", "reading frame shifted", is_coding=True
    ),
    ConsequenceTerm(
        "stop_lost", "SO:0001578", "stop codon lost", is_coding=True, snv_kind="stop_lost"
    ),
    ConsequenceTerm(
        "start_lost", "SO:0002012", "start codon lost", is_coding=True,
        snv_kind="start_lost", role=_START_LOST, aliases=("initiator_codon_variant",),
    ),
    ConsequenceTerm("inframe_insertion", "SO:0001821", "codons inserted", is_coding=True),
    ConsequenceTerm("inframe_deletion", "SO:0001822", "codons deleted", is_coding=True),
    ConsequenceTerm(
        "missense_variant", "SO:0001583", "amino acid changed", is_coding=True,
        snv_kind="missense_variant",
    ),
    ConsequenceTerm("protein_altering_variant", "SO:0001818", "codons replaced", is_coding=True),
    ConsequenceTerm(
        "splice_region_variant", "SO:0001630", "splice region changed",
        snv_kind="splice_region_variant",
    ),
    ConsequenceTerm(
        "incomplete_terminal_codon_variant", "SO:0001626", "incomplete last codon changed",
        is_coding=True,
    ),
    ConsequenceTerm("start_retained_variant", "SO:0002019", "start codon retained", is_coding=True),
    ConsequenceTerm("stop_retained_variant", "SO:0001567", "stop codon retained", is_coding=True),
    ConsequenceTerm(
        "synonymous_variant", "SO:0001819", "synonymous change", is_coding=True,
        snv_kind="synonymous_variant", role=_SYNONYMOUS,
    ),
    ConsequenceTerm(
        "coding_sequence_variant", "SO:0001580", "coding sequence changed", is_coding=True
    ),
    ConsequenceTerm(
        "5_prime_UTR_variant", "SO:0001623", "5' UTR changed", snv_kind="UTR_variant"
    ),
    ConsequenceTerm(
        "3_prime_UTR_variant", "SO:0001624", "3' UTR changed", snv_kind="UTR_variant"
    ),
    ConsequenceTerm(
        "non_coding_transcript_exon_variant", "SO:0001792", "non-coding exon changed",
        snv_kind="non_coding_transcript_exon_variant",
    ),
    ConsequenceTerm(
        "intron_variant", "SO:0001627", "intron changed",
        snv_kind="intron_variant", role=_INTRONIC,
    ),
    ConsequenceTerm(
        "intergenic_variant", "SO:0001628", "intergenic sequence changed",
        snv_kind="intergenic_variant", role=_INTERGENIC,
    ),
)  # fmt: skip

TERMS = {term.name: term for term in _TABLE}
"""Terms by name, the most severe first."""
SEVERITY_RANKS = {name: rank for rank, name in enumerate(TERMS)}
"""Severity rank of each term, 0 for the most severe."""


def labels_of(group: str) -> dict[str, str]:
    """Return the label of each term with a role in a group, in the order of the labels in results.

    Args:
        group: `damaging` or `control`.

    >>> list(labels_of("control").values())
    ['synonymous', 'intronic', 'intergenic']
    """
    roles = [(term.role, term.name) for term in TERMS.values() if term.role]
    return {name: role.label for role, name in sorted(roles) if role.group == group}


def is_coding(name: str | None) -> bool:
    """Return whether a term, or an alias that ClinVar uses, describes a coding change.

    >>> is_coding("nonsense"), is_coding("intron_variant"), is_coding(None)
    (True, False, False)
    """
    return name in _CODING_NAMES


_CODING_NAMES = frozenset(
    name for term in TERMS.values() if term.is_coding for name in (term.name, *term.aliases)
)

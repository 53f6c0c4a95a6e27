"""What is written beside the scores of a variant: its most severe consequence for a gene."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from carbon.genome import Annotation, Consequence, Consequences, Reference, VcfRow

Kind = type[str] | type[float] | type[int] | type[bool]
ANNOTATION = "annotation"  # the setting that is there where consequences are written

MEANINGS = {
    "gene": "Gene of CARBON_CONSEQUENCE",
    "transcript": "Transcript of CARBON_CONSEQUENCE",
    "consequence": "Most severe consequence for any transcript, as the Sequence Ontology names it",
    "codon": "Number of the first codon that changes, from 1",
    "codons": "Codons before and after, as the transcript reads them",
    "amino_acids": "Amino acids before and after, or the one that stays",
}
KINDS: dict[str, Kind] = {name: int if name == "codon" else str for name in MEANINGS}


class Score(NamedTuple):
    """What is written of one ALT: its `VariantScore`, its percentile, and among which variants."""

    delta: float | None
    reason: str | None
    forward: float | None = None
    reverse: float | None = None
    spread: float | None = None
    strand_left_out: str | None = None
    unsure: bool | None = None
    percentile: float | None = None
    percentile_of: str | None = None
    scored_as: str | None = None


class AnnotatedScore(NamedTuple):
    """What is written of one ALT; the fields are those of `Score` and of `Consequence`."""

    delta: float | None
    reason: str | None
    forward: float | None
    reverse: float | None
    spread: float | None
    strand_left_out: str | None
    unsure: bool | None
    percentile: float | None
    percentile_of: str | None
    scored_as: str | None
    gene: str | None
    transcript: str | None
    consequence: str | None
    codon: int | None
    codons: str | None
    amino_acids: str | None


Annotated = Callable[[VcfRow, Sequence[Score]], Sequence[Score | AnnotatedScore]]


def annotator(annotation: Annotation | None, reference: Reference) -> Annotated:
    """Return what adds consequences to the scores of a record; without an annotation, nothing."""
    if annotation is None:
        return lambda _, scores: scores
    consequences = Consequences(reference, annotation)

    def annotated(row: VcfRow, scores: Sequence[Score]) -> list[AnnotatedScore]:
        # Of a base that the reference has not, nothing is known.
        found = (Consequence() if row.disagreement else consequences.of(v) for v in row.variants)
        return [
            AnnotatedScore(**score._asdict(), **each._asdict())
            for score, each in zip(scores, found, strict=True)
        ]

    return annotated

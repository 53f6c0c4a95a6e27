"""Compare two sequences that a visitor types, each scored by a model."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.errors import UserError
from carbon.genome import Variant, short
from carbon.genome.genome import Genome
from carbon.genome.notation import read_bases, read_variant

if TYPE_CHECKING:
    from carbon.inference.model import Model

_LEAST_BASES = 20  # of a text that is parsed as bases and not as a name
_OF_PLACES = re.compile(r"[\d:]")  # in regions, variants and most identifiers of genes
_REGION = re.compile(r"[^:>]+:[\d,]+-[\d,]+")


class NamedBases(NamedTuple):
    """A sequence and its name.

    Attributes:
        name: gene or region, or `typed`.
        bases: in capitals.
    """

    name: str
    bases: str


def typed_pair(
    first: str, second: str, genome: Genome, most_bp: int
) -> tuple[NamedBases, NamedBases]:
    """Parse two sequences.

    Args:
        first: at least 20 bases, FASTA of one record, a gene's name or `contig:first-last`.
        second: as `first`; or a variant of the first sequence; or nothing, for the first sequence.
        genome: genome with the genes, regions and variants.
        most_bp: largest length of a sequence.

    Raises:
        UserError: a text has another form or is too long, or the variant is outside the first
            sequence.
    """
    a = _typed(first, genome, most_bp)
    if not second:
        return a, a
    if _are_bases(second, genome) or _REGION.fullmatch(second) or second in _names(genome):
        return a, _typed(second, genome, most_bp)
    variant = read_variant(second, genome.reference, genome.annotation)
    return a, _with_alt(first, a, variant, genome, most_bp)


def _names(genome: Genome) -> set[str]:
    genes = genome.annotation.genes if genome.annotation else ()
    names = {name for gene in genes for name in (gene.name, gene.gene_id)}
    return names | genome.reference.contig_lengths_bp.keys()


def _are_bases(text: str, genome: Genome) -> bool:
    """Return whether to parse a text as bases, as also a protein, whose wrong letter is named."""
    letters = "".join(text.split())
    is_long = len(letters) >= _LEAST_BASES and not _OF_PLACES.search(letters)
    return text.startswith(">") or (is_long and text not in _names(genome))


def _typed(text: str, genome: Genome, most_bp: int) -> NamedBases:
    if not _are_bases(text, genome):
        place = genome.place(text, 0, most_bp)
        return NamedBases(text, genome.reference.fetch(place).upper())
    bases = read_bases(text).upper()
    if len(bases) > most_bp:
        raise UserError(f"a sequence of {len(bases):,} bases; give {most_bp:,} at most")
    return NamedBases("typed", bases)


def _with_alt(
    first: str, a: NamedBases, variant: Variant, genome: Genome, most_bp: int
) -> NamedBases:
    """Return the first sequence with ALT instead of REF."""
    place = None if _are_bases(first, genome) else genome.place(first, 0, most_bp)
    own = variant.interval
    if (
        not place
        or own.contig != place.contig
        or not place.start <= own.start < own.end <= place.end
    ):
        raise UserError(
            f"the variant {variant.to_text()} lies outside of the other sequence; give one inside "
            "of it, another sequence, or nothing"
        )
    found = genome.reference.disagreement(variant.contig, variant.position, variant.ref)
    if reason := found.reason if found else variant.why_unscorable():
        raise UserError(f"the variant {variant.to_text()}: {reason.replace('_', ' ')}")
    at = variant.position - place.start
    bases = a.bases[:at] + variant.alt + a.bases[at + len(variant.ref) :]
    return NamedBases(f"{a.name} with {variant.to_text()}", bases)


def read_pair(
    sides: Sequence[NamedBases], models: Sequence[tuple[str, "Model"]]
) -> Iterator[dict[str, Any]]:
    """Score each sequence with its model; yield the results so far, ready for JSON.

    Args:
        sides: two sequences.
        models: name and model for each sequence.

    Raises:
        UserError: a sequence has no known base.
    """
    told: list[dict[str, Any]] = []
    for (name, bases), (model_name, model) in zip(sides, models, strict=True):
        (score,) = model.score([bases])
        if not score.num_known_bases:
            raise UserError(f"{name}: has no base that is one of ACGT")
        told.append({
            "name": name,
            "model": model_name,
            "length_bp": score.length_bp,
            "known_bp": score.num_known_bases,
            "log_likelihood": score.log_likelihood,
            "nats_per_base": score.nats_per_base,
            "log_p": score.bases.tolist(),
        })  # fmt: skip
        yield dict(zip("ab", told, strict=False))
    said = in_words_of(
        *told,
        one_model=models[0][1] is models[1][1],
        one_sequence=sides[0].bases == sides[1].bases,
    )
    yield {"said": said, **dict(zip("ab", told, strict=True))}


def in_words_of(
    a: Mapping[str, Any], b: Mapping[str, Any], *, one_model: bool, one_sequence: bool
) -> str:
    """Describe the difference between two scores in a sentence.

    Args:
        a: score with `log_likelihood`, `nats_per_base` and `known_bp`.
        b: second score, with the same keys.
        one_model: whether one model scored both.
        one_sequence: whether both scores are of the same bases.
    """
    if one_model and one_sequence:
        return "A and B are the same: give another sequence, a variant or another model."
    if one_model and a["known_bp"] == b["known_bp"]:
        said = in_words(b["log_likelihood"] - a["log_likelihood"], alt="B", ref="A")
        return f"To the model, {said}."
    better, other = ("A", "B") if a["nats_per_base"] <= b["nats_per_base"] else ("B", "A")
    times = math.exp(abs(a["nats_per_base"] - b["nats_per_base"]))
    if f"{times:.3g}" == "1":
        return "A base of A is on average as likely as a base of B."
    if one_sequence:
        return (
            f"The model of {better} gives each base on average {times:.3g} times the probability "
            f"that the model of {other} gives it."
        )
    return f"A base of {better} is on average {times:.3g} times as likely as a base of {other}."


_AS_LIKELY = 1.1
"""Largest ratio of two likelihoods that is described as equal."""


def in_words(
    delta: float, is_unsure: bool | None = False, alt: str = "ALT", ref: str = "REF"
) -> str:
    """Describe a delta in nats in words.

    >>> in_words(-13.8)
    'ALT is about 980,000 times less likely than REF'

    Args:
        delta: log p(ALT) - log p(REF).
        is_unsure: whether the strands or k-mer offsets disagree about the sign.
        alt: name of ALT.
        ref: name of REF.
    """
    if is_unsure:
        return "the strands or k-mer offsets disagree about which allele is likelier"
    times = math.exp(min(abs(delta), 700.0))
    if times < _AS_LIKELY:
        return f"{alt} is about as likely as {ref}"
    rounded = float(f"{times:.2g}")
    shown = (
        f"{rounded:.1f}"
        if rounded < 10
        else f"{rounded:,.0f}"
        if rounded < 1e9
        else f"{rounded:.1e}"
    )
    return f"{alt} is about {shown} times {'less' if delta < 0 else 'more'} likely than {ref}"


def named(text: str) -> str:
    """Write a variant with long alleles shortened.

    >>> named("c1:7 A>C")
    'c1:7 A>C'
    """
    place, _, change = text.rpartition(" ")
    ref, _, alt = change.partition(">")
    return f"{place} {short(ref)}>{short(alt)}"

"""Are new stop codons, lost starts and broken splice sites less likely than what changes nothing?

SNVs of the held-out regions are drawn by seed and told apart by the annotation. Every damaging one
stands beside controls of the same trinucleotide change, so that mutation types separate nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import GenomeError
from carbon.genome import Consequences, Interval, Reference, Variant, reverse_complement
from carbon.genome.annotation import cds_of_unknown_code, unknown_code_warnings
from carbon.genome.consequence_terms import labels_of
from carbon.genome.genes import parts_on_contig
from carbon.inference import Model
from carbon.metrics import auroc
from carbon.progress import say, track
from carbon.uncertainty import bootstrap
from eval.heldout.genes import HeldOutGenes

DAMAGING, CONTROLS = labels_of("damaging"), labels_of("control")
_KINDS = DAMAGING | CONTROLS
_LOOKED_AT = 40  # SNVs anywhere for each damaging one that is wanted: a twentieth are stops
_CODON_BP = 3


class Known(NamedTuple):
    """A variant whose effect is known.

    Attributes:
        variant: an SNV.
        kind: one of the values of DAMAGING or CONTROLS.
        gene: the name of the gene, or of its place where there is none; those of one name are drawn
            together.
    """

    variant: Variant
    kind: str
    gene: str


def consequence_auroc(
    model: Model, genes: HeldOutGenes, num_each: int, seed: int, window_bp: int | None = None
) -> dict[str, Any]:
    """Measure AUROC of `-delta` of each kind of damage against matched controls.

    Args:
        model: scores SNVs by `score_variants`, the mean of both strands.
        genes: the held-out regions and their annotation.
        num_each: damaging variants of each kind, at most.
        seed: of what is drawn.
        window_bp: of `score_variants`, its default if None.

    Returns:
        By kind of damage the AUROC against all controls, and against each kind of them; `value` is
        that of new stop codons. Intervals draw whole genes.

    Raises:
        GenomeError: no damaging SNV has a control.
    """
    sets = choose_known(genes, num_each, seed)
    every = list(dict.fromkeys(known.variant for each in sets.values() for known in each))
    scores = model.score_variants(genes.reference, every, strands="both", window_bp=window_bp)
    deltas = {s.variant: s.delta for s in track(scores, "consequences", len(every))}
    scored = {v: delta for v, delta in deltas.items() if delta is not None}
    by_kind = {
        kind: found
        for kind, chosen in sets.items()
        if (
            found := _measured(kind, [known for known in chosen if known.variant in scored], scored)
        )
    }
    if not by_kind:
        raise GenomeError("no damaging variant with a control has a score; give a smaller window")
    first = next(iter(by_kind.values()))
    values = {name: first[name] for name in ("value", "low", "high", "num_samples")}
    num_not_scored = len(deltas) - len(scored)
    return {**values, "by_kind": by_kind, "num_not_scored": num_not_scored, "seed": seed}


def _measured(
    kind: str, chosen: Sequence[Known], deltas: Mapping[Variant, float]
) -> dict[str, Any] | None:
    """Measure one kind against all controls and each kind of them; None if either is absent."""
    num_damaging = sum(known.kind == kind for known in chosen)
    controls = sorted({known.kind for known in chosen} - {kind})
    if not num_damaging or not controls:
        return None
    return {
        **_auroc(kind, chosen, deltas),
        "num_damaging": num_damaging,
        "against": {
            control: _auroc(kind, [k for k in chosen if k.kind in (kind, control)], deltas)
            for control in controls
        },
    }


def _auroc(kind: str, chosen: Sequence[Known], deltas: Mapping[Variant, float]) -> dict[str, Any]:
    scores = np.array([-deltas[known.variant] for known in chosen])
    labels = np.array([known.kind == kind for known in chosen], dtype=np.int64)
    genes = [known.gene for known in chosen]
    return bootstrap(auroc(scores, labels), len(chosen), clusters=genes)._asdict()


def choose_known(genes: HeldOutGenes, num_each: int, seed: int) -> dict[str, list[Known]]:
    """Draw damaging SNVs of each kind, and for each one control of every kind of its change.

    A damaging one whose change no control of some kind has goes without that control; one without
    any is left out.

    Raises:
        GenomeError: nothing is left.
    """
    random = np.random.default_rng(seed)
    found = _by_kind_and_change(genes, num_each, random)
    sets: dict[str, list[Known]] = {}
    for kind in dict.fromkeys(DAMAGING.values()):
        candidates = [(change, known) for change, some in found[kind].items() for known in some]
        picked = [candidates[n] for n in random.permutation(len(candidates))]
        if chosen := _with_controls(picked, found, num_each):
            sets[kind] = chosen
        else:
            say(f"no {kind} in the held-out regions has a control")
    if not sets:
        raise GenomeError(
            f"{genes.annotation.path}: no gene of the held-out regions can be damaged and matched "
            "by controls; is there CDS in them?"
        )
    return sets


_Found = Mapping[str, Mapping[str, list[Known]]]
"""By kind, then by change, what was found, in the order of the lot."""


def _with_controls(picked: Iterable[tuple[str, Known]], found: _Found, most: int) -> list[Known]:
    used: dict[tuple[str, str], int] = defaultdict(int)
    chosen: list[Known] = []
    left = most
    for change, known in picked:
        controls = []
        for kind in CONTROLS.values():
            some = found[kind].get(change, [])
            if used[kind, change] < len(some):
                controls.append(some[used[kind, change]])
                used[kind, change] += 1
        if controls and left:
            chosen += [known, *controls]
            left -= 1
    return chosen


def _by_kind_and_change(
    genes: HeldOutGenes, num_each: int, random: np.random.Generator
) -> dict[str, dict[str, list[Known]]]:
    """Tell drawn SNVs apart by kind and by trinucleotide change."""
    consequences = Consequences(genes.reference, genes.annotation)
    unknown = cds_of_unknown_code(genes.reference, genes.annotation)
    for line in unknown_code_warnings(genes.annotation.path, unknown):
        say(f"warning: {line}")
    found: dict[str, dict[str, list[Known]]] = {kind: defaultdict(list) for kind in _KINDS.values()}
    for variant in track(_snvs(genes, _LOOKED_AT * num_each, random), "variants of known effect"):
        told = consequences.of(variant)
        kind = _KINDS.get(told.consequence or "")
        change = change_of(genes.reference, variant)
        if kind and change:
            gene = told.gene or f"{variant.contig}:{variant.position}"
            found[kind][change].append(Known(variant, kind, gene))
    return found


def _snvs(genes: HeldOutGenes, num_drawn: int, random: np.random.Generator) -> list[Variant]:
    """Return SNVs drawn anywhere, and all of start codons and introns; each once."""
    drawn: dict[Variant, None] = {}
    total_bp = sum(region.length_bp for region in genes.regions)
    for region in genes.regions:
        share = max(1, num_drawn * region.length_bp // total_bp)
        places = random.choice(region.length_bp, min(region.length_bp, share), replace=False)
        num_genes = _genes_at(genes, region)
        for place in [*places.tolist(), *_rare_places(genes, region)]:
            # Where genes overlap a change may do one thing to one and another to the next.
            if num_genes[place] > 1:
                continue
            for alt in _other_bases(genes.reference, region, place):
                drawn[Variant(region.contig, region.start + place, *alt)] = None
    variants = list(drawn)
    return [variants[n] for n in random.permutation(len(variants))]


def _genes_at(genes: HeldOutGenes, region: Interval) -> NDArray[np.int64]:
    """Return how many genes cover each base of a region, (bases,); what was left out is as one."""
    number = np.zeros(region.length_bp, dtype=np.int64)
    length_bp = genes.reference.contig_lengths_bp[region.contig]
    here = (each for each in genes.annotation.occupied() if each.contig == region.contig)
    for part in (part for each in here for part in parts_on_contig(each, length_bp)):
        first = max(part.start - region.start, 0)
        number[first : max(part.end - region.start, 0)] += 1
    return number


def _rare_places(genes: HeldOutGenes, region: Interval) -> Iterator[int]:
    """Yield where few bases of a region are: start codons and introns."""
    for gene in genes.annotation.genes:
        for each in gene.transcripts:
            if each.contig == region.contig and each.cds:
                first, last = each.cds[0][0], each.cds[-1][1]
                start = first if each.strand == "+" else last - _CODON_BP
                spans = [(start, start + _CODON_BP), *each.introns]
                places = (place for begin, end in spans for place in range(begin, end))
                yield from (p - region.start for p in places if region.start <= p < region.end)


def _other_bases(reference: Reference, region: Interval, place: int) -> list[tuple[str, str]]:
    at = region.start + place
    ref = reference.fetch(Interval(region.contig, at, at + 1)).upper()
    return [(ref, alt) for alt in "ACGT" if alt != ref] if ref in "ACGT" else []


def change_of(reference: Reference, variant: Variant) -> str:
    """Return the trinucleotide change such as `ACG>T`, on the strand where the base is C or T.

    Empty where a neighbour is unknown or not there.
    """
    around = variant.interval.widened(1, reference.contig_lengths_bp[variant.contig])
    context, alt = reference.fetch(around).upper(), variant.alt
    if len(context) != 3 or set(context) - set("ACGT"):
        return ""
    if context[1] in "AG":
        context, alt = reverse_complement(context), reverse_complement(alt)
    return f"{context}>{alt}"

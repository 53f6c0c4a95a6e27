"""SNVs of held-out regions whose consequence the annotation gives, with matched controls."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import GenomeError
from carbon.genome import Consequences, Interval, Reference, Variant, reverse_complement
from carbon.genome.annotation import cds_of_unknown_code, unknown_code_warnings
from carbon.genome.consequence_terms import labels_of
from carbon.genome.genes import parts_on_contig
from carbon.progress import say, track
from eval.contract import BuildReport
from eval.tasks.common.building import write_dataset
from eval.tasks.common.held_out import HeldOutGenes

DAMAGING, CONTROLS = labels_of("damaging"), labels_of("control")
_KINDS = DAMAGING | CONTROLS
_LOOKED_AT = 40  # SNVs anywhere for each damaging one that is wanted: a twentieth are stops
_CODON_BP = 3


class Known(NamedTuple):
    """A variant whose effect is known.

    Attributes:
        variant: an SNV.
        kind: one of the values of DAMAGING or CONTROLS.
        gene: the name of the gene, or of its place without a gene; variants of one name are drawn
            together.
    """

    variant: Variant
    kind: str
    gene: str


def build(
    output: Path,
    *,
    corpus: Path,
    reference: Path,
    annotation: Path,
    contigs: str | None = None,
    genetic_code: str | None = None,
    num_each: int = 300,
    seed: int = 0,
) -> BuildReport:
    """Draw damaging SNVs of the held-out regions and controls of the same trinucleotide changes.

    Args:
        output: Parquet to write.
        corpus: folder of a corpus with held-out regions.
        reference: FASTA that the corpus was made from.
        annotation: GFF3, GTF or BED of it.
        contigs: table of contig names, or chr, where the annotation has other names.
        genetic_code: NCBI translation table where the annotation states none.
        num_each: most damaging variants of each consequence.
        seed: of the draw.

    Raises:
        GenomeError: no damaging SNV has a control, or the files are not of one genome.
    """
    with Reference(reference) as fasta:
        genes = HeldOutGenes(corpus, fasta, annotation, contigs, genetic_code)
        sets = choose_known(genes, num_each, seed)
    rows = [_row(name, known) for name, every in sets.items() for known in every]
    dropped = Counter(f"no_{kind}_with_a_control" for kind in set(DAMAGING.values()) - sets.keys())
    inputs = [reference, annotation, corpus / "manifest.json"]
    settings = {"task": "consequences", "num_each": num_each, "seed": seed}
    return write_dataset(output, rows, dropped, inputs, settings)


def _row(set_name: str, known: Known) -> dict[str, Any]:
    variant = known.variant
    return {
        "chrom": variant.contig,
        "pos": variant.position + 1,
        "ref": variant.ref,
        "alt": variant.alt,
        "label": int(known.kind == set_name),
        "consequence": known.kind,
        "set": set_name,
        "gene": known.gene,
    }


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
    """Sort drawn SNVs by kind and by trinucleotide change."""
    consequences = Consequences(genes.reference, genes.annotation)
    unknown = cds_of_unknown_code(genes.reference, genes.annotation)
    for line in unknown_code_warnings(genes.annotation.path, unknown):
        say(f"warning: {line}")
    found: dict[str, dict[str, list[Known]]] = {kind: defaultdict(list) for kind in _KINDS.values()}
    for variant in track(_snvs(genes, _LOOKED_AT * num_each, random), "variants of known effect"):
        effect = consequences.of(variant)
        kind = _KINDS.get(effect.consequence or "")
        change = change_of(genes.reference, variant)
        if kind and change:
            gene = effect.gene or f"{variant.contig}:{variant.position}"
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
    """Return the number of genes at each base of a region, (bases,), with genes left out."""
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

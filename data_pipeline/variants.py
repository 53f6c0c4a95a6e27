"""Variants whose truth is known by construction, from any annotated genome.

Damaging: a codon changed into a stop, one of the two bases at either end of an intron, a base of a
start codon. Controls: synonymous changes, and changes between genes. Every group has the same
number of each trinucleotide change (the base, its two neighbours and ALT, read on the strand of the
pyrimidine), so that nothing about mutation types separates them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from carbon.errors import GenomeError
from carbon.genome import (
    Annotation,
    Gene,
    Interval,
    Reference,
    Transcript,
    Variant,
    reverse_complement,
    spliced,
)
from carbon.genome.alphabet import GeneticCode
from carbon.genome.annotation import code_of
from carbon.genome.genes import parts_on_contig
from carbon.genome.vcf import CONTIG, info_text
from carbon.io.files import atomic_file

DAMAGING = ("nonsense", "splice_site", "start_loss")
CONTROLS = ("synonymous", "intergenic")
INTERGENIC_MARGIN_BP = 100
MOST_GENES = 500  # whose changes are looked through, drawn at random


class Labelled(NamedTuple):
    """A variant, its effect (one of DAMAGING or CONTROLS, or missense), and on which transcript."""

    variant: Variant
    effect: str
    transcript_id: str


def write_labelled_variants(
    path: Path,
    reference: Reference,
    annotation: Annotation,
    regions: list[Interval],
    num_variants: int,
    seed: int,
) -> Counter[str]:
    """Write a sorted VCF of about `num_variants` labelled SNVs, a third of them damaging.

    Returns:
        The number of variants of each effect, fewer in all if the regions have too few genes.

    Raises:
        GenomeError: as `choose_variants` does, or a VCF cannot hold the name of a contig.
    """
    for contig in reference.contig_lengths_bp:
        if not CONTIG.fullmatch(contig):
            raise GenomeError(
                f"{reference.path}: a VCF cannot hold the contig name {contig!r}; rename it to "
                "letters and digits without brackets, commas, quotes and backslashes"
            )
    chosen = choose_variants(reference, annotation, regions, num_variants, seed)
    rank = {contig: n for n, contig in enumerate(reference.contig_lengths_bp)}
    chosen.sort(key=lambda c: (rank[c.variant.contig], c.variant))
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as sink:
        sink.write("##fileformat=VCFv4.3\n")
        for contig, length_bp in reference.contig_lengths_bp.items():
            sink.write(f"##contig=<ID={contig},length={length_bp}>\n")
        sink.write(
            '##INFO=<ID=LABEL,Number=1,Type=Integer,Description="1 damaging, 0 control">\n'
            '##INFO=<ID=EFFECT,Number=1,Type=String,Description="What the change does">\n'
            '##INFO=<ID=TRANSCRIPT,Number=1,Type=String,Description="Transcript it does it to">\n'
            "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
        )
        for variant, effect, transcript_id in chosen:
            info = f"LABEL={int(effect in DAMAGING)};EFFECT={effect}"
            info += f";TRANSCRIPT={info_text(transcript_id)}" if transcript_id else ""
            place = f"{variant.contig}\t{variant.position + 1}\t."
            sink.write(f"{place}\t{variant.ref}\t{variant.alt}\t.\t.\t{info}\n")
    return Counter(labelled.effect for labelled in chosen)


def choose_variants(
    reference: Reference,
    annotation: Annotation,
    regions: list[Interval],
    num_variants: int,
    seed: int,
) -> list[Labelled]:
    """Choose damaging variants and, for each, one control of either kind of the same change.

    Raises:
        GenomeError: the regions hold no coding transcript that could be damaged.
    """
    if not any(transcript.cds for gene in annotation.genes for transcript in gene.transcripts):
        raise GenomeError(
            f"{annotation.path}: has no CDS, without which nothing is known to be damaging; give "
            "one with CDS features, or a BED of 12 columns"
        )
    random = np.random.default_rng(seed)
    effects: dict[Variant, set[str]] = defaultdict(set)
    found: dict[Variant, Labelled] = {}
    for labelled in _candidates(reference, annotation, regions, random):
        effects[labelled.variant].add(labelled.effect)
        found[labelled.variant] = labelled
    candidates: dict[str, dict[str, list[Labelled]]] = defaultdict(lambda: defaultdict(list))
    groups = ("damaging", *CONTROLS)
    for variant, labelled in found.items():
        # A change may do one thing to one transcript of a gene and another to the next.
        if len(effects[variant]) == 1 and labelled.effect != "missense":
            group = "damaging" if labelled.effect in DAMAGING else labelled.effect
            candidates[_change(reference, variant)][group].append(labelled)
    triples: list[tuple[Labelled, ...]] = []
    for _, by_group in sorted(candidates.items()):
        if len(by_group) == len(groups):
            lists = (by_group[group] for group in groups)
            shuffled = ([each[i] for i in random.permutation(len(each))] for each in lists)
            triples += zip(*shuffled, strict=False)
    if not triples:
        places = ", ".join(region.to_region() for region in regions)
        raise GenomeError(
            f"{annotation.path}: no coding transcript in {places} can be damaged and matched by "
            "controls; hold out more of the genome"
        )
    kept = random.permutation(len(triples))[: max(1, num_variants // len(groups))]
    return [labelled for i in sorted(kept) for labelled in triples[i]]


def _change(reference: Reference, variant: Variant) -> str:
    """Return the trinucleotide change such as `ACG>T`, on the strand where the base is C or T."""
    around = Interval(variant.contig, variant.position - 1, variant.position + 2)
    context, alt = reference.fetch(around).upper(), variant.alt
    if context[1] in "AG":
        context, alt = reverse_complement(context), reverse_complement(alt)
    return f"{context}>{alt}"


def _candidates(
    reference: Reference,
    annotation: Annotation,
    regions: list[Interval],
    random: np.random.Generator,
) -> Iterator[Labelled]:
    num_damaging = 0
    genes = _unambiguous_genes(annotation, regions)
    lengths_bp = reference.contig_lengths_bp
    unread = [
        part
        for each in annotation.left_out
        for interval in each.intervals
        for part in parts_on_contig(interval, lengths_bp[interval.contig])
    ]
    for i in random.permutation(len(genes))[:MOST_GENES]:
        unread_here = [place for place in unread if place.overlaps(genes[i].interval)]
        for labelled in (x for t in genes[i].transcripts for x in _of_transcript(reference, t)):
            variant = labelled.variant
            inside = _is_in(variant, regions) and not _is_in(variant, unread_here)
            # A change needs both neighbours.
            if inside and 0 < variant.position < reference.contig_lengths_bp[variant.contig] - 1:
                num_damaging += labelled.effect in DAMAGING
                yield labelled
    yield from _intergenic(reference, annotation, regions, 4 * num_damaging, random)


def _is_in(variant: Variant, intervals: Iterable[Interval]) -> bool:
    return any(
        place.contig == variant.contig and place.start <= variant.position < place.end
        for place in intervals
    )


def _unambiguous_genes(annotation: Annotation, regions: list[Interval]) -> list[Gene]:
    """Return coding genes in the regions that share no base with another coding gene."""
    coding = [gene for gene in annotation.genes if any(t.cds for t in gene.transcripts)]
    alone = []
    reach, reach_contig = 0, ""
    for gene, following in zip_longest(coding, coding[1:]):
        interval = gene.interval
        before = reach if reach_contig == interval.contig else 0
        free = interval.start >= before and not (
            following is not None and following.interval.overlaps(interval)
        )
        if free and any(region.overlaps(interval) for region in regions):
            alone.append(gene)
        reach, reach_contig = max(before, interval.end), interval.contig
    return alone


def _of_transcript(reference: Reference, transcript: Transcript) -> Iterator[Labelled]:
    """Yield the changes of a transcript; none if its CDS is not a plain open reading frame."""
    cds = spliced(reference, transcript.contig, transcript.cds, transcript.strand).upper()
    if len(cds) % 3 or set(cds) - set("ACGT"):
        return
    code = code_of(transcript)
    if transcript.incomplete or code is None:
        return
    protein = code.translate(cds, ends_cds=True)
    if cds[:3] != "ATG" or protein[-1] != "*" or "*" in protein[:-1]:
        return
    positions = [p for start, end in transcript.cds for p in range(start, end)]
    if transcript.strand == "-":
        positions.reverse()
    for i, position in enumerate(positions[:-3]):
        codon_start, within = i - i % 3, i % 3
        codon = cds[codon_start : codon_start + 3]
        for alt in sorted(set("ACGT") - {cds[i]}):
            changed = codon[:within] + alt + codon[within + 1 :]
            if codon_start == 0 and code.is_start(changed):
                continue  # such as ATG to ATA in vertebrate mitochondria
            effect = _coding_effect(code, codon_start, codon, changed)
            ref = cds[i]
            if transcript.strand == "-":
                ref, alt = reverse_complement(ref), reverse_complement(alt)
            variant = Variant(transcript.contig, position, ref, alt)
            yield Labelled(variant, effect, transcript.transcript_id)
    for start, end in transcript.introns:
        for position in (start, start + 1, end - 2, end - 1):
            base = reference.fetch(Interval(transcript.contig, position, position + 1)).upper()
            if end - start >= 20 and base in "ACGT":
                for alt in sorted(set("ACGT") - {base}):
                    variant = Variant(transcript.contig, position, base, alt)
                    yield Labelled(variant, "splice_site", transcript.transcript_id)


def _coding_effect(code: GeneticCode, codon_start: int, codon: str, changed: str) -> str:
    if codon_start == 0:
        return "start_loss"
    before, after = code.translate(codon), code.translate(changed)
    if after == "*":
        return "nonsense"
    return "synonymous" if before == after else "missense"


def _intergenic(
    reference: Reference,
    annotation: Annotation,
    regions: list[Interval],
    num_wanted: int,
    random: np.random.Generator,
) -> Iterator[Labelled]:
    """Yield random changes at least 100 bp from every gene and from intervals left out."""
    for region in regions:
        free = np.ones(region.length_bp, dtype=bool)
        free[[0, -1]] = False  # a change needs both neighbours
        length_bp = reference.contig_lengths_bp[region.contig]
        for interval in annotation.occupied():
            if interval.contig == region.contig:
                for part in parts_on_contig(interval, length_bp):
                    first = part.start - INTERGENIC_MARGIN_BP - region.start
                    last = part.end + INTERGENIC_MARGIN_BP - region.start
                    free[max(0, first) : max(0, last)] = False
        bases = reference.fetch(region).upper()
        places = np.flatnonzero(free)
        if len(places) == 0:
            continue
        for place in random.choice(places, min(len(places), num_wanted), replace=False):
            if set(bases[place - 1 : place + 2]) <= set("ACGT"):
                alt = str(random.choice(sorted(set("ACGT") - {bases[place]})))
                position = region.start + int(place)
                yield Labelled(
                    Variant(region.contig, position, bases[place], alt), "intergenic", ""
                )

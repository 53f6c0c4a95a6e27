"""Scores of variants of known consequence: `python bench/known_variants.py MODEL GENOME`.

    python bench/known_variants.py yeast VIII.fa.gz --annotation VIII.gtf.gz --region VIII

Variants are drawn at random places of a contig that the model was not trained on: new stops,
missense changes and frameshifts of 1 bp in coding sequence, and their controls. AUROC and average
precision of each score of `tiled` and of a linear probe have 95 % intervals over genes. The probe
predicts a block of 50 kbp from the others. Most of the time is calibration. `--output` writes the
estimates as JSON, by comparison and score, for the card of the bundled model.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import carbon
from carbon.finetune.nested import nested_probe
from carbon.genome import (
    Consequences,
    Interval,
    Reference,
    Variant,
    contig_names,
    from_region,
    intergenic,
    read_annotation,
)
from carbon.inference import Model
from carbon.inference.options import ScoreName
from carbon.io.files import atomic_file
from carbon.metrics import auroc, average_precision
from carbon.progress import say
from carbon.uncertainty import bootstrap

SNVS = ("stop_gained", "missense_variant", "synonymous_variant")
COMPARISONS = {
    "new stops and synonymous SNVs": ("stop_gained", "synonymous_variant"),
    "coding indels of 1 bp and in-frame ones": ("frameshift_variant", "inframe"),
    "coding indels of 1 bp and those between genes": ("frameshift_variant", "indel_intergenic"),
    "missense and synonymous SNVs": ("missense_variant", "synonymous_variant"),
}
SIGNS: dict[ScoreName, int] = {
    "delta": -1, "abs_delta": 1, "jsd": 1, "embedding_distance": 1, "allele_entropy": -1,
    "calibrated_delta": -1,
}  # fmt: skip
"""Sign by which a higher value is more likely damaging, of each score."""
BLOCK_BP = 50_000

Known = dict[Variant, tuple[str, str]]
"""Kind and gene of each variant."""
Measures = dict[str, dict[str, Any]]
"""Fields of an `Estimate` by the name of the measure."""


def main() -> None:
    """Draw variants, score them and print a line for each comparison and score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("genome", type=Path)
    parser.add_argument("--annotation", type=Path, required=True)
    parser.add_argument("--region", required=True, help="CONTIG or CONTIG:FIRST-LAST, held out")
    parser.add_argument("--contig-names")
    parser.add_argument("--each", type=int, default=250, help="variants of a kind")
    parser.add_argument(
        "--sites", type=int, default=100, help="neutral sites of a calibration cell"
    )
    parser.add_argument("--output", type=Path, help="JSON of all estimates")
    arguments = parser.parse_args()
    with Reference(arguments.genome) as genome:
        names = contig_names(arguments.contig_names, genome.contig_lengths_bp)
        annotation = read_annotation(arguments.annotation, genome, contig_names=names)
        region = from_region(arguments.region, genome.contig_lengths_bp)
        known = draw(genome, Consequences(genome, annotation), region, arguments.each)
        scores = scores_of(carbon.load(arguments.model), genome, known, arguments.sites, [
            each for each in intergenic(annotation, genome.contig_lengths_bp)
            if region.overlaps(each)
        ])  # fmt: skip
    estimates = {name: compare(name, kinds, known, scores) for name, kinds in COMPARISONS.items()}
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(arguments.output) as path:
            path.write_text(json.dumps(estimates, indent=1) + "\n", encoding="utf-8")


def draw(genome: Reference, consequences: Consequences, region: Interval, most: int) -> Known:
    """Draw at most so many variants of each kind at random places."""
    random = np.random.default_rng(0)
    known: Known = {}
    counts: Counter[str] = Counter()
    bases = genome.fetch(region).upper()
    for place in random.permutation(np.arange(100, region.length_bp - 100)).tolist():
        if all(counts[kind] >= most for pair in COMPARISONS.values() for kind in pair):
            break
        for variant in candidates(region, bases, place, random):
            kind, gene = kind_of(consequences, variant)
            if kind and counts[kind] < most:
                counts[kind] += 1
                known[variant] = kind, gene or f"{variant.position // 1000} kbp"
    say(f"{len(known)} variants: {dict(counts)}")
    return dict(sorted(known.items(), key=lambda item: item[0].position))


def candidates(
    region: Interval, bases: str, place: int, random: np.random.Generator
) -> tuple[Variant, Variant]:
    """Return an SNV, and an insertion or deletion of 1 or 3 bp."""
    ref, at = bases[place], region.start + place
    alt = str(random.choice([base for base in "ACGT" if base != ref]))
    indel_bp = int(random.choice([1, 3]))
    inserted = "".join(random.choice(list("ACGT"), indel_bp))
    is_deletion = random.random() < 0.5
    alleles = (bases[place : place + 1 + indel_bp], ref) if is_deletion else (ref, ref + inserted)
    return Variant(region.contig, at, ref, alt), Variant(region.contig, at, *alleles)


def kind_of(consequences: Consequences, variant: Variant) -> tuple[str, str | None]:
    """Return the kind, empty if it is not compared, and the gene."""
    effect = consequences.of(variant)
    indel_bp = abs(len(variant.alt) - len(variant.ref))
    if not indel_bp:
        return (effect.consequence if effect.consequence in SNVS else "") or "", effect.gene
    if indel_bp == 1 and effect.consequence == "frameshift_variant":
        return "frameshift_variant", effect.gene
    if indel_bp == 1 and effect.consequence == "intergenic_variant":
        return "indel_intergenic", None
    is_inframe = effect.consequence in ("inframe_insertion", "inframe_deletion")
    return ("inframe" if is_inframe else ""), effect.gene


def scores_of(
    model: Model, genome: Reference, known: Known, sites_per_context: int, neutral: list[Interval]
) -> dict[str, NDArray[np.float64]]:
    """Return each score by its sign, `vectors` of both alleles, and `positions`, of all variants.

    A vector holds REF and the difference of ALT, as fine-tuning's default does.
    """
    variants = list(known)
    calibration = model.calibration(
        genome, neutral, neighbour_bp=3, sites_per_context=sites_per_context, protocol="tiled"
    )
    scored = list(
        model.score_variants(
            genome, variants, scores=tuple(SIGNS), calibration=calibration, protocol="tiled"
        )
    )
    scores: dict[str, NDArray[np.float64]] = {
        name: sign * np.array([getattr(each, name) for each in scored], float)
        for name, sign in SIGNS.items()
    }
    vectors = []
    for each in model.embed_variants(genome, variants):
        if each.ref is None or each.alt is None:
            raise ValueError(f"{each.variant} has no embedding: {each.reason}")
        vectors.append(np.concatenate([each.ref, each.alt - each.ref]))
    positions = np.array([each.variant.position for each in scored], float)
    return {**scores, "vectors": np.array(vectors), "positions": positions}


def compare(
    name: str, kinds: tuple[str, str], known: Known, scores: Mapping[str, NDArray[np.float64]]
) -> dict[str, Measures]:
    """Return AUROC and average precision of variants of two kinds by score, and print them."""
    places = [at for at, (kind, _) in enumerate(known.values()) if kind in kinds]
    of_kind, genes = zip(*(list(known.values())[at] for at in places), strict=True)
    labels = np.array([kind == kinds[0] for kind in of_kind], np.int64)
    values: dict[str, NDArray[np.float64]] = {score: scores[score][places] for score in SIGNS}
    blocks = [f"{place // BLOCK_BP:.0f}" for place in scores["positions"][places]]
    values["linear probe"] = nested_probe(scores["vectors"][places], labels, blocks).scores
    measured = {score: measures(each, labels, genes) for score, each in values.items()}
    for score, each in measured.items():
        for title, estimate in each.items():
            interval = "{value:.3f} [{low:.3f}, {high:.3f}], {num_samples} variants"
            print(f"{name}, {score}: {title} {interval.format(**estimate)}", flush=True)
    return {score: each for score, each in measured.items() if each}


def measures(
    values: NDArray[np.float64], labels: NDArray[np.int64], genes: Sequence[str]
) -> Measures:
    """Return both measures of the variants that have the score; empty without both labels."""
    has = ~np.isnan(values)
    if len(set(labels[has].tolist())) < 2:
        return {}
    clusters = [gene for gene, each in zip(genes, has, strict=True) if each]
    return {
        title: bootstrap(
            measure(values[has], labels[has]), len(clusters), clusters=clusters
        )._asdict()
        for title, measure in (("AUROC", auroc), ("average precision", average_precision))
    }


if __name__ == "__main__":
    main()

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import carbon
from carbon.finetune.nested import nested_probe
from carbon.genome import (
    Annotation,
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
from carbon.inference.variants.embeddings import AlleleVectors
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


class Drawn(NamedTuple):
    """Variants of known consequence, with the genome and annotation they were drawn from."""

    genome: Reference
    annotation: Annotation
    region: Interval
    known: Known


def main() -> None:
    """Draw variants, score them and print a line for each comparison and score."""
    parser = drawing_parser(__doc__)
    parser.add_argument(
        "--sites", type=int, default=100, help="neutral sites of a calibration cell"
    )
    parser.add_argument("--output", type=Path, help="JSON of all estimates")
    arguments = parser.parse_args()
    model = carbon.load(arguments.model)
    with drawn_variants(arguments) as drawn:
        estimates = compare(model, drawn, arguments.sites)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(arguments.output) as path:
            path.write_text(json.dumps(estimates, indent=1) + "\n", encoding="utf-8")


def drawing_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the model, and of the options that the drawn variants depend on."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("genome", type=Path)
    parser.add_argument("--annotation", type=Path, required=True)
    parser.add_argument("--region", required=True, help="CONTIG or CONTIG:FIRST-LAST, held out")
    parser.add_argument("--contig-names")
    parser.add_argument("--each", type=int, default=250, help="variants of a kind")
    return parser


@contextmanager
def drawn_variants(arguments: argparse.Namespace) -> Iterator[Drawn]:
    """Yield variants drawn from the region of the arguments of `drawing_parser`."""
    with Reference(arguments.genome) as genome:
        names = contig_names(arguments.contig_names, genome.contig_lengths_bp)
        annotation = read_annotation(arguments.annotation, genome, contig_names=names)
        region = from_region(arguments.region, genome.contig_lengths_bp)
        known = draw(genome, Consequences(genome, annotation), region, arguments.each)
        yield Drawn(genome, annotation, region, known)


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


class Comparison(NamedTuple):
    """Variants of two kinds.

    Attributes:
        places: their places among all drawn variants.
        labels: 1 for the first kind, which is likelier damaging, else 0.
        genes: their genes.
    """

    places: list[int]
    labels: NDArray[np.int64]
    genes: list[str]


def comparisons_of(known: Known) -> dict[str, Comparison]:
    """Return the comparisons of the drawn variants by name."""
    drawn = list(known.values())
    found = {}
    for name, kinds in COMPARISONS.items():
        places = [at for at, (kind, _) in enumerate(drawn) if kind in kinds]
        labels = np.array([drawn[at][0] == kinds[0] for at in places], np.int64)
        found[name] = Comparison(places, labels, [drawn[at][1] for at in places])
    return found


def compare(model: Model, drawn: Drawn, sites_per_context: int) -> dict[str, dict[str, Measures]]:
    """Return AUROC and average precision by comparison and score or probe, and print them."""
    genome, annotation, region, known = drawn
    neutral = [
        each for each in intergenic(annotation, genome.contig_lengths_bp) if region.overlaps(each)
    ]
    calibration = model.calibration(
        genome, neutral, neighbour_bp=3, sites_per_context=sites_per_context, protocol="tiled"
    )
    scored = list(
        model.score_variants(
            genome, list(known), scores=tuple(SIGNS), calibration=calibration, protocol="tiled"
        )
    )
    vectors = {each.variant: each for each in model.embed_variants(genome, list(known))}
    estimates: dict[str, dict[str, Measures]] = {}
    for name, compared in comparisons_of(known).items():
        chosen = [scored[at] for at in compared.places]
        values: dict[str, NDArray[np.float64]] = {
            score: sign * np.array([getattr(each, score) for each in chosen], float)
            for score, sign in SIGNS.items()
        }
        features = np.array([difference(vectors[each.variant]) for each in chosen])
        blocks = [f"{each.variant.position // BLOCK_BP}" for each in chosen]
        values |= {"linear probe": nested_probe(features, compared.labels, blocks).scores}
        measured = {
            each: measures(values[each], compared.labels, compared.genes) for each in values
        }
        estimates[name] = {score: each for score, each in measured.items() if each}
        for score, each in estimates[name].items():
            print(f"{name}, {score}: {shown(each)}", flush=True)
    return estimates


def difference(vectors: AlleleVectors) -> NDArray[np.float32]:
    """Return the vector of REF and the difference of ALT, as fine-tuning's default has them."""
    if vectors.ref is None or vectors.alt is None:
        raise ValueError(f"{vectors.variant} has no embedding: {vectors.reason}")
    return np.concatenate([vectors.ref, vectors.alt - vectors.ref])


def measures(
    values: NDArray[np.float64], labels: NDArray[np.int64], genes: Sequence[str]
) -> Measures:
    """Return both measures of the variants that have the score; empty without both labels."""
    has = ~np.isnan(values)
    if len(set(labels[has].tolist())) < 2:
        return {}
    clusters = [gene for gene, each in zip(genes, has, strict=True) if each]
    estimates: Measures = {}
    for title, measure in (("AUROC", auroc), ("average precision", average_precision)):
        estimate = bootstrap(measure(values[has], labels[has]), len(clusters), clusters=clusters)
        estimates[title] = estimate._asdict()
    return estimates


def shown(estimates: Measures) -> str:
    """Return measures as text."""
    number = next(iter(estimates.values()))["num_samples"]
    parts = (
        f"{title} {each['value']:.3f} [{each['low']:.3f}, {each['high']:.3f}]"
        for title, each in estimates.items()
    )
    return ", ".join([f"{number} variants", *parts])


if __name__ == "__main__":
    main()

"""What a split leaks: the share of held-out proteins that have a family member to train on.

    python bench/family_leaks.py GENOME ANNOTATION [--holdout auto | chrVIII ...]

Families are those of `data_pipeline.families` (mmseqs or diamond, 80 % of both proteins
covered), at 50 and at 90 % identity.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from carbon.io.files import scratch_folder
from data_pipeline.families import check_engine, clusters_of, protein_of
from data_pipeline.inputs.assemblies import opened
from data_pipeline.recipe import AssemblyConfig
from data_pipeline.split import held_out_regions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("genome")
    parser.add_argument("annotation")
    parser.add_argument("--holdout", nargs="+", default=["auto"])
    arguments = parser.parse_args()
    held_out, texts = set(), []
    config = AssemblyConfig(genome=arguments.genome, annotation=arguments.annotation)
    with opened(config) as assembly:
        lengths_bp, genes = assembly.reference.contig_lengths_bp, assembly.annotation.genes
        regions = held_out_regions(tuple(arguments.holdout), lengths_bp, genes)
        for number, gene in enumerate(genes):
            if protein := protein_of(gene, assembly.reference):
                texts.append(f">{number}\n{protein}\n")
                if any(region.overlaps(gene.interval) for region in regions):
                    held_out.add(str(number))
    report: dict[str, Any] = {
        "engine": check_engine(),
        "held_out": [region.to_region() for region in regions],
        "proteins": len(texts),
        "held_out_proteins": len(held_out),
    }
    with scratch_folder("leaks") as scratch:
        proteins = scratch / "proteins.fa"
        proteins.write_text("".join(texts), encoding="utf-8")
        for identity in (0.5, 0.9):
            families = list(clusters_of(proteins, identity))
            leaked = sum(
                len(held_out.intersection(family))
                for family in families
                if not held_out.issuperset(family)
            )
            share = round(leaked / len(held_out), 4)
            told = {"families": len(families), "leaked": leaked, "share": share}
            report[f"at_{identity:.0%}"] = told
    print(json.dumps(report))


if __name__ == "__main__":
    main()

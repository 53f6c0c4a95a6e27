"""Coding exons in which every codon becomes the species' most frequent one of its amino acid."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from carbon.genome import GENETIC_CODE, Reference
from carbon.genome.codon_usage import favourites, read_codon_usage
from eval.contract import BuildReport
from eval.tasks.common.coding import CodingExon, columns_of, read_around
from eval.tasks.common.pairs import build_pairs

WINDOW_BP = 8192
_SYNONYMS = {
    codon: sum(other == amino_acid for other in GENETIC_CODE.values())
    for codon, amino_acid in GENETIC_CODE.items()
}


class Recoded(NamedTuple):
    """Whole codons after the exchange.

    Attributes:
        bases: as many as before, of the same protein.
        num_eligible: codons that have a synonym.
        num_changed: codons that were not the favourite already.
    """

    bases: str
    num_eligible: int
    num_changed: int


def recoded(codons: str, favourite: dict[str, str]) -> Recoded:
    """Exchange each codon for its amino acid's favourite; stop codons and ATG, TGG stay.

    >>> recoded("ATGTTTTAA", {"F": "TTC", "M": "ATG"}).bases
    'ATGTTCTAA'
    """
    before = [codons[at : at + 3] for at in range(0, len(codons), 3)]
    eligible = [GENETIC_CODE[codon] != "*" and _SYNONYMS[codon] > 1 for codon in before]
    after = [
        favourite[GENETIC_CODE[codon]] if may else codon
        for codon, may in zip(before, eligible, strict=True)
    ]
    num_changed = sum(a != b for a, b in zip(before, after, strict=True))
    return Recoded("".join(after), sum(eligible), num_changed)


def build(
    output: Path,
    *,
    reference: Path,
    annotation: Path,
    codon_usage: Path,
    species: str = "",
    num_examples: int | None = None,
    seed: int = 0,
) -> BuildReport:
    """Write a row for each coding exon in which a codon can change.

    Args:
        output: Parquet to write.
        reference: FASTA.
        annotation: GFF3, GTF or BED of it.
        codon_usage: CSV of the species, as `read_codon_usage` reads it.
        species: the group of the rows.
        num_examples: most rows; all if None.
        seed: of the choice of those rows.

    Raises:
        GenomeError: the files are broken or not of one assembly.
        UserError: the codon table is broken, or nothing is left.
    """
    favourite = favourites(read_codon_usage(codon_usage))
    return build_pairs(
        output,
        reference=reference,
        annotation=annotation,
        perturb=partial(
            _row, favourite=favourite, species=species, seed=seed, codon_usage=codon_usage.name
        ),
        inputs=(codon_usage,),
        num_examples=num_examples,
        seed=seed,
        settings={"task": "synonymous_codons", "species": species, "window_bp": WINDOW_BP},
    )


def _row(
    reference: Reference,
    exon: CodingExon,
    favourite: dict[str, str],
    species: str,
    seed: int,
    codon_usage: str,
) -> dict[str, Any] | str:
    flanks_bp = WINDOW_BP - exon.length_bp
    if flanks_bp < 0:
        return "exon_longer_than_the_window"
    # The first codon of a CDS stays: GTG begins a protein with methionine all the same.
    first_bp = exon.skipped_bp + (3 if exon.rank == 1 else 0)
    codons_bp = (exon.length_bp - first_bp) // 3 * 3
    original, where, before_bp = read_around(reference, exon, flanks_bp // 2, -(-flanks_bp // 2))
    start = before_bp + first_bp
    end = start + max(codons_bp, 0)
    if not set(original[start:end]) <= set("ACGT"):
        return "unknown_base"
    bases, num_eligible, num_changed = recoded(original[start:end], favourite)
    if not num_changed:
        return "no_codon_to_change"
    return {
        "original_sequence": original,
        "sequence": original[:start] + bases + original[end:],
        "codon_usage_source": codon_usage,
        "recoding_mode": "most_frequent",
        "optimization_rate": 1.0,
        "window_size_bp": WINDOW_BP,
        "upstream_actual": before_bp,
        "downstream_actual": len(original) - before_bp - exon.length_bp,
        "is_clamped": int(len(original) < WINDOW_BP),
        "random_seed": seed,
        "patch_start_in_seq": start,
        "patch_end_in_seq": end,
        "n_codons_total": codons_bp // 3,
        "n_codons_eligible": num_eligible,
        "n_codons_changed": num_changed,
        "fraction_codons_changed": num_changed / num_eligible,
        **columns_of(exon, where, before_bp, species),
    }

"""Coding exons in which 30 bases become ten CAG."""

from functools import partial
from pathlib import Path
from typing import Any

from carbon.genome import Reference
from eval.contract import BuildReport
from eval.tasks.common.coding import CodingExon, columns_of, read_around
from eval.tasks.common.pairs import build_pairs

MOTIF = "CAG"
PATCH_BP = 30
START_AFTER_BP = 60
UPSTREAM_BP = 8000
EXPANSION = MOTIF * (PATCH_BP // len(MOTIF))


def expanded(sequence: str, start: int) -> str:
    """Return a sequence with ten CAG in place of the 30 bases from `start` on.

    >>> expanded("ATG" + "GAT" * 12, 6)
    'ATGGATCAGCAGCAGCAGCAGCAGCAGCAGCAGCAGGAT'
    """
    return sequence[:start] + EXPANSION + sequence[start + PATCH_BP :]


def build(
    output: Path,
    *,
    reference: Path,
    annotation: Path,
    species: str = "",
    num_examples: int | None = None,
    seed: int = 0,
) -> BuildReport:
    """Write a row for each coding exon that holds the patch.

    Args:
        output: Parquet to write.
        reference: FASTA.
        annotation: GFF3, GTF or BED of it.
        species: the group of the rows.
        num_examples: most rows; all if None.
        seed: of the choice of those rows.

    Raises:
        GenomeError: the files are broken or not of one assembly.
        UserError: nothing is left.
    """
    return build_pairs(
        output,
        reference=reference,
        annotation=annotation,
        perturb=partial(_row, species=species, seed=seed),
        inputs=(),
        num_examples=num_examples,
        seed=seed,
        settings={"task": "triplet_expansion", "species": species, "upstream_bp": UPSTREAM_BP},
    )


def _row(reference: Reference, exon: CodingExon, species: str, seed: int) -> dict[str, Any] | str:
    start = exon.skipped_bp + START_AFTER_BP
    if start + PATCH_BP > exon.length_bp:
        return "exon_too_short"
    original, where, before_bp = read_around(reference, exon, UPSTREAM_BP, 0)
    sequence = expanded(original, before_bp + start)
    if sequence == original:
        return "expanded_already"
    return {
        "original_sequence": original,
        "sequence": sequence,
        "motif": MOTIF,
        "actual_motif": EXPANSION,
        "patch_len_bp": PATCH_BP,
        "start_after_bp": START_AFTER_BP,
        "upstream_flank_bp": UPSTREAM_BP,
        "upstream_actual": before_bp,
        "is_clamped": int(before_bp < UPSTREAM_BP),
        "random_seed": seed,
        "patch_start_in_seq": before_bp + start,
        "patch_end_in_seq": before_bp + start + PATCH_BP,
        **columns_of(exon, where, before_bp, species),
    }

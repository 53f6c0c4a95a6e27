"""Datasets whose rows hold their windows, REF and ALT, cut from a FASTA around listed variants."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant
from eval.contract import BuildReport
from eval.tasks.common.building import write_drawn
from eval.tasks.common.listings import Listed, read_listing
from eval.tasks.common.references import AnyName
from eval.tasks.common.variants import VARIANT_COLUMNS, check_assembly, is_snv

WINDOW_BP = 8192
WINDOW_COLUMNS: dict[str, type] = {"ref_seq": str, "var_seq": str}

Named = Callable[[Listed, str], dict[str, Any] | None]
"""From a row and where it stands to the columns of its label; None where it has none."""


def window_builder(task: str, needed: str, named: Named) -> Callable[..., BuildReport]:
    """Return the builder of a task whose lists have a column of labels, from which rows follow."""

    def build(
        output: Path,
        *,
        table: Path,
        reference: Path,
        num_examples: int | None = None,
        seed: int = 0,
    ) -> BuildReport:
        """Write the listed single-base changes that have a label, and their windows of 8,192 bp.

        Args:
            output: Parquet to write.
            table: TSV, CSV, Parquet or xlsx with `chrom`, `pos`, `ref` and `alt`; for brca2
                `class` and, if it is there, `score`, or the xlsx of the paper (Table S3); for
                traitgym_mendelian `label` (1 for causal) and, if it is there, `consequence`.
            reference: FASTA of the table's assembly: GRCh37 (hg19) for the table of the BRCA2
                paper, GRCh38 for the published list of traitgym_mendelian.
            num_examples: most rows; all if None.
            seed: of the choice of those rows.

        Raises:
            UserError: the table is broken, or nothing is left.
            GenomeError: the table's REFs disagree with the FASTA.
        """
        dropped: Counter[str] = Counter()
        listed = read_listing(table, (*VARIANT_COLUMNS, needed))
        with AnyName(reference) as fasta:
            single = [row for row in listed if is_snv(row["ref"], row["alt"])]
            dropped["not_a_single_base_change"] += len(listed) - len(single)
            check_assembly(fasta, [listed_variant(row) for row in single])
            rows = _rows(fasta, single, named, table, dropped)
        settings = {"task": task, "window_bp": WINDOW_BP, "seed": seed}
        return write_drawn(output, rows, num_examples, seed, dropped, (table, reference), settings)

    return build


def _rows(
    fasta: Reference, listed: Sequence[Listed], named: Named, table: Path, dropped: Counter[str]
) -> list[dict[str, Any]]:
    """Return a row for each variant that has a label and windows, once; count the others."""
    rows: dict[tuple[str, int, str], dict[str, Any]] = {}
    for number, row in enumerate(listed, start=1):
        place = (row["chrom"], row["pos"], row["alt"])
        columns = named(row, f"{table} variant {number}")
        reason, windows = _windows(fasta, listed_variant(row))
        if columns is None or place in rows or reason:
            dropped["no_label" if columns is None else reason or "stands_twice"] += 1
            continue
        alleles = {name: row[name] for name in VARIANT_COLUMNS}
        rows[place] = alleles | columns | windows
    return list(rows.values())


def listed_variant(row: Listed) -> Variant:
    """Return the variant of a listed row."""
    return Variant(row["chrom"], row["pos"] - 1, row["ref"], row["alt"])


def _windows(reference: Reference, variant: Variant) -> tuple[str | None, dict[str, str]]:
    """Return why a variant has no windows, or None, and its windows; it is at their middle."""
    if variant.contig not in reference.contig_lengths_bp:
        return "contig_not_in_reference", {}
    middle = WINDOW_BP // 2
    start, end = variant.position - middle, variant.position + middle
    if start < 0 or end > reference.contig_lengths_bp[variant.contig]:
        return "near_the_end_of_its_contig", {}
    window = reference.fetch(Interval(variant.contig, start, end)).upper()
    if window[middle] != variant.ref:
        return "ref_mismatch", {}
    changed = window[:middle] + variant.alt + window[middle + 1 :]
    return None, {"ref_seq": window, "var_seq": changed}


def listed_label(row: Listed, where: str) -> int:
    """Return the label of a listed row, 0 or 1.

    Raises:
        UserError: it is something else.
    """
    text = str(row["label"]).strip()
    labels = {"0": 0, "1": 1, "False": 0, "True": 1, "0.0": 0, "1.0": 1}
    if text not in labels:
        raise UserError(f"{where}: label '{text}'; it must be 0 or 1")
    return labels[text]

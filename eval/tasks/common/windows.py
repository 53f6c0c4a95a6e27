"""Datasets whose rows hold their windows, REF and ALT, cut from a FASTA around listed variants."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant
from eval.contract import BuildReport
from eval.tasks.common.building import drawn, write_dataset
from eval.tasks.common.listings import Listed, read_listing
from eval.tasks.common.references import AnyName
from eval.tasks.common.variants import check_assembly, is_snv

Named = Callable[[Listed, str], dict[str, Any] | None]
"""From a row and where it stands to the columns of its label; None where it has none."""


def build_windows(
    output: Path,
    *,
    table: Path,
    reference: Path,
    needed: Sequence[str],
    named: Named,
    window_bp: int,
    num_examples: int | None,
    seed: int,
    settings: Mapping[str, Any],
) -> BuildReport:
    """Write a row for each listed single-base change that has a label and a whole window.

    Args:
        output: Parquet to write.
        table: of variants, places counted from 1.
        reference: FASTA of their assembly.
        needed: required columns besides the columns of a variant.
        named: what of a row is its label.
        window_bp: the variant is at its middle, base `window_bp // 2`.
        num_examples: most rows; all if None.
        seed: of the choice of those rows.
        settings: more to write down about the build.

    Raises:
        UserError: the table is broken, or nothing is left.
        GenomeError: the table's REFs disagree with the FASTA.
    """
    dropped: Counter[str] = Counter()
    listed = read_listing(table, ("chrom", "pos", "ref", "alt", *needed))
    with AnyName(reference) as fasta:
        single = [row for row in listed if is_snv(row["ref"], row["alt"])]
        dropped["not_a_single_base_change"] += len(listed) - len(single)
        check_assembly(fasta, [_variant(row) for row in single])
        rows = _rows(fasta, single, named, table, window_bp, dropped)
    kept = drawn(len(rows), num_examples, seed)
    dropped["not_drawn"] += len(rows) - len(kept)
    return write_dataset(
        output,
        [rows[number] for number in kept],
        dropped,
        (table, reference),
        {**settings, "window_bp": window_bp, "seed": seed},
    )


def _rows(
    fasta: Reference,
    listed: Sequence[Listed],
    named: Named,
    table: Path,
    window_bp: int,
    dropped: Counter[str],
) -> list[dict[str, Any]]:
    """Return a row for each variant that has a label and windows, once; count the others."""
    rows: dict[tuple[str, int, str], dict[str, Any]] = {}
    for number, row in enumerate(listed, start=1):
        place = (row["chrom"], row["pos"], row["alt"])
        columns = named(row, f"{table} variant {number}")
        reason, windows = _windows(fasta, _variant(row), window_bp)
        if columns is None or place in rows or reason:
            dropped["no_label" if columns is None else reason or "stands_twice"] += 1
            continue
        alleles = {name: row[name] for name in ("chrom", "pos", "ref", "alt")}
        rows[place] = alleles | columns | windows
    return list(rows.values())


def _variant(row: Listed) -> Variant:
    return Variant(row["chrom"], row["pos"] - 1, row["ref"], row["alt"])


def _windows(
    reference: Reference, variant: Variant, window_bp: int
) -> tuple[str | None, dict[str, str]]:
    """Return why a variant has no windows, or None, and its windows."""
    start = variant.position - window_bp // 2
    end = start + window_bp
    if start < 0 or end > reference.contig_lengths_bp.get(variant.contig, 0):
        return "near_the_end_of_its_contig", {}
    window = reference.fetch(Interval(variant.contig, start, end)).upper()
    middle = window_bp // 2
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

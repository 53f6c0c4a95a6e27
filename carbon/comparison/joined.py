"""Which allele of one file is which of the other: by contig, position, id, REF and ALT.

Alleles that the two files write in different ways are joined by what they are scored as.
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from carbon.comparison.scored_files import KEY, ScoredFile
from carbon.errors import UserError
from carbon.genome import Variant
from carbon.genome.variant import allele_key

_PLACE = ("contig", "position", "ref", "alt")
Rows = NDArray[np.int64]
"""Numbers of rows of a file's alleles, from 0."""


class Joined(NamedTuple):
    """Alleles of both files, and of either alone.

    Attributes:
        in_a: rows of the first file that the second has too, rising.
        in_b: the same alleles in the second, so of the same length.
        only_in_a: rows of the first that the second has not, rising.
        only_in_b: rows of the second that the first has not, rising.
    """

    in_a: Rows
    in_b: Rows
    only_in_a: Rows
    only_in_b: Rows


def join_alleles(a: pa.Table, b: pa.Table) -> Joined:
    """Find each allele of one table in the other; neither has an allele twice, nor need be sorted.

    Alleles are looked for as they are written, and what is left then by id and the trimmed and
    left-aligned form, where that is unique among what is left of each table.

    Args:
        a: with the columns of `KEY` and `scored_as`.
        b: likewise.
    """
    written = _joined_as_written(a, b)
    form_a, form_b = _forms(a, written.only_in_a), _forms(b, written.only_in_b)
    more_a = np.array([row for form, row in form_a.items() if form in form_b], np.int64)
    more_b = np.array([form_b[form] for form in form_a if form in form_b], np.int64)
    in_a = np.concatenate([written.in_a, more_a])
    order = np.argsort(in_a)
    return Joined(
        in_a[order],
        np.concatenate([written.in_b, more_b])[order],
        np.setdiff1d(written.only_in_a, more_a),
        np.setdiff1d(written.only_in_b, more_b),
    )


def _forms(alleles: pa.Table, rows: Rows) -> dict[tuple[str, str], int]:
    """Return the row of each allele by its id and its form, without forms that come twice."""
    some = alleles.take(rows).to_pylist()
    forms = [
        (each["id"], each["scored_as"] or allele_key(*(each[n] for n in _PLACE))) for each in some
    ]
    times = Counter(forms)
    return {form: row for form, row in zip(forms, rows.tolist(), strict=True) if times[form] == 1}


def _joined_as_written(a: pa.Table, b: pa.Table) -> Joined:
    joined = _numbered(a, "a").join(_numbered(b, "b"), keys=list(KEY), join_type="full outer")
    rows_a, rows_b = joined["a"], joined["b"]
    in_both = joined.filter(compute.and_(rows_a.is_valid(), rows_b.is_valid())).sort_by("a")
    return Joined(
        in_both["a"].to_numpy(),
        in_both["b"].to_numpy(),
        np.sort(rows_a.filter(rows_b.is_null()).to_numpy()),
        np.sort(rows_b.filter(rows_a.is_null()).to_numpy()),
    )


def _numbered(alleles: pa.Table, name: str) -> pa.Table:
    return alleles.select(list(KEY)).append_column(name, pa.array(np.arange(len(alleles))))


def check_single(scored: ScoredFile) -> None:
    """Raise UserError if an allele stands in a file more than once, or there are none."""
    if not len(scored.alleles):
        raise UserError(f"{scored.path}: has no alleles; nothing to compare")
    numbered = _numbered(scored.alleles, "row")
    groups = numbered.group_by(list(KEY)).aggregate([("row", "min"), ("row", "count")])
    repeated = groups.filter(compute.greater(groups["row_count"], 1)).sort_by("row_min")
    if len(repeated):
        raise UserError(
            f"{scored.path}: alleles that stand there more than once: {len(repeated)}, first "
            f"{allele_text(repeated, 0)}; score a VCF without duplicates (`bcftools norm -d exact`)"
        )


def check_one_vcf(a: ScoredFile, b: ScoredFile, joined: Joined, *, common: bool) -> None:
    """Raise UserError if two files are of different VCFs, and that is not to be passed over.

    Args:
        a: the first file.
        b: the second.
        joined: their alleles.
        common: alleles of one file alone are passed over, unless there are no others.
    """
    first = [
        f"{allele_text(scored.alleles, int(rows[0]))} ({scored.path})"
        for scored, rows in ((a, joined.only_in_a), (b, joined.only_in_b))
        if len(rows)
    ]
    if not len(joined.in_a):
        raise UserError(
            f"{a.path} and {b.path}: have no allele in common; first {' and '.join(first)}: are "
            "they of one VCF, with one way to name its contigs?"
        )
    if first and not common:
        raise UserError(
            f"{a.path} and {b.path}: are of different VCFs; alleles of the first alone: "
            f"{len(joined.only_in_a)}, of the second alone: {len(joined.only_in_b)}; first "
            f"{' and '.join(first)} (--common compares the {len(joined.in_a)} of both)"
        )


def allele_text(alleles: pa.Table, row: int) -> str:
    """Return an allele as messages have it: `chr1:10 A>T (rs1)`."""
    key: dict[str, Any] = alleles.select(list(KEY)).slice(row, 1).to_pylist()[0]
    place = Variant(key["contig"], key["position"] - 1, key["ref"], key["alt"]).to_text()
    return place if key["id"] == "." else f"{place} ({key['id']})"

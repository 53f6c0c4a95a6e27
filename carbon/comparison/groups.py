"""Groups of alleles that are compared apart, a table of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

Labels = NDArray[np.object_]
"""The group of each allele, None of those that are in none."""

KINDS = ("SNV", "MNV", "insertion", "deletion")
_K = 6  # bases of a token: an indel of as many, or of twice as many, moves no 6-mer behind it


def kinds_of(alleles: pa.Table) -> Labels:
    """Return the kind of each allele; an SNV that is padded with shared bases is an SNV."""
    ref, added = _lengths(alleles)
    is_snv = ref == 1
    replaced = np.flatnonzero((added == 0) & ~is_snv)
    is_snv[replaced] = _has_one_change(alleles.take(replaced))
    conditions = [added > 0, added < 0, is_snv]
    return np.select(conditions, ["insertion", "deletion", "SNV"], "MNV").astype(object)


def _has_one_change(alleles: pa.Table) -> NDArray[np.bool_]:
    """Tell of alleles that are as long as REF whether they differ from it in one base."""
    pairs = zip(alleles["ref"].to_pylist(), alleles["alt"].to_pylist(), strict=True)
    changes = [sum(map(str.__ne__, ref.upper(), alt.upper())) for ref, alt in pairs]
    return np.array([number == 1 for number in changes], dtype=np.bool_)


def lengths_of(alleles: pa.Table) -> Labels:
    """Return of each indel whether it moves the 6-mers that follow it."""
    _, added = _lengths(alleles)
    names: Labels = np.where(
        added % _K == 0, "indel of 6, 12, ... bp", "indel of another length"
    ).astype(object)
    names[added == 0] = None
    return names


def consequences_of(alleles: pa.Table) -> Labels:
    """Return the consequence of each allele."""
    found: Labels = alleles["consequence"].to_numpy(zero_copy_only=False)
    return found


def _lengths(alleles: pa.Table) -> tuple[Any, Any]:
    """Return of each allele the bases of REF, and how many more ALT has."""
    ref, alt = (compute.utf8_length(alleles[name]).to_numpy() for name in ("ref", "alt"))
    return ref, alt - ref


GROUPINGS: dict[str, Callable[[pa.Table], Labels]] = {
    "by_kind": kinds_of,
    "by_length": lengths_of,
    "by_consequence": consequences_of,
}


def members(labels: Labels) -> dict[str, NDArray[np.bool_]]:
    """Return each group by name, the largest first, and which alleles are in it."""
    names, counts = np.unique(labels[labels != None].astype(str), return_counts=True)  # noqa: E711
    return {str(names[i]): labels == names[i] for i in np.argsort(-counts, kind="stable")}

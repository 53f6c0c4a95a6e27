"""VCFs that visitors upload, and VCFs for a command line."""

import shlex
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from carbon.errors import UserError
from carbon.genome import Reference, Variant, VcfReader
from carbon.genome.vcf import COLUMNS


class Listed(NamedTuple):
    """A variant of a VCF, and the reason if its REF disagrees with the reference."""

    variant: Variant
    reason: str | None


def first_variants(files: Sequence[str], reference: Reference, most: int) -> list[Listed]:
    """Return the first variants of a VCF; an empty list without a file.

    Raises:
        UserError: there are several files.
        GenomeError: the VCF is malformed in the part that is read.
    """
    if len(files) > 1:
        raise UserError(f"{len(files)} VCFs are given; give one")
    rows = (row for path in files for row in VcfReader(path, reference))
    each = (
        Listed(variant, row.disagreement.reason if row.disagreement else None)
        for row in rows
        for variant in row.variants
    )
    return list(islice(each, most))


def printed_vcf(variants: Iterable[Variant], path: str) -> str:
    """Return a shell command that writes a VCF of variants, sorted by position."""
    ordered = sorted(variants, key=lambda variant: (variant.contig, variant.position))
    records = [
        (v.contig.replace("\\", "\\\\"), v.position + 1, ".", v.ref, v.alt, ".", ".", ".")
        for v in ordered
    ]
    lines = ("\\t".join(map(str, columns)) for columns in (COLUMNS, *records))
    text = "".join(f"{line}\\n" for line in ("##fileformat=VCFv4.2", *lines))
    return f"printf '%b' {shlex.quote(text)} > {path}"

"""One sequence under two names: what a file calls a contig, and what the reference does.

Whoever holds a file against a reference asks `contig_names` for the names that differ, as a mapping
from those of the file to those of the reference. What is written of a VCF keeps its names; a scan
and a corpus have those of the reference.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from carbon.errors import GenomeError
from carbon.genome.interval import Interval, from_region
from carbon.genome.sequences import BROKEN_GZIP, open_text
from carbon.io.files import why_no_file

CHR = "chr"
"""Asks for what differs by a `chr` before the name, or by `MT` for `M`."""
_PREFIXES = ("chr", "Chr", "")
_PREFIX = re.compile("chr", re.IGNORECASE)
_MITOCHONDRION = ("M", "MT")
_SHOWN = 3


def contig_names(asked: str | Path | None, contigs: Collection[str]) -> dict[str, str]:
    """Return what a file calls a contig = what the reference does, where the two may differ.

    Args:
        asked: `chr`; or a table of two columns, the file's names and the reference's, as
            `bcftools annotate --rename-chrs` takes; or nothing.
        contigs: of the reference.

    Raises:
        GenomeError: the table is absent, broken, or of another reference.
    """
    if table := names_table(asked):
        return _of_table(table, contigs)
    return _by_prefix(contigs) if asked else {}


def names_table(asked: str | Path | None) -> Path | None:
    """Return the table that is asked for; None where it is `chr` or nothing."""
    return Path(asked) if asked and str(asked) != CHR else None


def region_by_name(
    text: str, contig_lengths_bp: Mapping[str, int], names: Mapping[str, str]
) -> Interval:
    """Read a contig or region under a file's name of the contig; return it under the reference's.

    Raises:
        GenomeError: the contig is unknown, or the region is empty or ends past the contig.
    """
    known = dict(contig_lengths_bp)
    known |= {name: known[own] for name, own in names.items() if own in contig_lengths_bp}
    contig = text.rpartition(":")[0] or text
    if contig not in known and (hint := prefix_hint([contig], known)):
        raise GenomeError(f"region '{text}': no contig '{contig}' in the FASTA{hint}")
    place = from_region(text, known)
    return replace(place, contig=names.get(place.contig, place.contig))


def prefix_hint(missing: Iterable[str], contigs: Collection[str]) -> str:
    """Say what to give if a `chr` is all that lies between, else an empty string."""
    names = _by_prefix(contigs)
    for name in missing:
        if name in names:
            return (
                f"; one side writes a 'chr' prefix or MT for M ('{name}' is '{names[name]}'): give "
                '--contigs chr (in a recipe: contigs = "chr")'
            )
    return ""


def shown_names(names: Iterable[str]) -> str:
    """Write the first few names, for messages."""
    names = list(names)
    return ", ".join(map(repr, names[:_SHOWN])) + (" ..." if len(names) > _SHOWN else "")


def _by_prefix(contigs: Collection[str]) -> dict[str, str]:
    """Return the other names of contigs; a name that is a contig's own stays."""
    own = set(contigs)
    names: dict[str, str] = {}
    for bare_names in (_bare, _other_mitochondria):
        for contig in contigs:
            for name in (prefix + bare for bare in bare_names(contig) for prefix in _PREFIXES):
                if name and name not in own:
                    names.setdefault(name, contig)
    return names


def _bare(contig: str) -> list[str]:
    return [_PREFIX.sub("", contig, count=1) if _PREFIX.match(contig) else contig]


def _other_mitochondria(contig: str) -> list[str]:
    (bare,) = _bare(contig)
    return [name for name in _MITOCHONDRION if bare in _MITOCHONDRION and name != bare]


def _of_table(path: Path, contigs: Collection[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    taken: set[str] = set()
    for where, (name, own) in _rows(path):
        if name in names:
            raise GenomeError(f"{where}: '{name}' stands twice in the first column; keep one")
        if own in taken:
            raise GenomeError(
                f"{where}: '{own}' stands twice in the second column; two contigs of a file cannot "
                "be one of the reference"
            )
        names[name] = own
        taken.add(own)
    if not names:
        raise GenomeError(f"{path}: has no row; write a contig's name in the file, a tab, its own")
    if taken.isdisjoint(contigs):
        turned = "; are the two columns the other way round?" if set(names) & set(contigs) else ""
        raise GenomeError(
            f"{path}: names {shown_names(names.values())} in its second column, but the reference "
            f"has {shown_names(contigs)}{turned}"
        )
    return names


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield where a row stands and its two names."""
    if not path.is_file():
        raise GenomeError(
            f"{path}: {why_no_file(path)}; give a table (the file's name of a contig, a tab, the "
            "reference's), or chr"
        )
    try:
        with open_text(path, errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip() or line.startswith("#"):
                    continue
                columns = [each.strip() for each in line.split("\t" if "\t" in line else None)]
                if len(columns) != 2 or not all(columns):
                    raise GenomeError(
                        f"{path} line {number}: {len(columns)} columns where there must be two: "
                        "the file's name of a contig, a tab, the reference's"
                    )
                yield f"{path} line {number}", columns
    except BROKEN_GZIP as error:
        raise GenomeError(f"{path}: is broken ({error}); fetch it again") from None

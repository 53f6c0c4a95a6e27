"""Mapping from the contig names of a file to the names in the reference, such as `chr1` to `1`.

`contig_names` returns the names that differ, from the file's name to the reference's. A scored VCF
keeps its own names; a scan and a corpus use the reference's.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from carbon.errors import GenomeError
from carbon.genome.interval import Interval, as_utf8, from_region
from carbon.genome.sequences import numbered_lines
from carbon.io.files import why_no_file

CHR = "chr"
"""Option value that maps names that differ by a `chr` prefix, or by `MT` and `M`."""
_PREFIXES = ("chr", "Chr", "")
_PREFIX = re.compile("chr", re.IGNORECASE)
_MITOCHONDRION = ("M", "MT")
_SHOWN = 3


def contig_names(option: str | Path | None, contigs: Collection[str]) -> dict[str, str]:
    """Return the reference's name for each name that another file may use for a contig.

    Args:
        option: `chr`; or a table of two columns, the file's names and the reference's, as in
            `bcftools annotate --rename-chrs`; or None.
        contigs: contigs of the reference.

    Raises:
        GenomeError: the table is missing, malformed, or for another reference.
    """
    if table := names_table(option):
        return _of_table(table, contigs)
    return _by_prefix(contigs) if option else {}


def names_table(option: str | Path | None) -> Path | None:
    """Return the path of the table in an option; None if the option is `chr` or None."""
    return Path(option) if option and str(option) != CHR else None


def region_by_name(
    text: str, contig_lengths_bp: Mapping[str, int], names: Mapping[str, str]
) -> Interval:
    """Parse a contig or region in which the contig may have a file's name.

    Returns:
        The interval, with the reference's name of the contig.

    Raises:
        GenomeError: the contig is unknown, or the region is empty or ends past the contig.
    """
    text = as_utf8(text)
    known = dict(contig_lengths_bp)
    known |= {name: known[own] for name, own in names.items() if own in contig_lengths_bp}
    contig = text.rpartition(":")[0] or text
    if contig not in known and (hint := prefix_hint([contig], known)):
        raise GenomeError(f"region '{text}': no contig '{contig}' in the FASTA{hint}")
    place = from_region(text, known)
    return replace(place, contig=names.get(place.contig, place.contig))


def prefix_hint(missing: Iterable[str], contigs: Collection[str]) -> str:
    """Return a remedy if contigs are missing because of a `chr` prefix, else an empty string."""
    names = _by_prefix(contigs)
    for name in missing:
        if name in names:
            return (
                f"; one side writes a 'chr' prefix or MT for M ('{name}' is '{names[name]}'): give "
                '--contigs chr (in a recipe: contigs = "chr")'
            )
    return ""


def shown_names(names: Iterable[str]) -> str:
    """Return the first few names, quoted, for messages."""
    names = list(names)
    return ", ".join(map(repr, names[:_SHOWN])) + (" ..." if len(names) > _SHOWN else "")


def _by_prefix(contigs: Collection[str]) -> dict[str, str]:
    """Return other names of contigs, except names that are contigs themselves."""
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
            raise GenomeError(f"{where}: '{name}' occurs twice in the first column; keep one")
        if own in taken:
            raise GenomeError(
                f"{where}: '{own}' occurs twice in the second column; two contigs of a file cannot "
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
    """Yield file and line number, and the two names, of each row."""
    if not path.is_file():
        raise GenomeError(
            f"{path}: {why_no_file(path)}; give a table (the file's name of a contig, a tab, the "
            "reference's), or chr"
        )
    for number, line in numbered_lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        columns = [each.strip() for each in line.split("\t" if "\t" in line else None)]
        if len(columns) != 2 or not all(columns):
            raise GenomeError(
                f"{path} line {number}: {len(columns)} columns where there must be two: the file's "
                "name of a contig, a tab, the reference's"
            )
        yield f"{path} line {number}", columns

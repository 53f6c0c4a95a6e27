"""Which organism the files of an assembly say they are of, where they do."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from carbon.genome.sequences import BROKEN_GZIP, open_text

_MOST_LINES = 1000  # of the comments that an annotation begins with
# `>NC_001133.9 Saccharomyces cerevisiae S288C chromosome I, complete sequence`: INSDC and RefSeq.
_ACCESSION = r"(?:gi\|\S+|(?:[A-Z]{1,2}_)?[A-Z]{0,6}\d{5,}\.\d+)"
_NCBI = re.compile(rf">{_ACCESSION} (?:TPA\w*: )?([A-Z][a-z]+ (?!phage|virus)[a-z]{{3,}})\b")
# `>I dna:chromosome chromosome:R64-1-1:I:1:230218:1 REF`: Ensembl.
_ENSEMBL = re.compile(r">\S+ dna\S*:\S+ \w+:([^:\s]+):")
_BUILD = re.compile(r"#!genome-build\s.*?(\S+)\s*$")
# Organisms of the assemblies that are met most, by the beginnings of their names.
_ASSEMBLIES = (
    ("GRCh3", "Homo sapiens"),
    ("T2T-CHM13", "Homo sapiens"),
    ("GRCm3", "Mus musculus"),
    ("GRCr8", "Rattus norvegicus"),
    ("mRatBN7", "Rattus norvegicus"),
    ("GRCz1", "Danio rerio"),
    ("BDGP6", "Drosophila melanogaster"),
    ("WBcel235", "Caenorhabditis elegans"),
    ("R64", "Saccharomyces cerevisiae"),
    ("ASM294v2", "Schizosaccharomyces pombe"),
    ("TAIR10", "Arabidopsis thaliana"),
    ("IRGSP-1.0", "Oryza sativa"),
    ("ASM584v2", "Escherichia coli"),
)


class Said(NamedTuple):
    """An organism, and the file that says so."""

    organism: str
    where: str


def other_organism(organism: str, genome: str, annotation: str) -> str | None:
    """Return a warning where a file says that it is of another organism than the recipe does.

    Genus and species are compared, and only where both sides write both.

    Args:
        organism: of the recipe.
        genome: FASTA.
        annotation: GFF3, GTF or BED, or an empty string.
    """
    for said in organisms_said(genome, annotation):
        if warning := disagreement(organism, said):
            return warning
    return None


def disagreement(organism: str, said: Said) -> str | None:
    """Return a warning where an organism is not the one that a file says it is of."""
    ours, theirs = _species(organism), _species(said.organism)
    if not ours or not theirs or ours == theirs:
        return None
    return (
        f"warning: the recipe says organism '{organism}', but {said.where} says '{said.organism}'; "
        "is the line left from another recipe?"
    )


def organisms_said(genome: str, annotation: str) -> Iterator[Said]:
    """Yield what the first header of a FASTA and the first comments of an annotation tell."""
    for line in _first_lines(genome, ">"):
        if match := _NCBI.match(line):
            yield Said(match[1], f"the header of {genome}")
        elif match := _ENSEMBL.match(line):
            yield from _of_assembly(match[1], f"the header of {genome}")
        break
    for line in _first_lines(annotation, "#"):
        if match := _BUILD.match(line):
            yield from _of_assembly(match[1], annotation)


def _of_assembly(name: str, where: str) -> Iterator[Said]:
    for beginning, organism in _ASSEMBLIES:
        if name.startswith(beginning):
            yield Said(organism, f"{where} ({name})")


def _first_lines(path: str, mark: str) -> list[str]:
    """Return the lines that a file opens with and that begin with a mark."""
    try:
        with open_text(Path(path), errors="replace") as lines:
            some = itertools.islice(lines, _MOST_LINES)
            return list(itertools.takewhile(lambda line: line.startswith(mark), some))
    except (*BROKEN_GZIP, OSError):
        return []  # whoever reads it whole says so


def _species(organism: str) -> tuple[str, str] | None:
    """Return genus and species, in small letters; None of a name that is written otherwise."""
    match = re.match(r"([A-Z][a-z]+) ([a-z]{3,})\b", organism.strip())
    return (match[1].lower(), match[2].lower()) if match else None

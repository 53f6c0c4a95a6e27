"""An assembly with its annotation, opened from FASTA and GFF3, GTF or BED, or from GenBank."""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carbon.errors import GenomeError, UserError
from carbon.genome import (
    Annotation,
    Reference,
    contig_names,
    is_genbank,
    read_annotation,
    unpack_genbank,
)
from carbon.genome.annotation import with_genetic_code
from carbon.genome.sequences import BROKEN_GZIP, open_text
from carbon.io.files import scratch_folder
from data_pipeline.recipe import AssemblyConfig, assembly_name, species_type_of
from data_pipeline.sources import SOURCES, need_annotation, usual_sources

if TYPE_CHECKING:
    from data_pipeline.inputs.taxonomy import Taxon


@dataclass(frozen=True, slots=True)
class Assembly:
    """An assembly, opened."""

    reference: Reference
    annotation: Annotation
    name: str
    organism: str
    species_type: str
    taxonomy: tuple[str, ...]
    clade: str
    sources: tuple[str, ...]
    warning: str


@contextmanager
def opened(config: AssemblyConfig, taxdump: str = "", divide_by: str = "") -> Iterator[Assembly]:
    """Open an assembly from FASTA and annotation, or from GenBank.

    Args:
        config: the assembly's entry in the recipe.
        taxdump: folder to take the lineage from, if any.
        divide_by: taxonomic rank of `clade`.

    Raises:
        UserError: a file is absent or malformed, or they do not fit.
    """
    organism, taxonomy = config.organism, tuple(t.strip() for t in config.taxonomy.split(";"))
    with scratch_folder("genbank") as scratch:
        genome, fasta, from_genbank = config.genome, config.genome, None
        if Path(genome).is_file() and is_genbank(genome):
            if config.annotation:
                raise GenomeError(f"{genome}: GenBank has its own annotation; leave the other out")
            fasta = f"{scratch}/genome.fa"
            found = unpack_genbank(genome, Path(fasta))
            said: Iterable[Said] = [Said(found.organism, genome)]
            organism = organism or found.organism
            taxonomy = taxonomy if config.taxonomy else found.taxonomy
            from_genbank = found.annotation
        else:
            said = organisms_said(genome, config.annotation)
        lineage: tuple[Taxon, ...] = ()
        if taxdump:
            lineage = _lineage(taxdump, config, organism)
            taxonomy = tuple(taxon.name for taxon in lineage)
        with Reference(fasta) as reference:
            if from_genbank:
                from_genbank = with_genetic_code(
                    from_genbank, config.genetic_code or None, reference.contig_lengths_bp
                )
            species_type = config.species_type or species_type_of(taxonomy)
            annotated = bool(config.annotation or from_genbank)
            usual = () if config.regions else usual_sources(species_type, annotated=annotated)
            sources = config.sources or usual
            yield Assembly(
                reference,
                from_genbank or _annotation(config, reference, sources),
                assembly_name(config),
                organism,
                species_type,
                tuple(filter(None, taxonomy)),
                next((taxon.name for taxon in lineage if taxon.rank == divide_by), ""),
                sources,
                next(filter(None, (disagreement(config.organism, each) for each in said)), ""),
            )


def _lineage(taxdump: str, config: AssemblyConfig, organism: str) -> tuple["Taxon", ...]:
    from data_pipeline.inputs.taxonomy import opened_taxonomy

    if not (config.taxid or organism):
        raise UserError(f"assembly '{assembly_name(config)}': give its organism, or its taxid")
    taxonomy = opened_taxonomy(taxdump)
    return taxonomy.lineage(config.taxid or taxonomy.taxid_of(organism))


def _annotation(
    config: AssemblyConfig, reference: Reference, sources: tuple[str, ...]
) -> Annotation:
    if not config.annotation:
        if need_annotation(sources):
            without = [f"'{name}'" for name in SOURCES if not need_annotation([name])]
            raise GenomeError(
                f"{config.genome}: needs an annotation for {', '.join(sources)}; without one, "
                f"only the source {' or '.join(without)} can be cut"
            )
        return Annotation(Path(config.genome), (), ())
    return read_annotation(
        config.annotation,
        reference,
        contig_names=names_of(config, reference.contig_lengths_bp),
        offset_bp=config.annotation_offset_bp,
        genetic_code=config.genetic_code or None,
    )


def names_of(config: AssemblyConfig, contigs: Collection[str]) -> dict[str, str]:
    """Return the contig names of the sequence by the annotation's names.

    Raises:
        GenomeError: the recipe's table of them is absent or broken.
    """
    return config.contig_names or contig_names(config.contigs, contigs)


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


def disagreement(organism: str, said: Said) -> str | None:
    """Return a warning if a file names another organism than the recipe.

    Genus and species are compared, and only where both sides write both.
    """
    ours, theirs = _species(organism), _species(said.organism)
    if not ours or not theirs or ours == theirs:
        return None
    return (
        f"warning: the recipe says organism '{organism}', but {said.where} says '{said.organism}'; "
        "is the line left from another recipe?"
    )


def organisms_said(genome: str, annotation: str) -> Iterator[Said]:
    """Yield the first header of a FASTA and the first comments of an annotation."""
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
        return []  # the reader of the whole file reports it


def _species(organism: str) -> tuple[str, str] | None:
    """Return genus and species, in small letters; None of a name that is written otherwise."""
    match = re.match(r"([A-Z][a-z]+) ([a-z]{3,})\b", organism.strip())
    return (match[1].lower(), match[2].lower()) if match else None

"""An assembly with its annotation, opened from FASTA and GFF3, GTF or BED, or from GenBank."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carbon.errors import GenomeError, UserError
from carbon.genome import (
    Annotation,
    Reference,
    contig_names,
    is_genbank,
    read_annotation,
    unpack_genbank,
)
from carbon.genome.cds_codes import with_genetic_code
from carbon.io.files import scratch_folder
from data_pipeline.reading.organisms import Said, disagreement, other_organism
from data_pipeline.recipe import AssemblyConfig, assembly_name, species_type_of
from data_pipeline.sources import SOURCES, need_annotation, usual_sources

if TYPE_CHECKING:
    from data_pipeline.reading.taxonomy import Taxon


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
    warning: str | None


@contextmanager
def opened(config: AssemblyConfig, taxdump: str = "", divide_by: str = "") -> Iterator[Assembly]:
    """Open an assembly from FASTA and annotation, or from GenBank.

    Args:
        config: what the recipe says of it.
        taxdump: folder to take the lineage from, if any.
        divide_by: the rank of which `clade` is.

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
            warning = disagreement(organism, Said(found.organism, genome))
            organism = organism or found.organism
            taxonomy = taxonomy if config.taxonomy else found.taxonomy
            from_genbank = found.annotation
        else:
            warning = other_organism(organism, genome, config.annotation)
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
                warning,
            )


def _lineage(taxdump: str, config: AssemblyConfig, organism: str) -> tuple["Taxon", ...]:
    from data_pipeline.reading.taxonomy import opened_taxonomy

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
    """Return what the annotation of an assembly calls a contig = what its sequence does.

    Raises:
        GenomeError: the recipe's table of them is absent or broken.
    """
    return config.contig_names or contig_names(config.contigs, contigs)

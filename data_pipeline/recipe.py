"""The recipe of a corpus: what goes in, what is cut out of it, and what is left out."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from carbon.config import OneOf, check, check_choices, check_given
from carbon.errors import GenomeError
from carbon.genome.genetic_codes import genetic_code
from carbon.tokenizer import SPECIES_TAG_OF
from data_pipeline.running.executors import EXECUTORS, ExecutorConfig
from data_pipeline.sources import SOURCES
from data_pipeline.sources.limits import (
    STOPS_AT_INCOMPLETE_CDS,
    CutConfig,
    FamilyConfig,
    KeepConfig,
)
from data_pipeline.sources.samples import is_fastq


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionsConfig:
    """Places of a BED on an assembly, a record each: enhancers, open chromatin, any other kind."""

    path: str
    """BED, plain or gzip."""
    source: str = ""
    """Of all lines; if not given, a line is of the source that its kind names."""
    kind_column: int = 4
    """Where a line says its kind, from 1."""
    both_strands: bool = True
    """Whether training reads the records on either strand."""
    flank_bp: int = 0
    """Bases to keep on either side, as far as the contig goes."""

    def __post_init__(self) -> None:
        check_given(self, "path")
        check(self.kind_column >= 4, f"kind_column = {self.kind_column}: give 4 or more")
        check(self.flank_bp >= 0, f"flank_bp = {self.flank_bp}: give 0 or more")
        check(not self.source or _is_name(self.source), _no_name(self.source))


@dataclass(frozen=True, kw_only=True, slots=True)
class AssemblyConfig:
    """One assembly: its sequence, its annotation, and who it is."""

    genome: str
    """FASTA (plain, bgzip or gzip) or GenBank (plain or gzip)."""
    annotation: str = ""
    """GFF3, GTF or BED of the same assembly, plain or gzip; a GenBank file has its own. Without one
    the contigs are cut into chunks."""
    name: str = ""
    """For the column `assembly`; the name of the genome's file if not given."""
    organism: str = ""
    """A GenBank file has its own."""
    species_type: str = ""
    """One of mam, vrt, inv, pln, fng, prt, pro; empty takes it from the taxonomy, or none."""
    taxonomy: str = ""
    """Lineage from the root, such as `Eukaryota; Fungi`; a GenBank file has its own."""
    taxid: int = 0
    """Of NCBI, for a recipe with a `taxdump`; if not given, the organism is looked up there."""
    accession: str = ""
    licence: str = ""
    """Goes into the manifest, as does the accession."""
    sources: tuple[str, ...] = ()
    """What to cut out; empty: nothing but `regions` if there are any, `prokaryote` for prokaryotes,
    `genome` where there is no annotation, else `eukaryote` and `mrna`."""
    regions: tuple[RegionsConfig, ...] = ()
    holdout: tuple[str, ...] = ("auto",)
    """Contigs or regions (`chr:first-last`) to hold out and `family` (see `families`), or `auto`
    alone, or nothing."""
    contig_names: dict[str, str] = field(default_factory=dict)
    """What the annotation calls a contig = what the sequence does."""
    contigs: str = ""
    """The same as a table, a file of two columns; or `chr`, to add or take away a `chr` before the
    annotation's names (and M for MT)."""
    annotation_offset_bp: int = 0
    """Where the sequence begins in the annotation's coordinates, if it is part of a chromosome."""
    genetic_code: int = 0
    """NCBI translation table of CDS for which the annotation states none (`transl_table`); 0: the
    standard code, and none for mitochondria."""
    incomplete_cds: Annotated[str, OneOf(STOPS_AT_INCOMPLETE_CDS)] = "error"
    """What to do with a CDS that is not a multiple of three and that the annotation does not mark
    as partial, pseudo or exceptional."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_given(self, "genome")
        known = ", ".join(SPECIES_TAG_OF)
        check(
            self.species_type in ("", *SPECIES_TAG_OF),
            f"species_type = '{self.species_type}': give one of {known}, or nothing",
        )
        for source in self.sources:
            check(source in SOURCES, f"source '{source}': give some of {', '.join(SOURCES)}")
        check(self.taxid >= 0, f"taxid = {self.taxid}: give that of NCBI, 1 or more")
        _check_genetic_code(self.genetic_code)
        check(self.annotation_offset_bp >= 0, "annotation_offset_bp: give 0 or more")
        check(
            not (self.contigs and self.contig_names),
            "contigs and contig_names say the same: give one of them",
        )


def _check_genetic_code(table: int) -> None:
    try:
        if table:
            genetic_code(table)
    except GenomeError as error:
        check(False, f"genetic_code = {error}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FilesConfig:
    """Sequences that are records already: FASTA, one a line, released Parquet, or reads."""

    path: str
    """A file, or a pattern such as `eukaryote_generator/*.parquet`; plain or gzip. What ends in
    `.fastq` or `.fq` is reads."""
    mates: str = ""
    """The second reads of pairs, a file or a pattern; the n-th belongs to the n-th of `path`."""
    source: str
    """One that is cut out of assemblies too, or a name of its own."""
    both_strands: bool | None = None
    """Whether training reads the records on either strand; for a name of its own alone."""
    near_duplicates: bool = False
    """Whether records that are nearly equal are sought; for a name of its own alone."""
    gene_type: str = ""
    species_type: str = ""
    organism: str = ""
    assembly: str = ""
    sample: str = ""
    """Whose reads they are, for the column `assembly`; else what each file is named after."""
    test_share: float = 0.0
    """Share of the records to hold out, chosen by their own bases; of reads, share of the samples
    of the recipe."""

    def __post_init__(self) -> None:
        check_given(self, "path")
        self._check_source()
        check(0 <= self.test_share < 1, f"test_share = {self.test_share}: give 0 to 1")
        known = ", ".join(SPECIES_TAG_OF)
        check(
            self.species_type in ("", *SPECIES_TAG_OF),
            f"species_type = '{self.species_type}': give one of {known}, or nothing",
        )
        reads = is_fastq(Path(self.path))
        check(
            reads or not (self.mates or self.sample),
            f"mates and sample are of reads, and '{self.path}' does not end in .fastq or .fq",
        )
        check(not (reads and self.assembly), "assembly: of reads, give the sample instead")

    def _check_source(self) -> None:
        known = SOURCES.get(self.source)
        check(
            known is not None or self.both_strands is not None,
            f"source '{self.source}': give one of {', '.join(SOURCES)}; or say of a name of its "
            "own whether it is read on both_strands",
        )
        check(
            known is None or self.both_strands in (None, known.both_strands),
            f"both_strands = {self.both_strands} for source '{self.source}', which is read "
            "otherwise: give the files a name of their own",
        )
        check(
            known is None or not self.near_duplicates,
            f"near_duplicates of source '{self.source}' cannot be chosen: give the files a name of "
            "their own",
        )
        check(_is_name(self.source), _no_name(self.source))


def _is_name(source: str) -> bool:
    return re.fullmatch(r"\w[\w.-]*", source) is not None


def _no_name(source: str) -> str:
    return f"source '{source}': give a name of letters, digits, '_', '-' and '.'"


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """Something that models will be measured on: no record may overlap or contain it."""

    path: str
    """FASTA (sequences that no record to train on may nearly contain or lie in), or BED, VCF or BCF
    (places; of a VCF all bases that its records span)."""
    assembly: str = ""
    """Whose coordinates a BED, VCF or BCF is in: the `name` of an assembly."""
    margin_bp: int = 0
    """How near to a place a record may not come."""
    shared: float = 0.5
    """The share of a sequence's 31-mers, on either strand, that no record may have, nor it of a
    record's."""

    def __post_init__(self) -> None:
        check_given(self, "path")
        check(0 < self.shared <= 1, f"shared = {self.shared}: give more than 0, at most 1")
        check(self.margin_bp >= 0, f"margin_bp = {self.margin_bp}: give 0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """The recipe of a corpus."""

    output: str
    """Folder to make, which must not exist or be empty; or a URL that fsspec opens."""
    assemblies: tuple[AssemblyConfig, ...] = ()
    files: tuple[FilesConfig, ...] = ()
    evaluations: tuple[EvaluationConfig, ...] = ()
    taxdump: str = ""
    """Folder of NCBI's nodes.dmp, names.dmp and merged.dmp, which lineages are taken from."""
    divide_by: str = ""
    """A rank, such as `phylum`: what is cut out of an assembly is of the source `SOURCE-CLADE`."""
    cut: CutConfig = field(default_factory=CutConfig)
    keep: KeepConfig = field(default_factory=KeepConfig)
    families: FamilyConfig = field(default_factory=FamilyConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    cache: str = ""
    """Folder for inputs that are fetched, and for the work of an output by URL; the user's cache if
    not given."""
    keep_going: bool = False
    """Leave out an input that cannot be read, and say so in the manifest."""

    def __post_init__(self) -> None:
        check_given(self, "output")
        check(bool(self.assemblies or self.files), "give at least one of assemblies and files")
        check(
            "://" not in self.output or EXECUTORS[self.executor.kind].waits,
            f"output by URL: {self.executor.kind} returns before the corpus is there; "
            "build into a folder, then `python -m data_pipeline publish FOLDER --to URL`",
        )
        check(bool(self.taxdump) or not self.divide_by, "divide_by needs a taxdump")
        given = any(assembly.taxid for assembly in self.assemblies)
        check(bool(self.taxdump) or not given, "taxid of an assembly needs a taxdump")
        names = [assembly_name(assembly) for assembly in self.assemblies]
        for name in names:
            check(names.count(name) == 1, f"two assemblies are named '{name}': give each a name")
        told: dict[str, tuple[bool | None, bool]] = {}
        for each in self.files:
            mine = (each.both_strands, each.near_duplicates)
            check(
                told.setdefault(each.source, mine) == mine,
                f"files of source '{each.source}': say of all alike whether it is both_strands, "
                "and near_duplicates",
            )
        shares = {each.test_share for each in self.files if is_fastq(Path(each.path))}
        check(len(shares) < 2, "test_share of reads: give all of them the same, it is of samples")
        for evaluation in self.evaluations:
            known = ", ".join(names)
            check(
                evaluation.assembly in ("", *names),
                f"evaluation of assembly '{evaluation.assembly}': there are {known}",
            )


def assembly_name(assembly: AssemblyConfig) -> str:
    """Return what the column `assembly` says."""
    return assembly.name or assembly.genome.replace("\\", "/").rpartition("/")[2].split(".fa")[0]


def may_hold_out(config: BuildConfig) -> bool:
    """Tell whether a record can be held out: by the recipe, or by a corpus that is read again."""
    return any(assembly.holdout for assembly in config.assemblies) or any(
        file.test_share or file.path.endswith(".parquet") for file in config.files
    )


# From the root of a lineage to the species types of the released corpus; the first that is there.
_SPECIES_TYPES = (
    ("Mammalia", "mam"),
    ("Vertebrata", "vrt"),
    ("Viridiplantae", "pln"),
    ("Fungi", "fng"),
    ("Metazoa", "inv"),
    ("Eukaryota", "prt"),
    ("Bacteria", "pro"),
    ("Archaea", "pro"),
)


def species_type_of(taxonomy: tuple[str, ...]) -> str:
    """Return the species type of a lineage, or an empty string, as for a virus.

    >>> species_type_of(("Eukaryota", "Metazoa", "Chordata", "Vertebrata", "Mammalia"))
    'mam'
    """
    return next((kind for name, kind in _SPECIES_TYPES if name in taxonomy), "")

"""The recipe of a corpus: inputs, sources to cut, and records to leave out."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from carbon.errors import GenomeError
from carbon.genome.alphabet import genetic_code
from carbon.io.config import Name, Recipe, refusal
from data_pipeline.executors import EXECUTORS, ExecutorConfig
from data_pipeline.limits import Bases, CutConfig, FamilyConfig, KeepConfig
from data_pipeline.sources import SOURCES
from data_pipeline.split import is_fastq

SpeciesType = Literal["mam", "vrt", "inv", "pln", "fng", "prt", "pro", ""]
"""A code of `carbon.tokenizer.SPECIES_TAG_OF`, or none."""


def _known_source(name: str) -> str:
    if name not in SOURCES:
        raise refusal(f"expected one of {', '.join(SOURCES)}, got '{name}'")
    return name


def _source_name(text: str) -> str:
    if text and not re.fullmatch(r"\w[\w.-]*", text):
        raise refusal(f"expected a name of letters, digits, '_', '-' and '.', got '{text}'")
    return text


def _known_genetic_code(table: int) -> int:
    try:
        if table:
            genetic_code(table)
    except GenomeError as error:
        raise refusal(str(error)) from None
    return table


KnownSource = Annotated[str, AfterValidator(_known_source)]
SourceName = Annotated[str, AfterValidator(_source_name)]
GeneticCodeNumber = Annotated[int, AfterValidator(_known_genetic_code)]


class RegionsConfig(Recipe):
    """Places of a BED on an assembly, a record each: enhancers, open chromatin, any other kind."""

    path: Name
    """BED, plain or gzip."""
    source: SourceName = ""
    """Source of all lines; if empty, each line's kind names its source."""
    kind_column: int = Field(default=4, ge=4)
    """Column of a line's kind, from 1."""
    both_strands: bool = True
    """Whether training reads both strands."""
    near_duplicates: bool = False
    """Whether to remove near-duplicates within the source."""
    flank_bp: Bases = 0
    """Bases on either side, as far as the contig has them."""


class AssemblyConfig(Recipe):
    """One assembly: its sequence, its annotation, and who it is."""

    genome: Name
    """FASTA (plain, bgzip or gzip) or GenBank (plain or gzip)."""
    annotation: str = ""
    """GFF3, GTF or BED of the same assembly, plain or gzip; a GenBank file has its own. Contigs
    without one are cut into chunks."""
    name: str = ""
    """Name in the column `assembly`; if empty, of the genome's file."""
    organism: str = ""
    """Scientific name; if empty, of a GenBank file."""
    species_type: SpeciesType = ""
    """Species tag; if empty, from the taxonomy, or none."""
    taxonomy: str = ""
    """Lineage from the root, such as `Eukaryota; Fungi`; a GenBank file has its own."""
    taxid: int = Field(default=0, ge=0)
    """NCBI identifier, for a recipe with a `taxdump`; 0 looks the organism up there."""
    accession: str = ""
    """Accession, for the manifest."""
    licence: str = ""
    """Licence, for the manifest."""
    sources: tuple[KnownSource, ...] = ()
    """Sources to cut. If empty: only `regions` if there are any, `prokaryote` for prokaryotes,
    `genome` without an annotation, else `eukaryote` and `mrna`."""
    regions: tuple[RegionsConfig, ...] = ()
    """Regions of BED files, one record for each line."""
    holdout: tuple[str, ...] = ("auto",)
    """Contigs or regions (`chr:first-last`) to hold out and `family` (see `families`), or `auto`
    alone, or nothing."""
    contig_names: dict[str, str] = Field(default_factory=dict)
    """Map from the annotation's contig names to the genome's."""
    contigs: str = ""
    """The same as a file of two columns; or `chr`, to add or remove `chr` in the annotation's names
    (and M for MT)."""
    annotation_offset_bp: Bases = 0
    """Position in the annotation's coordinates at which the sequence begins, if it is part of a
    chromosome."""
    genetic_code: GeneticCodeNumber = 0
    """NCBI translation table of CDS for which the annotation states none (`transl_table`); 0: the
    standard code, and none for mitochondria."""
    incomplete_cds: Literal["error", "drop"] = "error"
    """Whether a CDS that is not a multiple of three, and not marked as partial, pseudo or
    exceptional, is an error or dropped."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield two tables of the same names."""
        if self.contigs and self.contig_names:
            yield "contigs", "says the same as contig_names; give one of them"


class FilesConfig(Recipe):
    """Sequences that are records already: FASTA, one a line, released Parquet, or reads."""

    path: Name
    """A file, or a pattern such as `eukaryote_generator/*.parquet`; plain or gzip. Files that end
    with `.fastq` or `.fq` are reads."""
    mates: str = ""
    """Second reads of pairs, a file or a pattern; the n-th file belongs to the n-th of `path`."""
    source: SourceName
    """A source that is also cut from assemblies, or a new name."""
    both_strands: bool | None = None
    """Whether training reads both strands; for a new name only."""
    near_duplicates: bool = False
    """Whether to remove near-duplicates; for a new name only."""
    gene_type: str = ""
    """Gene tag of the records."""
    species_type: SpeciesType = ""
    """Species tag of the records."""
    organism: str = ""
    """Organism, for the records."""
    assembly: str = ""
    """Assembly, for the records."""
    sample: str = ""
    """Sample of reads, for the column `assembly`; if empty, the name of each file."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the records to hold out, chosen by their bases; of reads, share of the samples."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield keys that the source or the kind of file does not have."""
        known = SOURCES.get(self.source)
        if known is None and (self.both_strands is None or not self.source):
            yield (
                "source",
                f"'{self.source}': give one of {', '.join(SOURCES)}; or say of a name of its own "
                "whether it is read on both_strands",
            )
        if known and self.both_strands not in (None, known.both_strands):
            yield (
                "both_strands",
                f"{str(self.both_strands).lower()} for source '{self.source}', which is read "
                "otherwise; give the files a name of their own",
            )
        if known and self.near_duplicates:
            yield (
                "near_duplicates",
                f"cannot be chosen for source '{self.source}'; give the files a name of their own",
            )
        is_reads = is_fastq(Path(self.path))
        if not is_reads and (self.mates or self.sample):
            yield (
                "mates" if self.mates else "sample",
                f"is of reads, and '{self.path}' does not end in .fastq or .fq; take it out",
            )
        if is_reads and self.assembly:
            yield "assembly", "reads have none; give the sample instead"


_SHARED = 0.5


class EvaluationConfig(Recipe):
    """Something that models will be measured on: no record may overlap or contain it."""

    path: Name
    """FASTA of sequences that no training record may nearly contain or lie in; or BED, VCF or BCF
    of places, of a VCF all bases that its records span."""
    assembly: str = ""
    """Name of the assembly whose coordinates a BED, VCF or BCF has."""
    margin_bp: Bases = 0
    """Minimum distance of a record from a place; of BED, VCF and BCF only."""
    shared: float = Field(default=_SHARED, gt=0, le=1)
    """Share of a sequence's 31-mers, on either strand, from which a record counts as containing it,
    and the reverse; of FASTA only."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield keys that the kind of evaluation does not have."""
        if self.margin_bp and not self.assembly:
            yield "margin_bp", "is of places, and without an assembly there are none; take it out"
        if self.shared != _SHARED and self.assembly:
            yield "shared", "is of sequences, and on an assembly there are places; take it out"


class BuildConfig(Recipe):
    """The recipe of a corpus."""

    output: Name
    """Folder to create, absent or empty; or a URL that fsspec opens."""
    assemblies: tuple[AssemblyConfig, ...] = ()
    """Genomes with their annotations."""
    files: tuple[FilesConfig, ...] = ()
    """Files of finished sequences or reads."""
    evaluations: tuple[EvaluationConfig, ...] = ()
    """Sequences and places that records must not contain."""
    taxdump: str = ""
    """Folder of NCBI's nodes.dmp, names.dmp and merged.dmp."""
    divide_by: str = ""
    """A rank, such as `phylum`: records of an assembly lie in the source `SOURCE-CLADE`."""
    cut: CutConfig = CutConfig()
    """Ends of records."""
    keep: KeepConfig = KeepConfig()
    """Filters of records."""
    families: FamilyConfig = FamilyConfig()
    """Held-out families of proteins."""
    executor: ExecutorConfig = ExecutorConfig()
    """Workers."""
    cache: str = ""
    """Folder for fetched inputs, and for the work of an output by URL; if empty, the user's
    cache."""
    keep_going: bool = False
    """Leave out an input that cannot be read, and list it in the manifest."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield inputs that do not go together."""
        if not (self.assemblies or self.files):
            yield "assemblies", "give at least one of assemblies and files"
        if "://" in self.output and not EXECUTORS[self.executor.kind].waits:
            yield (
                "output",
                f"is a URL, and {self.executor.kind} returns before the corpus is there; build "
                "into a folder, then `carbon corpus publish FOLDER --to URL`",
            )
        if self.divide_by and not self.taxdump:
            yield "divide_by", "needs lineages; give a taxdump"
        for i, assembly in enumerate(self.assemblies):
            if assembly.taxid and not self.taxdump:
                yield f"assemblies.{i}.taxid", "is looked up in a taxdump; give one"
        names = [assembly_name(assembly) for assembly in self.assemblies]
        for i, name in enumerate(names):
            if name in names[:i]:
                yield f"assemblies.{i}.name", f"two assemblies are named '{name}'; give each a name"
        yield from self._problems_of_sources()
        if len({each.test_share for each in self.files if is_fastq(Path(each.path))}) > 1:
            yield "files", "test_share of reads is of samples; give all of them the same"
        for i, evaluation in enumerate(self.evaluations):
            if evaluation.assembly not in ("", *names):
                yield (
                    f"evaluations.{i}.assembly",
                    f"'{evaluation.assembly}': there are {', '.join(names)}",
                )

    def _problems_of_sources(self) -> Iterator[tuple[str, str]]:
        """Yield files and regions of one source that are not to be read alike."""
        named: list[tuple[str, FilesConfig | RegionsConfig]] = [
            (f"files.{i}", each) for i, each in enumerate(self.files)
        ]
        if not self.divide_by:  # else regions of two assemblies may be of two sources
            named += [
                (f"assemblies.{i}.regions.{j}", each)
                for i, assembly in enumerate(self.assemblies)
                for j, each in enumerate(assembly.regions)
            ]
        first: dict[str, FilesConfig | RegionsConfig] = {}
        for where, each in named:
            if not each.source or each.source in SOURCES:
                continue
            like = first.setdefault(each.source, each)
            if (
                like.both_strands != each.both_strands
                or like.near_duplicates != each.near_duplicates
            ):
                yield (
                    f"{where}.source",
                    f"'{each.source}': say of all its inputs alike whether they are both_strands, "
                    "and near_duplicates",
                )


def assembly_name(assembly: AssemblyConfig) -> str:
    """Return the value of the column `assembly`."""
    return assembly.name or assembly.genome.replace("\\", "/").rpartition("/")[2].split(".fa")[0]


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

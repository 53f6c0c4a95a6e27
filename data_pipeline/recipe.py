"""The recipe of a corpus: what goes in, what is cut out of it, and what is left out."""

from dataclasses import asdict, dataclass, field
from typing import Annotated

from carbon.config import OneOf, check, check_choices
from carbon.corpus import SPECIES_TAG_OF
from data_pipeline.executors import ExecutorConfig

SOURCES = (
    "eukaryote",
    "eukaryote_concatenated",
    "mrna",
    "mrna_splice",
    "prokaryote",
    "promoter",
)

STOPS_AT_INCOMPLETE_CDS = {"error": True, "drop": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class AssemblyConfig:
    """One assembly: its sequence, its annotation, and who it is."""

    genome: str
    """FASTA (plain, bgzip or gzip) or GenBank (plain or gzip)."""
    annotation: str = ""
    """GFF3 or GTF of the same assembly, plain or gzip; a GenBank file has its own."""
    name: str = ""
    """For the column `assembly`; the name of the genome's file if not given."""
    organism: str = ""
    """A GenBank file has its own."""
    species_type: str = ""
    """One of mam, vrt, inv, pln, fng, prt, pro; empty takes it from the taxonomy, or none."""
    taxonomy: str = ""
    """Lineage from the root, such as `Eukaryota; Fungi`; a GenBank file has its own."""
    accession: str = ""
    licence: str = ""
    """Goes into the manifest, as does the accession."""
    sources: tuple[str, ...] = ()
    """What to cut out; empty: `prokaryote` for prokaryotes, else `eukaryote` and `mrna`."""
    holdout: tuple[str, ...] = ("auto",)
    """Contigs or regions (`chr:first-last`) to hold out, or `auto`, or nothing."""
    contig_names: dict[str, str] = field(default_factory=dict)
    """What the annotation calls a contig = what the sequence does."""
    annotation_offset_bp: int = 0
    """Where the sequence begins in the annotation's coordinates, if it is part of a chromosome."""
    incomplete_cds: Annotated[str, OneOf(STOPS_AT_INCOMPLETE_CDS)] = "error"
    """What to do with a CDS that is not a multiple of three and that the annotation does not mark
    as partial, pseudo or exceptional."""

    def __post_init__(self) -> None:
        check_choices(self)
        known = ", ".join(SPECIES_TAG_OF)
        check(
            self.species_type in ("", *SPECIES_TAG_OF),
            f"species_type = '{self.species_type}': give one of {known}, or nothing",
        )
        for source in self.sources:
            check(source in SOURCES, f"source '{source}': give some of {', '.join(SOURCES)}")
        check(self.annotation_offset_bp >= 0, "annotation_offset_bp: give 0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class FilesConfig:
    """Sequences that are records already: FASTA, one sequence a line, or released Parquet."""

    path: str
    """A file, or a pattern such as `eukaryote_generator/*.parquet`; plain or gzip."""
    source: str
    gene_type: str = ""
    species_type: str = ""
    organism: str = ""
    assembly: str = ""
    test_share: float = 0.0
    """Share of the records to hold out, chosen by their own bases."""

    def __post_init__(self) -> None:
        check(self.source in SOURCES, f"source '{self.source}': give one of {', '.join(SOURCES)}")
        check(0 <= self.test_share < 1, f"test_share = {self.test_share}: give 0 to 1")
        known = ", ".join(SPECIES_TAG_OF)
        check(
            self.species_type in ("", *SPECIES_TAG_OF),
            f"species_type = '{self.species_type}': give one of {known}, or nothing",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """Something that models will be measured on: no record may overlap or contain it."""

    path: str
    """FASTA (sequences that no record to train on may nearly contain or lie in), or BED or VCF
    (places)."""
    assembly: str = ""
    """Whose coordinates a BED or VCF is in: the `name` of an assembly."""
    margin_bp: int = 0
    """How near to a place a record may not come."""
    shared: float = 0.5
    """The share of a sequence's 31-mers, on either strand, that no record may have, nor it of a
    record's."""

    def __post_init__(self) -> None:
        check(0 < self.shared <= 1, f"shared = {self.shared}: give more than 0, at most 1")
        check(self.margin_bp >= 0, f"margin_bp = {self.margin_bp}: give 0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class CutConfig:
    """Where records begin and end."""

    flank_bp: int = 200
    """Bases to keep on either side of a gene."""
    promoter_bp: int = 1024
    """Bases before the transcription start in `mrna_splice`."""
    splice_bp: int = 32
    """Bases of intron kept on either side of an exon in `mrna_splice`."""
    upstream_bp: int = 500
    downstream_bp: int = 100
    """The window around a transcription start in `promoter`."""
    chunk_bp: int = 49_152
    """Bases of a chunk of a prokaryote's contig, 8,192 tokens; at most keep.max_record_bp."""
    concatenated_bp: int = 196_608
    """Bases that consecutive regions are joined up to: 32,768 tokens."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            check(value >= 0, f"{name} = {value}: give 0 or more")
        check(self.chunk_bp > 0, "chunk_bp: give 1 or more")
        check(self.upstream_bp + self.downstream_bp > 0, "the window of a promoter has no bases")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepConfig:
    """What a record must be to stay."""

    min_record_bp: int = 60
    max_record_bp: int = 100_000
    """Longer regions are cut into consecutive records, as in the released corpus; longer
    transcripts are left out. No row of a long-context stage holds much more."""
    max_n_fraction: float = 0.1
    """Share of bases that are none of ACGT."""
    min_complexity: float = 0.5
    """Entropy of trimers over its maximum: 0 for one letter, 0.26 for a microsatellite of three,
    near 1 for genes."""
    repeat_weight: float = 1.0
    """How often a record is kept that is soft-masked throughout, beside one that is not at all."""
    near_identity: float = 0.9
    """Transcripts this much alike are one; 1 keeps all that are not equal."""

    def __post_init__(self) -> None:
        check(
            1 <= self.min_record_bp <= self.max_record_bp,
            f"need 1 <= min_record_bp <= max_record_bp, got {self.min_record_bp} and "
            f"{self.max_record_bp}",
        )
        for name in ("max_n_fraction", "min_complexity", "repeat_weight", "near_identity"):
            value = getattr(self, name)
            check(0 <= value <= 1, f"{name} = {value}: give 0 to 1")
        check(self.near_identity >= 0.8, "near_identity: give 0.8 to 1; below, sketches are blind")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """The recipe of a corpus."""

    output: str
    """Folder to make; it must not exist or be empty."""
    assemblies: tuple[AssemblyConfig, ...] = ()
    files: tuple[FilesConfig, ...] = ()
    evaluations: tuple[EvaluationConfig, ...] = ()
    cut: CutConfig = field(default_factory=CutConfig)
    keep: KeepConfig = field(default_factory=KeepConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    keep_going: bool = False
    """Leave out an input that cannot be read, and say so in the manifest."""

    def __post_init__(self) -> None:
        check(bool(self.assemblies or self.files), "give at least one of assemblies and files")
        names = [assembly_name(assembly) for assembly in self.assemblies]
        for name in names:
            check(names.count(name) == 1, f"two assemblies are named '{name}': give each a name")
        for evaluation in self.evaluations:
            known = ", ".join(names)
            check(
                evaluation.assembly in ("", *names),
                f"evaluation of assembly '{evaluation.assembly}': there are {known}",
            )


def assembly_name(assembly: AssemblyConfig) -> str:
    """Return what the column `assembly` says."""
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

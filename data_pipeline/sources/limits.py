"""Where records begin and end, and what they must be to stay."""

from dataclasses import asdict, dataclass

from carbon.config import check

# Whether a CDS that is not a multiple of three ends the build, by what a recipe says of it.
STOPS_AT_INCOMPLETE_CDS = {"error": True, "drop": False}

# What `holdout` says of genes that are held out for their proteins' sake.
FAMILY = "family"


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
    """Bases of a chunk of a contig in `prokaryote` and `genome`, 8,192 tokens; at most
    keep.max_record_bp."""
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
    """Transcripts and UTRs this much alike are one, and nothing this much like a held-out record is
    trained on; 1 keeps all that are not equal."""

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
class FamilyConfig:
    """Which families of proteins are held out, where an assembly's `holdout` has `family`."""

    identity: float = 0.5
    """Proteins this much alike over 80 % of both are of one family."""
    share: float = 0.05
    """Share of the families, in all assemblies together."""
    seed: int = 0

    def __post_init__(self) -> None:
        check(0.2 <= self.identity <= 1, f"identity = {self.identity}: give 0.2 to 1")
        check(0 < self.share < 1, f"share = {self.share}: give more than 0, less than 1")

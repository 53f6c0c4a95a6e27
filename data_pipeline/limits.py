"""Where records begin and end, and the conditions to keep them."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from carbon.io.config import Recipe

Bases = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

# What `holdout` says of genes that are held out for their proteins' sake.
FAMILY = "family"


class CutConfig(Recipe):
    """Where records begin and end."""

    flank_bp: Bases = 200
    """Bases to keep on either side of a gene."""
    promoter_bp: Bases = 1024
    """Bases before the transcription start in `mrna_splice`."""
    splice_bp: Bases = 32
    """Bases of intron kept on either side of an exon in `mrna_splice`."""
    upstream_bp: Bases = 500
    """Bases before a transcription start in `promoter`."""
    downstream_bp: Bases = 100
    """Bases after a transcription start in `promoter`."""
    chunk_bp: int = Field(default=49_152, ge=1)
    """Bases of a chunk of a contig in `prokaryote` and `genome`, 8,192 tokens; at most
    keep.max_record_bp."""
    concatenated_bp: Bases = 196_608
    """Bases that consecutive regions are joined up to: 32,768 tokens."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a window without bases."""
        if not self.upstream_bp + self.downstream_bp:
            yield "upstream_bp", "0 and downstream_bp 0: the window of a promoter has no bases"


class KeepConfig(Recipe):
    """Conditions to keep a record."""

    min_record_bp: int = Field(default=60, ge=1)
    """Shortest record."""
    max_record_bp: int = 100_000
    """Longest record: longer regions are cut into consecutive records, longer transcripts are left
    out."""
    max_n_fraction: Share = 0.1
    """Maximum share of bases other than ACGT."""
    min_complexity: Share = 0.5
    """Minimum entropy of trimers over its maximum: 0 for one letter, 0.26 for a microsatellite of
    three, near 1 for genes."""
    repeat_weight: Share = 1.0
    """Probability to keep a record that is soft-masked throughout; 1 for unmasked records."""
    near_identity: float = Field(default=0.9, ge=0.8, le=1)  # below, sketches are blind
    """Identity of near-duplicates, 0.8 to 1; 1 removes only equal records."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield bounds that no record lies between."""
        if self.min_record_bp > self.max_record_bp:
            yield (
                "min_record_bp",
                f"{self.min_record_bp}: give max_record_bp = {self.max_record_bp} at most",
            )


class FamilyConfig(Recipe):
    """Which families of proteins are held out, where an assembly's `holdout` has `family`."""

    identity: float = Field(default=0.5, ge=0.2, le=1)
    """Identity over 80 % of both proteins from which they are one family."""
    share: float = Field(default=0.05, gt=0, lt=1)
    """Share of the families to hold out, over all assemblies."""
    seed: int = 0
    """Seed of the choice of families."""

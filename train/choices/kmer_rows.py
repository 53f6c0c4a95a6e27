"""How rows of 6-mers, in embedding and head, begin before a network has learned anything."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class KmerRows:
    """A distribution of rows at random.

    Attributes:
        shared: share of a row's variance that comes from its six bases, each a vector by base and
            place that all 6-mers with that base there have in common.
        scale: standard deviation, by that of other matrices.
    """

    shared: float = 0.0
    scale: float = 1.0


KMER_ROWS = {
    "independent": KmerRows(),
    "bases": KmerRows(shared=0.94, scale=3.0),
}

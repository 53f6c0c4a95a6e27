"""What can be chosen where a model reads or draws DNA: a table each, with what is known of it.

This is plain Python, so that `--help` lists the tables without numpy or torch. A choice is checked
against its table, and messages and fields list it; the `Literal` beside it is for type checkers,
and has the same names. Two have their tables where torch is: `By` is that of
`carbon.inference.reading.reader.LIKELIHOODS`, `Dtype` that of `carbon.inference.DTYPES`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

from carbon.errors import UserError

By = Literal["chain", "marginals"]
Dtype = Literal["float32", "bfloat16"]

Strands = Literal["forward", "reverse", "both"]
STRANDS_READ: dict[Strands, tuple[str, ...]] = {
    "forward": ("+",),
    "reverse": ("-",),
    "both": ("+", "-"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantProtocol:
    """Which bases are read before a variant, and how many from it on are compared.

    Attributes:
        default_window_bp: of the window, where the model's context holds it.
        spare_bp: what the default window leaves of the context, for alleles that come behind it.
        alleles_alone: the alleles alone are compared, from the start of a 6-mer, and as much behind
            them as it takes to tell them apart.
        before_bp: from strand and window to the bases before the variant.
        counted_bp: from the bases that are needed to tell the alleles apart, the strand and the
            window to the bases that are compared.
        most_needed_bp: from the window and the bases that the context reads to the most bases that
            may be needed to tell the alleles apart.
        too_long: the reason why a variant that needs more has no score.
    """

    default_window_bp: int
    spare_bp: int
    alleles_alone: bool
    before_bp: Callable[[str, int], int]
    counted_bp: Callable[[int, str, int], int]
    most_needed_bp: Callable[[int, int], int]
    too_long: str


def _half_bp(strand: str, window_bp: int) -> int:
    """Return the bases before the middle of a window.

    An even window cannot have its middle in the middle of an SNV; on the reverse strand it is the
    very same window.
    """
    return (window_bp if strand == "+" else window_bp - 1) // 2


def _other_half_bp(needed_bp: int, strand: str, window_bp: int) -> int:
    return window_bp - _half_bp(strand, window_bp)


def _half_window_bp(window_bp: int, readable_bp: int) -> int:
    return window_bp // 2


def _whole_bp(strand: str, window_bp: int) -> int:
    return window_bp


def _needed_bp(needed_bp: int, strand: str, window_bp: int) -> int:
    return needed_bp


def _behind_window_bp(window_bp: int, readable_bp: int) -> int:
    return readable_bp - window_bp


ProtocolName = Literal["centered", "right_end"]
PROTOCOLS: dict[ProtocolName, VariantProtocol] = {
    "centered": VariantProtocol(
        default_window_bp=8192,
        spare_bp=0,
        alleles_alone=False,
        before_bp=_half_bp,
        counted_bp=_other_half_bp,
        most_needed_bp=_half_window_bp,
        too_long="allele_longer_than_half_window",
    ),
    "right_end": VariantProtocol(
        default_window_bp=24_000,
        spare_bp=300,
        alleles_alone=True,
        before_bp=_whole_bp,
        counted_bp=_needed_bp,
        most_needed_bp=_behind_window_bp,
        too_long="allele_longer_than_context",
    ),
}


class Combination(NamedTuple):
    """How the frames of a scan become one value a base.

    Attributes:
        default_frames: that are read if none are given.
        own_frame: every base is taken in the frame where it begins a 6-mer, so that all six are
            needed; otherwise it is the mean of the frames.
    """

    default_frames: tuple[int, ...]
    own_frame: bool


Combine = Literal["mean", "token_start"]
COMBINATIONS: dict[Combine, Combination] = {
    "mean": Combination((0,), own_frame=False),
    "token_start": Combination((0, 1, 2, 3, 4, 5), own_frame=True),
}


class Pooling(NamedTuple):
    """Which states of a sequence make its vector.

    Attributes:
        last_alone: the last state alone, of the 6-mers before the end that fit; otherwise the mean
            of all, each as often as its 6-mer has known bases.
        close: `</dna>` is put behind the sequence.
    """

    last_alone: bool
    close: bool


Pool = Literal["mean", "last", "end"]
POOLS: dict[Pool, Pooling] = {
    "mean": Pooling(last_alone=False, close=False),
    "last": Pooling(last_alone=True, close=False),
    "end": Pooling(last_alone=True, close=True),
}


class DrawingMode(NamedTuple):
    """What is drawn at once.

    Attributes:
        whole_kmers: one of the 4,096 6-mers; otherwise base after base.
        by_marginals: a base by its own marginal, and not given the bases before it.
    """

    whole_kmers: bool
    by_marginals: bool


Mode = Literal["token", "base", "chain"]
MODES: dict[Mode, DrawingMode] = {
    "token": DrawingMode(whole_kmers=True, by_marginals=False),
    "base": DrawingMode(whole_kmers=False, by_marginals=True),
    "chain": DrawingMode(whole_kmers=False, by_marginals=False),
}


Engine = Literal["own", "continuous"]
ENGINES: dict[Engine, str] = {
    "own": "all ways of drawing; text does not depend on what is drawn beside it",
    "continuous": "transformers' continuous batching: many prompts of different lengths, 6-mers",
}


DESIGN_WAYS: dict[str, str] = {
    "beam": "lineages, whose windows the model draws anew, cooler with every round",
    "infill": "a beam with regard to what stands behind a window too",
    "best_of_n": "sequences that the model draws",
    "rejection": "the same, until enough of them are at the numbers aimed at",
}
"""What they do is in `carbon.design.ways.WAYS`."""


def check_choice(name: str, value: str, table: Collection[str]) -> None:
    """Raise UserError unless a value stands in its table."""
    if value not in table:
        raise UserError(f"{name} '{value}': give one of {', '.join(table)}")

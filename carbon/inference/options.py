"""What can be chosen where a model reads or draws DNA, and the keywords that choose it.

A table lists each choice with what is known of it, and a `TypedDict` lists the keywords of a method
of `carbon.Model`, which are the options of its command too: `carbon --help` prints the docstrings.
This is plain Python, so that help needs neither numpy nor torch. A choice is checked
against its table, and messages and fields list it; the `Literal` beside it is for type checkers,
and has the same names. Two have their tables where torch is: `By` is that of
`carbon.inference.runner.LIKELIHOODS`, `Dtype` that of `carbon.inference.DTYPES`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

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
    """How the offsets of a scan become one value a base.

    Attributes:
        default_offsets: that are read if none are given.
        own_offset: every base is taken in the offset where it begins a 6-mer, so that all six are
            needed; otherwise it is the mean of the offsets.
    """

    default_offsets: tuple[int, ...]
    own_offset: bool


Combine = Literal["mean", "token_start"]
COMBINATIONS: dict[Combine, Combination] = {
    "mean": Combination((0,), own_offset=False),
    "token_start": Combination((0, 1, 2, 3, 4, 5), own_offset=True),
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


StrategyName = Literal["beam", "infill", "best_of_n", "rejection"]
"""Keys of `carbon.design.strategies.STRATEGIES`."""


class VariantOptions(TypedDict, total=False):
    """The keywords of `Model.score_variants`, and the options of `carbon variants`.

    A keyword that is not given has the default of `carbon.inference.variants.method_for`.

    Attributes:
        protocol: compare windows around the variant, or the alleles, up to where they differ,
            behind a window (default: centered).
        window_bp: bases of the window (default: 8192 for centered, 24000 for right_end, or what
            fits).
        by: likelihoods by the chain rule or by marginals (default: chain).
        strands: that are read; the mean of both tells how far they disagree (default: both).
        offsets: mean over offsets such as 0,2,4, or all (default: 0).
        tags: metadata tag; may be repeated.
    """

    protocol: ProtocolName
    window_bp: int | None
    by: By
    strands: Strands
    offsets: Sequence[int]
    tags: Sequence[str]


class ScanOptions(TypedDict, total=False):
    """The keywords of `Model.scan`, and the options of `carbon scan`.

    A keyword that is not given has the default of `carbon.inference.scan.scan_method_for`.

    Attributes:
        offsets: such as 0,2,4, or all (default: 0, or all for token_start).
        combine: the mean over the offsets, or every base in the offset where it begins a 6-mer
            (default: mean).
        window_bp: bases of a window (default: 48000, or what fits).
        least_context_bp: bases at the start of a window that are read and not scored (default: half
            of the window).
        strands: that are read (default: forward).
        tags: metadata tag; may be repeated.
    """

    offsets: Sequence[int] | None
    combine: Combine
    window_bp: int | None
    least_context_bp: int | None
    strands: Strands
    tags: Sequence[str]


class SamplingOptions(TypedDict, total=False):
    """The fields of `carbon.inference.SamplingRule`, which has the defaults, as keywords.

    Attributes:
        mode: draw 6-mers, bases by their marginals, or bases one after the other (default: token).
        temperature: 0 takes the most likely (default: 1).
        top_k: only the K most likely.
        top_p: only the fewest that together hold probability P.
        min_p: only those at least P times as likely as the most likely.
        repetition_penalty: nats for every time that a 6-mer stands in the last bases, in any offset
            (default: 0).
        repetition_window_bp: how many bases back repetitions count (default: 1200).
    """

    mode: Mode
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    repetition_window_bp: int


class ConstraintOptions(TypedDict, total=False):
    """The fields of `carbon.Constraints`, as options of `carbon generate` and `design`.

    Attributes:
        forbid: IUPAC motifs that must not occur; may be repeated.
        require: IUPAC motifs that must occur; may be repeated.
        gc: least and most share of G and C, 0 to 1.
        gc_window_bp: bases of each window that keeps the share (default: all).
        no_stop_frame: no stop codon so many bases, and every third, after the prompt's start.
        protein: amino acids that the generated bases code for, three bases each; * for a stop.
    """

    forbid: tuple[str, ...]
    require: tuple[str, ...]
    gc: tuple[float, float] | None
    gc_window_bp: int | None
    no_stop_frame: Literal[0, 1, 2] | None
    protein: str | None


class SearchOptions(TypedDict, total=False):
    """Keywords of `carbon.design`, and options of `carbon design`.

    A keyword that is not given has the default of `carbon.design.config.DesignConfig`.

    Attributes:
        strategy: beam: redraw windows of the best sequences, shorter and at lower temperature with
            every round; infill: a beam whose windows also fit the bases after them; best_of_n:
            draw whole sequences; rejection: best_of_n until enough are at their targets (default:
            beam).
        calls: maximum number of sequences to score (default: 1000).
        batch: maximum number of sequences scored together (default: 16).
        width: lineages of a beam (default: 4).
        initial_temperature: of a beam's first round (default: 1.2).
        final_temperature: when the calls are used up (default: 0.8).
        within: distance from a target that rejection accepts (default: 0).
    """

    strategy: StrategyName
    calls: int
    batch: int
    width: int
    initial_temperature: float
    final_temperature: float
    within: float


class RuleOptions(TypedDict, total=False):
    """Fields of `carbon.design.rules.Rules`, as options of `carbon design`.

    Attributes:
        sites: enzymes such as EcoRI, or IUPAC motifs, that stand on neither strand.
        most_run_bp: longest run of one base.
        most_repeat_bp: longest stretch that stands twice.
        least_kcal: least free energy of a fold of 60 bases, in windows that overlap by half, such
            as -8 (needs ViennaRNA).
    """

    sites: tuple[str, ...]
    most_run_bp: int | None
    most_repeat_bp: int | None
    least_kcal: float | None


def check_choice(name: str, value: str, table: Collection[str]) -> None:
    """Raise UserError unless a value stands in its table."""
    if value not in table:
        raise UserError(f"{name} '{value}': give one of {', '.join(table)}")

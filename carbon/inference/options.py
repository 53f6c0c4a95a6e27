"""Choices of the inference commands, and the keywords that take them.

A table lists the choices of an option with their properties. A `TypedDict` lists the keywords of a
method of `carbon.Model`, which are also the options of its command: `carbon --help` prints these
docstrings. The module is plain Python, so that help needs neither numpy nor torch.

Values are checked against the tables; the `Literal` with the same names is for type checkers. Two
tables need torch and stay next to their functions: `carbon.inference.runner.LIKELIHOODS` for `By`,
`carbon.inference.DTYPES` for `Dtype`.
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
    """Which bases precede a variant, and how many bases are compared from the variant on.

    Attributes:
        default_window_bp: default window, if it fits into the model's context.
        spare_bp: bases that the default window leaves free for the alleles that follow it.
        alleles_alone: compare only the alleles, from the start of a 6-mer, and as many bases after
            them as distinguish them.
        before_bp: function from strand and window to the bases before the variant.
        counted_bp: function from the bases that distinguish the alleles, the strand and the window
            to the bases that are compared.
        most_needed_bp: function from the window and the bases that fit into the context to the
            maximum bases for distinguishing the alleles.
        too_long: reason reported for a variant that needs more.
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

    An even window cannot be centred on an SNV; on the reverse strand the window is identical.
    """
    return (window_bp if strand == "+" else window_bp - 1) // 2


def _other_half_bp(needed_bp: int, strand: str, window_bp: int) -> int:
    return window_bp - _half_bp(strand, window_bp)


def _half_window_bp(window_bp: int, context_bp: int) -> int:
    return window_bp // 2


def _whole_bp(strand: str, window_bp: int) -> int:
    return window_bp


def _needed_bp(needed_bp: int, strand: str, window_bp: int) -> int:
    return needed_bp


def _after_window_bp(window_bp: int, context_bp: int) -> int:
    return context_bp - window_bp


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
        most_needed_bp=_after_window_bp,
        too_long="allele_longer_than_context",
    ),
}


class Combination(NamedTuple):
    """How the offsets of a scan are combined into one value a base.

    Attributes:
        default_offsets: offsets used by default.
        own_offset: take every base at the offset where it begins a 6-mer, which needs all six;
            otherwise average over the offsets.
    """

    default_offsets: tuple[int, ...]
    own_offset: bool


Combine = Literal["mean", "token_start"]
COMBINATIONS: dict[Combine, Combination] = {
    "mean": Combination((0,), own_offset=False),
    "token_start": Combination((0, 1, 2, 3, 4, 5), own_offset=True),
}


class Pooling(NamedTuple):
    """Which states of a sequence its vector is computed from.

    Attributes:
        last_alone: the last state only, after the 6-mers before the end that fit; otherwise the
            mean of all states, weighted by the known bases of the 6-mers.
        close: append `</dna>` to the sequence.
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
    """The unit of sampling.

    Attributes:
        whole_kmers: sample one of the 4,096 6-mers; otherwise base by base.
        by_marginals: sample a base from its own marginal, without conditioning on the bases before
            it.
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
    "own": "all sampling modes; text does not depend on the other prompts of a batch",
    "continuous": "transformers' continuous batching: many prompts of different lengths, 6-mers",
}


StrategyName = Literal["beam", "infill", "best_of_n", "rejection"]
"""Keys of `carbon.design.strategies.STRATEGIES`."""


class VariantOptions(TypedDict, total=False):
    """The keywords of `Model.score_variants`, and the options of `carbon variants`.

    `carbon.inference.variants.method_for` has the defaults.

    Attributes:
        protocol: compare windows around the variant, or the alleles, up to their first difference,
            after a window (default: centered).
        window_bp: bases of the window (default: 8192 for centered, 24000 for right_end, or what
            fits).
        by: likelihoods by the chain rule or by marginals (default: chain).
        strands: strands to score; the mean of both also shows how far they disagree (default:
            both).
        offsets: average over 6-mer offsets such as 0,2,4, or all (default: 0).
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

    `carbon.inference.scan.scan_method_for` has the defaults.

    Attributes:
        offsets: 6-mer offsets such as 0,2,4, or all (default: 0, or all for token_start).
        combine: the mean over offsets, or every base at the offset where it begins a 6-mer
            (default: mean).
        window_bp: bases of a window (default: 48000, or what fits).
        least_context_bp: context bases at the start of a window that are not scored (default: half
            of the window).
        strands: strands to score (default: forward).
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
        mode: sample 6-mers, bases by their marginals, or bases one by one (default: token).
        temperature: 0 takes the most likely (default: 1).
        top_k: sample only from the K most likely.
        top_p: sample only from the fewest that together have probability P.
        min_p: sample only from those at least P times as likely as the most likely.
        repetition_penalty: nats for each occurrence of a 6-mer in the last bases, at any offset
            (default: 0).
        repetition_window_bp: bases in which repetitions count (default: 1200).
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
        gc: minimum and maximum GC content, 0 to 1.
        gc_window_bp: bases of each window with this GC content (default: all).
        no_stop_frame: no stop codon in this reading frame, counted from the prompt's start.
        protein: amino acids that the generated bases encode, three bases each; * for a stop.
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
    """Raise UserError unless a value is in its table."""
    if value not in table:
        raise UserError(f"{name} '{value}': give one of {', '.join(table)}")

"""Options of the inference commands, which are the keywords of `carbon.Model` too.

A table lists the choices of an option with their properties. A dataclass holds the options of one
kind of work: a field is an option, with its type and default, and the docstring has its help. The
command line, the jobs of `carbon.inference.jobs` and the methods of `carbon.Model` take these
dataclasses. The module is plain Python, so that help needs neither numpy nor torch.

Python has no type for "the fields of a dataclass as keywords", so a `TypedDict` repeats names and
types for type checkers; a test compares the two. Values are checked against the tables; the
`Literal` with the same names is for type checkers. Two tables need torch and stay next to their
functions: `carbon.inference.runner.LIKELIHOODS` for `By`, `carbon.inference.DTYPES` for `Dtype`.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from textwrap import indent
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    get_args,
    get_type_hints,
)

from carbon.console import option_help
from carbon.errors import TypedError, UserError, abridged

F = TypeVar("F", bound=Callable[..., Any])

_K = 6  # as `carbon.tokenizer.K`, which needs numpy

By = Literal["chain", "marginals"]
Dtype = Literal["float32", "bfloat16"]

Strands = Literal["forward", "reverse", "both"]
ScanStrands = Literal["forward", "reverse", "both", "gene"]
"""`gene` is the strand of the gene that a job scans."""
STRANDS_READ: dict[Strands, tuple[str, ...]] = {
    "forward": ("+",),
    "reverse": ("-",),
    "both": ("+", "-"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantProtocol:
    """Protocol: the bases that the model reads for a variant.

    Attributes:
        default_window_bp: default window, if it fits into the model's context.
        spare_bp: bases that the default window leaves free for the alleles that follow it.
        too_long: reason reported for a variant whose alleles need more bases than there is room.
    """

    default_window_bp: int
    spare_bp: int
    too_long: str

    def fitting_window_bp(self, context_bp: int) -> int:
        """Return the default window for a Carbon model with `context_bp` bases of context."""
        return min(self.default_window_bp, self.room_bp(context_bp))

    def room_bp(self, context_bp: int) -> int:
        """Return the window that fills a context but for the bases that are left free."""
        return context_bp - min(self.spare_bp, context_bp // 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowProtocol(VariantProtocol):
    """Which bases precede a variant, and how many bases are compared from the variant on.

    Attributes:
        alleles_alone: compare only the alleles, from the start of a k-mer, and as many bases after
            them as distinguish them.
        before_bp: function from strand and window to the bases before the variant.
        counted_bp: function from the bases that distinguish the alleles, the strand and the window
            to the bases that are compared.
        most_needed_bp: function from the window and the bases that fit into the context to the
            maximum bases for distinguishing the alleles.
    """

    alleles_alone: bool
    before_bp: Callable[[str, int], int]
    counted_bp: Callable[[int, str, int], int]
    most_needed_bp: Callable[[int, int], int]


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


ProtocolName = Literal["centered", "right_end", "tiled"]
WINDOW_PROTOCOLS: dict[ProtocolName, WindowProtocol] = {
    "centered": WindowProtocol(
        default_window_bp=8192,
        spare_bp=0,
        alleles_alone=False,
        before_bp=_half_bp,
        counted_bp=_other_half_bp,
        most_needed_bp=_half_window_bp,
        too_long="allele_longer_than_half_window",
    ),
    "right_end": WindowProtocol(
        default_window_bp=24_000,
        spare_bp=300,
        alleles_alone=True,
        before_bp=_whole_bp,
        counted_bp=_needed_bp,
        most_needed_bp=_after_window_bp,
        too_long="allele_longer_than_context",
    ),
}
PROTOCOLS: dict[ProtocolName, VariantProtocol] = {
    **WINDOW_PROTOCOLS,
    "tiled": VariantProtocol(
        default_window_bp=8192, spare_bp=300, too_long="allele_longer_than_context"
    ),
}
DEFAULT_DOWNSTREAM_BP = 192
"""Bases that `tiled` compares after the longer allele."""
LEAST_CONTEXTS_PER_WINDOW = 6
"""By default the window of `tiled` is so many times its least context, in whole k-mers."""

ScoreName = Literal[
    "delta", "abs_delta", "jsd", "embedding_distance", "allele_entropy", "calibrated_delta"
]


class VariantScoreType(NamedTuple):
    """A score of variants.

    Attributes:
        unit: unit of its values.
        description: definition of the score; it mentions fields of the VCF by name.
        protocols: protocols that it exists for.
        records: variants that it exists for.
    """

    unit: str
    description: str
    protocols: tuple[ProtocolName, ...] = ("centered", "tiled")
    records: Literal["all", "SNVs"] = "all"

    @property
    def meaning(self) -> str:
        """Description, unit and records in one line."""
        only = "" if self.records == "all" else f"; {self.records} only"
        return f"{self.description}, {self.unit}{only}"


VARIANT_SCORES: dict[ScoreName, VariantScoreType] = {
    "delta": VariantScoreType(
        "nats", "log-likelihood(ALT) - log-likelihood(REF)", ("centered", "right_end", "tiled")
    ),
    "abs_delta": VariantScoreType(
        "nats", "Absolute value of CARBON_DELTA", ("centered", "right_end", "tiled")
    ),
    "jsd": VariantScoreType(
        "nats",
        "Mean Jensen-Shannon divergence of the next-base distributions with REF and with ALT, over "
        "the reference bases after the variant that both compare",
    ),
    "embedding_distance": VariantScoreType(
        "units of the states",
        "L2 distance of the mean last hidden states with REF and with ALT, over the k-mers of "
        "reference bases after the variant that both compare",
    ),
    "allele_entropy": VariantScoreType(
        "nats",
        "Entropy of the softmax over A, C, G and T at the site of the log-likelihood with each",
        records="SNVs",
    ),
    "calibrated_delta": VariantScoreType(
        "nats",
        "CARBON_DELTA minus the mean of neutral sites with the same bases around them and the same "
        "change",
        records="SNVs",
    ),
}
DEFAULT_SCORES: tuple[ScoreName, ...] = ("delta",)


def parse_scores(text: str) -> tuple[str, ...]:
    """Read names of scores such as `jsd,allele_entropy`."""
    names = tuple(text.split(","))
    _check_score_names(names)
    return names


def checked_scores(names: Iterable[str], protocol: ProtocolName) -> tuple[ScoreName, ...]:
    """Return scores in the order of `VARIANT_SCORES`, the delta always among them.

    Raises:
        UserError: a score is unknown, or does not exist for the protocol.
    """
    chosen = set(names)
    _check_score_names(chosen)
    for name in VARIANT_SCORES:
        if name in chosen and protocol not in VARIANT_SCORES[name].protocols:
            there = ", ".join(n for n, s in VARIANT_SCORES.items() if protocol in s.protocols)
            others = " or ".join(VARIANT_SCORES[name].protocols)
            raise UserError(
                f"score '{name}': {protocol} has only {there}; give the protocol {others}"
            )
    return tuple(name for name in VARIANT_SCORES if name in {*DEFAULT_SCORES, *chosen})


def check_calibration(scores: Collection[str], calibration: object) -> None:
    """Raise UserError unless there is a calibration if and only if a score needs one."""
    if "calibrated_delta" in scores and calibration is None:
        raise UserError(
            "score 'calibrated_delta': give its background by --calibration (calibration= in "
            "Python); `carbon background --neighbour-bp 5` writes one"
        )
    if calibration is not None and "calibrated_delta" not in scores:
        raise UserError("a calibration: only the score calibrated_delta has one; choose it too")


def _check_score_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in VARIANT_SCORES:
            near = get_close_matches(name, VARIANT_SCORES, 1)
            remedy = f"did you mean {near[0]}?" if near else f"give {', '.join(VARIANT_SCORES)}"
            raise UserError(f"there is no score '{abridged(name)}'; {remedy}")


AllOffsets = Literal["all"]
"""Every offset of a model's k-mers: 0 to k - 1."""


class Combination(NamedTuple):
    """How the offsets of a scan are combined into one value a base.

    Attributes:
        default_offsets: offsets used by default.
        own_offset: take every base at the offset where it begins a k-mer, which needs all offsets;
            otherwise average over the offsets.
    """

    default_offsets: tuple[int, ...] | AllOffsets
    own_offset: bool


Combine = Literal["mean", "token_start"]
COMBINATIONS: dict[Combine, Combination] = {
    "mean": Combination((0,), own_offset=False),
    "token_start": Combination("all", own_offset=True),
}


class Sides(NamedTuple):
    """Which bases around a base its scan scores depend on.

    Attributes:
        default_strands: strands that are scored by default.
        scores_unknown: whether bases that the reference does not know have scores.
        values: description of the log-probabilities, for the settings of outputs.
    """

    default_strands: Strands
    scores_unknown: bool
    values: str


SidesName = Literal["left", "both"]
SIDES: dict[SidesName, Sides] = {
    "left": Sides(
        "forward",
        scores_unknown=True,
        values="log p(base | all bases before it on the strand that is read), nats",
    ),
    "both": Sides(
        "both",
        scores_unknown=False,
        values="log softmax over A, C, G, T of the mean log-likelihood of the base and the bases "
        "downstream of it, nats",
    ),
}


class Pooling(NamedTuple):
    """Which states of a sequence its vector is computed from.

    Attributes:
        last_alone: the last state only, after the k-mers before the end that fit; otherwise the
            mean of all states, weighted by the known bases of the k-mers.
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


Mode = Literal["token", "base", "chain"]
"""The unit of sampling: one of the 4,096 6-mers, a base by its marginal, or a base by the chain."""
MODES: tuple[Mode, ...] = get_args(Mode)


Engine = Literal["own", "continuous"]
ENGINES: dict[Engine, str] = {
    "own": "all sampling modes; text does not depend on the other prompts of a batch",
    "continuous": "transformers' continuous batching: many prompts of different lengths, 6-mers",
}


StrategyName = Literal["beam", "infill", "best_of_n", "rejection"]
"""Keys of `carbon.design.strategies.STRATEGIES`."""


class Group(NamedTuple):
    """A group of options in the help of a command.

    Attributes:
        title: title of the group.
        takes_one: whether its options exclude one another.
        is_required: whether one of them must be given.
    """

    title: str
    takes_one: bool = False
    is_required: bool = False


INPUT = Group("Input")
MODEL = Group("Model")
METHOD = Group("Method")
GENES = Group("Genes and contigs")
SAMPLING = Group("Sampling")
CONSTRAINTS = Group("Constraints, kept exactly")
OUTPUT = Group("Output")


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """Command-line properties of a field, in addition to its name, type, default and help.

    Attributes:
        name: the option, if it does not follow from the field.
        group: group of the help.
        metavar: stands for the value in the help.
        help: help that depends on a table; otherwise it is in the docstring.
        least: smallest number.
        parse: function from one word to the value; a `ValueError` names what is wrong.
        is_list: take all words up to the next option; the option may be repeated.
        may_be_stdin: accept `-`.
        is_input: a file that must exist, and that the output must not replace.
        is_hidden: leave it out of the help.
    """

    name: str = ""
    group: Group | None = None
    metavar: str = ""
    help: str = ""
    least: int | None = None
    parse: Callable[[str], Any] | None = None
    is_list: bool = False
    may_be_stdin: bool = False
    is_input: bool = False
    is_hidden: bool = False


def options_of(hint: Any) -> list[Option]:
    """Return the `Option`s of a type, those inside a union first."""
    inside = [option for part in get_args(hint) for option in options_of(part)]
    return inside + [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Option)]


def input_files(job: Any) -> Iterator[Path]:
    """Yield the input files that a job and its parts name."""
    hints = get_type_hints(type(job), include_extras=True)
    for each in fields(job):
        value = getattr(job, each.name)
        if is_dataclass(value):
            yield from input_files(value)
        elif value and any(option.is_input for option in options_of(hints[each.name])):
            yield value


def parse_offsets(text: str) -> tuple[int, ...] | AllOffsets:
    """Read offsets such as `0,2,4` or `all`."""
    if text == "all":
        return "all"
    if not all(part in "01234567" and len(part) == 1 for part in text.split(",")):
        raise ValueError(f"'{text}' is not a list of offsets such as 0,2,4 or all")
    return tuple(int(part) for part in text.split(","))


Natural = Annotated[int, Option(least=0)]
"""An integer of 0 or more."""
Positive = Annotated[int, Option(least=1)]
"""An integer of 1 or more."""
Words = Annotated[tuple[str, ...], Option(is_list=True)]
"""Words up to the next option: `--sites EcoRI BamHI`."""
Offsets = Annotated[Sequence[int] | AllOffsets, Option(parse=parse_offsets, metavar="OFFSETS")]
Scores = Annotated[
    Sequence[ScoreName],
    Option(
        parse=parse_scores,
        metavar="NAME[,NAME...]",
        help=f"scores to write besides the delta: {', '.join(VARIANT_SCORES)}.",
    ),
]
InputFile = Annotated[Path, Option(is_input=True)]
Tags = Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnnotationOptions:
    """Genes and contig names.

    Attributes:
        annotation: GFF3, GTF, BED or GenBank, plain or gzip: source of genes for
            consequences and kinds of variants.
        contigs: if a file uses other contig names than the reference: a table of its names and the
            reference's, or chr to add or remove 'chr' (and M for MT).
        genetic_code: NCBI translation table of CDS without transl_table in the annotation, such as
            4, or 1,Mito=3 with contigs of the reference; default: 1, and none for mitochondria.
    """

    annotation: InputFile | None = None
    contigs: str | None = None
    genetic_code: str | None = None

    def check(self) -> None:
        """Check the genetic code before large imports.

        Raises:
            UserError: the table is unknown, or no annotation is given.
        """
        from carbon.genome.alphabet import tables_chosen

        tables_chosen(self.genetic_code)
        if self.genetic_code and not self.annotation:
            raise UserError("--genetic-code: give the --annotation that it is for")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreOptions:
    """How sequences are scored.

    Sequences that exceed the context are scored in windows that overlap by half. `chain` gives log
    p(base | all bases before it), which sums to the log-likelihood of the sequence; `marginals`
    gives the base's marginal within its token. `both` strands give their mean.

    Attributes:
        by: likelihoods by the chain rule or by marginals.
        strands: strands to read.
        tags: metadata tag; may be repeated.
    """

    by: By = "chain"
    strands: Strands = "forward"
    tags: Tags = ()


class ScoreKeywords(TypedDict, total=False):
    """The fields of `ScoreOptions`."""

    by: By
    strands: Strands
    tags: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedOptions:
    """How sequences are embedded.

    `mean` weights each token state by its number of known bases, in windows that overlap by half if
    the sequence exceeds the context. `last` and `end` use as many k-mers before the end as fit.
    Layer 0 is the embeddings.

    Attributes:
        pool: mean over known bases, state of the last k-mer, or of </dna> after it.
        layer: after N layers; default: all and the last norm.
        tags: metadata tag; may be repeated.
    """

    pool: Pool = "mean"
    layer: Natural | None = None
    tags: Tags = ()


class EmbedKeywords(TypedDict, total=False):
    """The fields of `EmbedOptions`."""

    pool: Pool
    layer: int | None
    tags: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantEmbedOptions:
    """How variants are embedded: the window of `centered` with REF and with ALT.

    The window of a strand is pooled as a sequence is, and the vectors of both strands give their
    mean. A strand that cannot distinguish the alleles is left out.

    Attributes:
        window_bp: bases of the window (default: 8192, or what fits; other models: their
            context).
        strands: strands to read.
        pool: mean over known bases, state of the last k-mer, or of </dna> after it.
        layer: after N layers; default: all and the last norm.
        tags: metadata tag; may be repeated.
    """

    window_bp: int | None = None
    strands: Strands = "both"
    pool: Pool = "mean"
    layer: int | None = None
    tags: Tags = ()


class VariantEmbedKeywords(TypedDict, total=False):
    """The fields of `VariantEmbedOptions`."""

    window_bp: int | None
    strands: Strands
    pool: Pool
    layer: int | None
    tags: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantOptions:
    """How variants are scored.

    `tiled` reads the reference once in overlapping windows on a fixed grid, from which the alleles
    continue. `centered` compares the second half of a window around the variant; it shifts an ALT's
    window by its additional length, modulo k, so that the k-mers after an indel are the same for
    both alleles. `right_end` compares the alleles, at least up to the first base that differs,
    after a window that ends where they begin; its window is the bases before the variant. Offsets
    are bases left out at the start of REF's window, which shifts the k-mers, each 0 to k - 1; the
    delta is the mean over offsets. A strand that cannot distinguish the alleles is left out.

    Attributes:
        protocol: compare windows around the variant; or the alleles, up to their first difference,
            after a window; or a few bases after it in windows that variants share.
        window_bp: bases of the window (default: 8192, or 24000 for right_end, or what fits; other
            models: all that fits).
        downstream_bp: bases that tiled compares after the longer allele (default: 192).
        least_context_bp: bases before a variant that tiled reads at least, except at the start of a
            contig (default: a sixth of the window).
        by: likelihoods by the chain rule or by marginals.
        strands: strands to score; the mean of both also shows how far they disagree.
        offsets: average over k-mer offsets such as 0,2,4, or all.
        tags: metadata tag; may be repeated.
    """

    protocol: ProtocolName = "tiled"
    window_bp: int | None = None
    downstream_bp: Positive | None = None
    least_context_bp: Natural | None = None
    by: By = "chain"
    strands: Strands = "both"
    offsets: Offsets = (0,)
    tags: Tags = ()


class VariantKeywords(TypedDict, total=False):
    """The fields of `VariantOptions`."""

    protocol: ProtocolName
    window_bp: int | None
    downstream_bp: int | None
    least_context_bp: int | None
    by: By
    strands: Strands
    offsets: Sequence[int] | AllOffsets
    tags: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundOptions:
    """How random variants are drawn.

    Attributes:
        draw_from: contigs to draw from; default: all.
        variants_per_kind: number to draw (default: 200).
        neighbour_bp: write a calibration of calibrated_delta instead: mean deltas of neutral sites
            by the 3, 5 or 7 bases around them, the site in the middle.
        sites_per_context: with neighbours, the maximum number of neutral sites with the same bases
            around them (default: 100).
        seed: seed of the random numbers.
    """

    draw_from: Words = ()
    variants_per_kind: Natural | None = None
    neighbour_bp: int | None = None
    sites_per_context: Positive | None = None
    seed: Natural = 0

    @property
    def num_variants(self) -> int:
        """Number of variants of each kind, with the default."""
        return 200 if self.variants_per_kind is None else self.variants_per_kind

    @property
    def num_sites(self) -> int:
        """Maximum number of sites of each context, with the default."""
        return 100 if self.sites_per_context is None else self.sites_per_context

    def check_neighbours(self) -> None:
        """Raise UserError unless a calibration can be drawn with these options."""
        if self.neighbour_bp not in (3, 5, 7):
            raise UserError(f"neighbours {self.neighbour_bp} bp: give 3, 5 or 7, such as 5")
        if self.num_sites < 1 or self.seed < 0:
            raise UserError(
                f"sites per context {self.num_sites}, seed {self.seed}: give 1 or more, and a seed "
                "of 0 or more"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanOptions:
    """How a region is scanned.

    From the left, a base is predicted from all bases before it. From both sides, each of the four
    bases is scored with the bases downstream of it, in tiles as with the protocol `tiled` of
    variants. Windows are rounded down to whole k-mers, and the least context up; the start of a
    contig has no least context. Offsets are where k-mers begin, modulo k, from the start of the
    scored strand. On the reverse strand a base is predicted from all bases to its right.

    Attributes:
        sides: score a base by the bases before it, or by those on both sides.
        window_bp: bases of a window (default: 48000, or 8192 for both sides, or what fits; other
            models: all that fits).
        downstream_bp: bases after a base that both sides compare (default: 192).
        least_context_bp: context bases at the start of a window that are not scored (default: half
            of the window, or a sixth for both sides).
        offsets: k-mer offsets such as 0,2,4, or all (default: 0, or all for token_start).
        combine: the mean over offsets, or every base at the offset where it begins a k-mer.
        strands: strands to score (default: forward, or both for both sides).
        tags: metadata tag; may be repeated.
    """

    sides: SidesName = "left"
    window_bp: int | None = None
    downstream_bp: Positive | None = None
    least_context_bp: int | None = None
    offsets: Offsets | None = None
    combine: Combine = "mean"
    strands: ScanStrands | None = None
    tags: Tags = ()


class ScanKeywords(TypedDict, total=False):
    """The fields of `ScanOptions`."""

    sides: SidesName
    window_bp: int | None
    downstream_bp: int | None
    least_context_bp: int | None
    offsets: Sequence[int] | AllOffsets | None
    combine: Combine
    strands: ScanStrands | None
    tags: Sequence[str]


Symmetry = Literal["max", "mean"]
"""How the values of both strands become one, of substitutions at either base of a pair."""
SYMMETRIES: tuple[Symmetry, ...] = get_args(Symmetry)


@dataclass(frozen=True, kw_only=True, slots=True)
class DependencyOptions:
    """How a dependency map is computed.

    Both strands are read. The window holds the region and the bases before it on the strand.
    Offsets are where k-mers begin, modulo k, from the start of a strand; the map is the mean over
    offsets.

    Attributes:
        symmetrise: the maximum or the mean of e(i, j) and e(j, i).
        window_bp: bases of region and context (default: 8192, or what fits; other models: their
            context).
        offsets: average over k-mer offsets such as 0,2,4, or all.
        tags: metadata tag; may be repeated.
    """

    symmetrise: Symmetry = "max"
    window_bp: int | None = None
    offsets: Offsets = (0,)
    tags: Tags = ()


class DependencyKeywords(TypedDict, total=False):
    """The fields of `DependencyOptions`."""

    symmetrise: Symmetry
    window_bp: int | None
    offsets: Sequence[int] | AllOffsets
    tags: Sequence[str]


_LEAST_TEMPERATURE = 1e-6  # much smaller values have no finite inverse in fp32


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """How the next 6-mer is sampled from its distribution.

    The fields apply in this order: penalty, mask of constraints, temperature, top-k, top-p of the
    remaining choices (Holtzman et al. 2020, arXiv 1904.09751), min-p (Nguyen et al. 2024, arXiv
    2407.01082). Choices as likely as the last one that passes a cut also pass. The unit of sampling
    is a 6-mer (`token`), a base by its marginal (`base`), or a base given the bases before it
    (`chain`). A temperature is 0 or 1e-6 to 100; a top-p of 1 cuts nothing. Repetitions in the
    prompt count too.

    Attributes:
        mode: sample 6-mers, bases by their marginals, or bases one by one.
        temperature: 0 takes the most likely.
        top_k: sample only from the K most likely.
        top_p: sample only from the fewest that together have probability P.
        min_p: sample only from those at least P times as likely as the most likely.
        repetition_penalty: nats for each occurrence of a 6-mer in the last bases, at any offset.
        repetition_window_bp: bases in which repetitions count.

    Raises:
        UserError: a value is out of range.
    """

    mode: Mode = "token"
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 0.0
    repetition_window_bp: int = 1200

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UserError(f"mode '{self.mode}': give {', '.join(MODES)}")
        if self.temperature != 0 and not _LEAST_TEMPERATURE <= self.temperature <= 100:
            raise UserError(f"temperature {self.temperature}: give 0 (greedy) or 1e-6 to 100")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k {self.top_k}: give 1 or more")
        for name, share in (("top_p", self.top_p), ("min_p", self.min_p)):
            if share is not None and not 0 < share <= 1:
                raise UserError(f"{name} {share}: give a probability above 0, at most 1")
        if not 0 <= self.repetition_penalty <= 100:
            raise UserError(f"repetition_penalty {self.repetition_penalty}: give 0 to 100 nats")
        if self.repetition_window_bp < _K:
            raise UserError(f"repetition_window_bp {self.repetition_window_bp}: give {_K} or more")

    @property
    def draws_kmers(self) -> bool:
        """Whether 6-mers are sampled, not bases."""
        return self.mode == "token"

    @property
    def draws_by_marginals(self) -> bool:
        """Whether bases are sampled independently, by their marginals."""
        return self.mode == "base"

    @property
    def cuts(self) -> bool:
        """Whether some choices are excluded by top-k, top-p or min-p."""
        return not (self.top_k is None and self.top_p in (None, 1) and self.min_p is None)


class SamplingKeywords(TypedDict, total=False):
    """The fields of `SamplingRule`."""

    mode: Mode
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    repetition_window_bp: int


_LONGEST_MOTIF_BP = 1000


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints on the generated bases.

    Motifs are IUPAC and apply to the generated strand; also pass their reverse complements to
    constrain both strands. A forbidden motif must not overlap a generated base, even if it begins
    in the prompt; an unknown base of the prompt matches any base that it may represent. A required
    motif must occur within the generated bases. GC content is counted from the first generated
    base, in each consecutive window; a shorter last window must satisfy it to within one base. No
    stop codon of the standard code may overlap a generated base in the reading frame, an offset
    from the prompt's first base. A protein is in one-letter code, by the standard code, from the
    first generated base on.

    Attributes:
        forbid: IUPAC motifs that must not occur; may be repeated.
        require: IUPAC motifs that must occur; may be repeated.
        gc: minimum and maximum GC content, 0 to 1.
        gc_window_bp: bases of each window with this GC content (default: all).
        no_stop_frame: no stop codon in this reading frame, counted from the prompt's start.
        protein: amino acids that the generated bases encode, three bases each; * for a stop.

    Raises:
        TypeError: `forbid` or `require` is a single string, whose letters would be motifs.
        UserError: a motif is not IUPAC DNA, or a value is out of range.
    """

    forbid: Words = ()
    require: Words = ()
    gc: tuple[float, float] | None = None
    gc_window_bp: int | None = None
    no_stop_frame: Literal[0, 1, 2] | None = None
    protein: str | None = None

    def __post_init__(self) -> None:
        for name, motifs in (("forbid", self.forbid), ("require", self.require)):
            if motifs != ():
                _check_motifs(name, motifs)
        as_tuples(self, "forbid", "require", "gc")
        if self.gc is not None and not 0 <= self.gc[0] <= self.gc[1] <= 1:
            raise UserError(f"GC share {self.gc[0]} to {self.gc[1]}: give two of 0 to 1, ascending")
        if self.gc_window_bp is not None and (self.gc is None or self.gc_window_bp < 1):
            raise UserError(f"GC window {self.gc_window_bp}: give 1 or more and a GC share with it")
        if self.no_stop_frame not in (None, 0, 1, 2):
            raise UserError(f"frame {self.no_stop_frame} for no stop: give 0, 1 or 2")
        if self.protein is not None:
            _check_protein(self.protein)

    def __bool__(self) -> bool:
        """Whether there is any constraint."""
        return self != Constraints()


def as_tuples(options: object, *names: str) -> None:
    """Replace lists in fields of a frozen dataclass by tuples, so that equal options are equal."""
    for name in names:
        if (value := getattr(options, name)) is not None:
            object.__setattr__(options, name, tuple(value))


def _check_motifs(name: str, motifs: Sequence[str]) -> None:
    from carbon.genome.alphabet import check_dna
    from carbon.inference.checks import check_several

    check_several(name, motifs, '["GAATTC"]')
    for motif in motifs:
        if not motif:
            raise UserError("a motif is empty: give IUPAC letters of DNA, such as GAATTC or RGY")
        check_dna(motif, f"motif '{abridged(motif)}'")
        if len(motif) > _LONGEST_MOTIF_BP:
            raise UserError(f"a motif of {len(motif)} bases: give {_LONGEST_MOTIF_BP} at most")


def _check_protein(protein: str) -> None:
    from carbon.genome.alphabet import GENETIC_CODE

    if wrong := set(protein) - set(GENETIC_CODE.values()):
        at = min(map(protein.index, wrong))
        raise TypedError(
            f"protein letter {at + 1}: {protein[at]!r} is not an amino acid; give capital letters "
            "such as MAK, and * for a stop", protein, at,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """How `carbon design` searches.

    Attributes:
        strategy: beam: redraw windows of the best sequences, shorter and at lower temperature with
            every round; infill: a beam whose windows also fit the bases after them; best_of_n:
            draw whole sequences; rejection: best_of_n until enough are at their targets.
        calls: maximum number of sequences to score.
        batch: maximum number of sequences scored together.
        width: lineages of a beam.
        initial_temperature: temperature of a beam's first round.
        final_temperature: when the calls are used up.
        within: distance from a target that rejection accepts.
    """

    strategy: StrategyName = "beam"
    calls: int = 1000
    batch: int = 16
    width: int = 4
    initial_temperature: float = 1.2
    final_temperature: float = 0.8
    within: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOptions:
    """Rules of `carbon design` beyond the constraints on generation.

    Attributes:
        sites: restriction enzymes of REBASE in any case, such as EcoRI, or IUPAC motifs, that stand
            on neither strand.
        most_run_bp: longest run of one base.
        most_repeat_bp: longest sequence that occurs twice.
        least_kcal: least free energy of a fold of 60 bases, in windows that overlap by half, such
            as -8 (needs ViennaRNA).
        least_edits: minimum edit distance between two designs that are written.
    """

    sites: Words = ()
    most_run_bp: int | None = None
    most_repeat_bp: int | None = None
    least_kcal: float | None = None
    least_edits: Natural = 0


def changed(options: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults.

    >>> changed(VariantOptions(strands="forward"))
    {'strands': 'forward'}
    """
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    defaults = {field.name: field.default for field in fields(options)}
    return {
        name: value
        for name, value in values.items()
        if defaults[name] is MISSING or value != defaults[name]
    }


def takes(options: type) -> Callable[[F], F]:
    """Give a function that takes `**options` the signature and the help of a dataclass.

    The help is inserted after the line of the docstring that names the dataclass.
    """

    def described(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        fields_of = inspect.signature(options).parameters.values()
        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in fields_of]
        described: Any = function
        described.__signature__ = signature.replace(parameters=[*own, *keywords])
        before, name, after = (function.__doc__ or "").partition(f"`{options.__name__}`:\n")
        lines = [f"{each}: {text}" for each, text in option_help(options).items()]
        described.__doc__ = before + name + indent("\n".join(lines), " " * 16) + "\n" + after
        return function

    return described


def source_of(model: Any) -> str:
    """Return the folder or name of a model: a `carbon.Model`, a folder or a name.

    Raises:
        UserError: a `Model` was not loaded from a folder.
    """
    if isinstance(model, str | Path):
        return str(model)
    if not model.source:
        raise UserError(
            "this model was not loaded from a folder, which results name: save it, and load the "
            "folder"
        )
    return str(model.source)


def check_resumed(resume: bool, output: object) -> None:
    """Raise UserError if a call without an output is to be resumed."""
    if resume and not output:
        raise UserError("resume: give the output of the call that was stopped")


def check_choice(name: str, value: str, table: Collection[str]) -> None:
    """Raise UserError unless a value is in its table."""
    if value not in table:
        raise UserError(f"{name} '{value}': give one of {', '.join(table)}")

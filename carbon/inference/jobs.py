"""Jobs of the inference commands: input files, computation and output files.

A field is an option of the command of the same name, and the docstring has its help; options of the
method and the annotation are the dataclasses of `carbon.inference.options`. The module
is plain Python, so that help needs neither numpy nor torch.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from carbon.errors import UserError
from carbon.inference.options import (
    CONSTRAINTS,
    DEFAULT_SCORES,
    GENES,
    INPUT,
    METHOD,
    MODEL,
    OUTPUT,
    SAMPLING,
    AnnotationOptions,
    BackgroundOptions,
    Constraints,
    DependencyOptions,
    Dtype,
    EmbedOptions,
    Engine,
    Group,
    InputFile,
    Natural,
    Option,
    SamplingRule,
    ScanOptions,
    ScoreOptions,
    Scores,
    Strands,
    Tags,
    VariantOptions,
    Words,
    check_calibration,
    checked_scores,
)
from carbon.io.tables import FORMATS, any_of
from carbon.parallel.engines import Worker
from carbon.parallel.options import WorkerOptions, loaded_device, workers_of

if TYPE_CHECKING:
    from carbon.inference.model import Model
    from carbon.parallel.driver import Workers


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadingOptions:
    """Model and how to load it: keywords of `carbon.load`.

    Attributes:
        model: model folder, or the name of a bundled or Hub model.
        dtype: type of weights and activations; auto is bfloat16 on a CUDA GPU, else float32.
        attention: sdpa, flash_attention_2, or auto.
        yarn: stretch the context by this factor.
    """

    model: str
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    attention: str = "auto"
    yarn: float | None = None

    def load(self, device: str) -> "Model":
        """Load the model."""
        from carbon.inference.model import load

        keywords: Any = {"dtype": self.dtype, "attention": self.attention, "yarn": self.yarn}
        return load(self.model, device=device, **keywords)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded(LoadingOptions):
    """A model that is loaded: jobs in this process use it, and worker processes load their own.

    Attributes:
        loaded: the `Model`.
    """

    loaded: Any

    def load(self, device: str) -> "Model":
        """Return the model."""
        model: Model = self.loaded
        return model

    def __reduce__(self) -> Any:
        """Leave out the model when a job is sent to a process."""
        return _loading, (self.model, self.dtype, self.attention, self.yarn)


def _loading(
    model: str, dtype: Dtype | Literal["auto"], attention: str, yarn: float | None
) -> LoadingOptions:
    return LoadingOptions(model=model, dtype=dtype, attention=attention, yarn=yarn)


_Loading = Annotated[LoadingOptions, Option(group=MODEL)]
_Reference = Annotated[InputFile, Option(group=INPUT)]
_DryRun = Annotated[bool, Option(group=OUTPUT)]
_Genes = Annotated[AnnotationOptions, Option(group=GENES)]
_VariantMethod = Annotated[VariantOptions, Option(group=METHOD)]

_INPUT = Group("Variants", takes_one=True, is_required=True)
_PLACE = Group("Place", takes_one=True)
_VARIANTS = Group("Variants, in place of sequences")
_PERCENTILES = Group("Percentiles", takes_one=True)
_SCANNED = Group("Place, one of these", takes_one=True, is_required=True)
_PROMPTS = Group("Prompts, one of these", takes_one=True)

Contigs = Annotated[
    str | None,
    Option(
        group=INPUT,
        metavar="TABLE|chr",
        help="if a file uses other contig names than the reference: a table of its names and the "
        "reference's, or chr to add or remove 'chr' (and M for MT).",
    ),
]


def output_of(kind: str) -> Option:
    """Return the option of an output, whose endings select its format."""
    return Option(group=OUTPUT, help=f"a {any_of(FORMATS[kind])} to write.", metavar="FILE")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreJob:
    """Sequences to score.

    Attributes:
        per_base: write a row for each base.
    """

    loading: _Loading
    output: Annotated[Path | None, output_of("table")] = None
    per_base: Annotated[bool, Option(group=OUTPUT)] = False
    method: Annotated[ScoreOptions, Option(group=METHOD)] = field(default_factory=ScoreOptions)


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedVariants:
    """Variants to embed with both alleles, in place of sequences.

    Attributes:
        vcf: sorted VCF, plain, gzip or bgzip; or BCF.
        reference: FASTA that the variants refer to.
        contigs: if the VCF uses other contig names than the reference: a table of its names and
            the reference's, or chr to add or remove 'chr' (and M for MT).
        region: embed the records whose POS is in it, 1-based, both ends included.
        regions_file: embed the records whose POS is in one of its regions.
        min_qual: embed the records whose QUAL is at least this; records without QUAL are left out.
        filters: embed the records whose FILTER has one of these names, such as PASS; '.' means
            records without applied filters.
        skip_mismatches: skip records whose REF contradicts the reference.
        window_bp: bases of the window around a variant (default: 8192, or what fits; other models:
            their context).
        strands: strands to read; the vectors of both give their mean.
    """

    vcf: InputFile | None = None
    reference: InputFile | None = None
    contigs: str | None = None
    region: Annotated[str | None, Option(group=_PLACE, metavar="CHR[:FIRST-LAST]")] = None
    regions_file: Annotated[InputFile | None, Option(group=_PLACE, metavar="BED")] = None
    min_qual: Annotated[float | None, Option(metavar="QUAL")] = None
    filters: Annotated[str, Option(metavar="NAME[,NAME...]")] = ""
    skip_mismatches: bool = False
    window_bp: int | None = None
    strands: Strands = "both"


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedJob:
    """Sequences to embed, or variants with both alleles."""

    loading: _Loading
    output: Annotated[Path, output_of("embeddings")]
    variants: Annotated[EmbeddedVariants, Option(group=_VARIANTS)] = field(
        default_factory=EmbeddedVariants
    )
    method: Annotated[EmbedOptions, Option(group=METHOD)] = field(default_factory=EmbedOptions)


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantJob:
    """Variants to score.

    Attributes:
        reference: FASTA that the variants refer to.
        vcf: sorted VCF, plain, gzip or bgzip; or BCF.
        variant: one or more variants such as "VIII:451984 CA>C", VIII-451984-CA-C or, with
            --annotation, "ENO2:c.28A>T".
        genes: with them, gene, consequence and codon are written too.
        region: score the records whose POS is in it, 1-based, both ends included.
        regions_file: score the records whose POS is in one of its regions.
        min_qual: score the records whose QUAL is at least this; records without QUAL are left out.
        filters: score the records whose FILTER has one of these names, such as PASS; '.' means
            records without applied filters.
        background: file of `carbon background`: also write a percentile among random variants;
            default: background.json in the model's folder, if it matches.
        no_background: never write a percentile.
        calibration: file of `carbon background --neighbour-bp`, for the score calibrated_delta.
        skip_mismatches: skip records whose REF contradicts the reference.
        strict: refuse a VCF that breaks any rule of its format.
        dry_run: report tokens and hours here, for a `500m` or `3b` model also on an H200, and write
            nothing.
    """

    loading: _Loading
    reference: _Reference
    output: Annotated[Path, output_of("variants")]
    # `-` is refused with its reason
    vcf: Annotated[InputFile | None, Option(group=_INPUT, may_be_stdin=True)] = None
    variant: Annotated[Words, Option(group=_INPUT, metavar="TEXT")] = ()
    genes: _Genes = field(default_factory=AnnotationOptions)
    region: Annotated[str | None, Option(group=_PLACE, metavar="CHR[:FIRST-LAST]")] = None
    regions_file: Annotated[InputFile | None, Option(group=_PLACE, metavar="BED")] = None
    min_qual: Annotated[float | None, Option(group=INPUT, metavar="QUAL")] = None
    filters: Annotated[str, Option(group=INPUT, metavar="NAME[,NAME...]")] = ""
    background: Annotated[InputFile | None, Option(group=_PERCENTILES)] = None
    no_background: Annotated[bool, Option(group=_PERCENTILES)] = False
    scores: Annotated[Scores, Option(group=METHOD)] = DEFAULT_SCORES
    calibration: Annotated[InputFile | None, Option(group=METHOD)] = None
    method: _VariantMethod = field(default_factory=VariantOptions)
    skip_mismatches: Annotated[bool, Option(group=INPUT)] = False
    strict: Annotated[bool, Option(group=INPUT)] = False
    dry_run: _DryRun = False
    lenient: Annotated[bool, Option(is_hidden=True)] = False

    def check_scores(self) -> None:
        """Check the scores before large imports.

        Raises:
            UserError: a score is unknown, does not exist for the protocol, or lacks its file.
        """
        check_calibration(checked_scores(self.scores, self.method.protocol), self.calibration)


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundJob:
    """Random variants to score.

    Attributes:
        reference: FASTA to draw variants from.
        output: a .json to write.
        genes: separate SNVs by consequence, and coding indels from others; with --neighbour-bp,
            neutral sites are outside of genes.
        neutral: neutral sites are in its regions.
        dry_run: report tokens and hours here, for a `500m` or `3b` model also on an H200, and write
            nothing.
    """

    loading: _Loading
    reference: _Reference
    output: Annotated[Path, Option(group=OUTPUT)]
    genes: _Genes = field(default_factory=AnnotationOptions)
    neutral: Annotated[InputFile | None, Option(group=INPUT, metavar="BED")] = None
    drawing: Annotated[BackgroundOptions, Option(group=METHOD)] = field(
        default_factory=BackgroundOptions
    )
    method: _VariantMethod = field(default_factory=VariantOptions)
    dry_run: _DryRun = False

    def check_neutral(self) -> None:
        """Check the options of neutral sites before large imports.

        Raises:
            UserError: they contradict one another, or the protocol has no calibrated delta.
        """
        if self.drawing.neighbour_bp is None:
            given = {
                "--neutral": self.neutral,
                "--sites-per-context": self.drawing.sites_per_context,
            }
            for name, value in given.items():
                if value is not None:
                    raise UserError(f"{name}: only a background with --neighbour-bp has it")
            return
        if self.drawing.variants_per_kind is not None:
            raise UserError("--variants-per-kind: a background with --neighbour-bp has no kinds")
        self.drawing.check_neighbours()
        checked_scores(("calibrated_delta",), self.method.protocol)
        if bool(self.neutral) == bool(self.genes.annotation):
            raise UserError(
                "--neighbour-bp: give --annotation, whose genes are not neutral, or --neutral BED"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanJob:
    """Regions to scan.

    Attributes:
        reference: FASTA, plain, bgzip or gzip.
        output: one or more of .parquet, .tsv and .bw. A track has the mean delta, or the value in
            its name: .mean_delta.bw, .worst_delta.bw, .log_p_ref.bw, .entropy_nats.bw. With
            --genome, a .parquet is a folder with a file for each contig.
        region: 1-based, both ends included.
        regions_file: all regions of a file.
        contig: a whole contig.
        genome: all contigs of the reference.
        gene: name or identifier, with --annotation.
        annotation: GFF3, GTF, BED or GenBank, plain or gzip.
        flank_bp: bases added on both sides.
        plot: heat map, .png, .svg or .pdf.
        dry_run: report tokens, hours and bytes, and write nothing.
    """

    loading: _Loading
    reference: _Reference
    output: Annotated[Words, Option(group=OUTPUT)]
    region: Annotated[str | None, Option(group=_SCANNED, metavar="CHR:FIRST-LAST")] = None
    regions_file: Annotated[InputFile | None, Option(group=_SCANNED, metavar="BED")] = None
    contig: Annotated[str | None, Option(group=_SCANNED, metavar="NAME")] = None
    genome: Annotated[bool, Option(group=_SCANNED)] = False
    gene: Annotated[str | None, Option(group=_SCANNED, metavar="NAME")] = None
    annotation: Annotated[InputFile | None, Option(group=INPUT)] = None
    contigs: Contigs = None
    flank_bp: Annotated[Natural, Option(group=INPUT)] = 0
    plot: Annotated[Path | None, Option(group=OUTPUT)] = None
    method: Annotated[ScanOptions, Option(group=METHOD)] = field(default_factory=ScanOptions)
    dry_run: _DryRun = False


@dataclass(frozen=True, kw_only=True, slots=True)
class DependencyJob:
    """A region whose dependency map is computed.

    Attributes:
        reference: FASTA, plain, bgzip or gzip.
        output: one or more of .parquet and .npz for the map, .bw for the influence of each base.
        region: 1-based, both ends included.
        gene: name or identifier, with --annotation.
        annotation: GFF3, GTF, BED or GenBank, plain or gzip.
        flank_bp: bases added on both sides.
        plot: map with the genes, .png, .svg or .pdf.
        dry_run: report tokens and hours, and write nothing.
    """

    loading: _Loading
    reference: _Reference
    output: Annotated[Words, Option(group=OUTPUT)]
    region: Annotated[str | None, Option(group=_SCANNED, metavar="CHR:FIRST-LAST")] = None
    gene: Annotated[str | None, Option(group=_SCANNED, metavar="NAME")] = None
    annotation: Annotated[InputFile | None, Option(group=INPUT)] = None
    contigs: Contigs = None
    flank_bp: Annotated[Natural, Option(group=INPUT)] = 0
    plot: Annotated[Path | None, Option(group=OUTPUT)] = None
    method: Annotated[DependencyOptions, Option(group=METHOD)] = field(
        default_factory=DependencyOptions
    )
    dry_run: _DryRun = False


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateJob:
    """Prompts to continue, or a gap to fill.

    Attributes:
        tags: metadata tag; may be repeated.
        prompt: DNA of any length; none by default.
        prompts: FASTA with one prompt per record.
        length_bp: bases to add.
        num_samples: samples per prompt.
        seed: seed of the random numbers.
        output: file to write; default: standard output.
        draft: a smaller model, to decode speculatively.
        draft_tokens: 6-mers it proposes at a time; 4 if not given.
        engine: continuous: transformers' continuous batching, for many prompts of different
            lengths.
        right: DNA after a gap; fill the gap between --prompt and it.
        candidates: number to draw for a gap, 16 if not given; the best -n are written.
    """

    loading: _Loading
    tags: Annotated[Tags, Option(group=INPUT)] = ()
    prompt: Annotated[str, Option(group=_PROMPTS, metavar="DNA")] = ""
    prompts: Annotated[InputFile | None, Option(group=_PROMPTS, metavar="FASTA")] = None
    length_bp: Annotated[int, Option(group=OUTPUT)]
    num_samples: Annotated[Natural, Option(group=OUTPUT, name="-n")] = 1
    seed: Annotated[Natural, Option(group=SAMPLING)] = 0
    output: Annotated[Path | None, Option(group=OUTPUT, metavar="FASTA")] = None
    sampling: Annotated[SamplingRule, Option(group=SAMPLING)] = field(default_factory=SamplingRule)
    constraints: Annotated[Constraints, Option(group=CONSTRAINTS)] = field(
        default_factory=Constraints
    )
    draft: Annotated[str | None, Option(group=MODEL, metavar="MODEL")] = None
    draft_tokens: Annotated[Natural | None, Option(group=MODEL)] = None
    engine: Annotated[Engine, Option(group=MODEL)] = "own"
    right: Annotated[str | None, Option(group=INPUT, metavar="DNA")] = None
    candidates: Annotated[Natural | None, Option(group=SAMPLING)] = None

    @property
    def num_proposed(self) -> int:
        """6-mers that the draft proposes at a time."""
        return 4 if self.draft_tokens is None else self.draft_tokens

    @property
    def num_candidates(self) -> int:
        """Sequences to draw for the gap."""
        return 16 if self.candidates is None else self.candidates


J = TypeVar("J")


def workers_for(
    job: J, make: Callable[["Model", J], Worker], options: WorkerOptions
) -> AbstractContextManager["Workers"]:
    """Return workers that each load the model of a job.

    Args:
        job: the job, whose `loading` names the model.
        make: function from the loaded model and the job to a worker; pickled by name.
        options: number and place of the workers.
    """
    return workers_of(options, partial(model_worker, job, make, loaded_device(options)))


def model_worker(job: Any, make: Callable[["Model", Any], Worker], device: str) -> Worker:
    """Load the model of a job, and return a worker that uses it."""
    return make(job.loading.load(device), job)

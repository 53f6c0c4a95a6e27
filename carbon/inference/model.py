"""`Model`: a loaded model and its methods, as returned by `carbon.load`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

import torch
from transformers.utils.import_utils import is_flash_attn_2_available

from carbon.devices import default_device
from carbon.errors import UserError
from carbon.genome import Annotation, Interval, Reference
from carbon.genome.bed import Regions
from carbon.genome.records import Record
from carbon.inference.checks import check_reference, checked_dna, checked_names, checked_variants
from carbon.inference.dependency import DependencyMap, dependency_map, dependency_method_for
from carbon.inference.embed import Float32s, embed_sequences
from carbon.inference.file_methods import FileMethods
from carbon.inference.generate.continuous import generate_by
from carbon.inference.generate.generate import Step, stream
from carbon.inference.generate.infill import Filling, infill
from carbon.inference.generate.prompts import Task
from carbon.inference.generate.speculative import Draft
from carbon.inference.identity import settings_of
from carbon.inference.next_token import NextToken, next_token
from carbon.inference.options import (
    DEFAULT_SCORES,
    BackgroundOptions,
    Constraints,
    DependencyKeywords,
    DependencyOptions,
    Dtype,
    EmbedKeywords,
    EmbedOptions,
    Engine,
    SamplingKeywords,
    SamplingRule,
    ScanKeywords,
    ScanOptions,
    ScoreKeywords,
    ScoreName,
    ScoreOptions,
    VariantEmbedKeywords,
    VariantEmbedOptions,
    VariantKeywords,
    VariantOptions,
    check_calibration,
    check_choice,
    takes,
)
from carbon.inference.runner import ModelRunner
from carbon.inference.scan import (
    ScanChunk,
    ScanMethod,
    scan_method_for,
    scan_region,
)
from carbon.inference.score import SequenceScore, score_sequences
from carbon.inference.stock_check import check_runs_as_stock
from carbon.inference.variants import (
    AlleleComparison,
    Method,
    VariantScore,
    compare_block,
    method_for,
    score_variants,
)
from carbon.inference.variants.background import Background
from carbon.inference.variants.background_scores import make_background, make_calibration
from carbon.inference.variants.calibration import Calibration, calibrated_scores
from carbon.inference.variants.embeddings import AlleleVectors, embed_variants
from carbon.inference.variants.windows import room_bp
from carbon.model import LoadedModel, load_model
from carbon.progress import say
from carbon.tokenizer import Vocabulary


class _Closed:
    """The network of a closed model."""

    def __getattr__(self, name: str) -> Any:
        raise UserError("this model is closed; load it again with carbon.load")


class Model(FileMethods):
    """A loaded DNA language model that scores, embeds and generates; threads may share it.

    Its methods raise TypeError for an argument of a wrong type, such as a single string instead of
    a list. As a context manager, it is closed at the end. Torch's threads, default dtype and random
    numbers stay as the program has set them.

    Attributes:
        model: the network and its vocabulary.
        runner: runs the network in batches that fit into memory.
        context_bp: bases that fit into one forward pass next to the begin token.
        source: folder or name that the model was loaded from; empty if it was not loaded.
    """

    def __init__(self, model: LoadedModel, source: str = "") -> None:
        """Wrap a loaded model; most users call `carbon.load`."""
        self.model = model
        self.runner = ModelRunner(model)
        self.context_bp = room_bp(self.runner, ())
        self.source = source

    def close(self) -> None:
        """Free the memory of the network; a later use raises UserError."""
        closed: Any = _Closed()
        self.model = self.runner = closed

    def __enter__(self) -> "Model":
        """Return the model."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the model."""
        self.close()

    @property
    def dtype(self) -> str:
        """Name of the weights' dtype, such as `float32`."""
        return self.runner.dtype

    @property
    def yarn(self) -> float | None:
        """Factor by which YaRN stretches the context; None without YaRN."""
        return self.runner.yarn

    @takes(ScoreOptions)
    def score(
        self,
        sequences: Iterable[str],
        **options: Unpack[ScoreKeywords],
    ) -> Iterator[SequenceScore]:
        """Yield the log-likelihood of each sequence and of each of its bases.

        Args:
            sequences: DNA of any length and case; bases that are not ACGT are not scored.
            **options: fields of `ScoreOptions`:

        Raises:
            UserError: a choice or tag is invalid, or a letter of a sequence is not DNA.
        """
        return score_sequences(self.runner, checked_dna(sequences), ScoreOptions(**options))

    @takes(VariantOptions)
    def score_variants(
        self,
        reference: Reference,
        variants: Iterable[Record],
        *,
        scores: Iterable[ScoreName] = DEFAULT_SCORES,
        calibration: Calibration | None = None,
        **options: Unpack[VariantKeywords],
    ) -> Iterator[VariantScore]:
        """Yield log-likelihood(ALT) - log-likelihood(REF) for each variant, in order.

        A negative delta means that the model finds ALT less likely than REF. Variants are trimmed
        and left-aligned first, so that the score does not depend on their notation.

        Args:
            reference: the reference sequence.
            variants: SNVs, MNVs, insertions and deletions; others get a reason instead of a delta,
                as do variants with N in the reference at REF (`reference_unknown`). Records of
                `carbon.read_vcf`, pysam or cyvcf2 give a score for each ALT.
            scores: names of `carbon.inference.options.VARIANT_SCORES`, from the same forward
                passes; the delta is always returned.
            calibration: from `calibration` with the same options, for the score
                `calibrated_delta`.
            **options: fields of `VariantOptions`:

        Raises:
            UserError: a choice, window, offset, tag or score is invalid, or the calibration has
                another model or other options.
            GenomeError: a REF differs from the reference.
        """
        method = method_for(self.runner, VariantOptions(**options), scores)
        check_calibration(method.scores, calibration)
        check_reference(reference)
        scored = score_variants(self.runner, reference, checked_variants(variants), method)
        if calibration is None:
            return scored
        calibration.check(settings_of(self.runner, method), "calibration")
        return calibrated_scores(calibration, reference, scored)

    @takes(VariantOptions)
    def background(
        self,
        reference: Reference,
        annotation: Annotation | None = None,
        *,
        variants_per_kind: int = 200,
        seed: int = 0,
        contigs: Sequence[str] = (),
        **options: Unpack[VariantKeywords],
    ) -> Background:
        """Score random variants of every kind, for `Background.percentile` of other variants.

        Args:
            reference: reference to draw variants from, uniformly over known bases.
            annotation: annotation of the reference; with it, the kind of a variant is its
                consequence; without it, the change and neighbouring bases of an SNV and the length
                of an indel.
            variants_per_kind: number of variants of every narrowest kind.
            seed: seed of the random numbers.
            contigs: contigs to draw from; all by default.
            **options: fields of `VariantOptions`:

        Raises:
            UserError: an option is invalid, or the variants cannot be drawn.
        """
        method = self.variant_method(**options)
        check_reference(reference)
        drawing = BackgroundOptions(
            draw_from=checked_names("contigs", contigs),
            variants_per_kind=variants_per_kind,
            seed=seed,
        )
        return make_background(self.runner, reference, method, drawing, annotation)

    @takes(VariantOptions)
    def calibration(
        self,
        reference: Reference,
        neutral: Iterable[Interval],
        *,
        neighbour_bp: int = 5,
        sites_per_context: int = 100,
        seed: int = 0,
        contigs: Sequence[str] = (),
        **options: Unpack[VariantKeywords],
    ) -> Calibration:
        """Score neutral sites, for the score `calibrated_delta` of other variants.

        Args:
            reference: reference to draw sites from.
            neutral: intervals without function, such as `carbon.genome.intergenic` returns.
            neighbour_bp: bases of a context, the site in the middle: 3, 5 or 7.
            sites_per_context: maximum number of sites with the same bases around them.
            seed: seed of the random numbers.
            contigs: contigs to draw from; all by default.
            **options: fields of `VariantOptions`:

        Raises:
            UserError: an option is invalid, or the sites cannot be drawn.
        """
        method = method_for(self.runner, VariantOptions(**options), ["calibrated_delta"])
        check_reference(reference)
        drawing = BackgroundOptions(
            draw_from=checked_names("contigs", contigs),
            neighbour_bp=neighbour_bp,
            sites_per_context=sites_per_context,
            seed=seed,
        )
        lengths_bp, intervals = reference.contig_lengths_bp, list(neutral)
        if missing := {each.contig for each in intervals} - set(lengths_bp):
            raise UserError(f"neutral: {reference.explain_missing(sorted(missing))}")
        regions = Regions(intervals, lengths_bp)
        return make_calibration(self.runner, reference, method, regions.intervals, drawing)

    def compare_alleles(
        self, reference: Reference, variant: Record, method: Method
    ) -> tuple[VariantScore, dict[str, AlleleComparison]]:
        """Return a variant's score and, by strand (`+`, `-`), the log-likelihoods that it sums up.

        The log-likelihoods cover every base from the variant on, and so show the effect of an
        allele on the bases after it. There are none if the score has a reason and no delta.

        Args:
            reference: the reference sequence.
            variant: a `Variant`, or a record of one ALT as for `score_variants`.
            method: from `variant_method`.

        Raises:
            GenomeError: REF differs from the reference.
            UserError: the record has several ALT, or none.
        """
        check_reference(reference)
        variants = list(checked_variants([variant]))
        if len(variants) != 1:
            raise UserError(
                f"variant: a record with {len(variants)} ALT; give one `carbon.Variant`, or a "
                "record of one ALT"
            )
        return next(compare_block(self.runner, reference, variants, method))

    @takes(VariantOptions)
    def variant_method(self, **options: Unpack[VariantKeywords]) -> Method:
        """Return the checked scoring method of variants, with the window filled in.

        Args:
            **options: fields of `VariantOptions`:

        Raises:
            UserError: a choice, window, offset or tag is invalid.
        """
        return method_for(self.runner, VariantOptions(**options))

    @takes(ScanOptions)
    def scan(
        self, reference: Reference, interval: Interval, **options: Unpack[ScanKeywords]
    ) -> Iterator[ScanChunk]:
        """Yield the log-probabilities of A, C, G and T for every base, in chunks.

        They are log p(base | all bases to its left), or for both sides the log softmax of the
        log-likelihoods of each base with the bases downstream of it. Chunks are consecutive;
        `join_chunks` joins them. The position of windows depends on the contig only, so that
        overlapping intervals agree.

        Args:
            reference: the reference sequence; unknown bases are summed over, as in `score`.
            interval: of any length; memory does not grow with it.
            **options: fields of `ScanOptions`:

        Raises:
            UserError: a choice, window, context, offset or tag is invalid.
            GenomeError: the reference lacks the contig, or the interval extends past its end.
        """
        method = self.scan_method(**options)
        check_reference(reference)
        return scan_region(self.runner, reference, interval, method)

    @takes(ScanOptions)
    def scan_method(self, **options: Unpack[ScanKeywords]) -> ScanMethod:
        """Return the checked scanning method of regions, filled in and rounded.

        Args:
            **options: fields of `ScanOptions`:

        Raises:
            UserError: a choice, window, context, offset or tag is invalid.
        """
        return scan_method_for(self.runner, ScanOptions(**options))

    @takes(DependencyOptions)
    def dependency(
        self,
        reference: Reference,
        interval: Interval,
        *,
        advance: Callable[[int], None] = lambda num_tokens: None,
        **options: Unpack[DependencyKeywords],
    ) -> DependencyMap:
        """Return the dependency map of a region: how a substitution changes the odds of each base.

        Time and memory grow with the square of the region's length.

        Args:
            reference: the reference sequence; the bases on both sides of the region are context.
            interval: the region.
            advance: called with the number of new tokens; `DependencyMap.tokens_read` are all.
            **options: fields of `DependencyOptions`:

        Raises:
            UserError: an option is invalid, or the region is empty or longer than window or memory
                allow.
            GenomeError: the reference lacks the contig, or the interval extends past its end.
        """
        method = dependency_method_for(self.runner, DependencyOptions(**options))
        check_reference(reference)
        return dependency_map(self.runner, reference, interval, method, advance)

    @takes(SamplingRule)
    def generate(
        self,
        prompts: Iterable[str],
        length_bp: int,
        *,
        seed: int = 0,
        tags: Sequence[str] = (),
        constraints: Constraints | None = None,
        draft: Draft | None = None,
        engine: Engine = "own",
        advance: Callable[[int], None] = lambda num_bases: None,
        **sampling: Unpack[SamplingKeywords],
    ) -> list[str]:
        """Continue each prompt by `length_bp` bases and return the continuations, in order.

        A prompt may have any length, even 0: its last one to five bases condition the first
        generated 6-mer, without padding or cutting. The continuation of a prompt does not depend on
        the other prompts; a prompt that occurs n times gets n samples.

        Args:
            prompts: DNA.
            length_bp: bases to add.
            seed: seed of the random numbers.
            tags: metadata tags to condition on.
            constraints: constraints on the generated bases.
            draft: a small model for speculative decoding, which counts accepted proposals.
            engine: `own`, or transformers' `continuous` batching, for many prompts of different
                lengths in mode `token`; sampled text then depends on the other prompts.
            advance: called with the number of new bases.
            **sampling: fields of `SamplingRule`:

        Raises:
            UserError: an argument is invalid, or the constraints cannot be satisfied.
        """
        checked = checked_names("prompts", prompts)
        task = Task(
            length_bp, SamplingRule(**sampling), seed, checked_names("tags", tags), constraints
        )
        return generate_by(engine, self.runner, checked, task, draft, advance)

    @takes(SamplingRule)
    def stream(
        self,
        prompt: str,
        length_bp: int,
        *,
        seed: int = 0,
        tags: Sequence[str] = (),
        constraints: Constraints | None = None,
        draft: Draft | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> Iterator[Step]:
        """Yield the continuation of one prompt as it is drawn, with the model's probabilities.

        Takes the arguments of `generate`, and yields the same bases.

        Raises:
            UserError: an argument is invalid, or the constraints cannot be satisfied.
        """
        task = Task(
            length_bp, SamplingRule(**sampling), seed, checked_names("tags", tags), constraints
        )
        return stream(self.runner, prompt, task, draft)

    @takes(SamplingRule)
    def infill(
        self,
        left: str,
        right: str,
        length_bp: int,
        *,
        candidates: int = 16,
        seed: int = 0,
        tags: Sequence[str] = (),
        constraints: Constraints | None = None,
        draft: Draft | None = None,
        advance: Callable[[int], None] = lambda num_bases: None,
        **sampling: Unpack[SamplingKeywords],
    ) -> list[Filling]:
        """Fill a gap of `length_bp` bases; return candidates ranked by likelihood, the best first.

        Candidates are drawn after `left`; the score is log p(candidate, right | left) by the chain,
        at temperature 1. Left context that exceeds the model's context is cut at its start.

        Args:
            left: DNA before the gap, of any length.
            right: DNA after the gap; all of it is scored.
            length_bp: bases of the gap.
            candidates: number of candidates to draw; equal ones are returned once.
            seed: seed of the random numbers.
            tags: metadata tags to condition on.
            constraints: constraints on the bases of the gap; forbidden motifs may not extend into
                either side.
            draft: a small model for speculative decoding.
            advance: called with the number of new bases.
            **sampling: fields of `SamplingRule`:

        Raises:
            UserError: an argument is invalid, the constraints cannot be satisfied, or gap and right
                context exceed the model's context.
        """
        rule = SamplingRule(**sampling)
        task = Task(length_bp, rule, seed, checked_names("tags", tags), constraints, right)
        return infill(self.runner, left, task, candidates, draft, advance)

    def next_token(self, context: str, *, tags: Sequence[str] = ()) -> NextToken:
        """Return the distribution of the 6-mer that follows a context.

        `NextToken.given` conditions it on fixed bases of the 6-mer.

        Args:
            context: DNA of any length. The 6-mer grid is counted from its end, so that its first
                one to five bases are left out unless its length is a multiple of six. Only its end
                is used if it exceeds the model's context.
            tags: metadata tags to condition on.

        Raises:
            UserError: the context is not DNA, or a tag is unknown.
        """
        return next_token(self.runner, context, checked_names("tags", tags))

    @takes(EmbedOptions)
    def embed(
        self, sequences: Iterable[str], **options: Unpack[EmbedKeywords]
    ) -> Iterator[Float32s]:
        """Yield one vector a sequence, in order: (width,) float32, NaN without known bases.

        Args:
            sequences: DNA of any length and case; memory does not grow with their number.
            **options: fields of `EmbedOptions`:

        Raises:
            UserError: the pool, layer or a tag is invalid, or a letter of a sequence is not DNA.
        """
        return embed_sequences(self.runner, checked_dna(sequences), EmbedOptions(**options))

    @takes(VariantEmbedOptions)
    def embed_variants(
        self,
        reference: Reference,
        variants: Iterable[Record],
        **options: Unpack[VariantEmbedKeywords],
    ) -> Iterator[AlleleVectors]:
        """Yield the vectors of the window with REF and with ALT of each variant, in order.

        Args:
            reference: the reference sequence.
            variants: as for `score_variants`; those without a window get a reason.
            **options: fields of `VariantEmbedOptions`:

        Raises:
            UserError: a choice, window, layer or tag is invalid.
            GenomeError: a REF differs from the reference.
        """
        check_reference(reference)
        checked = checked_variants(variants)
        return embed_variants(self.runner, reference, checked, VariantEmbedOptions(**options))


DTYPES: dict[Dtype, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(
    source: str | Path,
    *,
    device: str = "auto",
    dtype: Dtype | Literal["auto"] = "auto",
    attention: str = "auto",
    yarn: float | None = None,
) -> Model:
    """Load a model folder, a bundled model or a model on the Hub, to score and generate.

    A local folder takes precedence over a bundled model of that name. Besides Carbon's own models,
    any causal model of transformers is read whose tokens are k-mers of A, C, G and T that do not
    overlap, k from 1 to 8. Such a model scores and embeds; it does not generate.

    Args:
        source: the `export/` folder of a run, a stock folder, a name such as `yeast`, or
            `owner/name` on the Hub; `carbon models` lists the bundled models.
        device: `cpu`, `cuda`, `mps` (untested), or `auto` for a CUDA GPU if there is one.
        dtype: dtype of weights and activations, `auto` for bfloat16 on a CUDA GPU and float32
            elsewhere; log-probabilities are always float32.
        attention: `sdpa`, `flash_attention_2`, or `auto`: the latter if it is installed, the device
            is a CUDA GPU and the dtype bfloat16.
        yarn: stretch the context by this factor with YaRN (Peng et al. 2023, arXiv 2309.00071); the
            released models are stretched by 4.

    Raises:
        ModelError: the folder is missing, incomplete, or neither a Carbon model nor one of k-mers.
        UserError: the device, dtype or attention is not available.
    """
    if device == "auto":
        device = default_device()
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    check_choice("dtype", dtype, DTYPES)
    if attention == "auto":
        has_flash = is_flash_attn_2_available() and dtype == "bfloat16" and device != "cpu"
        attention = "flash_attention_2" if has_flash else "sdpa"
    model = load_model(source, DTYPES[dtype], attention=attention, yarn=yarn)
    try:
        model.network.to(device)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device '{device}' cannot be used: {str(error).splitlines()[0]}") from None
    loaded = Model(model, str(source))
    if not isinstance(model.vocabulary, Vocabulary):
        check_runs_as_stock(loaded.runner, str(source))
        if model.vocabulary.other is None:
            say(f"{source}: its tokenizer has no token for unknown bases, which are read as A")
    return loaded

"""A loaded model and everything it can do: what `carbon.load` returns."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Unpack

import torch
from transformers.utils.import_utils import is_flash_attn_2_available

from carbon.devices import default_device
from carbon.errors import UserError
from carbon.genome import Annotation, Interval, Reference, Variant
from carbon.inference.checks import check_reference, checked_dna, checked_names, checked_variants
from carbon.inference.embed import Float32s, embed_sequences
from carbon.inference.generate.constraints import Constraints
from carbon.inference.generate.continuous import generate_by
from carbon.inference.generate.generate import Step, stream
from carbon.inference.generate.infill import Filling, infill
from carbon.inference.generate.prompts import Task
from carbon.inference.generate.sampling import SamplingRule
from carbon.inference.generate.speculative import Draft
from carbon.inference.next_token import NextToken, next_token
from carbon.inference.options import (
    By,
    Dtype,
    Engine,
    Pool,
    SamplingOptions,
    ScanOptions,
    Strands,
    VariantOptions,
    check_choice,
)
from carbon.inference.runner import ModelRunner
from carbon.inference.scan import (
    ScanChunk,
    ScanMethod,
    scan_method_for,
    scan_region,
)
from carbon.inference.score import SequenceScore, score_sequences
from carbon.inference.variants import (
    AlleleComparison,
    Method,
    VariantScore,
    compare_block,
    method_for,
    score_variants,
)
from carbon.inference.variants.background import Background, Drawing
from carbon.inference.variants.background_job import make_background
from carbon.model import LoadedModel, load_model
from carbon.tokenizer import K


class Model:
    """A DNA language model ready to score and to generate; several threads may share it.

    Its methods raise TypeError for a wrong type, such as a single string instead of a list.

    Attributes:
        model: the network and its vocabulary.
        runner: runs the network in batches that fit into memory.
        context_bp: bases that fit into one pass beside `<dna>`.
    """

    def __init__(self, model: LoadedModel) -> None:
        """Wrap a loaded model; most users call `carbon.load`."""
        self.model = model
        self.runner = ModelRunner(model)
        self.context_bp = (self.runner.context_tokens - 1) * K

    @property
    def dtype(self) -> str:
        """That of the weights, by name, such as `float32`."""
        return self.runner.dtype

    @property
    def yarn(self) -> float | None:
        """By how much YaRN stretches the context; None where it does not."""
        return self.runner.yarn

    def score(
        self,
        sequences: Iterable[str],
        *,
        by: By = "chain",
        strands: Strands = "forward",
        tags: Sequence[str] = (),
    ) -> Iterator[SequenceScore]:
        """Yield the log-likelihood of each sequence, and of every base of it.

        Args:
            sequences: DNA of any length and case; a base that is not ACGT is not counted. What is
                longer than the context is read in windows that overlap by half.
            by: `chain` gives log p(base | all before it), whose sum is the likelihood of the
                sequence; `marginals` gives the base's marginal inside its token.
            strands: read the sequence, its reverse complement, or the mean of both.
            tags: metadata tags to condition on, such as `<fungi_species>`.

        Raises:
            UserError: a choice or tag is not possible, or a letter of a sequence is not DNA.
        """
        self.model.vocabulary.prefix(found := checked_names("tags", tags))
        return score_sequences(self.runner, checked_dna(sequences), by, strands, found)

    def score_variants(
        self,
        reference: Reference,
        variants: Iterable[Variant],
        **options: Unpack[VariantOptions],
    ) -> Iterator[VariantScore]:
        """Yield log-likelihood(ALT) - log-likelihood(REF) for each variant, in order.

        Negative means that the model finds the variant less likely than the reference. A variant is
        trimmed and left-aligned first, so that its score does not depend on how it is written.

        Args:
            reference: the sequence that the variants are of.
            variants: SNVs, MNVs, insertions and deletions; others get no delta but a reason, and so
                does one of which the reference has N for a base of REF (`reference_unknown`).
            **options: keywords, none of which must be given:
                protocol: `centered` (default) compares windows with the variant in the middle, of
                    the same length for both alleles; `right_end` the alleles, up to at least the
                    first base that differs, behind a window that ends where they begin.
                window_bp: bases; 8,192 for `centered`, 24,000 for `right_end`, or what the model's
                    context holds, if None (default).
                by: likelihoods by the `chain` (default), that of the sequence, or `marginals`.
                strands: `forward`, `reverse` or the mean of `both` (default), which shows how far
                    they disagree; one that cannot tell the alleles apart is left out.
                offsets: bases to leave out at the window's start for REF, which shifts the 6-mers,
                    each 0 to 5; the mean over them is given. (0,) by default. `centered` leaves
                    out as many more for an ALT as it is longer, so that the 6-mers behind an indel
                    are the same for both.
                tags: metadata tags to condition on, such as `<fungi_species>`; none by default.

        Raises:
            UserError: a choice, window or offset is not possible, or there is no such tag.
            GenomeError: a REF does not stand in the reference where it should.
        """
        method = self.variant_method(**options)
        check_reference(reference)
        return score_variants(self.runner, reference, checked_variants(variants), method)

    def background(
        self,
        reference: Reference,
        annotation: Annotation | None = None,
        *,
        variants_per_kind: int = 200,
        seed: int = 0,
        contigs: Sequence[str] = (),
        **options: Unpack[VariantOptions],
    ) -> Background:
        """Score random variants of every kind, for `Background.percentile` of others.

        Args:
            reference: where variants are drawn, uniformly over known bases.
            annotation: of the reference: kinds are told by what a variant does to a gene; without,
                SNVs by their change and the base on either side, indels by their length.
            variants_per_kind: how many to draw of every narrowest kind.
            seed: of the random numbers.
            contigs: where to draw; everywhere if none is named.
            **options: how they are scored, as for `score_variants`.

        Raises:
            UserError: an option is not possible, or the variants cannot be drawn.
        """
        method = self.variant_method(**options)
        check_reference(reference)
        drawing = Drawing(variants_per_kind, seed, checked_names("contigs", contigs))
        return make_background(self.runner, reference, method, drawing, annotation)

    def compare_alleles(
        self, reference: Reference, variant: Variant, method: Method
    ) -> tuple[VariantScore, dict[str, AlleleComparison]]:
        """Return a variant's score and, by strand (`+`, `-`), the log-likelihoods that it sums up.

        They are those of every base from the variant on, so that it can be seen what an allele does
        to the bases behind it. Where the score has a reason and no delta there are none.

        Args:
            reference: the sequence that the variant is of.
            variant: as for `score_variants`.
            method: of `variant_method`.

        Raises:
            GenomeError: REF does not stand in the reference where it should.
        """
        check_reference(reference)
        return next(compare_block(self.runner, reference, [*checked_variants([variant])], method))

    def variant_method(self, **options: Unpack[VariantOptions]) -> Method:
        """Return how variants are scored, the window filled in and everything checked.

        Args:
            **options: the keywords of `score_variants`: `protocol`, `window_bp`, `by`, `strands`,
                `offsets` and `tags`.

        Raises:
            UserError: a choice, window or offset is not possible, or the vocabulary has no such
                tag.
        """
        return method_for(self.runner, **options)

    def scan(
        self, reference: Reference, interval: Interval, **options: Unpack[ScanOptions]
    ) -> Iterator[ScanChunk]:
        """Yield log p(base | all bases to its left) of A, C, G and T for every base, in chunks.

        The chunks follow one another; `join_chunks` makes one of them. Windows lie where they lie
        on the contig, so that overlapping intervals agree.

        Args:
            reference: the sequence; unknown bases are summed over, as in `score`.
            interval: of any length; memory does not grow with it.
            **options: keywords, none of which must be given:
                offsets: where 6-mers begin, modulo 6, from the start of the strand that is read; if
                    None (default) offset 0, and all six for `token_start`.
                combine: `mean` of the offsets (default), or `token_start`: every base in the offset
                    where it begins a 6-mer, which is the protocol `right_end`.
                window_bp: most bases that are read at once; 48,000, or what the model's context
                    holds, if None (default). Rounded down to whole 6-mers.
                least_context_bp: bases before any that is scored, but at the contig's start; half
                    of the window if None (default). Rounded up to whole 6-mers.
                strands: `forward` by default; on the `reverse` strand a base is predicted from all
                    bases to its right; `both` is the mean.
                tags: metadata tags to condition on; none by default.

        Raises:
            UserError: a choice, window, context or offset is not possible, or there is no such tag.
            GenomeError: the contig is not in the reference, or the interval ends past it.
        """
        method = self.scan_method(**options)
        check_reference(reference)
        return scan_region(self.runner, reference, interval, method)

    def scan_method(self, **options: Unpack[ScanOptions]) -> ScanMethod:
        """Return how a region is scanned, everything filled in, rounded and checked.

        Args:
            **options: the keywords of `scan`: `offsets`, `combine`, `window_bp`,
            `least_context_bp`,
                `strands` and `tags`.

        Raises:
            UserError: a choice, window, context or offset is not possible, or there is no such tag.
        """
        return scan_method_for(self.runner, **options)

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
        **sampling: Unpack[SamplingOptions],
    ) -> list[str]:
        """Continue each prompt by `length_bp` bases and return the continuations, in order.

        A prompt may have any length, or none: its last one to five bases condition the first
        generated 6-mer, so that nothing is padded or cut. What follows a prompt does not depend on
        the others; a prompt that is given n times gets n samples.

        Args:
            prompts: DNA.
            length_bp: bases to add.
            seed: of the random numbers.
            tags: metadata tags to condition on.
            constraints: what the generated bases must keep to.
            draft: a small model for speculative decoding; it counts what was accepted.
            engine: `own`, or transformers' `continuous` batching, for many prompts of different
                lengths, in mode `token` alone; sampled text then depends on the other prompts.
            advance: is told of new bases as they come.
            **sampling: the fields of `SamplingRule`, none of which must be given: `mode`,
                `temperature`, `top_k`, `top_p`, `min_p`, `repetition_penalty` and
                `repetition_window_bp`.

        Raises:
            UserError: an argument makes no sense, or the constraints cannot be kept.
        """
        checked = checked_names("prompts", prompts)
        task = Task(
            length_bp, SamplingRule(**sampling), seed, checked_names("tags", tags), constraints
        )
        return generate_by(engine, self.runner, checked, task, draft, advance)

    def stream(
        self,
        prompt: str,
        length_bp: int,
        *,
        seed: int = 0,
        tags: Sequence[str] = (),
        constraints: Constraints | None = None,
        draft: Draft | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[Step]:
        """Yield the continuation of one prompt as it is drawn, with the model's probabilities.

        The bases and the arguments are those of `generate`.

        Raises:
            UserError: an argument makes no sense, or the constraints cannot be kept.
        """
        task = Task(
            length_bp, SamplingRule(**sampling), seed, checked_names("tags", tags), constraints
        )
        return stream(self.runner, prompt, task, draft)

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
        **sampling: Unpack[SamplingOptions],
    ) -> list[Filling]:
        """Fill a gap of `length_bp` bases: return candidates ranked by likelihood, the best first.

        Candidates are drawn behind `left`; the score is log p(candidate, right | left) by the
        chain, at temperature 1. Left context that does not fit beside the rest is left out.

        Args:
            left: DNA before the gap, of any length.
            right: DNA behind it, of which all is scored.
            length_bp: bases of the gap.
            candidates: how many to draw; equal ones are given once.
            seed: of the random numbers.
            tags: metadata tags to condition on.
            constraints: what the bases of the gap must keep to; forbidden motifs may not reach into
                either side.
            draft: a small model for speculative decoding.
            advance: is told of new bases as they come.
            **sampling: as for `generate`.

        Raises:
            UserError: an argument makes no sense, the constraints cannot be kept, or gap and right
                context do not fit into the model's.
        """
        rule = SamplingRule(**sampling)
        task = Task(length_bp, rule, seed, checked_names("tags", tags), constraints, right)
        return infill(self.runner, left, task, candidates, draft, advance)

    def next_token(self, context: str, *, tags: Sequence[str] = ()) -> NextToken:
        """Return the distribution of the 6-mer that begins right behind a context.

        Its `given` fixes bases of the 6-mer and tells how the others adapt.

        Args:
            context: DNA of any length; 6-mers are counted from its end, so that its first one to
                five bases are left out where its length is no multiple of six. Of a context that
                is longer than the model's the end is read.
            tags: metadata tags to condition on.

        Raises:
            UserError: the context is no DNA, or there is no such tag.
        """
        return next_token(self.runner, context, checked_names("tags", tags))

    def embed(
        self,
        sequences: Iterable[str],
        *,
        pool: Pool = "mean",
        layer: int | None = None,
        tags: Sequence[str] = (),
    ) -> Iterator[Float32s]:
        """Yield one vector a sequence, in order: (width,) float32, NaN where there is no base.

        Args:
            sequences: DNA of any length and case; memory does not grow with their number.
            pool: `mean` of the tokens' states, each as often as it has known bases, read in
                windows that overlap by half where the sequence is longer than the context; `last`,
                the state of the last 6-mer; `end`, that of a `</dna>` put behind it. The latter two
                read as many 6-mers before the end as fit.
            layer: take the states behind this many layers, 0 for the embeddings; those behind all
                layers and the last norm, which the head reads, if None.
            tags: metadata tags to condition on.

        Raises:
            UserError: there is no such pool, layer or tag, or a letter of a sequence is not DNA.
        """
        return embed_sequences(
            self.runner, checked_dna(sequences), pool, layer, checked_names("tags", tags)
        )


DTYPES: dict[Dtype, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(
    source: str | Path,
    *,
    device: str = "auto",
    dtype: Dtype | Literal["auto"] = "auto",
    attention: str = "auto",
    yarn: float | None = None,
) -> Model:
    """Load a model folder, a model of the box, or the Hub's of that name, to score and generate.

    A local folder comes before a model in the box of that name.

    Args:
        source: the `export/` folder of a run, any stock folder with one of the vocabularies, or a
            name such as `yeast`: `carbon models` lists what is in the box.
        device: `cpu`, `cuda`, `mps` (not tried), or `auto` for a CUDA GPU where there is one.
        dtype: of weights and activations, `auto` for bfloat16 on a CUDA GPU and float32 elsewhere;
            log-probabilities are always float32.
        attention: `sdpa`, `flash_attention_2`, or `auto`: the latter where it is installed, the
            device is a CUDA GPU and the dtype one it knows.
        yarn: stretch the context by this factor with YaRN (Peng et al. 2023, arXiv 2309.00071); the
            released models are stretched by 4.

    Raises:
        ModelError: the folder is absent, incomplete or of another kind.
        UserError: the device, dtype or attention is not there.
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
    return Model(model)

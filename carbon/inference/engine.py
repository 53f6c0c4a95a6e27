"""A loaded model and everything it can do: what `carbon.load` returns."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch

from carbon.errors import UserError
from carbon.genome import Reference, Variant
from carbon.inference.generation import SamplingRule, generate
from carbon.inference.scoring import SequenceScore, score_sequences
from carbon.inference.variants import Strands, VariantScore, score_variants
from carbon.model import LoadedModel, load_model
from carbon.tokenizer import K

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Carbon:
    """A DNA language model ready to score and to generate.

    Attributes:
        model: the network and its vocabulary.
        context_bp: bases that fit into one pass beside `<dna>`.
    """

    def __init__(self, model: LoadedModel) -> None:
        """Wrap a loaded model; most users call `carbon.load`."""
        self.model = model
        self.context_bp = (model.network.config.max_position_embeddings - 1) * K

    def score(
        self, sequences: Iterable[str], *, tags: Sequence[str] = ()
    ) -> Iterator[SequenceScore]:
        """Yield the log-likelihood of each sequence, base by base through the chain.

        Args:
            sequences: DNA of any length and case; a base that is not ACGT is not counted. What is
                longer than the context is read in windows that overlap by half.
            tags: metadata tags to condition on, such as `<fungi_species>`.

        Raises:
            UserError: the vocabulary has no such tag.
        """
        self.model.vocabulary.prefix(tuple(tags))
        return score_sequences(self.model, sequences, tuple(tags))

    def score_variants(
        self,
        reference: Reference,
        variants: Iterable[Variant],
        *,
        window_bp: int | None = None,
        strands: Strands = "forward",
        tags: Sequence[str] = (),
    ) -> Iterator[VariantScore]:
        """Yield log-likelihood(ALT) - log-likelihood(REF) for each variant, in order.

        Negative means that the model finds the variant less likely than the reference. The protocol
        is `centered`: windows of `window_bp` with the variant in the middle, of the same length for
        both alleles.

        Args:
            reference: the sequence that the variants are of.
            variants: SNVs, MNVs, insertions and deletions; others get no delta but a reason.
            window_bp: 8,192 or what the model's context holds, if not given.
            strands: read the forward strand, the reverse strand, or the mean of both.
            tags: metadata tags to condition on.

        Raises:
            UserError: the window does not fit into the model's context.
            GenomeError: a REF does not stand in the reference where it should.
        """
        window_bp = self.window_bp(window_bp, tags)
        return score_variants(self.model, reference, variants, window_bp, strands, tuple(tags))

    def window_bp(self, wanted_bp: int | None, tags: Sequence[str] = ()) -> int:
        """Return the window that variants are scored in: the one wanted, or the default.

        Raises:
            UserError: it does not fit into the context, or the vocabulary has no such tag.
        """
        self.model.vocabulary.prefix(tuple(tags))
        most_bp = self.context_bp - len(tags) * K
        if wanted_bp is None:
            return min(8192, most_bp)
        if not 2 * K <= wanted_bp <= most_bp:
            raise UserError(
                f"a window of {wanted_bp} bp does not fit: give {2 * K} to {most_bp} bp for this "
                "model"
            )
        return wanted_bp

    def generate(
        self,
        prompts: Sequence[str],
        length_bp: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        mode: Literal["token", "base"] = "token",
        tags: Sequence[str] = (),
    ) -> list[str]:
        """Continue each prompt by `length_bp` bases and return the continuations.

        A prompt may have any length, or none: its last one to five bases condition the first
        generated 6-mer, so that nothing is padded or cut.

        Args:
            prompts: DNA; the n-th is sampled with its own stream `(seed, n)`, whatever the batch.
            length_bp: bases to add.
            temperature: 0 takes the most likely, 1 samples from the model.
            top_k: sample among the `k` most likely only.
            top_p: sample among the fewest that together hold probability `p`.
            seed: of the random numbers.
            mode: `token` draws whole 6-mers; `base` draws each of six bases from its marginal.
            tags: metadata tags to condition on.
        """
        rule = SamplingRule(temperature, top_k, top_p, mode)
        return generate(self.model, prompts, length_bp, rule, seed, tuple(tags))


def load(
    source: str | Path,
    *,
    device: str = "auto",
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> Carbon:
    """Load a model folder (or the Hub's model of that name) for scoring and generation.

    Args:
        source: the `export/` folder of a run, or any stock folder with one of the vocabularies.
        device: `cpu`, `cuda`, or `auto` for a GPU where there is one.
        dtype: of weights and activations; log-probabilities are always float32.

    Raises:
        ModelError: the folder is absent, incomplete or of another kind.
        UserError: the device is not there.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(source, DTYPES[dtype])
    try:
        model.network.to(device)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device '{device}' cannot be used: {str(error).splitlines()[0]}") from None
    return Carbon(model)

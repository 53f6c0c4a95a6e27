"""The endpoints: the model's computation for a request, and the reply."""

import base64
import math
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.errors import UserError
from carbon.genome import Reference, Variant
from carbon.genome.normalize import other_form
from carbon.inference import Model, SequenceScore, VariantScore
from carbon.inference.generate.generate import generate
from carbon.inference.generate.prompts import Task, samples_of
from carbon.inference.options import STRANDS_READ, VARIANT_SCORES, SamplingRule
from carbon.inference.passages import Passage, continuation_of, padded_length, prefix_of
from carbon.inference.runner import ModelRunner
from carbon.inference.score import window_room_bp
from carbon.inference.variants.calibration import Calibration
from carbon.inference.variants.windows import room_bp
from carbon.losses import chain
from carbon.serve.schemas import Completion, Embedding, ModelRequest, Scoring, VariantScoring
from carbon.serve.worker import ModelJob
from carbon.tokenizer import ALL_KNOWN, K, Kmers, decode_kmers

Float32s = NDArray[np.float32]

_DRAWN_COST = 16  # a drawn 6-mer takes about as long as this many tokens of a given sequence


def token_scores(
    runner: ModelRunner, texts: Sequence[str], tags: tuple[str, ...], num_top: int
) -> list[Float32s]:
    """Return the log-probabilities of the bases of each text, and the most likely 6-mers.

    Returns:
        For each text (tokens, 6 + 2 * num_top) float32: log p of each base given all bases before
        it, in nats, 0 if unknown; the highest log-probabilities of a 6-mer; the indices of these
        6-mers.

    Raises:
        UserError: a text does not fit into the model's context.
    """

    def measure(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
        top = torch.log_softmax(logits, dim=-1).topk(num_top, dim=-1)
        return torch.cat([chain(logits, kmers, known), top.values, top.indices.float()], dim=1)

    prefix = prefix_of("", runner.six_mers, tags)
    passages = [Passage(prefix, (continuation_of(text, runner.six_mers),)) for text in texts]
    return [values for (values,) in runner.measure(passages, measure)]


def as_openai(text: str, first: int, values: Float32s, num_top: int) -> dict[str, Any]:
    """Return the tokens of a text from base `first` on, as OpenAI's `logprobs` object.

    If `first` is inside a token, that token has only its bases from `first` on, conditioned on the
    others. Tokens with fewer than six bases have no alternatives.
    """
    tokens, own, alternatives, offsets = [], [], [], []
    for number in range(first // K, len(values)):
        start, stop = max(first, number * K), min(len(text), (number + 1) * K)
        bases = values[number, start - number * K : stop - number * K]
        tokens.append(text[start:stop])
        own.append(float(bases.sum(dtype=np.float64)))
        offsets.append(start)
        is_whole = stop - start == K
        alternatives.append(_top(values[number, K:], num_top) if is_whole else None)
    return {
        "tokens": tokens,
        "token_logprobs": own,
        "top_logprobs": alternatives if num_top else None,
        "text_offset": offsets,
    }


def check_room(runner: ModelRunner, texts_bp: Sequence[int], tags: tuple[str, ...]) -> None:
    """Raise UserError if a text of this length exceeds the context."""
    room_bp = (runner.context_tokens - len(runner.six_mers.prefix(tags)) + 1) * K
    for length_bp in texts_bp:
        if length_bp > room_bp:
            raise UserError(
                f"logprobs of {length_bp} bases, with the prompt: the model reads at most {room_bp}"
            )


def _top(values: Float32s, num_top: int) -> dict[str, float]:
    indices = values[num_top:].astype(np.int64)
    text = decode_kmers(Kmers(indices, np.full(num_top, ALL_KNOWN, dtype=np.uint8)))
    names = [text[at : at + K] for at in range(0, len(text), K)]
    return dict(zip(names, map(float, values[:num_top]), strict=True))


Q = TypeVar("Q", bound=ModelRequest)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Q]):
    """A path of the server with its computation.

    Attributes:
        path: of the URL.
        request: type of the request.
        model: computes the results.
        name: of the model.
        reference: for variants, or None.
        pause: called in the model's thread after each drawn 6-mer.
        calibration: for calibrated deltas, or None.
    """

    path: ClassVar[str]
    request: ClassVar[type[ModelRequest]]

    model: Model
    name: str
    reference: Reference | None
    pause: Callable[[], None] = lambda: None
    calibration: Calibration | None = None

    def job(self, request: Q) -> ModelJob:
        """Return the job for the model's thread, after all checks.

        Everything that is invalid by itself is found here, so that a request is valid in a batch if
        and only if it is valid alone.

        Raises:
            UserError: the request is invalid.
        """
        raise NotImplementedError

    def reply(self, request: Q, results: list[Any]) -> dict[str, Any]:
        """Return the body of the reply."""
        raise NotImplementedError

    def _batch_key(self, request: Q) -> tuple[str, str]:
        return self.path, request.settings

    def _tokens(self, length_bp: int, tags: Sequence[str]) -> int:
        """Return the maximum tokens of the forward passes over a sequence.

        A sequence that exceeds the context is read in windows that overlap by half.

        Raises:
            UserError: the model lacks a tag, or the tags leave no room.
        """
        runner = self.model.runner
        room_bp = window_room_bp(runner, tuple(tags))
        context_tokens = runner.context_tokens
        if length_bp > room_bp:
            return context_tokens * (1 + math.ceil((length_bp - room_bp) / (room_bp // 2 // K * K)))
        return min(context_tokens, padded_length(context_tokens - (room_bp - length_bp) // K))


class Completions(Endpoint[Completion]):
    """Continue DNA."""

    path = "/v1/completions"
    request = Completion

    def job(self, request: Completion) -> ModelJob:
        """Draw continuations, and compute log-probabilities if requested."""
        if request.seed is None:
            request.seed = secrets.randbelow(2**32)
        model, tags, num_top = self.model, tuple(request.tags), request.logprobs
        seed, added_bp = request.seed, request.added_bp
        task = Task(max(added_bp, 1), SamplingRule(**request.sampling), seed, tags)
        if num_top is not None:
            check_room(model.runner, [len(p) + added_bp for p in request.prompt], tags)

        def run(samples: list[tuple[str, int]]) -> list[Any]:
            prompts, numbers = [prompt for prompt, _ in samples], [n for _, n in samples]
            texts = [""] * len(prompts)
            if added_bp and samples:
                advance = lambda num_bases: self.pause()  # noqa: E731
                texts = generate(model.runner, prompts, task, None, advance, numbers)
            if num_top is None:
                return [(text, None) for text in texts]
            whole = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
            scores = token_scores(model.runner, whole, tags, num_top)
            return list(zip(texts, scores, strict=True))

        prompts = [prompt for prompt in request.prompt for _ in range(request.n)]
        drawn = _DRAWN_COST * math.ceil(added_bp / K)
        num_passes = 1 if num_top is None else 2
        tokens = [drawn + num_passes * self._tokens(len(p) + added_bp, tags) for p in prompts]
        samples = list(zip(prompts, samples_of(prompts), strict=True))
        return ModelJob(self._batch_key(request), samples, tokens, run)

    def reply(self, request: Completion, results: list[Any]) -> dict[str, Any]:
        """Return a choice for each sample, grouped by prompt."""
        prompts = [prompt for prompt in request.prompt for _ in range(request.n)]
        choices = []
        for index, (prompt, (text, values)) in enumerate(zip(prompts, results, strict=True)):
            first = 0 if request.echo else len(prompt)
            logprobs = None
            if values is not None:
                logprobs = as_openai(prompt + text, first, values, request.logprobs or 0)
            shown = (prompt + text)[first:]
            choices.append(
                {"index": index, "text": shown, "logprobs": logprobs, "finish_reason": "length"}
            )
        num_read = sum(map(_num_tokens, request.prompt))
        num_drawn = sum(_num_tokens(text) for text, _ in results)
        return {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.name,
            "seed": request.seed,
            "choices": choices,
            "usage": _usage(num_read) | {
                "completion_tokens": num_drawn,
                "total_tokens": num_read + num_drawn,
            },
        }  # fmt: skip


class Embeddings(Endpoint[Embedding]):
    """One vector for each sequence."""

    path = "/v1/embeddings"
    request = Embedding

    def job(self, request: Embedding) -> ModelJob:
        """Run the sequences through the model."""
        model, pool, layer, tags = self.model, request.pool, request.layer, request.tags
        for number, sequence in enumerate(request.input):
            if not set(sequence.upper()) & set("ACGT"):
                raise UserError(f"input.{number}: has no known base")

        def run(sequences: list[str]) -> list[Any]:
            return list(model.embed(sequences, pool=pool, layer=layer, tags=tags))

        run([])  # checks pool, layer and tags
        tokens = [self._tokens(len(sequence), tags) for sequence in request.input]
        return ModelJob(self._batch_key(request), request.input, tokens, run)

    def reply(self, request: Embedding, results: list[Any]) -> dict[str, Any]:
        """Return the vectors in the requested format."""
        shown = _VECTOR_FORMATS[request.encoding_format]
        return {
            "object": "list",
            "model": self.name,
            "data": [
                {"object": "embedding", "index": index, "embedding": shown(vector)}
                for index, vector in enumerate(results)
            ],
            "usage": _usage(sum(map(_num_tokens, request.input))),
        }


class Scores(Endpoint[Scoring]):
    """Log-likelihoods of sequences."""

    path = "/score"
    request = Scoring

    def job(self, request: Scoring) -> ModelJob:
        """Run the sequences through the model."""
        model, by, strands, tags = self.model, request.by, request.strands, request.tags

        def run(sequences: list[str]) -> list[Any]:
            return list(model.score(sequences, by=by, strands=strands, tags=tags))

        num_strands = len(STRANDS_READ[strands])
        tokens = [num_strands * self._tokens(len(each), tags) for each in request.sequences]
        return ModelJob(self._batch_key(request), request.sequences, tokens, run)

    def reply(self, request: Scoring, results: list[SequenceScore]) -> dict[str, Any]:
        """Return a score for each sequence."""
        return {
            "model": self.name,
            "scores": [
                {
                    "length_bp": score.length_bp,
                    "known_bases": score.num_known_bases,
                    "log_likelihood": score.log_likelihood,
                    "nats_per_base": _finite(score.nats_per_base),
                    **({"bases": score.bases.tolist()} if request.bases else {}),
                }
                for score in results
            ],
        }


class Variants(Endpoint[VariantScoring]):
    """Deltas of variants."""

    path = "/variants"
    request = VariantScoring

    def job(self, request: VariantScoring) -> ModelJob:
        """Score the variants; one that contradicts the reference gets a reason instead."""
        if self.reference is None:
            raise UserError("there is no reference: start carbon serve with --reference FASTA")
        model, reference = self.model, self.reference
        options = request.model_dump(exclude={"model", "variants", "scores"})
        has_calibrated = "calibrated_delta" in request.scores
        if has_calibrated and self.calibration is None:
            raise UserError("there is no calibration: start carbon serve with --calibration FILE")
        chosen: Any = {
            "scores": request.scores,
            "calibration": self.calibration if has_calibrated else None,
        }
        model.score_variants(reference, [], **chosen, **options)  # checks them

        def run(variants: list[Variant]) -> list[Any]:
            reasons = [_mismatch(reference, variant) for variant in variants]
            fitting = [v for v, reason in zip(variants, reasons, strict=True) if not reason]
            scores = model.score_variants(reference, fitting, **chosen, **options)
            return [
                VariantScore(variant, None, reason) if reason else next(scores)
                for variant, reason in zip(variants, reasons, strict=True)
            ]

        variants = [Variant.parse(text) for text in request.variants]
        method = model.variant_method(**options)
        num_alleles = 4 if "allele_entropy" in request.scores else 2
        num_rows = num_alleles * len(STRANDS_READ[method.strands]) * len(method.offsets)
        context_bp = room_bp(model.runner, method.tags)
        tokens = [
            # A row for each allele; an allele that exceeds the context is not scored.
            num_rows * self._tokens(min(method.window_bp + len(v.alt), context_bp), method.tags)
            for v in variants
        ]
        return ModelJob(self._batch_key(request), variants, tokens, run)

    def reply(self, request: VariantScoring, results: list[VariantScore]) -> dict[str, Any]:
        """Return the scores of each variant, or a reason."""
        added = [name for name in VARIANT_SCORES if name in request.scores and name != "delta"]
        return {
            "model": self.name,
            "variants": [
                {
                    "variant": score.variant.to_text(),
                    "delta": score.delta,
                    "forward": score.forward,
                    "reverse": score.reverse,
                    "spread": score.spread,
                    "unsure": score.unsure,
                    **{name: getattr(score, name) for name in added},
                    "scored_as": self._scored_as(score),
                    "strand_left_out": score.strand_left_out,
                    "reason": score.reason,
                }
                for score in results
            ],
        }

    def _scored_as(self, score: VariantScore) -> str | None:
        """Return the normalised variant; None if equal to the request or not scored."""
        assert self.reference is not None
        return None if score.reason else other_form(self.reference, score.variant)


def _base64(vector: Float32s) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


_VECTOR_FORMATS: dict[str, Callable[[Float32s], Any]] = {
    "float": np.ndarray.tolist,
    "base64": _base64,
}

ENDPOINTS: tuple[type[Endpoint[Any]], ...] = (Completions, Embeddings, Scores, Variants)


def _mismatch(reference: Reference, variant: Variant) -> str | None:
    """Return why a variant contradicts the reference; scoring reports unknown bases itself."""
    mismatch = reference.disagreement(variant.contig, variant.position, variant.ref)
    return mismatch.reason if mismatch and mismatch.reason != "reference_unknown" else None


def _num_tokens(sequence: str) -> int:
    return math.ceil(len(sequence) / K)


def _usage(num_read: int) -> dict[str, int]:
    return {"prompt_tokens": num_read, "total_tokens": num_read}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None

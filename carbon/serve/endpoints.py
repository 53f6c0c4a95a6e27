"""The log-probability of every 6-mer of a text, and what was more likely."""

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
from carbon.inference.passages import Passage, continuation_of, prefix_of
from carbon.inference.runner import ModelRunner
from carbon.losses import chain
from carbon.serve.schemas import Completion, Embedding, Question, Scoring, VariantScoring
from carbon.serve.worker import Job
from carbon.tokenizer import ALL_KNOWN, K, Kmers, decode_kmers

Float32s = NDArray[np.float32]


def token_scores(
    reader: ModelRunner, texts: Sequence[str], tags: tuple[str, ...], num_top: int
) -> list[Float32s]:
    """Read each text once, from its first base.

    Returns:
        For each text (tokens, 6 + 2 * num_top) float32: log p of each base given all before it, in
        nats, 0 where unknown; then the highest log-probabilities of a 6-mer there, then its index.

    Raises:
        UserError: a text does not fit into the model's context.
    """

    def measure(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
        top = torch.log_softmax(logits, dim=-1).topk(num_top, dim=-1)
        return torch.cat([chain(logits, kmers, known), top.values, top.indices.float()], dim=1)

    stem = prefix_of("", reader.vocabulary, tags)
    passages = [Passage(stem, (continuation_of(text, reader.vocabulary),)) for text in texts]
    return [values for (values,) in reader.measure(passages, measure)]


def as_openai(text: str, first: int, values: Float32s, num_top: int) -> dict[str, Any]:
    """Return the tokens of a text from a place on, as OpenAI's `logprobs` object.

    A token of which a part lies before that place has the bases behind it alone, given the others;
    of such a one, and of one with fewer than six bases, no alternatives are told.
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


def check_room(reader: ModelRunner, texts_bp: Sequence[int], tags: tuple[str, ...]) -> None:
    """Raise UserError if a text of such a length cannot be read at once."""
    room_bp = (reader.context_tokens - len(reader.vocabulary.prefix(tags)) + 1) * K
    for length_bp in texts_bp:
        if length_bp > room_bp:
            raise UserError(
                f"logprobs of {length_bp} bases, prompt and all: the model reads {room_bp} at most"
            )


def _top(values: Float32s, num_top: int) -> dict[str, float]:
    indices = values[num_top:].astype(np.int64)
    text = decode_kmers(Kmers(indices, np.full(num_top, ALL_KNOWN, dtype=np.uint8)))
    names = [text[at : at + K] for at in range(0, len(text), K)]
    return dict(zip(names, map(float, values[:num_top]), strict=True))


Q = TypeVar("Q", bound=Question)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Q]):
    """An address, and what is done there.

    Attributes:
        model: that is served.
        name: of it.
        reference: of which variants are scored, if there is one.
    """

    path: ClassVar[str]
    question: ClassVar[type[Question]]

    model: Model
    name: str
    reference: Reference | None

    def job(self, question: Q) -> Job:
        """Return what the model has to do.

        Raises:
            UserError: the question cannot be answered.
        """
        raise NotImplementedError

    def reply(self, question: Q, results: list[Any]) -> dict[str, Any]:
        """Return the answer."""
        raise NotImplementedError

    def _kind(self, question: Q) -> tuple[str, str]:
        return self.path, question.settings


class Completions(Endpoint[Completion]):
    """DNA goes on."""

    path = "/v1/completions"
    question = Completion

    def job(self, question: Completion) -> Job:
        """Draw the continuations; read them again if log-probabilities are asked for."""
        if question.seed is None:
            question.seed = secrets.randbelow(2**32)
        model, tags, num_top = self.model, tuple(question.tags), question.logprobs
        seed, added_bp = question.seed, question.added_bp
        if num_top is not None:
            check_room(model.runner, [len(p) + added_bp for p in question.prompt], tags)

        def run(prompts: list[str]) -> list[Any]:
            texts = [""] * len(prompts)
            if added_bp:
                texts = model.generate(prompts, added_bp, seed=seed, tags=tags, **question.sampling)
            if num_top is None:
                return [(text, None) for text in texts]
            whole = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
            scores = token_scores(model.runner, whole, tags, num_top)
            return list(zip(texts, scores, strict=True))

        prompts = [prompt for prompt in question.prompt for _ in range(question.n)]
        return Job(self._kind(question), prompts, run, apart=True)

    def reply(self, question: Completion, results: list[Any]) -> dict[str, Any]:
        """Return a choice for each sample, those of a prompt beside one another."""
        prompts = [prompt for prompt in question.prompt for _ in range(question.n)]
        choices = []
        for index, (prompt, (text, values)) in enumerate(zip(prompts, results, strict=True)):
            first = 0 if question.echo else len(prompt)
            told = None
            if values is not None:
                told = as_openai(prompt + text, first, values, question.logprobs or 0)
            shown = (prompt + text)[first:]
            choices.append(
                {"index": index, "text": shown, "logprobs": told, "finish_reason": "length"}
            )
        num_read = sum(map(_num_tokens, question.prompt))
        num_drawn = sum(_num_tokens(text) for text, _ in results)
        return {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.name,
            "seed": question.seed,
            "choices": choices,
            "usage": _usage(num_read) | {
                "completion_tokens": num_drawn,
                "total_tokens": num_read + num_drawn,
            },
        }  # fmt: skip


class Embeddings(Endpoint[Embedding]):
    """One vector a sequence."""

    path = "/v1/embeddings"
    question = Embedding

    def job(self, question: Embedding) -> Job:
        """Read the sequences."""
        model, pool, layer, tags = self.model, question.pool, question.layer, question.tags
        for number, sequence in enumerate(question.input):
            if not set(sequence.upper()) & set("ACGT"):
                raise UserError(f"input.{number}: has no known base")

        def run(sequences: list[str]) -> list[Any]:
            return list(model.embed(sequences, pool=pool, layer=layer, tags=tags))

        return Job(self._kind(question), question.input, run)

    def reply(self, question: Embedding, results: list[Any]) -> dict[str, Any]:
        """Return the vectors as asked."""
        shown = _VECTOR_FORMATS[question.encoding_format]
        return {
            "object": "list",
            "model": self.name,
            "data": [
                {"object": "embedding", "index": index, "embedding": shown(vector)}
                for index, vector in enumerate(results)
            ],
            "usage": _usage(sum(map(_num_tokens, question.input))),
        }


class Scores(Endpoint[Scoring]):
    """Log-likelihoods of sequences."""

    path = "/score"
    question = Scoring

    def job(self, question: Scoring) -> Job:
        """Read the sequences."""
        model, by, strands, tags = self.model, question.by, question.strands, question.tags

        def run(sequences: list[str]) -> list[Any]:
            return list(model.score(sequences, by=by, strands=strands, tags=tags))

        return Job(self._kind(question), question.sequences, run)

    def reply(self, question: Scoring, results: list[SequenceScore]) -> dict[str, Any]:
        """Return a score a sequence."""
        return {
            "model": self.name,
            "scores": [
                {
                    "length_bp": score.length_bp,
                    "known_bases": score.num_known_bases,
                    "log_likelihood": score.log_likelihood,
                    "nats_per_base": _finite(score.nats_per_base),
                    **({"bases": score.bases.tolist()} if question.bases else {}),
                }
                for score in results
            ],
        }


class Variants(Endpoint[VariantScoring]):
    """Deltas of variants."""

    path = "/variants"
    question = VariantScoring

    def job(self, question: VariantScoring) -> Job:
        """Compare the alleles; a variant that does not fit the reference gets a reason."""
        if self.reference is None:
            raise UserError("there is no reference: start carbon serve with --reference FASTA")
        model, reference = self.model, self.reference
        options = question.model_dump(exclude={"model", "variants"})

        def run(variants: list[Variant]) -> list[Any]:
            reasons = [_why_not(reference, variant) for variant in variants]
            fitting = [v for v, reason in zip(variants, reasons, strict=True) if not reason]
            scores = model.score_variants(reference, fitting, **options)
            return [
                VariantScore(variant, None, reason) if reason else next(scores)
                for variant, reason in zip(variants, reasons, strict=True)
            ]

        variants = [Variant.from_text(text) for text in question.variants]
        return Job(self._kind(question), variants, run)

    def reply(self, question: VariantScoring, results: list[VariantScore]) -> dict[str, Any]:
        """Return a delta a variant, or the reason why there is none."""
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
                    "scored_as": self._scored_as(score),
                    "strand_left_out": score.strand_left_out,
                    "reason": score.reason,
                }
                for score in results
            ],
        }

    def _scored_as(self, score: VariantScore) -> str | None:
        """Return the trimmed and left-aligned variant, None where it was given so or not scored."""
        assert self.reference is not None
        return None if score.reason else other_form(self.reference, score.variant)


def _base64(vector: Float32s) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


_VECTOR_FORMATS: dict[str, Callable[[Float32s], Any]] = {
    "float": np.ndarray.tolist,
    "base64": _base64,
}

ENDPOINTS: tuple[type[Endpoint[Any]], ...] = (Completions, Embeddings, Scores, Variants)


def _why_not(reference: Reference, variant: Variant) -> str | None:
    """Return why a variant does not fit the reference; of unknown bases its score tells."""
    found = reference.disagreement(variant.contig, variant.position, variant.ref)
    return found.reason if found and found.reason != "reference_unknown" else None


def _num_tokens(sequence: str) -> int:
    return math.ceil(len(sequence) / K)


def _usage(num_read: int) -> dict[str, int]:
    return {"prompt_tokens": num_read, "total_tokens": num_read}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None

"""Endpoints: the model's computation for a request, and the reply. OpenAI's, and `/score`."""

import base64
import math
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.errors import UserError
from carbon.inference import Model, SequenceScore
from carbon.inference.generate.generate import generate
from carbon.inference.generate.prompts import GeneratedRow, Task, samples_of
from carbon.inference.options import STRANDS_READ, SamplingRule
from carbon.inference.passages import Passage, continuation_of, padded_length, prefix_of
from carbon.inference.runner import ModelRunner
from carbon.inference.score import window_room_bp
from carbon.losses import chain
from carbon.serve.options import ServeOptions
from carbon.serve.schemas import Completion, Embedding, ModelRequest, Scoring
from carbon.serve.worker import ModelJob
from carbon.tokenizer import ALL_KNOWN, K, Kmers, decode_kmers
from carbon.tokenizer.kmer import BASES

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


Emit = Callable[[int, dict[str, Any]], None]
"""Takes the index of a result, and a part of its entry that is there before the result."""


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Q]):
    """A path of the server with its computation.

    Attributes:
        path: of the URL.
        request: type of the request.
        entries: field of the reply with an entry for each result.
        example: a request, for the reference page.
        model: computes the results.
        options: of the server.
        pause: called in the model's thread after each drawn 6-mer.
    """

    path: ClassVar[str]
    request: ClassVar[type[ModelRequest]]
    entries: ClassVar[str]
    example: ClassVar[dict[str, Any]]

    model: Model
    options: ServeOptions
    pause: Callable[[], None] = lambda: None

    @property
    def model_names(self) -> Sequence[str]:
        """Names of the models that this endpoint has."""
        return [self.options.name]

    def job(self, request: Q, emit: Emit | None = None) -> ModelJob:
        """Return the job for the model's thread, after all checks.

        Everything that is invalid by itself is found here, so that a request is valid in a batch if
        and only if it is valid alone.

        Args:
            request: the request, with a model of `model_names`.
            emit: for a stream, called in the model's thread with parts of an entry.

        Raises:
            UserError: the request is invalid.
        """
        raise NotImplementedError

    def head(self, request: Q) -> dict[str, Any]:
        """Return the fields of a reply, and of each event of a stream, besides the results."""
        return {"model": request.model or self.model_names[0]}

    def entry(self, request: Q, index: int, result: Any) -> dict[str, Any]:
        """Return the entry of a result."""
        raise NotImplementedError

    def reply(self, request: Q, results: list[Any]) -> dict[str, Any]:
        """Return the body of the reply."""
        shown = [self.entry(request, index, result) for index, result in enumerate(results)]
        return {**self.head(request), self.entries: shown}

    def event(self, head: dict[str, Any], index: int, part: dict[str, Any]) -> dict[str, Any]:
        """Return an event with the entry of a result, or a part of it."""
        return {**head, "index": index, **part}

    def last_part(self, request: Q, index: int, result: Any) -> dict[str, Any]:
        """Return what remains of an entry after all parts that were emitted."""
        return self.entry(request, index, result)

    def total(self, head: dict[str, Any], request: Q, results: list[Any]) -> dict[str, Any] | None:
        """Return an event after all results of a stream, or None."""
        return None

    def _batch_key(self, request: Q) -> tuple[str, str]:
        return self.path, request.settings

    def _tokens(self, length_bp: int, tags: Sequence[str]) -> int:
        """Return the maximum tokens of the forward passes over a sequence.

        A sequence that exceeds the context is read in windows that overlap by half.

        Raises:
            UserError: the model lacks a tag, or the tags leave no room.
        """
        runner = self.model.runner
        room_bp, k = window_room_bp(runner, tuple(tags)), runner.vocabulary.k
        context_tokens = runner.context_tokens
        if length_bp > room_bp:
            return context_tokens * num_windows(length_bp, room_bp, k)
        return min(context_tokens, padded_length(context_tokens - (room_bp - length_bp) // k))


def num_windows(length_bp: int, room_bp: int, k: int) -> int:
    """Return the number of `overlapping_windows` that cover a sequence."""
    return 1 + math.ceil(max(0, length_bp - room_bp) / (room_bp // 2 // k * k))


TextFrom = Callable[[int], str]


class Sample(NamedTuple):
    """A continuation to draw.

    Attributes:
        prompt: DNA.
        number: of the sample, among those of equal prompts.
        send: takes a function that returns the text so far from a base on; None unless the reply
            is a stream.
    """

    prompt: str
    number: int
    send: Callable[[TextFrom], None] | None


def _sender(emit: Emit | None, index: int, echoed: str) -> Callable[[TextFrom], None] | None:
    """Return a function that emits the new letters of a growing text, each letter once.

    A batch that runs again draws the same text, which is not emitted twice.
    """
    if emit is None:
        return None
    num_sent = 0

    def send(text_from: TextFrom) -> None:
        nonlocal echoed, num_sent
        drawn = text_from(num_sent)
        if new := echoed + drawn:
            emit(index, {"text": new, "logprobs": None, "finish_reason": None})
        echoed, num_sent = "", num_sent + len(drawn)

    return send


def _from(text: str) -> TextFrom:
    return lambda start_bp: text[start_bp:]


class Completions(Endpoint[Completion]):
    """Continue DNA."""

    path = "/v1/completions"
    request = Completion
    entries = "choices"
    example: ClassVar = {"prompt": "ATGGCTGTCTCTAAAGTTTAC", "max_tokens": 10, "seed": 1}

    def job(self, request: Completion, emit: Emit | None = None) -> ModelJob:
        """Draw continuations, and compute log-probabilities if requested."""
        if request.seed is None:
            request.seed = secrets.randbelow(2**32)
        if request.stream_options is not None and not request.stream:
            raise UserError("stream_options: is for streams; send it with stream = true")
        model, tags, num_top = self.model, tuple(request.tags), request.logprobs
        seed, added_bp = request.seed, request.added_bp
        task = Task(max(added_bp, 1), SamplingRule(**request.sampling), seed, tags)
        if num_top is not None:
            check_room(model.runner, [len(p) + added_bp for p in request.prompt], tags)

        def run(samples: list[Sample]) -> list[Any]:
            def watch(row: GeneratedRow) -> None:
                if send := samples[row.number - 1].send:
                    send(row.text_from)
                self.pause()

            prompts = [sample.prompt for sample in samples]
            texts = [""] * len(samples)
            if added_bp and samples:
                numbers = [sample.number for sample in samples]
                texts = generate(model.runner, prompts, task, samples=numbers, watch=watch)
            for sample, text in zip(samples, texts, strict=True):
                if sample.send:
                    sample.send(_from(text))
            if num_top is None:
                return [(text, None) for text in texts]
            whole = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
            scores = token_scores(model.runner, whole, tags, num_top)
            return list(zip(texts, scores, strict=True))

        prompts = request.prompts
        drawn = _DRAWN_COST * math.ceil(added_bp / K)
        num_passes = 1 if num_top is None else 2
        tokens = [drawn + num_passes * self._tokens(len(p) + added_bp, tags) for p in prompts]
        samples = [
            Sample(prompt, number, _sender(emit, index, prompt if request.echo else ""))
            for index, (prompt, number) in enumerate(zip(prompts, samples_of(prompts), strict=True))
        ]
        return ModelJob(self._batch_key(request), samples, tokens, run)

    def head(self, request: Completion) -> dict[str, Any]:
        """Return the identifier, the time and the seed."""
        return {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            **super().head(request),
            "seed": request.seed,
            **({"usage": None} if request.has_total else {}),
        }

    def entry(self, request: Completion, index: int, result: Any) -> dict[str, Any]:
        """Return the choice of a sample; choices are grouped by prompt."""
        prompt, (text, values) = request.prompt[index // request.n], result
        first = 0 if request.echo else len(prompt)
        logprobs = None
        if values is not None:
            logprobs = as_openai(prompt + text, first, values, request.logprobs or 0)
        shown = (prompt + text)[first:]
        return {"index": index, "text": shown, "logprobs": logprobs, "finish_reason": "length"}

    def reply(self, request: Completion, results: list[Any]) -> dict[str, Any]:
        """Return a choice for each sample, and the number of tokens."""
        return {**super().reply(request, results), "usage": _usage_of(request, results)}

    def event(self, head: dict[str, Any], index: int, part: dict[str, Any]) -> dict[str, Any]:
        """Return a chunk in OpenAI's form."""
        return {**head, "choices": [{"index": index, **part}]}

    def last_part(self, request: Completion, index: int, result: Any) -> dict[str, Any]:
        """Return the end of a choice, whose text was emitted."""
        return self.entry(request, index, result) | {"text": ""}

    def total(
        self, head: dict[str, Any], request: Completion, results: list[Any]
    ) -> dict[str, Any] | None:
        """Return the number of tokens in OpenAI's form, if it is requested."""
        if not request.has_total:
            return None
        return {**head, "choices": [], "usage": _usage_of(request, results)}


class Embeddings(Endpoint[Embedding]):
    """One vector for each sequence."""

    path = "/v1/embeddings"
    request = Embedding
    entries = "data"
    example: ClassVar = {"input": ["ATGGCCAAGTAA", "ACGTN"]}

    def job(self, request: Embedding, emit: Emit | None = None) -> ModelJob:
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

    def head(self, request: Embedding) -> dict[str, Any]:
        """Return the kind of the reply."""
        return {"object": "list", **super().head(request)}

    def entry(self, request: Embedding, index: int, result: Any) -> dict[str, Any]:
        """Return a vector in the requested format."""
        vector = _VECTOR_FORMATS[request.encoding_format](result)
        return {"object": "embedding", "index": index, "embedding": vector}

    def reply(self, request: Embedding, results: list[Any]) -> dict[str, Any]:
        """Return the vectors, and the number of tokens."""
        usage = _usage(sum(map(_num_tokens, request.input)))
        return {**super().reply(request, results), "usage": usage}


class Scores(Endpoint[Scoring]):
    """Log-likelihoods of sequences."""

    path = "/score"
    request = Scoring
    entries = "scores"
    example: ClassVar = {"sequences": ["ATGGCCAAGTAA"]}

    def job(self, request: Scoring, emit: Emit | None = None) -> ModelJob:
        """Run the sequences through the model."""
        model, by, strands, tags = self.model, request.by, request.strands, request.tags

        def run(sequences: list[str]) -> list[Any]:
            return list(model.score(sequences, by=by, strands=strands, tags=tags))

        num_strands = len(STRANDS_READ[strands])
        tokens = [num_strands * self._tokens(len(each), tags) for each in request.sequences]
        return ModelJob(self._batch_key(request), request.sequences, tokens, run)

    def entry(self, request: Scoring, index: int, result: SequenceScore) -> dict[str, Any]:
        """Return the score of a sequence."""
        return {
            "length_bp": result.length_bp,
            "known_bases": result.num_known_bases,
            "log_likelihood": result.log_likelihood,
            "nats_per_base": _finite(result.nats_per_base),
            **({"bases": _known(result, request.sequences[index])} if request.bases else {}),
        }


def _known(score: SequenceScore, sequence: str) -> list[float | None]:
    """Return the log-likelihood of each base; None where it is unknown."""
    pairs = zip(score.bases.tolist(), sequence.upper(), strict=True)
    return [value if base in BASES else None for value, base in pairs]


def _base64(vector: Float32s) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


_VECTOR_FORMATS: dict[str, Callable[[Float32s], Any]] = {
    "float": np.ndarray.tolist,
    "base64": _base64,
}


def _num_tokens(sequence: str) -> int:
    return math.ceil(len(sequence) / K)


def _usage_of(request: Completion, results: list[Any]) -> dict[str, int]:
    num_read = sum(map(_num_tokens, request.prompt))
    num_drawn = sum(_num_tokens(text) for text, _ in results)
    total = num_read + num_drawn
    return _usage(num_read) | {"completion_tokens": num_drawn, "total_tokens": total}


def _usage(num_read: int) -> dict[str, int]:
    return {"prompt_tokens": num_read, "total_tokens": num_read}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None

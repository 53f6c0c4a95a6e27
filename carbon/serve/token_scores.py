"""The log-probability of every 6-mer of a text, and what was more likely."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.errors import UserError
from carbon.inference.reading.passages import Passage, branch_of, stem_of
from carbon.inference.reading.reader import Reader
from carbon.losses import chain
from carbon.tokenizer import ALL_KNOWN, K, Kmers, decode_kmers

Float32s = NDArray[np.float32]


def token_scores(
    reader: Reader, texts: Sequence[str], tags: tuple[str, ...], num_top: int
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

    stem = stem_of("", reader.vocabulary, tags)
    passages = [Passage(stem, (branch_of(text, reader.vocabulary),)) for text in texts]
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


def check_room(reader: Reader, texts_bp: Sequence[int], tags: tuple[str, ...]) -> None:
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

"""Log-likelihoods of sequences, base by base."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from carbon.losses import chain
from carbon.model import LoadedModel, kmer_logits
from carbon.tokenizer import Encoding, K, encode, known_bases

_BATCH_TOKENS = 16_384  # of one forward pass
_HEAD_TOKENS = 2_048  # of one product with the 4,096 rows
_SEQUENCES_AT_ONCE = 256  # sorted by length together, so that a stream stays a stream


class SequenceScore(NamedTuple):
    """A sequence's score under the chain, which is the likelihood of the sequence itself.

    Attributes:
        length_bp: bases of the sequence.
        num_known_bases: those that are ACGT; only these are counted.
        log_likelihood: natural logarithm, summed in float64 over known bases.
    """

    length_bp: int
    num_known_bases: int
    log_likelihood: float

    @property
    def nats_per_base(self) -> float:
        """Return the mean surprise of a known base; 1.386 is that of a fair four-sided die."""
        return -self.log_likelihood / max(self.num_known_bases, 1)


def score_sequences(
    model: LoadedModel, sequences: Iterable[str], tags: tuple[str, ...]
) -> Iterator[SequenceScore]:
    """Yield the score of each sequence, in order."""
    stream = iter(sequences)
    while block := list(islice(stream, _SEQUENCES_AT_ONCE)):
        for sequence, steps in zip(block, base_log_likelihoods(model, block, tags), strict=True):
            known = int(known_bases(encode(sequence, model.vocabulary).known).sum())
            yield SequenceScore(len(sequence), known, float(steps.sum(dtype=np.float64)))


def base_log_likelihoods(
    model: LoadedModel, sequences: Sequence[str], tags: tuple[str, ...] = ()
) -> list[NDArray[np.float32]]:
    """Return log p(base | all before it) of every base: one array of the sequence's length each.

    Unknown bases get 0. A sequence that does not fit into the context is cut into windows that
    overlap by half; a base takes its value from the first window it is in.
    """
    context_kmers = model.network.config.max_position_embeddings - 1 - len(tags)
    windows = [_windows(len(sequence), context_kmers * K) for sequence in sequences]
    encodings = [
        encode(sequence[start : start + context_kmers * K], model.vocabulary, tags=tags)
        for sequence, starts in zip(sequences, windows, strict=True)
        for start, _ in starts
    ]
    steps = iter(kmer_log_likelihoods(model, encodings))
    results = []
    for sequence, starts in zip(sequences, windows, strict=True):
        result = np.zeros(len(sequence), dtype=np.float32)
        for start, scored_from in starts:
            values = next(steps).reshape(-1)[: len(sequence) - start]
            result[scored_from : start + len(values)] = values[scored_from - start :]
        results.append(result)
    return results


def _windows(length_bp: int, context_bp: int) -> list[tuple[int, int]]:
    """Return `(start, scored_from)` of windows that cover a sequence; starts keep the frame."""
    stride = context_bp // 2 // K * K
    starts = [0]
    while starts[-1] + context_bp < length_bp:
        starts.append(starts[-1] + stride)
    return [(start, start and start - stride + context_bp) for start in starts]


def kmer_log_likelihoods(
    model: LoadedModel, encodings: Sequence[Encoding]
) -> list[NDArray[np.float32]]:
    """Return the chain of every 6-mer of every encoding: arrays of shape (6-mers, 6), in nats.

    Encodings are batched by length; a batch is padded on the right, which a causal network does
    not see.
    """
    results: list[NDArray[np.float32]] = [np.zeros((0, K), np.float32)] * len(encodings)
    for batch in _batches([len(encoding.ids) for encoding in encodings]):
        for i, steps in zip(batch, _score_batch(model, [encodings[i] for i in batch]), strict=True):
            results[i] = steps
    return results


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


@torch.inference_mode()
def _score_batch(model: LoadedModel, encodings: list[Encoding]) -> list[NDArray[np.float32]]:
    network, vocabulary = model
    longest = max(len(encoding.ids) for encoding in encodings)
    ids = np.full((len(encodings), longest), vocabulary.pad, dtype=np.int64)
    for row, encoding in zip(ids, encodings, strict=True):
        row[: len(encoding.ids)] = encoding.ids
    hidden = network.model(input_ids=torch.from_numpy(ids).to(network.device), use_cache=False)[0]
    # The state before a 6-mer predicts it.
    states = torch.cat(
        [row[e.num_prefix - 1 : len(e.ids) - 1] for row, e in zip(hidden, encodings, strict=True)]
    )
    kmers = np.concatenate([e.kmers[e.num_prefix :] for e in encodings])
    known = known_bases(np.concatenate([e.known[e.num_prefix :] for e in encodings]))
    steps = torch.cat(
        [
            chain(
                kmer_logits(network, states[at : at + _HEAD_TOKENS], vocabulary),
                torch.from_numpy(kmers[at : at + _HEAD_TOKENS]).to(network.device),
                torch.from_numpy(known[at : at + _HEAD_TOKENS]).to(network.device),
            )
            for at in range(0, max(len(states), 1), _HEAD_TOKENS)
        ]
    )
    lengths = [len(e.ids) - e.num_prefix for e in encodings]
    return np.split(steps.cpu().numpy(), np.cumsum(lengths)[:-1])

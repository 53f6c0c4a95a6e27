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
_WINDOWS_AT_ONCE = 512  # batched by length together
# What is in memory of a stream of sequences.
_BLOCK_SEQUENCES, _BLOCK_BP = 256, 4_000_000


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
    for block in _blocks(sequences):
        for sequence, steps in zip(block, base_log_likelihoods(model, block, tags), strict=True):
            num_known_bases = sum(map(sequence.upper().count, "ACGT"))
            total = float(steps.sum(dtype=np.float64))
            yield SequenceScore(len(sequence), num_known_bases, total)


def _blocks(sequences: Iterable[str]) -> Iterator[list[str]]:
    """Cut a stream into blocks of a bounded number of sequences and of bases."""
    block: list[str] = []
    block_bp = 0
    for sequence in sequences:
        block.append(sequence)
        block_bp += len(sequence)
        if len(block) == _BLOCK_SEQUENCES or block_bp >= _BLOCK_BP:
            yield block
            block, block_bp = [], 0
    if block:
        yield block


def base_log_likelihoods(
    model: LoadedModel, sequences: Sequence[str], tags: tuple[str, ...] = ()
) -> list[NDArray[np.float32]]:
    """Return log p(base | all before it) of every base: one array of the sequence's length each.

    Unknown bases get 0. A sequence that does not fit into the context is cut into windows that
    overlap by half; a base takes its value from the first window it is in.
    """
    context_bp = (model.network.config.max_position_embeddings - 1 - len(tags)) * K
    results = [np.zeros(len(sequence), dtype=np.float32) for sequence in sequences]
    jobs = (
        (number, start, scored_from)
        for number, sequence in enumerate(sequences)
        for start, scored_from in _windows(len(sequence), context_bp)
    )
    while group := list(islice(jobs, _WINDOWS_AT_ONCE)):
        encodings = [
            encode(sequences[number][start : start + context_bp], model.vocabulary, tags=tags)
            for number, start, _ in group
        ]
        scored = kmer_log_likelihoods(model, encodings)
        for (number, start, scored_from), steps in zip(group, scored, strict=True):
            values = steps.reshape(-1)[: len(sequences[number]) - start]
            results[number][scored_from : start + len(values)] = values[scored_from - start :]
    return results


def _windows(length_bp: int, context_bp: int) -> Iterator[tuple[int, int]]:
    """Yield `(start, scored_from)` of windows that cover a sequence; starts keep the frame."""
    stride = context_bp // 2 // K * K
    start = scored_from = 0
    while start == 0 or scored_from < length_bp:
        yield start, scored_from
        start, scored_from = start + stride, start + context_bp


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

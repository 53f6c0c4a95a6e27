"""What a probe reads of windows: states by pool and layer, and counts of 6-mers beside them."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaForCausalLM

from carbon.errors import UserError
from carbon.finetune.config import MethodConfig
from carbon.finetune.network import OpenedModel, room_bp
from carbon.finetune.probe import layers_of, vectors_of
from carbon.inference.options import POOLS, Pool
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE, K, encode

Features = Mapping[str, NDArray[np.float32]]
"""Names of layers to vectors, (windows, width); one entry where there are no layers."""

NO_LAYER = ""
LAST = "last norm"


def random_weights(model: LoadedModel, seed: int) -> LoadedModel:
    """Return a model of the same shape that has learned nothing, in its own initialisation."""
    torch.manual_seed(seed)
    network = LlamaForCausalLM(deepcopy(model.network.config))
    network.train(False)
    return LoadedModel(network, model.vocabulary)


def states_of(model: LoadedModel, sequences: Sequence[str]) -> dict[str, Features]:
    """Return the vectors of each pool by layer, of the forward strand; the last layer first.

    Raises:
        UserError: a sequence is longer than the context.
    """
    longest = max(map(len, sequences))
    room = room_bp(model.network.config.max_position_embeddings, "end")
    if longest > room:
        raise UserError(f"--window-bp {longest}: the model reads {room:,} bp; give less")
    opened = OpenedModel(model)
    layers = layers_of(opened, None)[::-1]
    names = [LAST if layer is None else f"layer {layer}" for layer in layers]
    found: dict[str, Features] = {}
    for pool in POOLS:
        vectors = vectors_of(opened, layers, sequences, _method(pool))
        found[pool] = {name: vectors[:, i] for i, name in enumerate(names)}
    opened.closed()
    return found


def _method(pool: Pool) -> MethodConfig:
    return MethodConfig(name="probe", pool=pool, strands="forward")


def kmer_shares(sequences: Sequence[str], offsets: Sequence[int]) -> Features:
    """Return the share of each 6-mer that there is, (windows, 6-mers), among those at some offsets.

    Args:
        sequences: of ACGT.
        offsets: bases before the first; from each on, every sixth place is read. All six are all
            6-mers; the first alone are the tokens that the model reads.
    """
    rows = [_counts(sequence, offsets) for sequence in sequences]
    counts: NDArray[Any] = np.array(rows, dtype=np.float32)
    shares = counts[:, counts.any(axis=0)] / counts.sum(axis=1, keepdims=True)
    return {NO_LAYER: shares}


def _counts(sequence: str, offsets: Sequence[int]) -> NDArray[np.int64]:
    rows = NATIVE.kmer_rows
    parts = []
    for offset in offsets:
        whole_bp = (len(sequence) - offset) // K * K
        ids = encode(sequence[offset : offset + whole_bp], NATIVE).ids
        parts.append(ids[(ids >= rows.start) & (ids < rows.stop)] - rows.start)
    return np.bincount(np.concatenate(parts), minlength=rows.stop - rows.start)


BASELINES: dict[str, Sequence[int]] = {"6-mers": range(K), "tokens": (0,)}
"""Of each baseline the offsets of `kmer_shares`."""

"""Random bases, models and variants that several measurements read."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from carbon.genome import Interval, Reference, Variant
from carbon.inference import Model
from carbon.model import PRESETS, LoadedModel
from carbon.tokenizer import NATIVE
from train.models.network import stock_network

LETTERS = np.frombuffer(b"ACGT", np.uint8)


def random_bases(length_bp: int, seed: int = 0) -> str:
    """Return random DNA."""
    return np.random.default_rng(seed).choice(LETTERS, length_bp).tobytes().decode()


def random_model(preset: str) -> Model:
    """Return a network of a preset size with random weights."""
    torch.manual_seed(0)
    return Model(LoadedModel(stock_network(PRESETS[preset]()).train(False), NATIVE))


def random_reference(folder: Path, length_bp: int) -> Reference:
    """Write a FASTA with one contig `c` of random bases, and open it."""
    path = folder / f"{length_bp}.fa"
    path.write_text(f">c\n{random_bases(length_bp)}\n", encoding="utf-8")
    return Reference(path)


def snvs_at(
    reference: Reference, positions: Iterable[int], alts: int = 3, contig: str = "c"
) -> list[Variant]:
    """Return the first `alts` SNVs at each position."""
    variants = []
    for position in positions:
        ref = reference.fetch(Interval(contig, position, position + 1)).upper()
        others = [alt for alt in "ACGT" if alt != ref]
        variants += [Variant(contig, position, ref, alt) for alt in others[:alts]]
    return variants

"""What the tests of generation share."""

import math
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from Bio.Seq import Seq
from transformers import LlamaForCausalLM, LlamaModel

from carbon.genome import STOP_CODONS
from carbon.genome.alphabet import IUPAC_BASES
from carbon.inference import Constraints, Model
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE
from tests.conftest import small_config
from tests.helpers.files import random_bases

PROMPTS = [random_bases(n, seed=n) for n in (0, 1, 5, 6, 7, 30, 47, 120, 200, 281, 282, 283, 600)]


def other_network(seed: int, vocabulary=NATIVE, context_tokens: int = 48) -> Model:
    config = small_config(context_tokens)
    config.vocab_size = vocabulary.size
    if context_tokens > 48:  # heads wide enough for attention to sum in parts
        config.head_dim = 32
    torch.manual_seed(seed)
    return Model(LoadedModel(LlamaForCausalLM(config).eval(), vocabulary))


def poor_in_memory(
    monkeypatch: pytest.MonkeyPatch, most_rows: int, from_pass: int = 0
) -> list[int]:
    """Let passes of more rows run out of memory; return the rows of each pass, as they come."""
    forward, passes = LlamaModel.forward, list[int]()

    @wraps(forward)
    def poor(self: LlamaModel, input_ids: torch.Tensor, **more: Any) -> Any:
        passes.append(len(input_ids))
        if len(input_ids) > most_rows and len(passes) > from_pass:
            raise torch.OutOfMemoryError("no more")
        return forward(self, input_ids=input_ids, **more)

    monkeypatch.setattr(LlamaModel, "forward", poor)
    return passes


def agree(counts: np.ndarray, p: np.ndarray) -> bool:
    """Chi-square, cells of fewer than five expected joined, against its mean and five deviations.

    The last term is for the tail of few degrees of freedom: with one, 23 has p = 2e-6.
    """
    expected = counts.sum() * p / p.sum()
    assert counts[p < 1e-12].sum() == 0
    rare = expected < 5
    cells = [*zip(counts[~rare], expected[~rare], strict=True)]
    cells += [(counts[rare].sum(), max(expected[rare].sum(), 1.0))]
    return sum((n - e) ** 2 / e for n, e in cells) < len(cells) + 5 * (2 * len(cells)) ** 0.5 + 12


RULES = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"top_k": 3},
    {"top_p": 0.6},
    {"min_p": 0.3},
    {"temperature": 1.4, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
]


def occurrences(motif: str, text: str) -> list[int]:
    """Where a motif of IUPAC letters stands in a text of them, an unknown base being any."""
    return [
        at
        for at in range(len(text) - len(motif) + 1)
        if all(
            set(IUPAC_BASES[m]) & set(IUPAC_BASES[t])
            for m, t in zip(motif, text[at:], strict=False)
        )
    ]


def keeps(constraints: Constraints, prompt: str, bases: str, right: str = "") -> bool:
    """Look at the finished text for all that the constraints say."""
    start, end = len(prompt), len(prompt) + len(bases)
    text = prompt + bases + right
    for motif in constraints.forbid:
        if any(at < end and at + len(motif) > start for at in occurrences(motif, text)):
            return False
    if not all(occurrences(motif, bases) for motif in constraints.require):
        return False
    if constraints.no_stop_frame is not None:
        for at in range(constraints.no_stop_frame, len(text) - 2, 3):
            touches = at < end and at + 3 > start
            if touches and any(occurrences(stop, text[at : at + 3]) for stop in STOP_CODONS):
                return False
    if constraints.protein is not None and str(Seq(bases).translate()) != constraints.protein:
        return False
    if constraints.gc:
        window_bp = constraints.gc_window_bp or len(bases)
        for window in chunks_of(bases, window_bp):
            count = sum(base in "GC" for base in window)
            least, most = (share * len(window) for share in constraints.gc)
            if len(window) < window_bp:
                least, most = math.floor(least + 1e-9), math.ceil(most - 1e-9)
            if not least - 1e-9 <= count <= most + 1e-9:
                return False
    return True


def chunks_of(bases: str, size: int) -> list[str]:
    return [bases[at : at + size] for at in range(0, len(bases), size)]

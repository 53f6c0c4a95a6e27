"""Scores, variants and what is generated, against the same network on the CPU."""

import copy
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.genome import Reference, Variant
from carbon.inference import Model
from carbon.inference.generate import decode
from carbon.inference.generate.decode import CudaGraph
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE
from tests.helpers.files import random_bases, write_fasta

BASES = random_bases(400, 3)
SEQUENCES = [BASES[:300], BASES[7:120].lower(), "ACGTN" * 9]
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 0.03}


@pytest.fixture(params=list(CLOSE), ids=["fp32", "bf16"])
def there(device: str, network: LlamaForCausalLM, request: pytest.FixtureRequest) -> Model:
    """Return the model on the device, in a dtype."""
    moved = copy.deepcopy(network).to(device=device, dtype=request.param)  # type: ignore[call-arg]
    return Model(LoadedModel(moved, NATIVE))


def closeness(there: Model) -> float:
    """Return by how much what is found may be off, in shares of what is expected."""
    return CLOSE[there.model.network.dtype]


def test_scores(there: Model, model: Model) -> None:
    for found, expected in zip(there.score(SEQUENCES), model.score(SEQUENCES), strict=True):
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=closeness(there))
        assert found.num_known_bases == expected.num_known_bases


def test_variants(there: Model, model: Model, tmp_path: Path) -> None:
    reference = Reference(write_fasta(tmp_path / "r.fa", {"c": BASES}))
    some = [Variant("c", 150, BASES[150], alt) for alt in "ACGT" if alt != BASES[150]]
    some += [
        Variant("c", 200, BASES[200], BASES[200] + "ACG"),
        Variant("c", 90, BASES[90:93], BASES[90]),
    ]
    found = [score.delta for score in there.score_variants(reference, some)]
    expected = [score.delta for score in model.score_variants(reference, some)]
    largest = max(abs(delta) for delta in expected if delta is not None)
    assert found == pytest.approx(expected, abs=10 * closeness(there) * largest)


def test_what_is_generated(there: Model, model: Model) -> None:
    prompts = [BASES[:60], "", BASES[100:143]]
    found = there.generate(prompts, 60, temperature=0.0)
    assert [len(text) for text in found] == [60, 60, 60]
    assert found == there.generate(prompts, 60, temperature=0.0)
    if there.dtype == "float32":
        assert found == model.generate(prompts, 60, temperature=0.0)


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"seed": 3}, {"mode": "base"}])
def test_graphs_find_what_the_plain_way_finds(there: Model, options: dict[str, Any]) -> None:
    """Rows of many lengths, tails, a context that fills; a step of the same kernels either way."""
    prompts = [BASES[:60], "", BASES[100:143], BASES[:270]]
    made = 0

    class Counted(CudaGraph):
        def __init__(self, *given: Any) -> None:
            nonlocal made
            made += 1
            super().__init__(*given)

    with mock.patch.object(decode, "CudaGraph", Counted):
        found = there.generate(prompts, 90, **options)
    assert made > 0
    with mock.patch.object(decode, "_GRAPH_DEVICES", set()):
        assert found == there.generate(prompts, 90, **options)

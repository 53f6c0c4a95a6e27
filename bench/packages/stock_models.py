"""Variants by a stock model of single bases, compared with a bare batched loop.

The loop shares the prefix of both alleles, as Carbon does, and does nothing else: no VCF, no
normalisation, no strands.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inputs import random_reference, snvs_at
from measure import Measure, at_least, at_most
from transformers import Qwen3Config, Qwen3ForCausalLM

from carbon.batching import in_blocks
from carbon.genome import Interval, Reference, Variant
from carbon.inference import Model
from carbon.model import LoadedModel
from carbon.model.load import cache_arguments, cache_of
from carbon.tokenizer import KmerVocabulary

WINDOW_BP = 255
_LEFT_BP = WINDOW_BP // 2
_BATCH_VARIANTS = 16  # of two rows each: as many tokens as a batch of Carbon's on a CPU
_TURN_VARIANTS = 48
_BEGIN, _FIRST = 0, 2  # ids: the begin token, unknown, and A, T, C, G


def measures(quick: bool) -> list[Measure]:
    """Score SNVs in windows of 255 bp by both, in turns; CPU seconds of a core."""
    model, number = random_single_base_model(), 48 if quick else 1000
    seconds = {"ours": 0.0, "loop": 0.0}
    largest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        reference = random_reference(Path(folder), 20_000)
        # One SNV a position: Carbon would read the prefix and REF of several only once.
        variants = snvs_at(reference, range(1_000, 1_000 + 18 * number, 18), alts=1)
        for turn in in_blocks(variants, _TURN_VARIANTS):
            deltas = {}
            for name, work in (("ours", deltas_of_carbon), ("loop", deltas_in_a_loop)):
                start = time.process_time()
                deltas[name] = work(model, reference, turn)
                seconds[name] += time.process_time() - start
            difference = np.subtract(deltas["ours"], deltas["loop"])
            largest = max(largest, float(np.abs(difference).max()))
    return [
        Measure("single_bases:variants_per_second", number / seconds["ours"], "/s"),
        at_least("single_bases:of_a_bare_loop", seconds["loop"] / seconds["ours"], "times", 0.9),
        at_most("single_bases:difference", largest, "nats", 1e-4),
    ]


def random_single_base_model() -> Model:
    """Return a Qwen3 of 25 million random parameters with one token a base and a begin token."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=6, hidden_size=512, intermediate_size=2048, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=8, head_dim=64, max_position_embeddings=256,
    )  # fmt: skip
    vocabulary = KmerVocabulary(k=1, ids=np.arange(_FIRST, _FIRST + 4), begin=_BEGIN, other=1)
    network: Any = Qwen3ForCausalLM(config)
    return Model(LoadedModel(network.train(False), vocabulary))


def deltas_of_carbon(model: Model, reference: Reference, variants: list[Variant]) -> list[float]:
    """Score the window of each variant on the forward strand."""
    options: Any = {"protocol": "centered", "strands": "forward"}
    scores: Any = model.score_variants(reference, variants, **options)
    return [score.delta for score in scores]


@torch.inference_mode()
def deltas_in_a_loop(model: Model, reference: Reference, variants: list[Variant]) -> list[float]:
    """Score the window of each variant on the forward strand, with one prefix for both alleles."""
    network: Any = model.model.network
    head = network.lm_head.weight[_FIRST : _FIRST + 4].float()
    deltas: list[float] = []
    for batch in in_blocks(variants, _BATCH_VARIANTS):
        prefixes, rows = _ids_of(reference, batch)
        output = network.model(prefixes, **cache_arguments(network.model))
        cache = cache_of(output)
        cache.batch_repeat_interleave(2)
        states = network.model(rows[:, :-1], **cache_arguments(network.model, cache))[0]
        before = torch.cat([output[0][:, -1:].repeat_interleave(2, dim=0), states], dim=1)
        log_p = (before.float() @ head.T).log_softmax(dim=-1)
        totals = log_p.gather(2, rows[:, :, None] - _FIRST)[..., 0].sum(dim=1)
        deltas += (totals[1::2] - totals[0::2]).tolist()
    return deltas


def _ids_of(reference: Reference, variants: list[Variant]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids before the variants, and from them on with REF and with ALT in turn."""
    lefts, rights = [], []
    for variant in variants:
        start = variant.position - _LEFT_BP
        bases = reference.fetch(Interval(variant.contig, start, start + WINDOW_BP)).upper()
        ids = [_FIRST + "ATCG".index(base) for base in bases]
        lefts.append([_BEGIN, *ids[:_LEFT_BP]])
        for allele in (variant.ref, variant.alt):
            rights.append([_FIRST + "ATCG".index(allele), *ids[_LEFT_BP + 1 :]])
    return torch.tensor(lefts), torch.tensor(rights)

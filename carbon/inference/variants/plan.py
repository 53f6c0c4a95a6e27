"""Estimate the cost of scoring variants: count their tokens, and time the first of them."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from carbon.genome import Reference, Variant, VcfRow
from carbon.inference.jobs import VariantJob
from carbon.inference.variants.files import (
    blocks_of,
    checked_records,
    reader_of,
    vcf_of,
    why_unwritable,
)
from carbon.inference.variants.score import num_tokens, score_variants
from carbon.inference.variants.windows import Method, method_for
from carbon.model.presets import PRESETS
from carbon.parallel.options import WorkerOptions

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from carbon.inference.runner import ModelRunner

_LEAST_SECONDS = 2.0
H200_TOKENS_PER_SECOND = {"500m": 222_499, "3b": 55_381}
"""Scoring in bf16 on one H200, by preset; measured with rows of 8,192 tokens."""


def plan_variant_job(job: VariantJob, options: WorkerOptions) -> dict[str, Any]:
    """Estimate the tokens and the time of scoring a VCF, without writing output.

    Tokens are counted, padding included. The time is extrapolated from the first variants, which
    are scored here for at least two seconds.

    Args:
        job: the job.
        options: only the device is used.

    Returns:
        `records` and `alleles`; `tokens`, and `tokens_per_variant`; `tokens_per_second` of this
        process and `hours` in one such process; `hours_h200` on one H200, if the model is of a
        size whose speed was measured there; and the settings of the method.

    Raises:
        GenomeError, UserError: as for `run_variant_job`.
    """
    with vcf_of(job) as path, Reference(job.reference) as reference:
        vcf = reader_of(job, path, reference)
        num_records = checked_records(vcf, reference, job, why_unwritable)
        runner = job.loading.load(options.device).runner
        method = method_for(runner, job.method, job.scores)
        settings = method.settings()
        num_alleles, costs = costs_of(
            runner, reference, lambda: map(_variants, blocks_of(vcf, settings)), method
        )
    return {"records": num_records, "alleles": num_alleles, **costs, **settings}


def costs_of(
    runner: "ModelRunner",
    reference: Reference,
    blocks: Callable[[], Iterator[list[Variant]]],
    method: Method,
) -> tuple[int, dict[str, Any]]:
    """Return the number of variants, and the tokens and the time of scoring them.

    Args:
        runner: runner of the model.
        reference: the reference sequence.
        blocks: yields the variants in blocks that are scored together; called twice.
        method: scoring method.
    """
    num_variants = tokens = 0
    for variants in blocks():
        num_variants += len(variants)
        tokens += num_tokens(runner, reference, variants, method)
    speed = _tokens_per_second(runner, reference, blocks(), method)
    return num_variants, {
        "tokens": tokens,
        "tokens_per_variant": round(tokens / max(num_variants, 1), 1),
        "tokens_per_second": round(speed),
        "hours": _hours(tokens, speed),
        **hours_h200(runner.network.config, tokens),
    }


def hours_h200(config: "PreTrainedConfig", tokens: int) -> dict[str, float]:
    """Return `hours_h200` of a model, empty if the speed of its size was not measured."""
    for preset, speed in H200_TOKENS_PER_SECOND.items():
        if PRESETS[preset].is_of(config):
            return {"hours_h200": _hours(tokens, speed)}
    return {}


def _hours(tokens: int, tokens_per_second: float) -> float:
    return round(tokens / tokens_per_second / 3600, 4) if tokens else 0.0


def _variants(block: list[VcfRow]) -> list[Variant]:
    return [variant for row in block if not row.disagreement for variant in row.variants]


def _tokens_per_second(
    runner: "ModelRunner", reference: Reference, blocks: Iterator[list[Variant]], method: Method
) -> float:
    """Score the first variants for long enough; return the tokens per second."""
    tokens, seconds = 0, 0.0
    for variants in blocks:
        began = time.perf_counter()
        list(score_variants(runner, reference, variants, method))
        seconds += time.perf_counter() - began
        tokens += num_tokens(runner, reference, variants, method)
        if seconds > _LEAST_SECONDS:
            break
    return tokens / seconds if tokens else 0.0

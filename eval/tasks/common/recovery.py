"""Sequence recovery: the share of the next bases that a greedy continuation gets right."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from carbon.batching import in_blocks
from carbon.inference.options import Mode
from eval.contract import Curve, Example, Model, Result, Summary
from eval.metrics import by_group, by_score, estimate, summary_of
from eval.tables import Row

TARGET_BP = 30
_BLOCK = 64
_MODES: tuple[Mode, ...] = ("token", "base")


def run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield the bases that token mode and base mode get right, in order.

    The data of an example are its row, with `sequence` and `label`, and `prompt_bp`, which is cut
    to multiples of `step_bp` in a shorter context.
    """
    for block in in_blocks(examples, _BLOCK):
        prompts = [_prompt(model, example) for example in block]
        texts = {mode: model.generate(prompts, TARGET_BP, mode) for mode in _MODES}
        for n, example in enumerate(block):
            target = example.data["row"].dna("label", slice(TARGET_BP))
            hits = {mode: hits_of(texts[mode][n], target) for mode in _MODES}
            yield example.result(
                score=hits["token"].count("1") / TARGET_BP,
                base_mode=hits["base"].count("1") / TARGET_BP,
                hits=hits["token"],
                base_hits=hits["base"],
            )


def _prompt(model: Model, example: Example) -> str:
    row: Row = example.data["row"]
    prompt_bp: int = example.data["prompt_bp"]
    if model.context_bp is not None and (step_bp := example.data.get("step_bp")):
        prompt_bp = min(prompt_bp, (model.context_bp - TARGET_BP) // step_bp * step_bp)
    return row.dna("sequence", slice(-prompt_bp, None))


def hits_of(text: str, target: str) -> str:
    """Return 1 for each base that is right and 0 for each that is wrong or missing.

    >>> hits_of("ACGT", "ACCTA")
    '11010'
    """
    return "".join(str(int(text[n : n + 1] == base)) for n, base in enumerate(target))


def summarise(results: Sequence[Result]) -> Summary:
    """Return the mean of token mode, and base mode next to it, by group and by position."""
    in_base_mode = by_score(results, "base_mode")
    groups = {"group": by_group(results, "group", "mean")}
    groups["group_base_mode"] = by_group(in_base_mode, "group", "mean")
    return replace(
        summary_of(results, "mean"),
        others={"base_mode": estimate(in_base_mode, "mean")},
        groups={name: table for name, table in groups.items() if set(table) != {""}},
        curves={
            "recovery_by_position": _by_position(results, "hits"),
            "recovery_by_position_base_mode": _by_position(results, "base_hits"),
        },
    )


def _by_position(results: Sequence[Result], key: str) -> Curve:
    hits = np.array([[hit == "1" for hit in result[key]] for result in results])
    places = [float(place) for place in range(1, TARGET_BP + 1)]
    return Curve("base after the prompt", "recovered", places, hits.mean(axis=0).tolist())

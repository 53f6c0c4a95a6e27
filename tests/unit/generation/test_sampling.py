"""The distribution of the next 6-mer against its definitions, and draws against it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import UserError
from carbon.inference import Constraints, SamplingRule
from carbon.inference.checks import NotFinite
from carbon.inference.generate import sampling
from carbon.inference.generate.prompts import Task, repetitions, rows_for_prompts
from carbon.inference.options import MODES
from tests.helpers.generation import RULES, agree
from tests.helpers.reference import INDEX, KMERS

# Every rule and every mode, for properties that no pair of them makes special.
RULES_IN_MODES = [([*MODES][n % len(MODES)], rule) for n, rule in enumerate(RULES)]


def tensor(array: np.ndarray | None) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array)


def draw(logits, rule, uniform, allowed):
    drawn = sampling.draw(tensor(logits), rule, tensor(uniform), tensor(allowed))
    return drawn.numpy()


def distribution(logits, rule, allowed):
    return sampling.distribution(tensor(logits), rule, tensor(allowed)).numpy()


def random_logits(rows: int, seed: int = 0) -> np.ndarray:
    return (2 * np.random.default_rng(seed).normal(size=(rows, 4096))).astype(np.float32)


def slow_cut(weights: dict[str, float], rule: SamplingRule) -> dict[str, float]:
    """Temperature and cuts, one after the other, each on what the one before left."""
    total = sum(weights.values())
    p = {choice: w / total for choice, w in weights.items() if w > 0}
    if rule.temperature == 0:
        return {max(p, key=p.get): 1.0}
    p = {choice: q ** (1 / rule.temperature) for choice, q in p.items()}
    ranked = sorted(p, key=p.get, reverse=True)
    if rule.top_k:
        ranked = ranked[: rule.top_k]
    if rule.top_p:
        total, kept, held = sum(p[c] for c in ranked), [], 0.0
        for choice in ranked:
            if held >= rule.top_p * total:
                break
            kept.append(choice)
            held += p[choice]
        ranked = kept
    if rule.min_p:
        ranked = [c for c in ranked if p[c] >= rule.min_p * p[ranked[0]]]
    total = sum(p[c] for c in ranked)
    return {c: p[c] / total for c in ranked}


def slow_distribution(
    logits: np.ndarray, rule: SamplingRule, allowed: np.ndarray
) -> dict[str, float]:
    """The probability of each 6-mer, by the definitions."""
    z = logits.astype(float)
    weights = {k: math.exp(z[i] - z.max()) for i, k in enumerate(KMERS) if allowed[i]}
    if rule.mode == "token":
        return slow_cut(weights, rule)
    by_prefix: dict[str, float] = {}
    by_place: dict[tuple[int, str], float] = {}
    for kmer, w in weights.items():
        for n in range(6):
            by_prefix[kmer[: n + 1]] = by_prefix.get(kmer[: n + 1], 0.0) + w
            by_place[n, kmer[n]] = by_place.get((n, kmer[n]), 0.0) + w
    found = {"": 1.0}
    for n in range(6):
        longer = {}
        for prefix, share in found.items():
            possible = [b for b in "ATCG" if prefix + b in by_prefix]
            bases = {
                b: by_prefix[prefix + b] if rule.mode == "chain" else by_place[n, b]
                for b in possible
            }
            longer |= {prefix + b: share * p for b, p in slow_cut(bases, rule).items()}
        found = longer
    return found


@pytest.mark.parametrize(
    ("mode", "settings", "masked"),
    [(m, rule, (i + j) % 2) for i, m in enumerate(MODES) for j, rule in enumerate(RULES)],
)
def test_distribution_is_that_of_the_definitions(mode, settings, masked):
    rule = SamplingRule(mode=mode, **settings)
    logits = random_logits(2)
    allowed = np.random.default_rng(1).random((2, 4096)) < (0.01 if masked else 2)
    ours = distribution(logits, rule, allowed if masked else None)
    for row, z, mask in zip(ours, logits, allowed, strict=True):
        slow = slow_distribution(z, rule, mask)
        expected = [slow.get(kmer, 0.0) for kmer in KMERS]
        np.testing.assert_allclose(row, expected, rtol=2e-4, atol=1e-9)


@pytest.mark.parametrize(("mode", "settings"), RULES_IN_MODES)
def test_draws_have_the_distribution(mode, settings):
    rule = SamplingRule(mode=mode, **settings)
    num, random = 2000, np.random.default_rng(2)
    allowed = np.zeros((1, 4096), dtype=bool)
    allowed[0, random.choice(4096, 12, replace=False)] = True
    logits = random_logits(1)
    p = distribution(logits, rule, allowed)[0]
    draws = [
        draw(np.repeat(logits, 200, 0), rule, random.random((200, 6)), allowed.repeat(200, 0))
        for _ in range(num // 200)
    ]
    counts = np.bincount(np.concatenate(draws), minlength=4096)
    assert agree(counts, p)


def test_the_chain_at_temperature_1_is_the_token():
    logits, uniform = random_logits(200), np.random.default_rng(3).random((200, 6))
    token, chain = (draw(logits, SamplingRule(mode=m), uniform, None) for m in ("token", "chain"))
    np.testing.assert_array_equal(token, chain)


@pytest.mark.parametrize(("mode", "settings"), RULES_IN_MODES)
def test_a_row_is_drawn_as_if_alone(mode, settings):
    rule = SamplingRule(mode=mode, **settings)
    logits, uniform = random_logits(33), np.random.default_rng(4).random((33, 6))
    together = draw(logits, rule, uniform, None)
    alone = [draw(logits[n : n + 1], rule, uniform[n : n + 1], None)[0] for n in range(33)]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("mode", MODES)
def test_the_ends_of_temperature(mode):
    """The least takes the most likely; at neither is anything drawn that is not allowed."""
    logits, uniform = random_logits(20), np.random.default_rng(5).random((20, 6))
    allowed = np.random.default_rng(6).random((20, 4096)) < 0.01
    greedy, coldest, hottest = (
        draw(logits, SamplingRule(mode=mode, temperature=temperature), uniform, allowed)
        for temperature in (0.0, 1e-6, 100.0)
    )
    np.testing.assert_array_equal(coldest, greedy)
    assert allowed[range(20), hottest].all() and not np.array_equal(hottest, greedy)


@pytest.mark.parametrize("mode", MODES)
def test_top_p_of_1_cuts_nothing(mode):
    logits, whole = random_logits(50), SamplingRule(mode=mode)
    cut = distribution(logits, SamplingRule(mode=mode, top_p=1), None)
    np.testing.assert_array_equal(cut, distribution(logits, whole, None))


@pytest.mark.parametrize("top_p", [0.9, 0.999, 1 - 1e-6])
def test_top_p_adds_up_thousands_of_small_weights(top_p):
    for row in random_logits(10):
        kept = (distribution(row[None], SamplingRule(top_p=top_p), None) > 0).sum()
        ranked = np.sort(np.exp(row - row.max()).astype(np.float64))[::-1]
        least = np.searchsorted(ranked.cumsum(), top_p * ranked.sum()) + 1
        assert kept == least


@pytest.mark.parametrize("wrong", [math.nan, -math.inf])
def test_logits_that_are_not_finite_are_refused(wrong):
    rows = rows_for_prompts(["ACG", "AC"], Task(60, SamplingRule()))
    logits = torch.from_numpy(random_logits(2))
    logits[1, 7] = wrong
    with pytest.raises(NotFinite, match="prompt 2"):
        sampling.conditioned(rows, logits)


@given(st.text("ACGTN", max_size=60))
def test_repetitions_are_counted_in_any_frame(sequence):
    counts = repetitions(np.array(["ATCG".find(base) for base in sequence], dtype=np.int8))
    windows = [sequence[i : i + 6] for i in range(len(sequence) - 5)]
    for kmer in {*windows, "AAAAAA"}:
        if "N" not in kmer:
            assert counts[INDEX[kmer]] == windows.count(kmer)
    assert counts.sum() == sum("N" not in window for window in windows)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": math.nan}, {"temperature": 9e-7}, {"temperature": 101.0}, {"top_k": 0},
        {"top_p": 0.0}, {"min_p": 1.5}, {"repetition_penalty": -1.0}, {"repetition_window_bp": 5},
        {"length_bp": 0}, {"seed": -1}, {"seed": 2**64},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(model, wrong):
    with pytest.raises(UserError, match="give"):
        model.generate([""], **({"length_bp": 6} | wrong))


def test_more_than_memory_holds_is_refused(model):
    refused = pytest.raises(UserError, match="give 1,000,000 sequences and 1,000,000,000 bases")
    for constraints in (Constraints(forbid=("GAATTC",)), Constraints(gc=(0.4, 0.6))):
        with refused:
            model.generate([""], 10**12, constraints=constraints)
    with refused:
        model.generate([""] * 1001, 10**6)
    with refused:
        model.stream("", 10**9 + 1)
    with refused:
        model.infill("ACG", "ACG", 6, candidates=10**6 + 1)

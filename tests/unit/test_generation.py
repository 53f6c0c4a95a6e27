"""Generated DNA against stock transformers, brute force over all 6-mers, and itself alone."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from carbon.cli import main
from carbon.errors import UserError
from carbon.genome import STOP_CODONS
from carbon.genome.alphabet import IUPAC_BASES
from carbon.inference import Carbon, Constraints, Draft, SamplingRule
from carbon.inference.generation.automaton import automaton_for
from carbon.inference.generation.continuation import Task, continuations
from carbon.inference.generation.decoding import Decoder
from carbon.inference.generation.sampling import distribution, draw, repetitions, walk
from carbon.inference.generation.speculative import _check, _Proposal
from carbon.model import LoadedModel, save_model
from carbon.options import MODES
from carbon.tokenizer import HYBRID, NATIVE, encode
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.reference import (
    INDEX,
    KMERS,
    mass,
    stock_distribution,
    stock_log_likelihood,
)

PROMPTS = [random_bases(n, seed=n) for n in (0, 1, 5, 6, 7, 30, 47, 120, 200, 281, 282, 283, 600)]


def other_network(seed: int, vocabulary=NATIVE, context_tokens: int = 48) -> Carbon:
    config = small_config(context_tokens)
    config.vocab_size = vocabulary.size
    if context_tokens > 48:  # heads wide enough for attention to sum in parts
        config.head_dim = 32
    torch.manual_seed(seed)
    return Carbon(LoadedModel(LlamaForCausalLM(config).eval(), vocabulary))


@pytest.fixture(scope="module")
def likeness(network) -> Carbon:
    """A draft that is like the network, but not quite."""
    like = LlamaForCausalLM(network.config).eval()
    like.load_state_dict(network.state_dict())
    with torch.no_grad():
        like.lm_head.weight += 0.02 * torch.randn(
            like.lm_head.weight.shape, generator=torch.Generator().manual_seed(3)
        )
    return Carbon(LoadedModel(like, NATIVE))


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


# Sampling


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


RULES = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"top_k": 3},
    {"top_p": 0.6},
    {"min_p": 0.3},
    {"temperature": 1.4, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
]


class TestSampling:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("settings", RULES)
    @pytest.mark.parametrize("some", [False, True])
    def test_distribution_is_that_of_the_definitions(self, mode, settings, some):
        rule = SamplingRule(mode=mode, **settings)
        logits = random_logits(2)
        allowed = np.random.default_rng(1).random((2, 4096)) < (0.01 if some else 2)
        ours = distribution(logits, rule, allowed if some else None)
        for row, z, mask in zip(ours, logits, allowed, strict=True):
            slow = slow_distribution(z, rule, mask)
            expected = [slow.get(kmer, 0.0) for kmer in KMERS]
            np.testing.assert_allclose(row, expected, rtol=2e-4, atol=1e-9)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("settings", RULES)
    def test_draws_have_the_distribution(self, mode, settings):
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

    def test_the_chain_at_temperature_1_is_the_token(self):
        logits, uniform = random_logits(200), np.random.default_rng(3).random((200, 6))
        token, chain = (
            draw(logits, SamplingRule(mode=m), uniform, None) for m in ("token", "chain")
        )
        np.testing.assert_array_equal(token, chain)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("settings", RULES)
    def test_a_row_is_drawn_as_if_alone(self, mode, settings):
        rule = SamplingRule(mode=mode, **settings)
        logits, uniform = random_logits(65), np.random.default_rng(4).random((65, 6))
        together = draw(logits, rule, uniform, None)
        alone = [draw(logits[n : n + 1], rule, uniform[n : n + 1], None)[0] for n in range(65)]
        np.testing.assert_array_equal(together, alone)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("temperature", [1e-6, 100.0])
    def test_the_ends_of_temperature(self, mode, temperature):
        """The least takes the most likely; at none is anything drawn that is not allowed."""
        logits, uniform = random_logits(20), np.random.default_rng(5).random((20, 6))
        allowed = np.random.default_rng(6).random((20, 4096)) < 0.01
        drawn = draw(logits, SamplingRule(mode=mode, temperature=temperature), uniform, allowed)
        assert allowed[range(20), drawn].all()
        if temperature < 1:
            greedy = draw(logits, SamplingRule(mode=mode, temperature=0.0), uniform, allowed)
            np.testing.assert_array_equal(drawn, greedy)

    @pytest.mark.parametrize("mode", MODES)
    def test_top_p_of_1_cuts_nothing(self, mode):
        logits, uniform = random_logits(50), np.random.default_rng(7).random((50, 6))
        whole, cut = SamplingRule(mode=mode), SamplingRule(mode=mode, top_p=1)
        np.testing.assert_array_equal(
            distribution(logits, whole, None), distribution(logits, cut, None)
        )
        np.testing.assert_array_equal(
            draw(logits, whole, uniform, None), draw(logits, cut, uniform, None)
        )

    @pytest.mark.parametrize("top_p", [0.9, 0.999, 1 - 1e-5, 1 - 1e-6])
    def test_top_p_adds_up_thousands_of_small_weights(self, top_p):
        for row in random_logits(20):
            kept = (distribution(row[None], SamplingRule(top_p=top_p), None) > 0).sum()
            ranked = np.sort(np.exp(row - row.max()).astype(np.float64))[::-1]
            least = np.searchsorted(ranked.cumsum(), top_p * ranked.sum()) + 1
            assert kept == least

    @pytest.mark.parametrize("settings", RULES)
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("wrong", [math.nan, -math.inf])
    @pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
    def test_where_there_is_nothing_to_draw_from_nothing_is_drawn(self, mode, settings, wrong):
        logits, uniform = random_logits(3), np.zeros((3, 6))
        logits[1] = wrong
        with pytest.raises(FloatingPointError, match="the logits are no numbers"):
            draw(logits, SamplingRule(mode=mode, **settings), uniform, None)
        with pytest.raises(FloatingPointError):
            walk(np.zeros((1, 4096)), uniform[:1])

    @given(st.text("ACGTN", max_size=60))
    def test_repetitions_are_counted_in_any_frame(self, sequence):
        counts = repetitions(np.array(["ATCG".find(base) for base in sequence], dtype=np.int8))
        windows = [sequence[i : i + 6] for i in range(len(sequence) - 5)]
        for kmer in {*windows, "AAAAAA"}:
            if "N" not in kmer:
                assert counts[INDEX[kmer]] == windows.count(kmer)
        assert counts.sum() == sum("N" not in window for window in windows)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"temperature": -1},
            {"temperature": math.nan},
            {"temperature": 1e-40},
            {"temperature": 9e-7},
            {"temperature": 101.0},
            {"top_k": 0},
            {"top_p": 0.0},
            {"min_p": 1.5},
            {"mode": "word"},
            {"repetition_penalty": -1.0},
            {"repetition_window_bp": 5},
            {"length_bp": 0},
            {"seed": -1},
            {"seed": 2**64},
        ],
    )
    def test_settings_that_make_no_sense(self, model, wrong):
        with pytest.raises(UserError, match="give"):
            model.generate([""], **({"length_bp": 6} | wrong))

    def test_more_than_memory_holds_is_refused(self, model):
        too_much = "sequences of .* bases: give 1,000,000 sequences and 1,000,000,000 bases in all"
        for constraints in (Constraints(forbid=("GAATTC",)), Constraints(gc=(0.4, 0.6))):
            with pytest.raises(UserError, match=too_much):
                model.generate([""], 10**12, constraints=constraints)
        with pytest.raises(UserError, match=too_much):
            model.generate([""] * 1001, 10**6)
        with pytest.raises(UserError, match=too_much):
            model.stream("", 10**9 + 1)
        with pytest.raises(UserError, match=too_much):
            model.infill("ACG", "ACG", 6, candidates=10**6 + 1)


# Reading rows side by side


class TestDecoder:
    @pytest.mark.parametrize("context_tokens", [48, 700])
    @pytest.mark.parametrize("at_once", [1, 3])
    def test_a_row_is_read_as_if_alone_to_the_last_bit(self, context_tokens, at_once):
        """Short and long neighbours, rows that start again, rows in which nothing is read."""
        reader = other_network(5, context_tokens=context_tokens).reader
        lengths = [0, 40, 100, 130, 280] if context_tokens == 48 else [0, 700, 1300, 2100, 4100]
        prompts = [random_bases(n, seed=n) for n in lengths]
        kmers = np.random.default_rng(6).integers(0, 4096, (len(prompts), 8, at_once)).tolist()

        def read(rows: list[int]) -> list[list[torch.Tensor]]:
            decoder = Decoder(reader, [prompts[row] for row in rows], ())
            heard = [[logits[0]] for logits in decoder.read([[] for _ in rows])]
            for step in range(8):
                fresh = [kmers[row][step] if (row + step) % 5 else [] for row in rows]
                starts = [len(f) > decoder.room(n) for n, f in enumerate(fresh)]
                logits = decoder.read(fresh, at_once)
                for n, new in enumerate(fresh):
                    heard[n] += logits[n, len(new) - 1 if starts[n] else 0 : len(new)]
            return heard

        together = read(list(range(len(prompts))))
        for row in range(len(prompts)):
            (alone,) = read([row])
            assert len(alone) == len(together[row])
            assert all(torch.equal(a, b) for a, b in zip(alone, together[row], strict=True))

    def test_logits_are_those_of_a_whole_stock_forward(self, model, network):
        prompts = [random_bases(n, seed=n) for n in (0, 60, 120)]
        kmers = np.random.default_rng(7).integers(0, 4096, (3, 5)).tolist()
        decoder = Decoder(model.reader, prompts, ("<fungi_species>",))
        decoder.read([[], [], []])
        decoder.read([[*row[:2], 9, 9] for row in kmers], at_once=4)
        for row in range(3):
            decoder.forget(row, 2)
        logits = decoder.read([row[2:] for row in kmers], at_once=3)
        for prompt, row, found in zip(prompts, kmers, logits, strict=True):
            ids = [*encode(prompt, tags=("<fungi_species>",)).ids, *(128 + k for k in row)]
            with torch.inference_mode():
                expected = network(torch.tensor([ids])).logits[0, -3:, NATIVE.kmer_rows]
            torch.testing.assert_close(found[:3], expected, atol=2e-5, rtol=1e-5)

    @pytest.mark.parametrize("tags", [(), ("<fungi_species>", "<transfer_rna>")])
    @pytest.mark.parametrize("taken_back", [8, 10, 11, 12, 13])
    def test_a_row_of_which_all_is_taken_back_is_read_anew(self, tags, taken_back):
        """A context of 16 tokens is full; the row starts again, with 8 6-mers, and reads two."""
        reader = other_network(5, context_tokens=16).reader
        num_prefix = len(tags) + 1
        whole = random_bases(6 * (16 - num_prefix + 3))
        decoder = Decoder(reader, [whole[:-18]], tags)
        decoder.read([[]])
        for at in (-18, -12, -6):
            decoder.read([[INDEX[whole[at:][:6]]]])
        assert decoder.room(0) == 16 - (num_prefix + 10)
        decoder.forget(0, taken_back)
        if taken_back <= 10:
            assert decoder.room(0) == 16 - (num_prefix + 10) + taken_back
        else:
            assert decoder.room(0) == 0
            fresh = Decoder(reader, [whole[: -6 * taken_back]], tags)
            assert torch.equal(decoder.read([[7]]), fresh.read([[7]]))

    def test_attention_by_name(self, network):
        """A network with eager attention takes the same mask."""
        eager = LlamaForCausalLM(network.config).eval()
        eager.load_state_dict(network.state_dict())
        eager.set_attn_implementation("eager")
        texts = [
            Carbon(LoadedModel(net, NATIVE)).generate(PROMPTS[:8], 60, seed=1)
            for net in (network, eager)
        ]
        eager.set_attn_implementation("sdpa")
        assert texts[0] == texts[1]


# Generation


class TestGenerate:
    def test_greedy_is_that_of_stock_transformers(self, model, network):
        prompt = random_bases(60)
        ids = torch.tensor([encode(prompt).ids.tolist()])
        for _ in range(4):
            with torch.inference_mode():
                logits = network(ids).logits[0, -1, NATIVE.kmer_rows]
            ids = torch.cat([ids, NATIVE.first_kmer + logits.argmax().view(1, 1)], dim=1)
        expected = "".join(KMERS[i - NATIVE.first_kmer] for i in ids[0, -4:].tolist())
        assert model.generate([prompt], 24, temperature=0) == [expected]
        assert model.generate([prompt], 20, temperature=0) == [expected[:20]]

    @pytest.mark.parametrize("tail", ["CG", "NT"])
    def test_a_tail_conditions_the_first_kmer(self, model, network, tail):
        """Frequencies of the next base against the mass of 6-mers that begin with the tail."""
        prompt = random_bases(30)
        p = stock_distribution(network, prompt).tolist()
        pattern = tail.replace("N", "?")
        texts = model.generate([prompt + tail] * 1000, 1, seed=1)
        for base in "ACGT":
            expected = mass(p, (pattern + base).ljust(6, "?")) / mass(p, pattern.ljust(6, "?"))
            spread = math.sqrt(expected * (1 - expected) / 1000)
            assert abs(texts.count(base) / 1000 - expected) < 4.5 * spread + 1e-9

    @pytest.mark.parametrize("tail", ["", "A", "CG", "TAC", "GGTC", "TACGT"])
    def test_the_base_behind_a_tail_is_exact(self, model, network, tail):
        """p(base | prompt) against the sum over all 4,096 6-mers."""
        prompt = random_bases(30)
        p = stock_distribution(network, prompt).tolist()
        step = next(model.stream(prompt + tail, 6))
        assert len(step.bases) == 6 - len(tail)
        for n, base in enumerate("ATCG"):
            expected = mass(p, (tail + base).ljust(6, "?")) / mass(p, tail.ljust(6, "?"))
            assert step.alternatives[0, n] == pytest.approx(expected, rel=1e-4)

    def test_base_mode_draws_from_the_marginals(self, model, network):
        p = stock_distribution(network, "").tolist()
        texts = model.generate([""] * 2000, 6, seed=2, mode="base")
        for place, base in itertools.product((0, 3, 5), "ACGT"):
            expected = mass(p, "?" * place + base + "?" * (5 - place))
            found = sum(text[place] == base for text in texts) / 2000
            assert abs(found - expected) < 4.5 * math.sqrt(expected * (1 - expected) / 2000) + 1e-9

    @pytest.mark.parametrize("mode", MODES)
    def test_company_order_and_batch_do_not_matter(self, model, mode, monkeypatch):
        """Prompts of all lengths, shorter and longer than the context, against each alone."""
        prompts = [*PROMPTS, PROMPTS[5], PROMPTS[5].lower()]
        together = model.generate(prompts, 63, seed=5, mode=mode)
        assert all(len(text) == 63 and set(text) <= set("ACGT") for text in together)
        for prompt, text in zip(PROMPTS, together, strict=False):
            assert model.generate([prompt], 63, seed=5, mode=mode) == [text]
        turned = model.generate(prompts[::-1], 63, seed=5, mode=mode)[::-1]
        assert turned[:5] + turned[6:13] == together[:5] + together[6:13]
        assert sorted([turned[5], *turned[13:]]) == sorted([together[5], *together[13:]])
        assert len({together[5], *together[13:]}) == 3  # samples of one prompt
        monkeypatch.setattr("carbon.inference.generation.drawing._MOST_ROWS", 3)
        assert model.generate(prompts, 63, seed=5, mode=mode) == together
        assert model.generate(prompts, 63, seed=6, mode=mode) != together

    @pytest.mark.parametrize("is_drafted", [False, True])
    def test_memory_that_runs_out_halves_the_batch(
        self, model, network, likeness, is_drafted, monkeypatch, capsys
    ):
        """In the middle too: the batch begins again, with the same numbers."""
        prompts = [PROMPTS[6][: 2 * n] for n in range(20)]
        draft = Draft(likeness) if is_drafted else None
        expected = model.generate(prompts, 30, seed=5, draft=draft)
        forward, passes = type(network.model).forward, []

        def poor(self, input_ids, **more):
            passes.append(len(input_ids))
            if len(input_ids) > 8 and len(passes) > 4:
                raise torch.OutOfMemoryError("no more")
            return forward(self, input_ids=input_ids, **more)

        monkeypatch.setattr(type(network.model), "forward", poor)
        told = []
        found = Carbon(model.model).generate(prompts, 30, seed=5, draft=draft, advance=told.append)
        assert found == expected
        assert sum(told) == 20 * 30 and min(told) < 0
        assert "out of memory with 20 rows" in capsys.readouterr().err
        assert max(passes[5:]) > 8 and passes[-1] <= 8

    def test_other_errors_are_not_taken_for_it(self, model, network, monkeypatch):
        def broken(self, **_):
            raise RuntimeError("no")

        monkeypatch.setattr(type(network.model), "forward", broken)
        with pytest.raises(RuntimeError, match=r"^no$"):
            model.generate(["ACGT", "ACG"], 30)

    def test_every_sample_has_its_own_numbers(self):
        rows = [
            row
            for seed in (0, 1)
            for row in continuations(["", "A", "C", "C"], Task(6, SamplingRule(), seed))
        ]
        assert len({row.random.random() for row in rows}) == 8

    def test_generation_goes_on_when_the_context_is_full(self, model):
        """48 tokens are read; then `<dna>` and the last 24 6-mers start a new context."""
        (text,) = model.generate([""], 600, temperature=0)
        assert len(text) == 600
        # 6-mer 48, from 0, is the first that the new context predicts, from 6-mers 24 to 47.
        prompt = text[24 * 6 : 48 * 6]
        assert model.generate([prompt], 6, temperature=0) == [text[48 * 6 : 49 * 6]]

    def test_a_prompt_may_fill_the_context(self, model, network):
        """47 6-mers and `<dna>` are 48 tokens; none of them is forgotten."""
        prompt = random_bases(282)
        p = stock_distribution(network, prompt)
        assert model.generate([prompt], 6, temperature=0) == [KMERS[p.argmax()]]

    def test_tags_matter(self, model):
        bare, tagged = (
            model.generate([""], 60, temperature=0, tags=t) for t in ((), ("<fungi_species>",))
        )
        assert bare != tagged
        with pytest.raises(UserError, match="tag '<dragon>'"):
            model.generate([""], 6, tags=("<dragon>",))

    def test_top_k_and_top_p_keep_the_likely(self, model):
        greedy = model.generate(["ACGTAC"], 12, temperature=0)
        for cut in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 0.0001}):
            assert model.generate(["ACGTAC"] * 20, 12, **cut) == greedy * 20
        some = model.generate(["ACGTAC"] * 200, 6, top_k=3)
        assert 1 < len(set(some)) <= 3

    def test_a_penalty_keeps_6mers_from_coming_again(self, model):
        """100 nats are more than the spread of this network: no 6-mer of the window comes again."""
        prompt = "ACGTAC" * 20 + "ACG"
        (text,) = model.generate([prompt], 297, repetition_penalty=100.0, repetition_window_bp=150)
        whole = prompt + text
        for at in range(126, 420, 6):
            window = whole[max(0, at - 150) : at]
            assert whole[at : at + 6] not in {window[i : i + 6] for i in range(len(window) - 5)}
        assert model.generate([prompt], 297)[0] != text

    def test_a_prompt_must_be_dna(self, model):
        with pytest.raises(UserError, match="prompt 2: 'E' is not a DNA letter"):
            model.generate(["ACGT", "HELLO"], 6)

    def test_nothing_to_do(self, model):
        assert model.generate([], 6) == []


class TestStream:
    @pytest.mark.parametrize("prompt", PROMPTS[::3])
    def test_it_is_what_generate_gives(self, model, prompt):
        for mode in MODES:
            steps = list(model.stream(prompt, 40, seed=3, mode=mode, top_p=0.9))
            assert ["".join(s.bases for s in steps)] == model.generate(
                [prompt], 40, seed=3, mode=mode, top_p=0.9
            )
            assert all(1 <= len(step.bases) <= 6 for step in steps)

    @pytest.mark.parametrize("prompt_bp", [0, 33])
    def test_probabilities_are_those_of_scoring(self, model, prompt_bp):
        prompt = random_bases(prompt_bp)
        steps = list(model.stream(prompt, 50, temperature=0.5, top_k=50))
        (score,) = model.score([prompt + "".join(step.bases for step in steps)])
        found = np.concatenate([step.probabilities for step in steps])
        np.testing.assert_allclose(np.log(found), score.bases[prompt_bp:], atol=1e-4)
        for step in steps:
            np.testing.assert_allclose(step.alternatives.sum(axis=1), 1, atol=1e-5)
            there = [step.alternatives[n, "ATCG".index(b)] for n, b in enumerate(step.bases)]
            np.testing.assert_array_equal(there, step.probabilities)

    def test_mistakes_are_known_before_the_first_step(self, model):
        for wrong in ({"tags": ("<dragon>",)}, {"constraints": Constraints(require=("A" * 7,))}):
            with pytest.raises(UserError):
                model.stream("ACG", 6, **wrong)


# Constraints


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


def texts_of(motif_letters: str, most: int):
    return st.lists(st.text(motif_letters, min_size=1, max_size=5), max_size=most).map(tuple)


def some_constraints():
    share = st.sampled_from([0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0])
    return st.builds(
        Constraints,
        forbid=texts_of("ACGTRYN", 2),
        require=texts_of("ACGTSW", 2),
        gc=st.none() | st.tuples(share, share).map(sorted).map(tuple),
        no_stop_frame=st.sampled_from([None, 0, 1, 2]),
    )


class TestConstraints:
    @given(
        some_constraints(),
        st.text("ACGTN", max_size=8),
        st.text("ACGTN", max_size=4),
        st.integers(1, 6),
        st.sampled_from([None, 2, 3, 4]),
    )
    @settings(max_examples=50)
    def test_what_is_allowed_is_what_can_be_completed(
        self, constraints, prompt, right, length_bp, window_bp
    ):
        """All 4^n sequences are tried: a 6-mer is allowed if and only if one goes on from it."""
        if constraints.gc and window_bp:
            constraints = Constraints(
                constraints.forbid, constraints.require, constraints.gc, window_bp,
                constraints.no_stop_frame,
            )  # fmt: skip
        good = {
            "".join(bases)
            for bases in itertools.product("ACGT", repeat=length_bp)
            if keeps(constraints, prompt, "".join(bases), right)
        }
        if not good:
            with pytest.raises(UserError, match=f"prompt 1: no {length_bp} bases behind it"):
                automaton_for(constraints, [prompt], length_bp, right)
            return
        automaton = automaton_for(constraints, [prompt], length_bp, right)
        for tail_bp in (0, 2, 5):
            allowed = automaton.allowed(automaton.start(0), tail_bp)
            new_bp = min(length_bp, 6 - tail_bp)
            begins = {bases[:new_bp] for bases in good}
            assert allowed.tolist() == [
                kmer[tail_bp : tail_bp + new_bp] in begins for kmer in KMERS
            ]
            place = automaton.start(0)
            some = min(begins)
            place = automaton.advance(place, ["ATCG".index(base) for base in some])
            if length_bp > new_bp:
                begins = {bases[new_bp:] for bases in good if bases.startswith(some)}
                rest_bp = length_bp - new_bp
                assert automaton.allowed(place).tolist() == [k[:rest_bp] in begins for k in KMERS]

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(
        "constraints",
        [
            Constraints(forbid=("GAATTC", "GGTCTC", "GAGACC", "AAAA", "RGATCY", "CCNGG")),
            Constraints(require=("GGATCC", "ATGNNNTAA")),
            Constraints(gc=(0.45, 0.55), gc_window_bp=20),
            Constraints(gc=(0.48, 0.52)),
            Constraints(no_stop_frame=1),
            Constraints(("AAA", "TTT"), ("GGATCC",), (0.4, 0.6), 30, 0),
        ],
    )
    def test_generated_sequences_keep_to_them(self, model, mode, constraints):
        """Prompts of all lengths, some of them with an N; lengths that cut the last 6-mer."""
        prompts = [*PROMPTS, "GAATT", "ACGTGAAT", "ATGTA", "ACNAA", "GAGACCGGTCT", "TAA", "T"]
        for length_bp in (31, 96):
            texts = model.generate(
                prompts, length_bp, seed=4, mode=mode, constraints=constraints, temperature=1.2
            )
            for prompt, text in zip(prompts, texts, strict=True):
                assert len(text) == length_bp
                assert keeps(constraints, prompt, text)
        free = model.generate(prompts, 96, seed=4, mode=mode)
        assert not all(keeps(constraints, *pair) for pair in zip(prompts, free, strict=True))
        alone = model.generate(
            prompts[-3:-2], 96, seed=4, mode=mode, constraints=constraints, temperature=1.2
        )
        assert alone == texts[-3:-2]

    def test_greedy_takes_the_best_that_is_allowed(self, model, network):
        p = stock_distribution(network, "ACGTAC")
        best = [KMERS[n] for n in np.argsort(-p)[:3]]
        constraints = Constraints(forbid=tuple(best[:2]))
        assert model.generate(["ACGTAC"], 6, temperature=0, constraints=constraints) == [best[2]]

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"require": ("ACGTACGT",)}, "no 7 bases behind it can keep to the required motifs"),
            ({"forbid": ("N",)}, "the forbidden motifs"),
            ({"forbid": ("S",), "gc": (0.5, 1.0)}, "all constraints at once"),
            ({"forbid": ("S", "W"), "require": ("A" * 9,)}, "forbidden motifs or the required"),
            ({"gc": (0.5, 0.5)}, "the GC share"),
        ],
    )
    def test_what_cannot_be_is_said_at_once(self, model, wrong, message):
        with pytest.raises(UserError, match=message):
            model.generate(["A", "ACG"], 7, constraints=Constraints(**wrong))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"forbid": ("",)},
            {"forbid": ("GAXTC",)},
            {"require": ("A" * 1001,)},
            {"gc": (0.6, 0.4)},
            {"gc": (-0.1, 0.4)},
            {"gc_window_bp": 10},
            {"gc": (0.4, 0.6), "gc_window_bp": 0},
            {"no_stop_frame": 3},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, wrong):
        with pytest.raises(UserError, match="give"):
            Constraints(**wrong)

    def test_what_is_too_large_is_refused(self):
        with pytest.raises(UserError, match="give a shorter GC window"):
            automaton_for(Constraints(gc=(0.4, 0.6)), [""], 30_000)
        with pytest.raises(UserError, match="give fewer or plainer ones"):
            automaton_for(Constraints(forbid=("A" + "N" * 18 + "C",)), [""], 100)
        for window_bp in (None, 1, 50):
            with pytest.raises(UserError, match="give a shorter GC window"):
                automaton_for(Constraints(gc=(0.4, 0.6), gc_window_bp=window_bp), [""], 10**12)

    def test_long_sequences_take_little(self):
        """The table of motifs stops growing; that of GC windows is as long as the sequence."""
        automaton = automaton_for(Constraints(forbid=("GAATTC",), no_stop_frame=0), [""], 10**6)
        assert automaton.allowed(automaton.start(0)).sum() < 4096
        automaton_for(Constraints(gc=(0.4, 0.6), gc_window_bp=50), [""], 6000)
        short = automaton_for(Constraints(forbid=("GAATTC",)), ["GA"], 1000)
        endless = automaton_for(Constraints(forbid=("GAATTC",)), ["GA"], 10**12)
        masks = [automaton.allowed(automaton.start(0)) for automaton in (short, endless)]
        np.testing.assert_array_equal(*masks)


# Speculative decoding


class TestSpeculative:
    @pytest.mark.parametrize(
        ("tokens", "mode"), [(1, "chain"), (4, "token"), (4, "base"), (9, "token")]
    )
    def test_greedy_text_is_the_same_text(self, model, likeness, tokens, mode):
        """Across several starts of the context, which both must make at the same 6-mers."""
        plain = model.generate(PROMPTS[::2], 240, temperature=0, mode=mode)
        draft = Draft(likeness, tokens)
        assert model.generate(PROMPTS[::2], 240, temperature=0, mode=mode, draft=draft) == plain
        assert 0.02 < draft.accepted_share < 0.98

    def test_a_draft_of_another_vocabulary_and_context(self, model):
        draft = Draft(other_network(11, HYBRID, context_tokens=30))
        plain = model.generate(PROMPTS, 200, temperature=0)
        assert model.generate(PROMPTS, 200, temperature=0, draft=draft) == plain

    def test_the_model_itself_proposes_what_is_accepted(self, model):
        draft = Draft(model, 4)
        texts = model.generate(PROMPTS[:8], 150, seed=8, draft=draft)
        # 24 to 26 6-mers each, in rounds of one, five times five and what is left of them.
        assert draft.num_proposed > 8 * 18 and draft.accepted_share > 0.99
        assert all(len(text) == 150 for text in texts)

    def test_the_draft_reads_what_was_kept(self, model, likeness, monkeypatch):
        """Before every round, beyond the context too; a slip would cost acceptance and no more."""
        from carbon.inference.generation import speculative

        propose, rounds = speculative._propose, []

        def watched(helper, rows, behind, wanted):
            for ids, row, unread in zip(helper._ids, rows, behind, strict=True):
                stem = encode(row.prompt[: len(row.prompt) // 6 * 6]).ids.tolist()
                assert ids + [128 + k for k in unread] == stem + [128 + k for k in row.kmers]
            rounds.append(len(rows))
            return propose(helper, rows, behind, wanted)

        monkeypatch.setattr(speculative, "_propose", watched)
        model.generate(PROMPTS, 300, draft=Draft(likeness), seed=1)
        assert len(rounds) > 20

    def test_a_draft_that_starts_again_many_times_in_a_round(self, model, monkeypatch):
        """32 6-mers are proposed in a context of 16, and nearly all are refused."""
        from carbon.inference.generation import speculative

        propose, num_read = speculative._propose, []

        def watched(helper, rows, behind, wanted):
            num_read.extend(helper._num_read.tolist())
            for ids, row, unread in zip(helper._ids, rows, behind, strict=True):
                stem = encode(row.prompt[: len(row.prompt) // 6 * 6]).ids.tolist()
                assert ids + [128 + k for k in unread] == stem + [128 + k for k in row.kmers]
            return propose(helper, rows, behind, wanted)

        monkeypatch.setattr(speculative, "_propose", watched)
        draft = Draft(other_network(11, context_tokens=16), 32)
        plain = model.generate(PROMPTS[::3], 150, temperature=0)
        assert model.generate(PROMPTS[::3], 150, temperature=0, draft=draft) == plain
        assert min(num_read) == 0 and max(num_read) > 0

    def test_texts_have_the_distribution_of_the_target(self, model, network, likeness):
        """Three 6-mers, each of the two likeliest: eight texts, by stock forwards."""
        expected = {"": 1.0}
        for _ in range(3):
            longer = {}
            for text, share in expected.items():
                p = stock_distribution(network, text)
                two = np.argsort(-p)[:2]
                longer |= {text + KMERS[n]: share * p[n] / p[two].sum() for n in two}
            expected = longer
        draft = Draft(likeness, 2)
        texts = model.generate([""] * 800, 18, seed=9, top_k=2, draft=draft)
        assert set(texts) <= set(expected)
        assert 0.1 < draft.accepted_share < 0.95
        counts = np.array([texts.count(text) for text in expected])
        assert agree(counts, np.array(list(expected.values())))

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("settings", [RULES[0], RULES[6]])
    def test_what_is_kept_of_a_proposal_has_the_distribution(self, mode, settings):
        """Over what a draft proposes, the 6-mer that comes of it is of the target's."""
        rule = SamplingRule(mode=mode, **settings)
        random = np.random.default_rng(12)
        z = np.full((2, 4096), -80.0, dtype=np.float32)  # of the target, of the draft
        z[:, random.choice(4096, 10, replace=False)] = 1.5 * random.normal(size=(2, 10))
        p, q = distribution(z, rule, None)
        (row,) = continuations(["ACGTAC"], Task(60, rule))
        num, counts = 600, np.zeros(4096)
        for kmer in random.choice(4096, num, p=q / q.sum()):
            kept = _check(row, [_Proposal(int(kmer), q)], torch.from_numpy(z[[0, 0]]))
            counts[kept[0].kmer] += 1
            row.pop(len(kept))
        assert agree(counts, p)

    def test_company_does_not_matter(self, model, likeness):
        rule = {"seed": 5, "temperature": 0.8, "top_p": 0.9, "repetition_penalty": 0.1}
        together = model.generate(PROMPTS, 100, draft=Draft(likeness), **rule)
        for prompt, text in list(zip(PROMPTS, together, strict=True))[::3]:
            assert model.generate([prompt], 100, draft=Draft(likeness), **rule) == [text]

    def test_constraints_hold(self, model, likeness):
        constraints = Constraints(("AAA", "TTT"), ("GGATCC",), (0.4, 0.6), 30, 0)
        texts = model.generate(PROMPTS, 97, constraints=constraints, draft=Draft(likeness))
        assert all(keeps(constraints, *pair) for pair in zip(PROMPTS, texts, strict=True))

    def test_a_stream_of_it(self, model, likeness):
        steps = model.stream("ACG", 100, seed=2, draft=Draft(likeness))
        texts = model.generate(["ACG"], 100, seed=2, draft=Draft(likeness))
        assert ["".join(step.bases for step in steps)] == texts

    def test_a_number_of_tokens_that_makes_no_sense(self, model):
        with pytest.raises(UserError, match="0 draft tokens: give 1 to 32"):
            Draft(model, 0)


# Infilling


class TestInfill:
    @pytest.mark.parametrize(("left_bp", "gap_bp"), [(0, 6), (31, 9)])
    def test_scores_are_those_of_stock_transformers(self, model, network, left_bp, gap_bp):
        left, right = random_bases(left_bp), random_bases(20, seed=1)
        fillings = model.infill(left, right, gap_bp, candidates=3, seed=1)
        assert len(fillings) == 3

        def likelihood(sequence: str) -> float:
            return stock_log_likelihood(network, sequence, "chain")

        for filling in fillings[:2]:
            gap = likelihood(left + filling.bases) - likelihood(left)
            right_part = likelihood(left + filling.bases + right) - likelihood(left + filling.bases)
            assert filling.gap_log_likelihood == pytest.approx(gap, abs=2e-3)
            assert filling.right_log_likelihood == pytest.approx(right_part, abs=2e-3)

    def test_candidates_are_ranked_and_are_those_of_generate(self, model):
        left, right = random_bases(40), random_bases(30, seed=1)
        fillings = model.infill(left, right, 7, candidates=12, seed=3, top_k=4)
        drawn = model.generate([left] * 12, 7, seed=3, top_k=4)
        assert sorted(filling.bases for filling in fillings) == sorted(set(drawn))
        scores = [filling.score for filling in fillings]
        assert scores == sorted(scores, reverse=True)
        assert (
            fillings[0].score == fillings[0].gap_log_likelihood + fillings[0].right_log_likelihood
        )

    def test_memory_that_runs_out_halves_the_candidates(self, model, network, monkeypatch, capsys):
        """They are branches of one passage, which shares 32 tokens of its stem."""
        left, right = random_bases(220), random_bases(30, seed=1)
        expected = model.infill(left, right, 7, candidates=12, seed=3)
        assert len(expected) == 12
        mine = Carbon(model.model)
        monkeypatch.setattr("carbon.inference.generation.drawing._MOST_ROWS", 8)
        forward, passes = type(network.model).forward, []

        def poor(self, input_ids, **more):
            passes.append(len(input_ids))
            if len(input_ids) > 8:
                raise torch.OutOfMemoryError("no more")
            return forward(self, input_ids=input_ids, **more)

        monkeypatch.setattr(type(network.model), "forward", poor)
        assert mine.infill(left, right, 7, candidates=12, seed=3) == expected
        assert "out of memory with 12 rows" in capsys.readouterr().err
        assert passes[-6:] == [1, 12, 1, 6, 1, 6]

    def test_a_long_left_side_is_cut_by_whole_6mers(self, model, network):
        """48 tokens: `<dna>` and 48 6-mers, the last of which is only predicted."""
        left, right = random_bases(400), random_bases(60, seed=1)
        (filling,) = model.infill(left, right, 20, candidates=1, seed=4)
        # 4 + 20 + 60 bases are 14 6-mers, so 34 of the 66 whole ones to the left are read.
        kept = left[-4 - 34 * 6 :]
        whole = stock_log_likelihood(network, kept + filling.bases + right, "chain")
        expected = whole - stock_log_likelihood(network, kept, "chain")
        assert filling.score == pytest.approx(expected, abs=2e-3)

    def test_forbidden_motifs_do_not_reach_into_the_right(self, model):
        constraints = Constraints(forbid=("CGT", "ACG", "GNNC"), no_stop_frame=0)
        for seed, right in enumerate(("GTACC", "TAATAA", "NCGT", "A")):
            for filling in model.infill("ATGA", right, 8, seed=seed, constraints=constraints):
                assert keeps(constraints, "ATGA", filling.bases, right)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"right": "A" * 285}, "do not fit into the model's context of 48 tokens"),
            ({"right": "HELLO"}, "right context: 'E'"),
            ({"candidates": 0}, "0 candidates"),
        ],
    )
    def test_mistakes(self, model, wrong, message):
        with pytest.raises(UserError, match=message):
            model.infill("ACG", **({"right": "ACG", "length_bp": 6} | wrong))


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network, likeness):
    folder = tmp_path_factory.mktemp("generate")
    save_model(network, folder / "model")
    save_model(likeness.model.network, folder / "draft")
    write_fasta(folder / "p.fa", {"one": random_bases(100), "two": "ACGTA"})
    return folder


class TestCommand:
    def run(self, folder, *words: str) -> int:
        return main(["generate", "--model", str(folder / "model"), "--length", "70", *words])

    def test_headers_tell_how_it_was_drawn(self, folder, capsys):
        words = (
            "--prompts {f}/p.fa -n 2 --seed 3 --mode chain --temperature 0.9 --top-k 3 --top-p 0.8 "
            "--min-p 0.1 --repetition-penalty 0.2 --forbid GAATTC AAAA --forbid TTTT "
            "--require GGCC --gc 0.3 0.7 --gc-window 35 --no-stop 0 --tag <fungi_species> "
            "--draft {f}/draft --output {f}/out.fa"
        )
        assert self.run(folder, *words.format(f=folder).split()) == 0
        captured = capsys.readouterr()
        assert captured.out == ""
        assert re.search(r"the draft proposed \d+ 6-mers, of which \d+\.\d % were", captured.err)
        assert "bases: 280/280" in captured.err
        lines = (folder / "out.fa").read_text().splitlines()
        assert [line.split()[0] for line in lines[::3]] == [">one_0", ">one_1", ">two_0", ">two_1"]
        assert lines[6] == (
            f">two_0 sample=0 prompt_bp=5 model={folder}/model dtype=float32 draft={folder}/draft "
            "draft_tokens=4 seed=3 tags=<fungi_species> mode=chain temperature=0.9 top_k=3 "
            "top_p=0.8 min_p=0.1 repetition_penalty=0.2 repetition_window_bp=1200 "
            "forbid=GAATTC,AAAA,TTTT require=GGCC gc=0.3-0.7 gc_window_bp=35 no_stop_frame=0"
        )
        constraints = Constraints(("GAATTC", "AAAA", "TTTT"), ("GGCC",), (0.3, 0.7), 35, 0)
        assert keeps(constraints, "ACGTA", lines[7] + lines[8])

    def test_plain_headers_are_short(self, folder, capsys):
        assert self.run(folder, "--prompt", "ACG") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == (
            f">generated_0 sample=0 prompt_bp=3 model={folder}/model dtype=float32 seed=0 "
            "mode=token temperature=1.0"
        )
        assert [len(line) for line in lines[1:]] == [60, 10]

    def test_a_sample_is_the_same_whatever_is_asked_for_beside_it(self, folder, capsys):
        assert self.run(folder, "--prompts", f"{folder}/p.fa", "-n", "3") == 0
        together = capsys.readouterr().out.split(">")
        assert self.run(folder, "--prompt", "ACGTA", "-n", "2") == 0
        alone = capsys.readouterr().out.split(">")
        assert [x.split("\n")[1:] for x in alone[1:]] == [x.split("\n")[1:] for x in together[4:6]]

    def test_a_gap_is_filled(self, folder, capsys):
        words = ["--prompt", "ACGTA", "--right", "GGATC", "--candidates", "5", "-n", "2"]
        assert self.run(folder, *words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[::3]] == [">filling_0", ">filling_1"]
        facts = dict(word.split("=") for word in lines[0].split()[1:])
        assert (facts["rank"], facts["candidates"], facts["right_bp"]) == ("0", "5", "5")
        parts = float(facts["gap_log_likelihood"]) + float(facts["right_log_likelihood"])
        assert float(facts["score"]) == pytest.approx(parts, abs=2e-4)

    @pytest.mark.parametrize(
        "words",
        [
            "--forbid GAXTC",
            "--require " + "A" * 80,
            "--gc 0.9 0.1",
            "--gc-window 5",
            "--draft no/such/model",
            "--draft-tokens 0 --draft {f}/draft",
            "--right ACG --prompts {f}/p.fa",
            "--right ACG --candidates 0",
            "-n 0",
            "--min-p 2",
            "--prompts {f}/absent.fa",
            "--output {f}/absent/out.fa",
            "--temperature 1e-40",
            "--length 1000000000000 --forbid GAATTC",
            "--length 1000000000000 --gc 0.4 0.6 --gc-window 50",
            "-n 100000000000",
            "--prompts {f}/p.fa -n 500001",
            "--right ACG --candidates 100000000000",
        ],
    )
    def test_mistakes_leave_nothing_behind(self, folder, capsys, words):
        before = sorted(folder.iterdir())
        words = words.format(f=folder).split()
        if "--output" not in words:
            words += ["--output", f"{folder}/new.fa"]
        assert self.run(folder, *words) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and sorted(folder.iterdir()) == before
        lines = captured.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: ")

    @pytest.mark.parametrize("name", ["p.fa", "../p/p.fa", "link.fa"])
    def test_an_output_that_is_the_input(self, folder, tmp_path, capsys, name):
        inside = tmp_path / "p"
        inside.mkdir()
        prompts = write_fasta(inside / "p.fa", {"one": "ACGT"})
        before = prompts.read_bytes()
        (inside / "link.fa").symlink_to(prompts)
        words = ["--prompts", str(prompts), "--output", str(inside / name)]
        assert self.run(folder, *words) == 2
        assert f"{inside / name}: is an input too; name another output" in capsys.readouterr().err
        assert prompts.read_bytes() == before

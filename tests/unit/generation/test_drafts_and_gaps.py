"""Drafts give the text of the model alone; gaps are scored as stock transformers does."""

import numpy as np
import pytest
import torch

from carbon.errors import UserError
from carbon.inference import Constraints, Draft, Model, SamplingRule
from carbon.inference.generate import speculative
from carbon.inference.generate.prompts import Task, rows_for_prompts
from carbon.inference.generate.sampling import distribution
from carbon.inference.generate.speculative import _check, _Proposal
from carbon.inference.options import MODES
from carbon.tokenizer import HYBRID, encode
from tests.helpers.files import random_bases
from tests.helpers.generation import (
    PROMPTS,
    RULES,
    agree,
    keeps,
    other_network,
    poor_in_memory,
)
from tests.helpers.reference import (
    KMERS,
    stock_distribution,
    stock_log_likelihood,
)


class TestSpeculative:
    @pytest.mark.parametrize(
        ("tokens", "mode"),
        [
            (1, "chain"),
            (4, "token"),
            pytest.param(4, "base", marks=pytest.mark.nightly),
            pytest.param(9, "token", marks=pytest.mark.nightly),
        ],
    )
    def test_greedy_text_is_the_same_text(self, model, likeness, tokens, mode):
        """Across several starts of the context, which both must make at the same 6-mers."""
        plain = model.generate(PROMPTS[::2], 150, temperature=0, mode=mode)
        draft = Draft(likeness, tokens)
        assert model.generate(PROMPTS[::2], 150, temperature=0, mode=mode, draft=draft) == plain
        assert 0.02 < draft.accepted_share < 0.98

    def test_a_draft_of_another_vocabulary_and_context(self, model):
        draft = Draft(other_network(11, HYBRID, context_tokens=30))
        plain = model.generate(PROMPTS[3:9:3], 100, temperature=0)
        assert model.generate(PROMPTS[3:9:3], 100, temperature=0, draft=draft) == plain

    def test_the_most_that_a_draft_proposes_fits_behind_a_full_context(self):
        """32 6-mers and the one before are read as 40, of which the last lie beyond 64 tokens."""
        model, draft = (other_network(seed, context_tokens=64) for seed in (5, 6))
        plain = model.generate([random_bases(330)], 90, temperature=0)
        drafted = model.generate([random_bases(330)], 90, temperature=0, draft=Draft(draft, 32))
        assert drafted == plain

    def test_the_model_itself_proposes_what_is_accepted(self, model):
        draft = Draft(model, 4)
        texts = model.generate(PROMPTS[:4], 150, seed=8, draft=draft)
        # 24 to 26 6-mers each, in rounds of one, five times five and what is left of them.
        assert draft.num_proposed > 4 * 18 and draft.accepted_share > 0.99
        assert all(len(text) == 150 for text in texts)

    @pytest.mark.parametrize("is_short", [False, True])
    def test_the_draft_reads_what_was_kept(self, model, likeness, monkeypatch, is_short):
        """Before every round, beyond the context too; a slip would cost acceptance and no more.

        A short context of 16 begins again many times in a round of 32, nearly all refused.
        """
        propose, num_read = speculative._propose, []

        def watched(helper, rows, behind, wanted):
            num_read.extend(helper._num_cached.tolist())
            for ids, row, unread in zip(helper._ids, rows, behind, strict=True):
                stem = encode(row.prompt[: len(row.prompt) // 6 * 6]).ids.tolist()
                assert ids + [128 + k for k in unread] == stem + [128 + k for k in row.kmers]
            return propose(helper, rows, behind, wanted)

        draft = Draft(other_network(11, context_tokens=16), 32) if is_short else Draft(likeness)
        prompts, length_bp = (PROMPTS[::4], 60) if is_short else (PROMPTS[::6], 300)
        plain = model.generate(prompts, length_bp, temperature=0)
        monkeypatch.setattr(speculative, "_propose", watched)
        assert model.generate(prompts, length_bp, temperature=0, draft=draft) == plain
        assert len(num_read) > 30 and max(num_read) > 0
        assert not is_short or min(num_read) == 0

    @pytest.mark.nightly
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
    def test_what_is_kept_of_a_proposal_has_the_distribution(self, mode):
        """Over what a draft proposes, the 6-mer that comes of it is of the target's."""
        rule = SamplingRule(mode=mode, **RULES[-1])
        random = np.random.default_rng(12)
        z = np.full((2, 4096), -80.0, dtype=np.float32)  # of the target, of the draft
        z[:, random.choice(4096, 10, replace=False)] = 1.5 * random.normal(size=(2, 10))
        p, q = distribution(torch.from_numpy(z), rule)
        (row,) = rows_for_prompts(["ACGTAC"], Task(60, rule))
        num, counts = 120, np.zeros(4096)
        for kmer in random.choice(4096, num, p=(q / q.sum()).numpy()):
            kept = _check(row, [_Proposal(int(kmer), q)], torch.from_numpy(z[[0, 0]]))
            counts[kept[0].kmer] += 1
            row.pop(len(kept))
        assert agree(counts, p.numpy())

    def test_company_does_not_matter(self, model, likeness):
        rule = {"seed": 5, "temperature": 0.8, "top_p": 0.9, "repetition_penalty": 0.1}
        together = model.generate(PROMPTS, 60, draft=Draft(likeness), **rule)
        for prompt, text in [*zip(PROMPTS, together, strict=True)][::5]:
            assert model.generate([prompt], 60, draft=Draft(likeness), **rule) == [text]

    def test_constraints_hold(self, model, likeness):
        constraints = Constraints(("AAA", "TTT"), ("GGATCC",), (0.4, 0.6), 30, 0)
        texts = model.generate(PROMPTS[::2], 67, constraints=constraints, draft=Draft(likeness))
        assert all(keeps(constraints, *pair) for pair in zip(PROMPTS[::2], texts, strict=True))

    def test_a_stream_of_it(self, model, likeness):
        steps = model.stream("ACG", 100, seed=2, draft=Draft(likeness))
        texts = model.generate(["ACG"], 100, seed=2, draft=Draft(likeness))
        assert ["".join(step.bases for step in steps)] == texts


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
        best = fillings[0]
        assert best.score == best.gap_log_likelihood + best.right_log_likelihood

    def test_memory_that_runs_out_halves_the_candidates(self, model, monkeypatch, capsys):
        """They are branches of one passage, which shares 32 tokens of its stem."""
        left, right = random_bases(220), random_bases(30, seed=1)
        expected = model.infill(left, right, 7, candidates=12, seed=3)
        assert len(expected) == 12
        monkeypatch.setattr("carbon.inference.generate.generate._MOST_ROWS", 8)
        passes = poor_in_memory(monkeypatch, most_rows=8)
        assert Model(model.model).infill(left, right, 7, candidates=12, seed=3) == expected
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

    def test_a_gap_beyond_the_context_is_refused(self, model):
        with pytest.raises(UserError, match="context of 48 tokens"):
            model.infill("ACG", "A" * 285, 6)
        with pytest.raises(UserError, match="right context"):
            model.infill("ACG", "HELLO", 6)

"""What constraints allow, against brute force over all 6-mers and the finished text."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import UserError
from carbon.inference import Constraints
from carbon.inference.generate.automaton import automaton_for
from tests.helpers.generation import PROMPTS, keeps
from tests.helpers.reference import KMERS, stock_distribution


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
        st.integers(1, 5),
        st.sampled_from([None, 2, 3, 4]),
        st.none() | st.text("MSLRAK*", min_size=2, max_size=2),
    )
    @settings(max_examples=30)
    def test_what_is_allowed_is_what_can_be_completed(
        self, constraints, prompt, right, length_bp, window_bp, protein
    ):
        """All 4^n sequences are tried: a 6-mer is allowed if and only if one goes on from it."""
        if constraints.gc and window_bp:
            constraints = replace(constraints, gc_window_bp=window_bp)
        if protein and length_bp % 3 == 0:
            constraints = replace(constraints, protein=protein[: length_bp // 3])
        texts = ["".join(bases) for bases in itertools.product("ACGT", repeat=length_bp)]
        good = {bases for bases in texts if keeps(constraints, prompt, bases, right)}
        if not good:
            with pytest.raises(UserError, match=f"prompt 1: no {length_bp} bases behind it"):
                automaton_for(constraints, [prompt], length_bp, right)
            return
        automaton = automaton_for(constraints, [prompt], length_bp, right)
        for bases in [*texts[::97], *sorted(good)[:5]]:
            assert automaton.keeps(0, bases) == (bases in good)
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

    @pytest.mark.parametrize(
        ("mode", "constraints"),
        [
            ("token", Constraints(("GAATTC", "GGTCTC", "GAGACC", "AAAA", "RGATCY", "CCNGG"))),
            ("base", Constraints(require=("GGATCC", "ATGNNNTAA"))),
            ("chain", Constraints(gc=(0.45, 0.55), gc_window_bp=20)),
            ("token", Constraints(no_stop_frame=1)),
            ("chain", Constraints(("AAA", "TTT"), ("GGATCC",), (0.4, 0.6), 30, 0)),
        ],
    )
    def test_generated_sequences_keep_to_them(self, model, mode, constraints):
        """Prompts of all lengths, some of them with an N; lengths that cut the last 6-mer."""
        prompts = [*PROMPTS[::2], "GAATT", "ACGTGAAT", "ATGTA", "ACNAA", "GAGACCGGTCT", "TAA", "T"]
        how = {"seed": 4, "mode": mode, "constraints": constraints, "temperature": 1.2}
        texts = model.generate(prompts, 67, **how)
        for prompt, text in zip(prompts, texts, strict=True):
            assert len(text) == 67
            assert keeps(constraints, prompt, text)
        free = model.generate(prompts, 67, seed=4, mode=mode)
        assert not all(keeps(constraints, *pair) for pair in zip(prompts, free, strict=True))

    def test_greedy_takes_the_best_that_is_allowed(self, model, network):
        p = stock_distribution(network, "ACGTAC")
        best = [KMERS[n] for n in np.argsort(-p)[:3]]
        constraints = Constraints(forbid=tuple(best[:2]))
        assert model.generate(["ACGTAC"], 6, temperature=0, constraints=constraints) == [best[2]]

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"require": ("ACGTACGT",)}, "no 7 bases .* required motifs"),
            ({"forbid": ("N",)}, "the forbidden motifs"),
            ({"forbid": ("S",), "gc": (0.5, 1.0)}, "all constraints at once"),
            ({"gc": (0.5, 0.5)}, "the GC share"),
            ({"forbid": ("",)}, "give"),
            ({"forbid": ("GAXTC",)}, "letter 3: 'X'"),
            ({"require": ("A" * 1001,)}, "give"),
            ({"gc": (0.6, 0.4)}, "give"),
            ({"gc_window_bp": 10}, "give"),
            ({"no_stop_frame": 3}, "give"),
        ],
    )
    def test_what_cannot_be_is_refused(self, model, wrong, message):
        with pytest.raises(UserError, match=message):
            model.generate(["A", "ACG"], 7, constraints=Constraints(**wrong))

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

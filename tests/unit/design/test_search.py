"""The search with a small random model and scoring functions with a known maximum."""

import sys
from typing import get_args

import pytest
from Bio.Seq import Seq

import carbon
from carbon.design.config import DesignConfig
from carbon.design.proposals import Proposer, within
from carbon.design.rules import RuleChecker, Rules
from carbon.design.strategies import STRATEGIES
from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.inference.options import Constraints, SamplingRule, StrategyName


def gc(sequences):
    return [(s.count("G") + s.count("C")) / len(s) for s in sequences]


def a(sequences):
    return [s.count("A") / len(s) for s in sequences]


class Counting:
    """A scoring function that records its inputs."""

    def __init__(self, function):
        self.function, self.asked = function, []

    def __call__(self, sequences):
        self.asked.append(list(sequences))
        return self.function(sequences)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_budget_and_the_same_designs_for_a_seed(model, strategy):
    def run(seed):
        function = Counting(gc)
        options = {"goals": [0.5], "within": 0.1, "num_designs": 50, "seed": seed, "batch": 12}
        found = carbon.design.run(
            model, [function], strategy=strategy, length_bp=24, calls=30, **options
        )
        return function.asked, found

    (batches, found), again, (others, _) = run(1), run(1), run(2)
    asked = [bases for batch in batches for bases in batch]
    assert len(asked) == len(set(asked)) <= 30 and max(map(len, batches)) <= 12
    assert strategy == "rejection" or len(asked) == 30
    assert (batches, found) == again and batches != others
    assert {len(each.bases) for each in found} == {24} and set("".join(asked)) <= set("ACGT")
    for each in found:
        assert asked[int(each.name.removeprefix("design_")) - 1] == each.bases
    misses = [abs(each.values["Counting"] - 0.5) for each in found]
    assert misses == sorted(misses)


@pytest.mark.nightly
def test_a_beam_climbs_from_its_start_and_tells_how_far(model):
    start = "AT" * 30
    found = carbon.design.run(model, [gc], start=start, calls=400, num_designs=3, seed=1)
    drawn = carbon.design.run(model, [gc], strategy="best_of_n", length_bp=60, calls=400, batch=50)
    assert found[0].values["gc"] > drawn[0].values["gc"]
    assert 20 < found[0].edits_to_start <= 60 and drawn[0].edits_to_start is None
    assert found[0].parent is not None and drawn[0].parent is None


def test_likelihoods_are_those_of_score(model):
    prompt = "ACGTTGC"
    found = carbon.design.run(
        model, [gc], prompt=prompt, length_bp=30, calls=20, batch=20, num_designs=20
    )
    for each in found:
        (score,) = model.score([prompt + each.bases])
        assert each.nats_per_base == pytest.approx(-score.bases[7:].sum() / 30, abs=1e-5)


def test_several_goals_make_a_front(model):
    asked = Counting(gc)
    found = carbon.design.run(model, [asked, a], length_bp=30, calls=60, batch=20, num_designs=60)
    values = {bases: (gc([bases])[0], a([bases])[0]) for batch in asked.asked for bases in batch}

    def is_beaten(point):
        return any(other != point and other[0] >= point[0] and other[1] >= point[1]
                   for other in values.values())  # fmt: skip

    for each in found:
        assert (each.front == 1) == (not is_beaten(values[each.bases]))
    assert sum(each.front == 1 for each in found) > 1
    least = carbon.design.run(model, [gc], goals=["minimize"], length_bp=40, calls=40, batch=20)
    assert least[0].values["gc"] == min(each.values["gc"] for each in least)


PROTEIN = "MSLRAKGSVLPTRA*"
CODING = "ATGTCTTTGAGAGCTAAAGGTTCTGTTTTGCCAACTAGAGCTTAA"
ALL = {
    "protein": PROTEIN, "gc": (0.45, 0.5), "forbid": ("GCT",), "require": ("CAC",),
    "no_stop_frame": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("redraw", "rules"),
    [
        (Proposer.regrown, {"protein": PROTEIN, "forbid": ("GAATTC", "TTGAGA")}),
        (Proposer.filled, {"gc": (0.4, 0.45)}),
        (Proposer.regrown, {"gc": (0.3, 0.6), "gc_window_bp": 10, "forbid": ("ACG",)}),
        (Proposer.regrown, ALL),
        (Proposer.filled, ALL),
    ],
)
def test_a_window_drawn_anew_keeps_to_what_the_whole_keeps_to(model, redraw, rules):
    """Required motifs apart, which the checker looks for in the whole."""
    constraints = Constraints(**rules)
    proposer = Proposer(
        runner=model.runner, prompt="ACG", length_bp=45, rule=SamplingRule(),
        constraints=constraints, seed=3, tags=(),
    )  # fmt: skip
    (parent,) = proposer.fresh([0])
    checker = RuleChecker(Rules(constraints=within(constraints, parent, 0, 45)), "ACG", 45)
    changed = 0
    for turn in range(5):
        drawn = redraw(proposer, parent, 4, (turn, 0), 22, 1.5)
        assert all(checker.accepts(each) for each in drawn)
        if constraints.protein:
            assert {str(Seq(each).translate()) for each in drawn} == {PROTEIN}
        changed += sum(each != parent for each in drawn)
    assert changed > 4


def test_what_fills_a_window_is_what_makes_the_whole_likeliest(model):
    """Of the draws of `regrown` with the same seed, by the likelihood of whole sequences."""
    proposer = Proposer(
        runner=model.runner, prompt="ACG", length_bp=30, rule=SamplingRule(),
        constraints=Constraints(), seed=5, tags=(),
    )  # fmt: skip
    (parent,) = proposer.fresh([0])
    chosen = 0
    for turn in range(4):
        drawn = dict.fromkeys(proposer.regrown(parent, 12, (turn, 0), 15, 1.0))
        scores = model.score(["ACG" + bases for bases in drawn])
        ranked = sorted(zip(drawn, scores, strict=True), key=lambda pair: -pair[1].log_likelihood)
        assert proposer.filled(parent, 3, (turn, 0), 15, 1.0) == [bases for bases, _ in ranked[:3]]
        chosen += len(drawn) > 3
    assert chosen > 1


def test_infill_needs_designs_that_fit(model):
    most_bp = (model.runner.context_tokens - 1) * 6 + 1
    with pytest.raises(UserError, match="--strategy infill reads whole designs"):
        carbon.design.run(model, [gc], strategy="infill", length_bp=most_bp + 1, calls=1)
    carbon.design.run(model, [gc], strategy="infill", start="ACGTTGC" * (most_bp // 7), calls=3)


def test_the_protein_stays_and_the_sites_go(model):
    """The start has the site, so that lineages begin from what the model draws whole."""
    start = CODING[:6] + "GAATTC" + CODING[12:]
    protein = str(Seq(start).translate())
    rules = {"protein": protein, "sites": ("ecori", "GGTCTC"), "most_run_bp": 4}
    found = carbon.design.run(model, [gc], start=start, calls=40, batch=20, num_designs=60, **rules)
    assert len(found) > 20
    for each in found:
        assert str(Seq(each.bases).translate()) == protein
        for strand in (each.bases, reverse_complement(each.bases)):
            assert not any(x in strand for x in ("GAATTC", "GGTCTC"))
            assert not any(base * 5 in strand for base in "ACGT")


def test_a_search_ends_where_there_is_nothing_more(model):
    """MW has one sequence."""
    function = Counting(gc)
    found = carbon.design.run(model, [function], protein="MW", calls=10, batch=2)
    assert [each.bases for each in found] == ["ATGTGG"] and function.asked == [["ATGTGG"]]


def test_rejection(model):
    options = {"strategy": "rejection", "length_bp": 40, "goals": [0.5], "calls": 400, "batch": 20}
    found = carbon.design.run(model, [gc], within=0.05, num_designs=5, **options)
    assert len(found) == 5
    assert all(abs(each.values["gc"] - 0.5) <= 0.05 for each in found)
    with pytest.raises(UserError, match=r"none of 40 .* gc 0\.\d+; give a larger --within"):
        carbon.design.run(model, [gc], within=0.05, **options | {"goals": [0.01], "calls": 40})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "ACGN"}, "the start"),
        ({"length_bp": 9, "strategy": "magic"}, "'magic'"),
        ({"length_bp": 9, "calls": 0}, "calls 0"),
        ({"length_bp": 9, "tags": ["<nobody>"]}, "<nobody>"),
    ],
)
def test_what_makes_no_sense(model, options, message):
    with pytest.raises(UserError, match=message):
        carbon.design.run(model, [gc], **options)


def test_the_defaults_of_a_task_and_the_ways_of_the_command():
    assert list(STRATEGIES) == list(get_args(StrategyName))
    task = DesignConfig(length_bp=30)
    assert (task.strategy, task.calls, task.batch, task.width) == ("beam", 1000, 16, 4)
    assert (task.initial_temperature, task.final_temperature) == (1.2, 0.8)
    assert (task.within, task.num_designs) == (0.0, 10)


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("edlib", {"start": "ACGT" * 5}),
        ("RNA", {"length_bp": 9, "least_kcal": -3}),
    ],
)
def test_a_library_that_is_not_there_is_told_before_a_call(model, monkeypatch, library, options):
    monkeypatch.setitem(sys.modules, library, None)
    function = Counting(gc)
    with pytest.raises(UserError, match=r"pip install 'carbon-dna\[design\]'"):
        carbon.design.run(model, [function], **options)
    assert not function.asked

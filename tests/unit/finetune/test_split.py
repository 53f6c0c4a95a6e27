"""Which examples are learned from: parts, and what stands in two of them."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import UserError
from carbon.finetune.config import SPLITS, SplitConfig
from carbon.finetune.split import LEAK_RULES, Examples, assign_splits, find_leaks
from carbon.genome import reverse_complement
from tests.helpers.files import random_bases


class TestSplit:
    KEYS = tuple(f"name{i}" for i in range(400))
    GROUPS = tuple(f"g{i % 23}" for i in range(400))

    @settings(max_examples=20)
    @given(seed=st.integers(0, 99), by=st.sampled_from(["random", "group"]))
    def test_no_order_of_rows_changes_a_part(self, seed, by):
        config = SplitConfig(by=by, column="g" if by == "group" else "", seed=seed)
        order = random.Random(seed).sample(range(400), 400)
        found = assign_splits(self.KEYS, self.GROUPS, config, str)
        other = assign_splits(
            [self.KEYS[i] for i in order], [self.GROUPS[i] for i in order], config, str
        )
        assert [found[i] for i in order] == list(other)
        if by == "group":
            assert len(set(zip(self.GROUPS, found, strict=True))) == 23

    @settings(max_examples=10)
    @given(folds=st.integers(3, 7), by=st.sampled_from(["random", "group"]))
    def test_every_example_is_tested_in_one_fold(self, folds, by):
        tested = Counter()
        for fold in range(folds):
            config = SplitConfig(by=by, column="g" * (by == "group"), folds=folds, fold=fold)
            splits = assign_splits(self.KEYS, self.GROUPS, config, str)
            tested.update(k for k, split in zip(self.KEYS, splits, strict=True) if split == "test")
            assert set(splits) == set(SPLITS)
        assert tested == Counter(self.KEYS)

    def test_shares_are_about_those_asked_for(self):
        for by in ("random", "group"):
            config = SplitConfig(by=by, column="g", validation_share=0.2, test_share=0.3)
            found = Counter(assign_splits(self.KEYS, self.GROUPS, config, str))
            assert abs(found["test"] - 120) < 30 and abs(found["validation"] - 80) < 30

    def test_an_example_stays_where_it_was_when_others_come(self):
        config = SplitConfig()
        more = [*self.KEYS, *(f"new{i}" for i in range(100))]
        assert assign_splits(more, more, config, str)[:400] == assign_splits(
            self.KEYS, [], config, str
        )

    def test_named_contigs_are_the_parts(self):
        config = SplitConfig(by="contig", validation=("g1", "g2"), test=("g3",))
        found = assign_splits(self.KEYS, self.GROUPS, config, str)
        pairs = set(zip(self.GROUPS, found, strict=True))
        assert {g for g, split in pairs if split == "validation"} == {"g1", "g2"}
        assert {g for g, split in pairs if split == "test"} == {"g3"}
        only_test = assign_splits(self.KEYS, self.GROUPS, config.replace(validation=()), str)
        assert len(set(zip(self.GROUPS, only_test, strict=True))) == 23
        assert "validation" in only_test
        with pytest.raises(UserError, match=r"data\.split\.test: 'chrQ' is in no row"):
            assign_splits(self.KEYS, self.GROUPS, config.replace(test=("chrQ",)), str)

    def test_words_that_mean_a_part(self):
        words = ["Train", "dev", "test", "training"]
        config = SplitConfig(by="column", column="split")
        expected = ("train", "validation", "test", "train")
        assert assign_splits(words, words, config, str) == expected
        with pytest.raises(UserError, match="row 1: 'later' in column 'split' is not a split"):
            assign_splits(words, ["train", "later", "test", "dev"], config, lambda i: f"row {i}")

    def test_validation_is_taken_of_train_where_there_is_none(self):
        words = ["train"] * 300 + ["test"] * 100
        found = assign_splits(self.KEYS, words, SplitConfig(by="column", column="split"), str)
        assert set(found[:300]) == {"train", "validation"} and set(found[300:]) == {"test"}

    def test_an_empty_part_is_refused(self):
        with pytest.raises(UserError, match="test is empty \\(400 examples"):
            assign_splits(self.KEYS, [], SplitConfig(test_share=0.0), str)


def examples_of(sequences, splits):
    return Examples(
        names=tuple(f"s{i}" for i in range(len(sequences))),
        sequences=tuple(sequences),
        labels=np.zeros((len(sequences), 1), dtype=np.float32),
        splits=tuple(splits),
        groups=("",) * len(sequences),
    )


def slow_leaks(examples, share):
    """Count with sets of strings what `find_leaks` counts with numbers."""

    def kmers(sequence):
        forms = (sequence[i : i + 31] for i in range(len(sequence) - 30))
        return {min(f, reverse_complement(f)) for f in forms if set(f) <= set("ACGT")}

    def leaks_of(split, others):
        theirs = [
            s for s, p in zip(examples.sequences, examples.splits, strict=True) if p in others
        ]
        whole = {min(s, reverse_complement(s)) for s in theirs}
        there = set().union(*map(kmers, theirs))
        equal = near = 0
        for s, p in zip(examples.sequences, examples.splits, strict=True):
            if p == split:
                mine = kmers(s)
                is_equal = min(s, reverse_complement(s)) in whole
                equal += is_equal
                near += not is_equal and bool(mine) and len(mine & there) >= share * len(mine)
        return equal, near

    found = {}
    for split in SPLITS:
        others = [other for other in SPLITS if other != split]
        if any(whole := leaks_of(split, others)):
            alone = {other: sum(leaks_of(split, [other])) for other in others}
            found[split] = *whole, {other: number for other, number in alone.items() if number}
    return found


@st.composite
def leaky(draw):
    """Draw sequences of which some are others', turned, changed, cut or within longer ones."""
    random_of = random.Random(draw(st.integers(0, 10_000)))
    base = [random_bases(random_of.choice([20, 40, 90, 200]), random_of.random()) for _ in range(8)]
    sequences = list(base)
    for sequence in random_of.choices(base, k=10):
        at = random_of.randrange(len(sequence))
        changed = sequence[:at] + random_of.choice("ACGTN") + sequence[at + 1 :]
        cut = sequence[: max(10, at)]
        longer = random_bases(50, random_of.random()) + sequence
        form = random_of.choice([sequence, changed, cut, longer])
        sequences.append(random_of.choice([form, reverse_complement(form)]))
    return examples_of(sequences, [random_of.choice(SPLITS) for _ in sequences])


@settings(max_examples=25)
@given(examples=leaky(), share=st.sampled_from([0.3, 0.5, 1.0]), order=st.randoms())
def test_leaks_are_those_of_a_slow_count_whatever_order_and_strand(examples, share, order):
    def counts(of):
        return {x.split: (x.num_equal, x.num_near, x.by_split) for x in find_leaks(of, share)}

    found = counts(examples)
    assert found == slow_leaks(examples, share)
    shuffled = examples.subset(order.sample(range(len(examples)), len(examples)))
    turned = [reverse_complement(s) if order.random() < 0.5 else s for s in shuffled.sequences]
    assert counts(replace(shuffled, sequences=tuple(turned))) == found
    dropped, *_ = LEAK_RULES["drop"](examples, share)
    assert counts(dropped) == {} and set(dropped.names) <= set(examples.names)


def test_leaks_are_counted_over_all_other_parts_together():
    """Of the test part, one stands in train, another in validation, and a third half in each."""
    one, other, third = (random_bases(120, seed=i) for i in range(3))
    examples = examples_of(
        [one, other, third, one, other, third[:70], third[50:]],
        ["test", "test", "test", "train", "validation", "train", "validation"],
    )
    (leak, *_) = find_leaks(examples, 0.8)
    # Each has 90 31-mers. Train has 40 of the third, validation 40: together 80, 0.89 of them.
    assert leak.split == "test" and (leak.num_equal, leak.num_near, leak.of) == (2, 1, 3)
    assert leak.by_split == {"train": 1, "validation": 1}


def test_leaks_are_told_refused_or_dropped():
    one, other, third = (random_bases(100, seed=i) for i in range(3))
    examples = examples_of(
        [one, reverse_complement(one), other, other[:60], third],
        ["train", "test", "train", "validation", "train"],
    )
    same, notes, leaks = LEAK_RULES["report"](examples, 0.5)
    assert same is examples and leaks == find_leaks(examples, 0.5)
    assert notes[0].startswith("1 of 1 sequences of test also occur in another split")
    with pytest.raises(UserError, match="1 of 1 sequences of test"):
        LEAK_RULES["refuse"](examples, 0.5)
    kept, notes, left = LEAK_RULES["drop"](examples, 0.5)
    assert left == []
    # Of `other`, 70 31-mers, 30 stand in validation: too few, so the short one goes.
    assert kept.names == ("s1", "s2", "s4")
    assert [sentence.split(" sequences")[0] for sentence in notes] == ["1 of 3", "1 of 1"]
    clean = examples_of([one, other], ["train", "test"])
    assert LEAK_RULES["refuse"](clean, 0.5) == (clean, [], [])

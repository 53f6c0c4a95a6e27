"""How examples are assigned to splits."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import UserError
from carbon.finetune.config import SPLITS, SplitConfig
from carbon.finetune.split import assign_splits


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

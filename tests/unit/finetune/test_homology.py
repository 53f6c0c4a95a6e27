"""Homologous pairs, clusters and leaks, against sets of strings and planted copies."""

import itertools
import os
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import UserError
from carbon.finetune import homology
from carbon.finetune.config import SPLITS, DataConfig, SplitConfig, TaskConfig
from carbon.finetune.data import prepare
from carbon.finetune.homology import LEAK_RULES, find_homology, find_leaks
from carbon.finetune.split import Examples
from carbon.genome import reverse_complement
from tests.helpers.files import random_bases
from tests.helpers.finetune import write_rows

HAS_MMSEQS = shutil.which("mmseqs") is not None
METHODS = ["kmers", pytest.param("mmseqs2", marks=[
    pytest.mark.nightly, pytest.mark.skipif(not HAS_MMSEQS, reason="MMseqs2 is not installed")
])]  # fmt: skip


def examples_of(sequences, splits):
    return Examples(
        names=tuple(f"s{i}" for i in range(len(sequences))),
        sequences=tuple(sequences),
        labels=np.zeros((len(sequences), 1), dtype=np.float32),
        splits=tuple(splits),
        groups=("",) * len(sequences),
    )


def kmers_of(sequence):
    forms = (sequence[i : i + 12] for i in range(len(sequence) - 11))
    return {min(f, reverse_complement(f)) for f in forms if set(f) <= set("ACGT")}


def slow_relations(sequences, identity):
    """Return the equal and the homologous pairs of numbers, by sets of strings."""
    kmers, whole = [*map(kmers_of, sequences)], [min(s, reverse_complement(s)) for s in sequences]
    equal, near = set(), set()
    for i, j in itertools.combinations(range(len(sequences)), 2):
        least = max(8, identity**12 * min(len(kmers[i]), len(kmers[j])))
        if whole[i] == whole[j]:
            equal |= {(i, j), (j, i)}
        elif len(kmers[i] & kmers[j]) >= least:
            near |= {(i, j), (j, i)}
    return equal, near


def slow_leaks(examples, identity):
    equal, near = slow_relations(examples.sequences, identity)

    def of(split, others, pairs):
        return {i for i, j in pairs if examples.splits[i] == split and examples.splits[j] in others}

    found = {}
    for split in SPLITS:
        others = [other for other in SPLITS if other != split]
        same = of(split, others, equal)
        if whole := (len(same), len(of(split, others, near) - same)):
            alone = {other: len(of(split, [other], equal | near)) for other in others}
            found[split] = *whole, {other: number for other, number in alone.items() if number}
    return {split: leak for split, leak in found.items() if leak[0] + leak[1]}


@st.composite
def leaky(draw):
    """Draw sequences of which some are others', turned, changed, cut or within longer ones."""
    random_of = random.Random(draw(st.integers(0, 10_000)))
    base = [random_bases(random_of.choice([10, 30, 90, 200]), random_of.random()) for _ in range(8)]
    sequences = list(base)
    for sequence in random_of.choices(base, k=10):
        at = random_of.randrange(len(sequence))
        changed = sequence[:at] + random_of.choice("ACGTN") + sequence[at + 1 :]
        cut = sequence[: max(10, at)]
        longer = random_bases(50, random_of.random()) + sequence
        form = random_of.choice([sequence, changed, cut, longer])
        sequences.append(random_of.choice([form, reverse_complement(form)]))
    return examples_of(sequences, [random_of.choice(SPLITS) for _ in sequences])


@settings(max_examples=12)
@given(examples=leaky(), identity=st.sampled_from([0.8, 0.9, 1.0]), order=st.randoms())
def test_leaks_are_those_of_a_slow_count_whatever_order_and_strand(examples, identity, order):
    def homology_of(of):
        return find_homology(of.sequences, "kmers", identity)

    def counts(of):
        return {
            x.split: (x.num_equal, x.num_near, x.by_split) for x in find_leaks(of, homology_of(of))
        }

    found = counts(examples)
    assert found == slow_leaks(examples, identity)
    shuffled = examples.subset(order.sample(range(len(examples)), len(examples)))
    turned = [reverse_complement(s) if order.random() < 0.5 else s for s in shuffled.sequences]
    assert counts(replace(shuffled, sequences=tuple(turned))) == found
    dropped, _, left = LEAK_RULES["drop"](examples, homology_of(examples))
    assert left == [] and counts(dropped) == {} and set(dropped.names) <= set(examples.names)


@settings(max_examples=12)
@given(examples=leaky(), identity=st.sampled_from([0.8, 1.0]))
def test_clusters_are_the_linked_sequences(examples, identity):
    equal, near = slow_relations(examples.sequences, identity)
    cluster = list(range(len(examples)))
    for _ in cluster:  # the lowest number spreads along the links
        for i, j in equal | near:
            cluster[i] = cluster[j] = min(cluster[i], cluster[j])
    names = [f"s{i:02d}" for i in range(len(examples))]
    found = find_homology(examples.sequences, "kmers", identity).clusters(names)
    assert found == [names[first] for first in cluster]


def copies(divergence, number=15, length_bp=200):
    """Return sequences, and a copy of each with this share of bases substituted, half turned.

    The identity of a pair is known: a copy has no insertion or deletion.
    """
    draws = random.Random(1)
    originals = [random_bases(length_bp, seed) for seed in range(number)]
    changed = []
    for n, sequence in enumerate(originals):
        bases = list(sequence)
        for at in draws.sample(range(length_bp), round(divergence * length_bp)):
            bases[at] = draws.choice([b for b in "ACGT" if b != bases[at]])
        changed.append("".join(bases) if n % 2 else reverse_complement("".join(bases)))
    return originals, changed


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("divergence", "identity", "least"), [
    (0.01, 0.9, 15), (0.03, 0.9, 14), (0.1, 0.85, 11),
])  # fmt: skip
def test_planted_copies_are_leaks_and_unrelated_sequences_are_not(
    method, divergence, identity, least
):
    originals, changed = copies(divergence)
    others = [random_bases(200, 1000 + n) for n in range(30)]
    splits = ["train"] * 15 + ["test"] * 15 + ["train", "test"] * 15
    examples = examples_of([*originals, *changed, *others], splits)
    leak, of_train = find_leaks(examples, find_homology(examples.sequences, method, identity))
    assert least <= leak.num_near <= 15 and leak.num_equal == 0
    assert (leak.split, leak.of, of_train.num_near) == ("test", 30, leak.num_near)
    assert (leak.method, leak.identity) == (method, identity)


def test_a_sample_of_longer_kmers_finds_copies_in_large_sets(monkeypatch):
    monkeypatch.setattr(homology, "_MOST_KMERS", 3000)  # of 6,000 bases: every third 24-mer
    originals, changed = copies(0.03)
    found = find_homology([*originals, *changed], "kmers", 0.9)
    pairs = {tuple(sorted(pair)) for pair in found.pairs.tolist()}
    numbers = found.whole.tolist()
    planted = {tuple(sorted((numbers[n], numbers[15 + n]))) for n in range(15)}
    assert pairs <= planted and len(pairs) >= 13


def test_sequences_of_a_common_repeat_are_still_compared(monkeypatch):
    """More sequences than owners of a k-mer share one: all are found near the first ones."""
    monkeypatch.setattr(homology, "_MOST_OWNERS", 3)
    repeat = random_bases(100, 0)
    sequences = [repeat + random_bases(20, 1 + n) for n in range(12)]
    found = find_homology(sequences, "kmers", 0.9)
    assert len(set(found.clusters([f"s{n}" for n in range(12)]))) == 1


def large_family():
    """Return 40 variants of one element, with two substitutions each; all pairs are homologous.

    The five variants of the test split come first in the order of their canonical forms, in which
    the owners of a k-mer are counted.
    """
    draws, element = random.Random(3), random_bases(100, 0)
    variants = set()
    while len(variants) < 40:
        bases = list(element)
        for at in draws.sample(range(100), 2):
            bases[at] = draws.choice([b for b in "ACGT" if b != bases[at]])
        variants.add(homology.canonical("".join(bases)))
    return examples_of(sorted(variants), ["test"] * 5 + ["validation"] * 5 + ["train"] * 30)


def test_leaks_of_a_large_family_are_all_counted_and_none_remains(monkeypatch):
    monkeypatch.setattr(homology, "_MOST_OWNERS", 3)
    family, others = large_family(), [random_bases(100, 50 + n) for n in range(6)]
    examples = examples_of([*family.sequences, *others], [*family.splits, *["train"] * 6])
    related = find_homology(examples.sequences, "kmers", 0.9)
    found = {x.split: (x.num_equal, x.num_near, x.by_split) for x in find_leaks(examples, related)}
    assert found == slow_leaks(examples, 0.9)
    assert found["test"][1] == 5 and found["train"][1] == 30
    notes = LEAK_RULES["report"](examples, related).notes
    assert "sequences have too many homologous ones to compute all pairs" in notes[-1]
    remaining, notes, leaks = LEAK_RULES["drop"](examples, related)
    assert leaks == [] and slow_leaks(remaining, 0.9) == {}
    assert remaining.splits == ("test",) * 5 + ("train",) * 6
    assert [note.split(" sequences")[0] for note in notes[:2]] == ["30 of 36", "5 of 5"]


def test_pairs_that_appear_after_a_removal_are_removed_too(monkeypatch):
    """As if only one pair were computed at a time, and no sequence known to be incomplete."""

    def first_pair(forms, identity):
        pairs = np.array([(0, 1)] * (len(forms) > 1), dtype=np.int64).reshape(-1, 2)
        return homology.Pairs(pairs, np.zeros(len(forms), dtype=bool))

    monkeypatch.setitem(homology.PAIRS, "kmers", first_pair)
    sequences = sorted(homology.canonical(random_bases(40, n)) for n in range(4))
    examples = examples_of(sequences, ["test", "train", "train", "train"])
    remaining, notes, leaks = LEAK_RULES["drop"](examples, find_homology(sequences, "kmers", 0.9))
    assert remaining.splits == ("test",) and leaks == [] and notes[0].startswith("3 of 3")


def test_one_substitution_of_a_short_sequence():
    """A substitution in the middle changes 12 of the 12-mers: 8 remain of 31 bases, 7 of 30."""
    for length, number in ((30, 0), (31, 1)):
        bases = random_bases(length, 5)
        changed = bases[:15] + ("A" if bases[15] != "A" else "C") + bases[16:]
        assert len(find_homology([bases, changed], "kmers", 0.9).pairs) == number


def test_mmseqs2_runs_where_a_system_has_no_affinity_of_cores(monkeypatch):
    """macOS has no `os.sched_getaffinity`; the program is replaced by one alignment."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(homology, "has_mmseqs", lambda: True)

    def align(words, **_):
        Path(words[4]).write_text("0\t1\t40\t40\t40\n")
        assert int(words[words.index("--threads") + 1]) >= 1
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", align)
    found = homology.mmseqs_pairs(["A" * 40, "A" * 39 + "C"], 0.9)
    assert found.pairs.tolist() == [[0, 1]] and not found.is_incomplete.any()


def test_leaks_are_reported_refused_or_dropped():
    one, other, third = (random_bases(100, seed=i) for i in range(3))
    examples = examples_of(
        [one, reverse_complement(one), other, other[:60], third],
        ["train", "test", "train", "validation", "train"],
    )
    found = find_homology(examples.sequences, "kmers", 0.9)
    same, notes, leaks = LEAK_RULES["report"](examples, found)
    assert same is examples and leaks == find_leaks(examples, found)
    assert notes[0] == "Leaks at 90 % identity (shared k-mers): 1 of 1 test sequences."
    with pytest.raises(UserError, match=r"90 % identity \(shared k-mers\): 1 of 1 test"):
        LEAK_RULES["refuse"](examples, found)
    kept, notes, left = LEAK_RULES["drop"](examples, found)
    assert left == [] and kept.names == ("s1", "s3", "s4") and notes[0].startswith("2 of 3")
    clean = examples_of([one, other], ["train", "test"])
    result = LEAK_RULES["refuse"](clean, find_homology(clean.sequences, "kmers", 0.9))
    assert result.examples is clean and result.leaks == []


def test_a_split_by_homology_keeps_clusters_whole(tmp_path):
    originals, changed = copies(0.03, number=40)
    rows = [(f"o{n}", s, n % 2) for n, s in enumerate(originals)]
    rows += [(f"c{n}", s, 1 - n % 2) for n, s in enumerate(changed)]
    path = write_rows(tmp_path / "data.csv", rows)
    data = DataConfig(path=str(path), name="id", homology="kmers", split=SplitConfig(by="homology"))
    prepared = prepare(data, TaskConfig(type="binary"), 6)
    split_of = dict(zip(prepared.examples.names, prepared.examples.splits, strict=True))
    assert all(split_of[f"o{n}"] == split_of[f"c{n}"] for n in range(40))
    assert "40 clusters at 90 % identity (shared k-mers); the largest has 2" in prepared.notes[-1]
    assert prepared.leaks == () and prepared.homology == "kmers"
    assert set(prepared.examples.groups) == {f"c{n}" for n in range(40)}
    by_hash = prepare(data.replace(split=SplitConfig()), TaskConfig(type="binary"), 6)
    assert by_hash.leaks and by_hash.leaks[0].split == "test"


def test_without_mmseqs_it_is_refused_or_kmers_stand_in(monkeypatch):
    monkeypatch.setattr(homology, "has_mmseqs", lambda: False)
    assert find_homology(["ACGT" * 5], "auto", 0.9).method == "kmers"
    with pytest.raises(UserError, match="mmseqs is not installed; install MMseqs2, or set 'kmers'"):
        find_homology(["ACGT" * 5], "mmseqs2", 0.9)

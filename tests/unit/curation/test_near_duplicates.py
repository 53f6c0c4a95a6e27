"""Transcripts that are nearly equal: which pairs are found, and which of them goes."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from carbon.genome import reverse_complement
from carbon.genome.kmers import canonical_kmers
from data_pipeline import records
from data_pipeline.dedup import join
from data_pipeline.records import digest_of
from tests.helpers.curation import build, rows_of
from tests.helpers.files import random_bases
from tests.helpers.near_duplicates import (
    deduplicated,
    found_by_all_pairs,
    found_in,
    mutated,
    write_shard,
)


def edit_distance(one, other):
    """Row by row, as in any textbook."""
    before = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        row = [i]
        for j, b in enumerate(other, start=1):
            row.append(min(row[-1] + 1, before[j] + 1, before[j - 1] + (a != b)))
        before = row
    return before[-1]


class TestNearDuplicates:
    @given(sequence=st.text(alphabet="ACGTN", max_size=60), k=st.integers(1, 31))
    def test_canonical_kmers(self, sequence, k):
        codes = {"A": 0, "T": 1, "C": 2, "G": 3}
        expected = []
        for at in range(len(sequence) - k + 1):
            word = sequence[at : at + k]
            if "N" not in word:
                forms = (word, reverse_complement(word))
                numbers = [sum(codes[b] * 4 ** (k - 1 - i) for i, b in enumerate(f)) for f in forms]
                expected.append(min(numbers))
        assert canonical_kmers(sequence, k).tolist() == expected

    def test_pairs_against_the_edit_distance_of_all(self, tmp_path):
        sequences = []
        for i in range(10):
            base = random_bases(random.Random(i).randint(120, 180), i)
            other = mutated(base, (0.02, 0.06, 0.09, 0.12, 0.3)[i % 5], 100 + i)
            sequences += [base, reverse_complement(other) if i % 2 else other]
        found = found_in(sequences, [False] * 20, 0.9, tmp_path)
        for i, j in found.items():
            longer = max(len(sequences[i]), len(sequences[j]))
            assert len(sequences[j]) >= len(sequences[i])
            forms = (sequences[i], reverse_complement(sequences[i]))
            assert min(edit_distance(f, sequences[j]) for f in forms) <= 0.1 * longer
        missed = 0
        for i in range(0, 20, 2):
            one, other = sequences[i], sequences[i + 1]
            forms = (one, reverse_complement(one))
            distance = min(edit_distance(f, other) for f in forms)
            if distance <= 0.1 * max(len(one), len(other)):
                missed += i not in found and i + 1 not in found
        assert missed <= 1 and len(found) >= 4

    @given(
        parents=st.lists(st.integers(0, 3), min_size=2, max_size=24),
        seed=st.integers(0, 99),
        records_at_once=st.sampled_from([3, 1 << 25]),
        rows_a_batch=st.sampled_from([5, 1 << 16]),
    )
    @settings(max_examples=5, deadline=None)
    def test_the_answer_is_that_of_all_pairs(self, parents, seed, records_at_once, rows_a_batch):
        """Families of mutated copies of some lengths, of either strand, at the edge of alike."""
        rng = random.Random(seed)
        sequences = []
        for i, parent in enumerate(parents):
            rate = rng.choice((0.01, 0.02, 0.05, 0.08, 0.1))
            copy = mutated(random_bases(90 + 4 * parent, parent), rate, 1000 * seed + i)
            sequences.append(reverse_complement(copy) if rng.random() < 0.3 else copy)
        assume(len({digest_of(sequence) for sequence in sequences}) == len(sequences))
        held_out = [rng.random() < 0.3 for _ in sequences]
        sources = [rng.choice(("near", "other")) for _ in sequences]
        with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
            patch.setattr(join, "_RECORDS_AT_ONCE", records_at_once)
            patch.setattr(records, "_ROWS_A_BATCH", rows_a_batch)
            found = found_in(sequences, held_out, 0.9, Path(folder), sources)
        assert found == found_by_all_pairs(sequences, held_out, 0.9, sources)

    def test_a_band_that_all_records_share(self, tmp_path):
        """Records with too little sequence for a sketch share all bands, more than the window."""
        rng = random.Random(3)
        sequences = ["N".join(random_bases(11, rng.random()) for _ in range(6)) for _ in range(90)]
        copies = [mutated(sequence, 0.03, i) for i, sequence in enumerate(sequences[:20])]
        sequences = list(dict.fromkeys(sequences + copies))
        held_out = [i % 7 == 0 for i in range(len(sequences))]
        found = found_in(sequences, held_out, 0.9, tmp_path)
        assert found == found_by_all_pairs(sequences, held_out, 0.9) and 10 < len(found) < 30

    def test_a_held_out_record_among_many_copies_that_may_stay(self, tmp_path):
        """All go, though fewer are compared with it than share its bands."""
        base = random_bases(700, 1)
        copies = [mutated(base, 0.01, i) for i in range(3 * join.WINDOW)]
        at = len(copies) // 2
        held_out = [i == at for i in range(len(copies))]
        found = found_in(copies, held_out, 0.9, tmp_path, ["other"] * len(copies))
        assert found == dict.fromkeys((i for i in range(len(copies)) if i != at), at)

    def test_the_answer_does_not_depend_on_shards(self, tmp_path):
        records_ = []
        for i in range(40):
            copy = mutated(random_bases(300, i // 4), 0.04, i)
            records_.append(("near", copy, i % 9 == 0))
        answers = []
        for size in (40, 7):
            work = tmp_path / str(size)
            for number, first in enumerate(range(0, 40, size)):
                write_shard(work, number, records_[first : first + size])
            answers.append(
                {row: each.partition(":")[0] for row, each in deduplicated(work).items()}
            )
        assert answers[0] == answers[1] and 20 < len(answers[0]) < 40

    def test_no_record_and_one(self, tmp_path):
        assert found_in([], [], 0.9, tmp_path / "0") == {}
        assert found_in([random_bases(90, 1)], [False], 0.9, tmp_path / "1") == {}

    def test_in_a_build(self, tmp_path):
        """Of two that are alike the longer stays."""
        base = random_bases(600, 4)
        texts = {"a": base, "b": mutated(base, 0.03, 1) + "ACGTACGTAC", "c": random_bases(600, 9)}
        (tmp_path / "x.fa").write_text("".join(f">{n}\n{s}\n" for n, s in texts.items()))
        words = [f"files.0.path={tmp_path}/x.fa", "files.0.source=mrna"]
        assert build(tmp_path / "c", *words) == 0
        kept = {row["name"] for row in rows_of(tmp_path / "c", "mrna")}
        longest = max(("a", "b"), key=lambda n: len(texts[n]))
        gone = ({"a", "b"} - {longest}).pop()
        assert kept == {longest, "c"}
        lines = (tmp_path / "c" / "dropped.tsv").read_text().splitlines()
        assert f"mrna\t{gone}\tnear_duplicate:{longest}" in lines[1]
        assert build(tmp_path / "d", *words, "keep.near_identity=1.0") == 0
        assert len(rows_of(tmp_path / "d", "mrna")) == 3

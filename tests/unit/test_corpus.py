import hashlib
import itertools
import json
import pickle
import shutil
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.corpus import (
    Blend,
    SampleOrder,
    SpanRows,
    open_packed,
    open_packing,
    open_store,
    ordered_rows,
    pack,
    permuted,
    read_manifest,
    read_source,
    source_files,
)
from carbon.corpus import packing as packing_module
from carbon.corpus import store as store_module
from carbon.errors import CorpusError
from carbon.genome import reverse_complement
from carbon.tokenizer import NATIVE, Kmers, decode_kmers, encode
from tests.helpers.files import random_bases, served

GOLDEN = Path(__file__).parents[1] / "golden"

shares = st.lists(st.integers(1, 60), min_size=1, max_size=5).map(
    lambda parts: {
        f"s{i}": part / 10_000 for i, part in enumerate([*parts[:-1], 10_000 - sum(parts[:-1])])
    }
)


@given(shares)
@settings(max_examples=40)
def test_every_prefix_has_every_share_to_within_one_row(mixture):
    blend = Blend(mixture)
    counts = Counter()
    drawn = [blend.names[source] for source in blend.sources(np.arange(12_000))]
    for i in range(12_000):
        for name, share in mixture.items():
            assert abs(counts[name] - i * share) < 1 + 1e-9
            if i % 1000 == 0:
                assert blend.count(name, i) == counts[name]
        counts[drawn[i]] += 1


def test_a_place_far_out_costs_no_walk_to_it():
    blend = Blend({"a": 0.7, "b": 0.3})
    assert blend.count("a", 10**15) == 7 * 10**14
    assert blend.count("absent", 5) == 0


@given(st.integers(1, 400), st.integers(0, 2**64 - 1))
def test_permutations_are_bijections(size, key):
    found = permuted(np.arange(size), size, np.uint64(key))
    assert sorted(found.tolist()) == list(range(size))
    assert found.tolist() == [walked(n, size, key) for n in range(size)]


def walked(n, size, key):
    """The same permutation, one number at a time in Python's integers."""

    def mixed(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    while True:
        left, right = n >> half_bits, n % 2**half_bits
        for number in range(4):
            left, right = right, left ^ (mixed(key ^ (right << 8) ^ number) % 2**half_bits)
        n = (left << half_bits) + right
        if n < size:
            return n


@given(st.lists(st.integers(0, 299), min_size=1, max_size=50), st.integers(0, 99))
def test_samples_are_the_same_in_any_company(numbers, seed):
    mixtures = ({"a": 0.6, "b": 0.4}, {"b": 0.3, "c": 0.7})
    spans = [SpanRows(150, mixture, 8) for mixture in mixtures]
    order = SampleOrder(seed, spans, {("a", 8): 7, ("b", 8): 30, ("c", 8): 1000})
    found = order.lookup(np.array(numbers))
    for at, i in enumerate(numbers):
        one = order[i]
        assert one == (
            int(found.span[at]), *order.streams[found.stream[at]], int(found.row[at]),
            int(found.epoch[at]), int(found.noise[at]),
        )  # fmt: skip


@given(st.integers(0, 50), st.integers(1, 80))
def test_every_epoch_reads_every_row_once(seed, size):
    order = SampleOrder(seed, [SpanRows(3 * size, {"a": 1.0}, 8)], {("a", 8): size})
    found = order.lookup(np.arange(3 * size))
    for epoch in range(3):
        rows = found.row[found.epoch == epoch].tolist()
        assert sorted(rows) == list(range(size))


def test_a_stage_that_is_added_changes_no_row_before_it():
    """Be it of a new source, or of rows of another length."""
    first = SpanRows(400, {"a": 0.5, "b": 0.5}, 8)
    sizes = {("a", 8): 60, ("b", 8): 90}
    short = SampleOrder(1, [first], sizes)
    for added, size in (
        (SpanRows(100, {"b": 0.5, "new": 0.5}, 8), {("new", 8): 10}),
        (SpanRows(100, {"a": 0.5, "b": 0.5}, 16), {("a", 16): 30, ("b", 16): 45}),
    ):
        longer = SampleOrder(1, [first, added], sizes | size)
        numbers = np.arange(400)
        for one, other in zip(short.lookup(numbers), longer.lookup(numbers), strict=True):
            assert one.tolist() == other.tolist()


def test_each_length_of_rows_has_a_counter_of_its_own():
    """And a source that returns to a length goes on where it was."""
    spans = [SpanRows(n, {"a": 1.0}, tokens) for n, tokens in ((30, 8), (20, 16), (30, 8))]
    order = SampleOrder(0, spans, {("a", 8): 50, ("a", 16): 20})
    found = order.lookup(np.arange(80))
    short = found.stream == order.streams.index(("a", 8))
    assert short.tolist() == [True] * 30 + [False] * 20 + [True] * 30
    assert found.epoch[short].tolist() == [0] * 50 + [1] * 10
    assert sorted(found.row[short][:50].tolist()) == list(range(50))
    assert sorted(found.row[~short].tolist()) == list(range(20))


def test_parts_of_a_stage_have_its_shares_together():
    """Twenty spans too short for a share of a tenth; and the order of names says nothing."""
    for mixture in ({"a": 0.9, "b": 0.1}, {"b": 0.1, "a": 0.9}):
        sizes = {("a", 8): 50, ("b", 8): 20}
        parts = SampleOrder(0, [SpanRows(8, mixture, 8)] * 20, sizes)
        whole = SampleOrder(0, [SpanRows(160, mixture, 8)], sizes)
        for one, other in zip(parts[159][1:], whole[159][1:], strict=True):
            assert one == other
        found = parts.lookup(np.arange(160))
        assert (found.stream == 1).sum() == 16
        assert found.row.tolist() == whole.lookup(np.arange(160)).row.tolist()
    first, second = (Blend(m).names for m in ({"b": 0.5, "a": 0.5}, {"a": 0.5, "b": 0.5}))
    assert first == second


def test_the_order_is_what_it_was():
    """Runs go on for weeks: an order that changes changes what has been read already."""
    spans = [SpanRows(40, {"dna": 0.75, "rna": 0.25}, 64), SpanRows(20, {"rna": 1.0}, 128)]
    order = SampleOrder(7, spans, {("dna", 64): 11, ("rna", 64): 5, ("rna", 128): 3})
    found = "".join(f"{' '.join(map(str, order[i]))}\n" for i in range(60))
    assert found == (GOLDEN / "order.txt").read_text()


def test_what_is_random_about_a_row_is_fair():
    _, rows, _ = make_rows(({"dna": 1.0},), num_rows=6000)
    readings = [rows.reading(rows.order[i]) for i in range(6000)]
    drawn = {name: Counter(getattr(r, name) for r in readings) for name in readings[0]._fields}
    # Of 6,000 a count with chance p has a standard deviation of at most 39; five of them are 200.
    for frame in range(6):
        assert abs(drawn["frame"][frame] - 1000) < 200
    assert abs(drawn["reverse"][True] - 3000) < 200
    for name in ("with_species", "with_gene"):
        assert abs(drawn[name][True] - 2000) < 200
    bare = sum(not (r.with_species or r.with_gene) for r in readings)
    assert abs(bare - 3000) < 200
    by_row = Counter((rows.order[i].row, r.reverse) for i, r in enumerate(readings))
    assert all(by_row[row, False] and by_row[row, True] for row, _ in by_row)


def test_epochs_have_orders_of_their_own():
    order = SampleOrder(0, [SpanRows(300, {"a": 1.0}, 8)], {("a", 8): 100})
    found = order.lookup(np.arange(300)).row.reshape(3, 100)
    assert not (found[0] == found[1]).all() and not (found[1] == found[2]).all()


def test_permutations_differ_by_key_and_mix():
    first, second = (permuted(np.arange(500), 500, np.uint64(k)).tolist() for k in (1, 2))
    assert first != second
    # Of a random permutation one place in 500 stays; neighbours part by a third of the length.
    assert sum(a == n for n, a in enumerate(first)) < 10
    assert 120 < np.abs(np.diff(first)).mean() < 210


@given(st.lists(st.integers(0, 900), max_size=25), st.integers(16, 80))
def test_packing_covers_every_base_once_and_fits(lengths_bp, row_tokens):
    packing = pack(np.array(lengths_bp, dtype=np.int64), row_tokens)
    covered = [np.zeros(n, dtype=int) for n in lengths_bp]
    for row in range(packing.num_rows):
        pieces = range(*packing.row_start[row : row + 2])
        assert len(pieces) > 0
        assert sum(packing.num_kmers[p] + 3 for p in pieces) <= row_tokens
        for p in pieces:
            start = packing.start[p]
            covered[packing.record[p]][start : start + 6 * packing.num_kmers[p]] += 1
    assert all((places == 1).all() for places in covered)


def test_packing_wastes_little():
    random = np.random.default_rng(0)
    lengths_bp = random.lognormal(7.5, 0.6, 3000).astype(np.int64)
    packing = pack(lengths_bp, 256)
    used = packing.num_kmers.sum() + 3 * len(packing.record)
    assert used / (packing.num_rows * 256) > 0.98


RECORDS = pa.table(
    {
        "sequence": [random_bases(n, n) for n in (700, 130, 55, 6, 300)],
        "gene_type": ["cds", "tRNA", "", None, "<cds>"],
        "species_type": ["fng"] * 5,
    }
)


def open_table(table, row_tokens, flip=False, folder=None):
    """Write a table as Parquet and open it as the source of a run."""
    folder = folder or Path(tempfile.mkdtemp())
    pq.write_table(table, folder / "train-0.parquet", row_group_size=3)
    store = open_store({str(folder / "train-0.parquet"): None}, folder / "cache", "source")
    return open_packed(store, [row_tokens], flip)


@cache
def source_of(name, row_tokens):
    return open_table(RECORDS, row_tokens, name == "dna")


def packing_of(source):
    (packing,) = source.packings.values()
    return packing


def make_rows(mixtures=({"dna": 0.75, "rna": 0.25},), num_rows=60, seed=0, row_tokens=40):
    records = RECORDS
    sources = {name: source_of(name, row_tokens) for name in ("dna", "rna")}
    rows = ordered_rows(seed, [SpanRows(num_rows, m, row_tokens) for m in mixtures], sources)
    return rows.order, rows, records


def test_an_epoch_reads_every_row_once():
    order, _, _ = make_rows(num_rows=400)
    seen = Counter()
    for i in range(400):
        sample = order[i]
        seen[sample.source, sample.epoch, sample.row] += 1
    assert set(seen.values()) == {1}
    epochs = {key[:2] for key in seen}
    for source, epoch in epochs:
        if (source, epoch + 1) in epochs:
            rows = {key[2] for key in seen if key[:2] == (source, epoch)}
            assert rows == set(range(len(rows))) and len(rows) > 5


def test_counters_go_on_across_stages_and_later_stages_change_nothing():
    first, second = {"dna": 0.75, "rna": 0.25}, {"dna": 0.5, "rna": 0.5}
    alone, _, _ = make_rows((first,), 30)
    both, _, _ = make_rows((first, second), 30)
    other, _, _ = make_rows((first, {"rna": 1.0}), 30)
    for i in range(30):
        assert alone[i] == both[i] == other[i]
    drawn = Counter()
    for i in range(60):
        sample = both[i]
        rows = 1 + max(both[j].row for j in range(60) if both[j].source == sample.source)
        drawn[sample.source] += 1
        assert sample.span == i // 30
        assert sample.epoch <= drawn[sample.source] // max(rows - 1, 1)
    per_source = Counter((both[i].source, both[i].epoch, both[i].row) for i in range(60))
    assert set(per_source.values()) == {1}


def test_rows_are_a_function_of_their_number_alone():
    _, forward, _ = make_rows()
    _, backward, _ = make_rows()
    expected = [forward[i] for i in range(60)]
    for i in reversed(range(60)):
        for a, b in zip(expected[i], backward[i], strict=True):
            assert np.array_equal(a, b)
    _, other, _ = make_rows(seed=1)
    assert any(not np.array_equal(expected[i].input_ids, other[i].input_ids) for i in range(5))


def pieces_of(row):
    """Cut a row where positions begin anew; give each piece's ids, targets and mask."""
    starts = [*np.flatnonzero(row.position_ids == 0), len(row.input_ids)]
    for a, b in itertools.pairwise(starts):
        if row.input_ids[a] != NATIVE.pad:
            yield row.input_ids[a:b], row.targets[a:b], row.known[a:b]


def test_rows_hold_the_bases_of_the_records():
    order, rows, records = make_rows(num_rows=200)
    texts = records["sequence"].to_pylist()
    strands, frames, forms = Counter(), Counter(), Counter()
    for i in range(200):
        for ids, targets, known in pieces_of(rows[i]):
            opening = int(np.flatnonzero(ids == NATIVE.dna_start)[0])
            kmers = Kmers(targets[opening:-1], known[opening:-1])
            bases = decode_kmers(kmers).rstrip("N")
            assert bases and "N" not in bases
            forward = any(bases in text for text in texts)
            backward = any(bases in reverse_complement(text) for text in texts)
            assert forward or (backward and order[i].source == "dna")
            whole = encode(bases)
            assert np.array_equal(ids[opening:], whole.ids)
            assert known[-1] == 0 and not known[:opening].any()
            strands[order[i].source, forward] += 1
            forms[opening] += 1
            frames[min((t.find(bases) % 6 for t in texts if bases in t), default=-1)] += 1
    assert strands["rna", False] == 0 and strands["dna", False] > 20
    assert {0, 1, 2, 3, 4, 5} <= set(frames)
    # Half bare, a sixth with both tags, a third with one; a record without a gene tag has fewer.
    assert forms[0] > forms[1] > forms[2] > 0


class TestFolder:
    def test_what_is_missing_or_torn_is_named(self, tmp_path):
        with pytest.raises(CorpusError, match=r"no manifest\.json"):
            read_manifest(tmp_path)
        (tmp_path / "manifest.json").write_text("{")
        with pytest.raises(CorpusError, match="not valid JSON"):
            read_manifest(tmp_path)
        (tmp_path / "mrna").mkdir()
        with pytest.raises(CorpusError, match="sources: mrna"):
            read_source(tmp_path, "eukaryote", "train")
        (tmp_path / "mrna" / "train-0.parquet").write_bytes(b"PAR1 torn")
        with pytest.raises(CorpusError, match=r"train-0\.parquet: cannot be read"):
            read_source(tmp_path, "mrna", "train")


records_of = st.lists(
    st.tuples(
        st.text(alphabet="ACGTNacgtRY", min_size=1, max_size=90),
        st.sampled_from(["cds", "tRNA", "unheard", None]),
        st.sampled_from(["fng", "mam", None]),
    ),
    min_size=1,
    max_size=12,
)


@given(records_of, st.integers(16, 60), st.booleans(), st.integers(0, 9))
@settings(max_examples=25)
def test_a_row_is_its_records_and_nothing_else(records, row_tokens, flip, seed):
    """Every base of a row against the records, by the slow way: strings and `encode`."""
    columns = dict(
        zip(("sequence", "gene_type", "species_type"), zip(*records, strict=True), strict=True)
    )
    source = open_table(pa.table({k: list(v) for k, v in columns.items()}), row_tokens, flip)
    packing = packing_of(source)
    count = packing.num_rows
    rows = ordered_rows(seed, [SpanRows(2 * count, {"s": 1.0}, row_tokens)], {"s": source})
    for i in range(2 * count):
        sample = rows.order[i]
        reading = rows.reading(sample)
        assert flip or not reading.reverse
        ids, targets, known, positions = [], [], [], []
        for piece in range(*packing.row_start[sample.row : sample.row + 2]):
            bases, gene, species = records[packing.record[piece]]
            start = packing.start[piece] + reading.frame
            bases = bases[start : start + 6 * packing.num_kmers[piece]]
            bases = reverse_complement(bases) if reading.reverse else bases
            tags = {"fng": "<fungi_species>", "mam": "<mammalian_species>", None: None}[species]
            drawn = [tags] if reading.with_species and tags else []
            tags = {"cds": "<protein_coding_region>", "tRNA": "<transfer_rna>"}.get(gene)
            drawn += [tags] if reading.with_gene and tags else []
            whole = encode(bases, tags=tuple(drawn))
            ids += whole.ids.tolist()
            targets += [*whole.kmers[1:].tolist(), 0]
            known += [*whole.known[1:].tolist(), 0]
            positions += range(len(whole.ids))
        found = rows[i]
        assert len(ids) <= row_tokens and found.input_ids[: len(ids)].tolist() == ids
        assert (found.input_ids[len(ids) :] == NATIVE.pad).all()
        assert found.targets.tolist() == targets + [0] * (row_tokens - len(ids))
        assert found.known.tolist() == known + [0] * (row_tokens - len(ids))
        assert found.position_ids[: len(ids)].tolist() == positions


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(16, 70))
@settings(max_examples=25)
def test_packing_by_blocks_covers_every_base_once(lengths_bp, row_tokens):
    table = pa.table({"sequence": [random_bases(n, i) for i, n in enumerate(lengths_bp)]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing_module, "_RECORDS_A_BLOCK", 7)
        source = open_table(table, row_tokens)
    packing = packing_of(source)
    covered = [np.zeros(n, dtype=int) for n in lengths_bp]
    for row in range(packing.num_rows):
        pieces = range(*packing.row_start[row : row + 2])
        assert sum(packing.num_kmers[p] + 3 for p in pieces) <= row_tokens
        assert len({packing.record[p] // 7 for p in pieces}) == 1
        for p in pieces:
            start = packing.start[p]
            covered[packing.record[p]][start : start + 6 * packing.num_kmers[p]] += 1
    assert all((places == 1).all() for places in covered)


class TestStore:
    def test_it_is_made_once_and_found_again(self, tmp_path):
        source = open_table(RECORDS, 40, folder=tmp_path)
        texts = RECORDS["sequence"].to_pylist()
        store = source.store
        for i, text in enumerate(texts):
            assert store.letters(i, 0, 10**6).tobytes().decode() == text
            assert store.letters(i, 3, 7).tobytes().decode() == text[3:7]
        assert store.lengths_bp(0, 5).tolist() == [len(text) for text in texts]
        assert store.lengths_bp(2, 4).tolist() == [55, 6]
        assert (store.genes >= 0).tolist() == [True, True, False, False, True]
        before = (store.folder / "bases.bin").stat().st_mtime_ns
        again = open_table(RECORDS, 40, folder=tmp_path)
        assert again.store.folder == store.folder
        assert (store.folder / "bases.bin").stat().st_mtime_ns == before
        other = open_table(RECORDS.slice(0, 4), 40, folder=tmp_path)
        assert other.store.folder != store.folder and other.store.num_records == 4

    def test_renaming_the_folder_changes_nothing(self, tmp_path):
        (tmp_path / "a").mkdir()
        one = open_table(RECORDS, 40, folder=tmp_path / "a")
        key = one.store.key
        (tmp_path / "a").rename(tmp_path / "b")
        other = open_store(
            {str(tmp_path / "b/train-0.parquet"): None}, tmp_path / "b/cache", "source"
        )
        assert other.key == key
        packing = open_packing(other, 40)
        assert packing.record.tolist() == packing_of(one).record.tolist()

    def test_parquet_that_is_not_local(self, tmp_path):
        """`memory://` stands in for any store that fsspec opens."""
        local = open_table(RECORDS, 40, folder=tmp_path)
        data = (tmp_path / "train-0.parquet").read_bytes()
        with fsspec.open("memory://bucket/source/part-0.parquet", "wb") as sink:
            sink.write(data)
        files = source_files("memory://bucket", "source", "train")
        assert list(files) == ["memory:///bucket/source/part-0.parquet"]
        remote = open_store(files, tmp_path / "far", "source")
        assert np.array_equal(remote.bases, local.store.bases)
        assert remote.key == open_store(files, tmp_path / "far", "source").key

    def test_a_corpus_behind_http(self, tmp_path):
        """A server that gives ranges, as those of stores do; with a manifest and without one."""
        (tmp_path / "web" / "dna").mkdir(parents=True)
        local = open_table(RECORDS, 40, folder=tmp_path)
        data = (tmp_path / "train-0.parquet").read_bytes()
        (tmp_path / "web" / "dna" / "train-0.parquet").write_bytes(data)
        with served(tmp_path / "web") as url:
            (path,) = source_files(url, "dna", "train")
            assert path == f"{url}/dna/train-0.parquet"
            bare = open_store({path: None}, tmp_path / "one", "source")
            outputs = {"dna/train-0.parquet": hashlib.sha256(data).hexdigest()}
            manifest = {"outputs": outputs, "held_out": [], "sources": {}}
            (tmp_path / "web" / "manifest.json").write_text(json.dumps(manifest))
            checked = open_store(source_files(url, "dna", "train"), tmp_path / "two", "source")
            for store in (bare, checked):
                assert np.array_equal(store.bases, local.store.bases)
            here = {str(tmp_path / "train-0.parquet"): hashlib.sha256(data).hexdigest()}
            assert checked.key == open_store(here, tmp_path / "one", "source").key
            with pytest.raises(CorpusError, match=r"none\.parquet: cannot be opened"):
                open_store({f"{url}/none.parquet": None}, tmp_path / "two", "source")

    def test_what_is_missing_torn_or_swapped_is_named(self, tmp_path):
        pq.write_table(RECORDS, tmp_path / "a.parquet")
        data = (tmp_path / "a.parquet").read_bytes()
        sums = hashlib.sha256(data).hexdigest()
        assert open_store({str(tmp_path / "a.parquet"): sums}, tmp_path / "c", "s").num_records == 5
        pq.write_table(RECORDS.slice(1), tmp_path / "b.parquet")
        (tmp_path / "torn.parquet").write_bytes(data[:-9])
        pq.write_table(pa.table({"dna": ["A"]}), tmp_path / "other.parquet")
        pq.write_table(pa.table({"sequence": ["A", None]}), tmp_path / "null.parquet")
        for name, message in (
            ("b.parquet", "is not the file that the manifest names"),
            ("none.parquet", "cannot be opened"),
            ("torn.parquet", "is not whole Parquet"),
            ("other.parquet", "has no column 'sequence' or 'text'"),
            ("null.parquet", "a record has no sequence"),
        ):
            expected = sums if name == "b.parquet" else None
            with pytest.raises(CorpusError, match=message) as error:
                open_store({str(tmp_path / name): expected}, tmp_path / "c", "s")
            assert name in str(error.value) and "\n" not in str(error.value)
        assert sum(path.is_dir() for path in (tmp_path / "c").iterdir()) == 1  # nothing half-made

    def test_it_is_known_by_what_is_in_it(self, tmp_path):
        """A base in the middle, which no footer tells; with sums of a manifest and without."""
        path = tmp_path / "a.parquet"

        def written(middle):
            table = pa.table({"sequence": ["A" * 60, middle * 60, "T" * 60]})
            pq.write_table(table, path, compression="none")
            return hashlib.sha256(path.read_bytes()).hexdigest()

        first = written("C")
        assert open_store({str(path): None}, tmp_path / "c", "s").letters(1, 0, 2)[0] == ord("C")
        assert open_store({str(path): first}, tmp_path / "d", "s").letters(1, 0, 2)[0] == ord("C")
        second = written("G")
        assert open_store({str(path): None}, tmp_path / "c", "s").letters(1, 0, 2)[0] == ord("G")
        assert open_store({str(path): second}, tmp_path / "d", "s").letters(1, 0, 2)[0] == ord("G")
        with pytest.raises(CorpusError, match="is not the file that the manifest names"):
            open_store({str(path): "0" * 64}, tmp_path / "c", "s")

    @pytest.mark.parametrize("kind", ["dictionary", "binary", "large_string"])
    def test_other_kinds_of_text(self, tmp_path, kind):
        column = RECORDS["sequence"].combine_chunks()
        column = column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
        source = open_table(RECORDS.set_column(0, "sequence", column), 40, folder=tmp_path)
        assert source.store.letters(1, 0, 999).tobytes().decode() == RECORDS["sequence"][1].as_py()

    @pytest.mark.parametrize(
        "table",
        [
            {"sequence": [1, 2]},
            {"sequence": [["A"], ["C"]]},
            {"sequence": ["A"], "gene_type": [["cds"]]},
            {"sequence": ["A"], "gene_type": pa.array([b"\xff"])},
        ],
    )
    def test_columns_of_other_kinds_are_named(self, tmp_path, table):
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        with pytest.raises(CorpusError, match=r"a\.parquet: cannot be read \("):
            open_store({str(tmp_path / "a.parquet"): None}, tmp_path / "c", "s")

    def test_what_a_crash_leaves_is_made_again(self, tmp_path):
        source = open_table(RECORDS, 40, folder=tmp_path)
        for marker in ("store.json", "rows-40/packing.json"):
            (source.store.folder / marker).write_text("")
            left = source.store.folder.with_name(f".77.{source.store.folder.name}")
            left.mkdir()
            again = open_table(RECORDS, 40, folder=tmp_path)
            assert np.array_equal(again.store.bases, source.store.bases)
            assert packing_of(again).num_rows == packing_of(source).num_rows
            assert marker != "store.json" or not left.exists()

    def test_a_full_disk_names_the_folder(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(store_module, "_make", full)
        with pytest.raises(OSError, match="No space left") as error:
            open_table(RECORDS, 40, folder=tmp_path)
        assert str(tmp_path) in error.value.filename
        assert not [p for p in (tmp_path / "cache").iterdir() if p.is_dir()]

    def test_a_cut_file_of_the_store_is_named(self, tmp_path):
        for name in ("ends.bin", "rows-40/start.bin"):
            source = open_table(RECORDS, 40, folder=tmp_path)
            path = source.store.folder / name
            path.write_bytes(path.read_bytes()[:-1])
            with pytest.raises(CorpusError, match=f"{path.name}: is not whole; remove its folder"):
                open_table(RECORDS, 40, folder=tmp_path)
            path.unlink()
            with pytest.raises(CorpusError, match="is not whole"):
                open_table(RECORDS, 40, folder=tmp_path)
            shutil.rmtree(path.parent)
        again = open_table(RECORDS, 40, folder=tmp_path)
        assert packing_of(again).num_rows == packing_of(source).num_rows

    def test_what_is_held_out_is_never_trained_on_for_want_of_a_manifest(self, tmp_path):
        (tmp_path / "dna").mkdir()
        for name in ("part-0", "test-0", "test", "validation-00000-of-00001", "dev"):
            pq.write_table(RECORDS, tmp_path / "dna" / f"{name}.parquet")
        (path,) = source_files(tmp_path, "dna", "train")
        assert path.endswith("dna/part-0.parquet")
        (tmp_path / "manifest.json").write_text("{torn")
        with pytest.raises(CorpusError, match="not valid JSON"):
            source_files(tmp_path, "dna", "train")
        for broken in ("5", '{"outputs": [], "held_out": [], "sources": {}}'):
            (tmp_path / "manifest.json").write_text(broken)
            with pytest.raises(CorpusError, match="has no '"):
                source_files(tmp_path, "dna", "train")

    def test_a_folder_with_letters_of_a_pattern(self, tmp_path):
        (tmp_path / "c[1]" / "dna").mkdir(parents=True)
        pq.write_table(RECORDS, tmp_path / "c[1]" / "dna" / "a.parquet")
        assert len(source_files(f"{tmp_path}/c[1]/", "dna", "train")) == 1

    def test_a_source_that_is_not_there(self, tmp_path):
        with pytest.raises(CorpusError, match="has no train files of a source 'dna'"):
            source_files(tmp_path, "dna", "train")


def test_rows_travel_as_folders():
    _, rows, _ = make_rows(num_rows=200)
    packed = pickle.dumps(rows)
    assert len(packed) < 20_000 and random_bases(55, 55).encode() not in packed
    again = pickle.loads(packed)
    for i in (0, 7, 199):
        for one, other in zip(rows[i], again[i], strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("workers", "more"),
    [
        (0, {}),
        (2, {"prefetch_factor": 1}),
        (3, {"prefetch_factor": 4, "persistent_workers": True}),
        (1, {"multiprocessing_context": "spawn"}),
    ],
)
def test_workers_and_prefetch_are_invisible(workers, more):
    """`torch.utils.data.DataLoader` over any numbers of samples, in their order."""
    from torch.utils.data import DataLoader

    _, rows, _ = make_rows(num_rows=60)
    numbers = range(20, 60)
    loader = DataLoader(rows, batch_size=4, sampler=numbers, num_workers=workers, **more)
    found = [batch.input_ids for batch in loader]
    assert [len(batch) for batch in found] == [4] * 10
    for at, i in enumerate(numbers):
        assert found[at // 4][at % 4].tolist() == rows[i].input_ids.tolist()


@given(st.integers(0, 99), st.sampled_from([1, 2, 3, 4, 6, 12]), st.integers(0, 4))
@settings(max_examples=30)
def test_ranks_together_read_what_one_would(seed, ranks, step):
    """Batch k is samples kG to (k + 1)G, whoever reads which of them."""
    order, _, _ = make_rows(num_rows=60, seed=seed)
    batch = 12
    whole = order.lookup(np.arange(step * batch, (step + 1) * batch))
    share = batch // ranks
    parts = [
        order.lookup(np.arange(step * batch + r * share, step * batch + (r + 1) * share))
        for r in range(ranks)
    ]
    for column, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        assert column.tolist() == np.concatenate(pieces).tolist()

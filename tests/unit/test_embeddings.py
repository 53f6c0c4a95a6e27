"""Embeddings against the hidden states of stock transformers, and against themselves in company."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.cli import main
from carbon.errors import UserError
from carbon.inference import embed as embeddings
from carbon.io.tables import chosen_by_ending
from carbon.io.vectors import read_parquet, write_parquet
from carbon.model import save_model
from carbon.tokenizer import encode
from tests.helpers.files import random_bases, write_fasta

LAYERS = [0, 1, None]  # the network has two; stock states behind the second are normed


def stock_states(network, sequence: str, layer: int | None, **options) -> np.ndarray:
    """Return the states of all tokens, (tokens, width), by the stock forward of one row."""
    ids = torch.from_numpy(encode(sequence, **options).ids)[None]
    with torch.inference_mode():
        states = network(ids, output_hidden_states=True).hidden_states
    return states[-1 if layer is None else layer][0].double().numpy()


def slow_mean(states: np.ndarray, sequence: str, first: int = 1) -> np.ndarray:
    """Return the mean over bases: every known base counts with the state of its token."""
    rows = [states[first + i // 6] for i, base in enumerate(sequence) if base in "ACGTacgt"]
    return np.mean(rows, axis=0)


class TestAgainstStockTransformers:
    @pytest.mark.parametrize("layer", LAYERS)
    def test_mean_over_known_bases_last_and_end(self, model, network, layer):
        for sequence in (random_bases(120), random_bases(63), "acGTNACgtaNNNNNNA"):
            (mean,) = model.embed([sequence], layer=layer)
            states = stock_states(network, sequence, layer)
            assert mean.dtype == np.float32 and mean.shape == (32,)
            np.testing.assert_allclose(mean, slow_mean(states, sequence), atol=1e-5)
            (last,) = model.embed([sequence], pool="last", layer=layer)
            np.testing.assert_allclose(last, states[-1], atol=1e-5)
            (end,) = model.embed([sequence], pool="end", layer=layer)
            closed = stock_states(network, sequence, layer, close=True)
            np.testing.assert_allclose(end, closed[-1], atol=1e-5)

    def test_behind_all_layers_and_before_the_norm(self, model, network):
        (vector,) = model.embed([random_bases(60)], pool="last", layer=2)
        with torch.inference_mode():
            normed = network.model.norm(torch.from_numpy(vector))
        (expected,) = model.embed([random_bases(60)], pool="last")
        np.testing.assert_allclose(normed, expected, atol=1e-5)

    def test_tags_are_read_and_do_not_count(self, model, network):
        sequence, tags = random_bases(60), ("<fungi_species>", "<transfer_rna>")
        (vector,) = model.embed([sequence], tags=tags)
        states = stock_states(network, sequence, None, tags=tags)
        np.testing.assert_allclose(vector, slow_mean(states, sequence, first=3), atol=1e-5)


class TestLongSequences:
    """A context of 48 tokens holds 47 6-mers, 282 bp; the next window starts 138 bp on."""

    def test_a_base_counts_in_the_first_window_that_holds_it(self, model, network):
        sequence = random_bases(500)
        states = np.concatenate([
            stock_states(network, sequence[:282], None)[1:],
            stock_states(network, sequence[138:420], None)[1 + 24 :],
            stock_states(network, sequence[276:], None)[1 + 24 :],
        ])  # fmt: skip
        (vector,) = model.embed([sequence])
        np.testing.assert_allclose(vector, slow_mean(states, sequence, first=0), atol=1e-5)

    @pytest.mark.parametrize(("pool", "num_kmers"), [("last", 47), ("end", 46)])
    def test_the_end_has_as_much_before_it_as_fits(self, model, network, pool, num_kmers):
        sequence = random_bases(500)  # 84 6-mers, the last one of two bases
        (vector,) = model.embed([sequence], pool=pool)
        read = sequence[(84 - num_kmers) * 6 :]
        expected = stock_states(network, read, None, close=pool == "end")
        assert len(expected) == 48
        np.testing.assert_allclose(vector, expected[-1], atol=1e-5)


@given(
    sequences=st.lists(st.text("ACGTN", max_size=700), min_size=2, max_size=6),
    pool=st.sampled_from(["mean", "last", "end"]),
    layer=st.sampled_from(LAYERS),
)
@settings(max_examples=12)
def test_company_and_padding_change_no_byte(model, sequences, pool, layer):
    together = list(model.embed(sequences, pool=pool, layer=layer))
    alone = [next(model.embed([sequence], pool=pool, layer=layer)) for sequence in sequences]
    assert [vector.tobytes() for vector in together] == [vector.tobytes() for vector in alone]


@pytest.mark.parametrize("pool", ["mean", "last", "end"])
def test_a_record_without_bases_has_no_embedding(model, pool):
    """Neither alone nor in company: the state of `<dna>` or `</dna>` would tell nothing of it."""
    (alone,) = model.embed([""], pool=pool)
    before, empty, behind = model.embed(["ACGT", "", "A"], pool=pool)
    assert alone.shape == (32,) and np.isnan(alone).all() and np.isnan(empty).all()
    assert np.isfinite(before).all() and np.isfinite(behind).all()
    # A mean of nothing is no number; a window without known bases is no part of it.
    unknown, known, gap = model.embed(["NNNNNNNN", "ANNN", f"ACGT{'N' * 700}ACGT"])
    assert np.isnan(unknown).all() and np.isfinite(known).all() and np.isfinite(gap).all()


def test_sequences_are_read_as_they_are_needed(model):
    endless = (random_bases(6, seed) for seed in itertools.count())
    assert len(list(itertools.islice(model.embed(endless), 3))) == 3
    assert next(endless) == random_bases(6, 256)  # one block was read


def test_rows_are_read_in_groups_and_give_the_same(model, monkeypatch):
    sequences = [random_bases(length_bp, length_bp) for length_bp in (700, 20, 300, 0, 500)]
    expected = [vector.tobytes() for vector in model.embed(sequences)]
    monkeypatch.setattr(embeddings, "_ROWS_PER_GROUP", 2)
    assert [vector.tobytes() for vector in model.embed(sequences)] == expected


def test_what_is_not_possible_is_said_at_once(model):
    for wrong, message in (
        ({"layer": 3}, "layer 3: .* give 0 to 2"),
        ({"layer": -1}, "layer -1"),
        ({"tags": ("<dragon>",)}, "<dragon>"),
    ):
        with pytest.raises(UserError, match=message):
            model.embed([], **wrong)


def test_the_command_writes_parquet_in_row_groups(tmp_path, capsys, model, network, monkeypatch):
    save_model(network, tmp_path / "model")
    records = {f"s{n}": random_bases(1 + n, n) for n in range(29)} | {"none": "NNNNNNNN"}
    fasta, output = write_fasta(tmp_path / "s.fa", records), tmp_path / "out.parquet"
    monkeypatch.setattr("carbon.io.vectors._ROW_GROUP", 12)
    method = ["--pool", "mean", "--layer", "1", "--tag", "<fungi_species>"]
    words = ["embed", "--model", str(tmp_path / "model"), str(fasta)]
    assert main([*words, "--output", str(output), *method]) == 0
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert (summary["sequences"], summary["width"], summary["layer"]) == (30, 32, 1)
    assert summary["without"] == 1
    assert "warning: 1 sequences have no known base, and no embedding" in said.err

    found = pq.ParquetFile(output)
    sizes = [found.metadata.row_group(i).num_rows for i in range(found.num_row_groups)]
    assert sizes == [12, 12, 6]
    kind = found.schema_arrow.field("embedding").type
    assert (kind.list_size, str(kind.value_type)) == (32, "float")
    settings = json.loads(found.schema_arrow.metadata[b"carbon"])
    assert settings["pool"] == "mean" and settings["tags"] == ["<fungi_species>"]
    table = found.read()
    assert table["name"].to_pylist() == [*records]
    assert table["bases"].to_pylist() == [*map(len, records.values())]
    vectors = np.stack(table["embedding"].to_numpy())
    expected = model.embed(records.values(), pool="mean", layer=1, tags=["<fungi_species>"])
    assert vectors.tobytes() == np.stack(list(expected)).tobytes()
    assert np.isnan(vectors).all(axis=1).tolist() == [False] * 29 + [True]


def test_parquet_is_read_row_group_by_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr("carbon.io.vectors._ROW_GROUP", 64)
    width, path = 2000, tmp_path / "x.parquet"
    rows = [(f"r{n}", n, np.arange(n, n + width, dtype=np.float32)) for n in range(8 * 64)]
    write_parquet(path, rows, width, {})
    before, most_bytes = pa.total_allocated_bytes(), 0
    for read, row in zip(read_parquet(path), rows, strict=True):
        assert read[:2] == row[:2] and np.array_equal(read[2], row[2])
        most_bytes = max(most_bytes, pa.total_allocated_bytes() - before)
    assert most_bytes < len(rows) * width * 4 / 2


def test_npz_holds_what_parquet_does_and_equal_rows_give_equal_bytes(tmp_path, monkeypatch):
    names, width = [f"r{n}" for n in range(5)], 3
    rows = [(name, n, np.full(width, n, np.float32)) for n, name in enumerate(names)]
    write = chosen_by_ending("x.npz", "embeddings")
    for name, some in (("a.npz", rows), ("b.npz", rows), ("none.npz", [])):
        assert write(tmp_path / name, some, width, {"pool": "mean"}) == len(some)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    found = np.load(tmp_path / "a.npz", allow_pickle=False)
    assert found["name"].tolist() == names and found["bases"].tolist() == list(range(5))
    assert found["embedding"].dtype == np.float32
    assert found["embedding"].tolist() == [vector.tolist() for _, _, vector in rows]
    assert json.loads(str(found["carbon"])) == {"pool": "mean"}
    assert np.load(tmp_path / "none.npz")["embedding"].shape == (0, width)

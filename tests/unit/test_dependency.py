"""Dependency maps against whole stock forwards of every substituted sequence."""

import itertools
import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from carbon.cli import main
from carbon.errors import GenomeError, UserError
from carbon.genome import Interval, Reference, reverse_complement
from carbon.inference import DependencyOptions, Model
from carbon.inference.dependency import dependency_method_for, maps
from carbon.inference.dependency.maps import log2_odds, strand_map
from carbon.model import LoadedModel, save_model
from carbon.tokenizer import NATIVE, encode
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.reference import HAS_BASE, stock_distribution

BASES = random_bases(47, 1) + random_bases(12, 2).lower() + "N" + random_bases(45, 3)
LENGTH_BP = len(BASES)
WINDOW_BP = 48
GFF3 = (
    "##gff-version 3\n"
    "c\tx\tgene\t11\t30\t.\t-\t.\tID=g1;Name=ABC\n"
    "c\tx\tmRNA\t11\t30\t.\t-\t.\tID=t1;Parent=g1\n"
    "c\tx\texon\t11\t30\t.\t-\t.\tParent=t1\n"
)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(7)
    return LlamaForCausalLM(small_config(32)).eval()


@pytest.fixture(scope="module")
def model(network):
    return Model(LoadedModel(network, NATIVE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("dependency")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": BASES, "e": "", "t": reverse_complement(BASES)})
    (folder / "g.gff3").write_text(GFF3)
    return folder


@pytest.fixture(scope="module")
def reference(folder):
    return Reference(folder / "r.fa")


def slow_odds(network, text: str, first: int) -> np.ndarray:
    """Return log2(p / (1 - p)) of A, C, G and T from `first` on, each from a whole forward."""
    rows = []
    for at in range(first, len(text)):
        start = at // 6 * 6
        p = stock_distribution(network, text[:start])
        agree = np.ones(4096, dtype=bool)
        for place in range(start, at):
            if text[place] in "ACGT":
                agree &= HAS_BASE[place - start, text[place]]
        masses = [p[agree & HAS_BASE[at - start, base]].sum() / p[agree].sum() for base in "ACGT"]
        rows.append([(math.log(q) - math.log1p(-q)) / math.log(2) for q in masses])
    return np.array(rows)


def slow_map(network, bases: str, start: int, end: int, offset: int) -> np.ndarray:
    """Return e(i, j) of the forward strand, one whole substituted sequence at a time."""
    first = max(0, end - WINDOW_BP)
    first += (offset - first) % 6
    text = bases[first:end] if first <= start else "N" * (6 - first) + bases[:end]
    at = len(text) - (end - start)
    reference = slow_odds(network, text, at)
    effects = np.zeros((end - start, end - start))
    for i in range(at, len(text)):
        for base in set("ACGT") - {text[i]}:
            odds = slow_odds(network, text[:i] + base + text[i + 1 :], at)
            effects[i - at] = np.maximum(effects[i - at], np.abs(odds - reference).max(axis=1))
        if "N" in text[i // 6 * 6 : i // 6 * 6 + 6]:  # one token, whatever the base is
            effects[i - at, i - at + 1 :] = np.nan
    return effects


def slow_directed(network, start: int, end: int, offsets=(0,)) -> np.ndarray:
    """Return the merged map of both strands, the mean over the offsets with a value."""
    bases = BASES.upper()
    turned, length_bp = reverse_complement(bases), len(bases)
    parts = [
        slow_map(network, bases, start, end, offset)
        + slow_map(network, turned, length_bp - end, length_bp - start, offset)[::-1, ::-1]
        for offset in offsets
    ]
    present = np.sum([~np.isnan(part) for part in parts], axis=0)
    return np.where(present, np.nansum(parts, axis=0) / np.maximum(present, 1), np.nan)


# In the middle; from the start, where no base is context; to the end; and one base.
@pytest.mark.parametrize(("start", "end"), [(60, 68), (0, 6), (99, LENGTH_BP), (30, 31)])
def test_values_are_those_of_whole_forwards(network, model, reference, start, end):
    found = model.dependency(reference, Interval("c", start, end), window_bp=WINDOW_BP)
    expected = slow_directed(network, start, end)
    np.testing.assert_allclose(found.directed, expected, atol=2e-4)
    np.testing.assert_allclose(found.dependency, np.maximum(expected, expected.T), atol=2e-4)
    np.fill_diagonal(expected, np.nan)
    assert not found.masked.any()
    if end - start > 1:
        np.testing.assert_allclose(found.influence, np.nanmean(expected, axis=1), atol=2e-4)
    else:
        assert np.isnan(found.influence).all()


def test_offsets_and_the_mean_of_both_directions(network, model, reference):
    # With offset 4 the first four bases of the contig end a 6-mer of unknown bases, so that the
    # values of bases 1 to 3 are those of offset 0.
    place = Interval("c", 1, 12)
    found = model.dependency(
        reference, place, window_bp=WINDOW_BP, offsets=(0, 4), symmetrise="mean"
    )
    expected = slow_directed(network, 1, 12, (0, 4))
    np.testing.assert_allclose(found.directed, expected, atol=2e-4)
    np.testing.assert_allclose(found.dependency, (expected + expected.T) / 2, atol=2e-4)
    assert (found.dependency == found.dependency.T).all()
    assert not found.masked.any()
    alone = model.dependency(reference, place, window_bp=WINDOW_BP)
    np.testing.assert_allclose(found.directed[0, 1:], alone.directed[0, 1:], atol=1e-5)


@pytest.mark.parametrize("strand", "+-")
def test_a_strand_changes_nothing_before_the_substitution(model, reference, strand):
    method = dependency_method_for(model.runner, DependencyOptions(window_bp=WINDOW_BP))
    where = model.runner, reference, Interval("c", 3, 20), strand, 0, method
    computed = maps._computed(*where, lambda tokens: None)
    assert (np.tril(computed) == 0).all()
    assert (computed[np.triu_indices(17, 1)] > 0).all()
    np.testing.assert_array_equal(strand_map(*where), computed)


def test_rounding_before_the_substitution_is_no_dependency(model, reference, monkeypatch):
    monkeypatch.setattr(maps, "_computed", lambda *_: np.full((9, 9), 1e-6, dtype=np.float32))
    method = dependency_method_for(model.runner, DependencyOptions(window_bp=WINDOW_BP))
    effects = strand_map(model.runner, reference, Interval("c", 3, 12), "+", 0, method)
    assert (np.tril(effects) == 0).all() and (effects[np.triu_indices(9, 1)] > 0).all()


def test_counted_tokens_are_those_that_the_network_reads(model, reference, read_tokens):
    place, advanced = Interval("c", 30, 44), []
    found = model.dependency(
        reference, place, window_bp=WINDOW_BP, offsets=(0, 2), advance=advanced.append
    )
    assert found.tokens_read == sum(read_tokens) == sum(advanced)


def test_the_reverse_complement_has_the_turned_map(model, reference):
    place, turned = Interval("c", 50, 64), Interval("t", LENGTH_BP - 64, LENGTH_BP - 50)
    one = model.dependency(reference, place, offsets=(0, 1))
    other = model.dependency(reference, turned, offsets=(0, 1))
    np.testing.assert_allclose(one.directed, other.directed[::-1, ::-1], atol=1e-5)
    np.testing.assert_allclose(one.influence, other.influence[::-1], atol=1e-5)


def test_unknown_bases_are_missing(network, model, reference):
    found = model.dependency(reference, Interval("c", 56, 64), window_bp=WINDOW_BP)
    unknown = found.bases.index("N")
    assert unknown == 3 and not found.known[unknown]
    is_missing = np.isnan(found.dependency)
    assert is_missing[unknown].all() and is_missing[:, unknown].all()
    expected = slow_directed(network, 56, 64)
    expected[unknown], expected[:, unknown] = np.nan, np.nan
    np.testing.assert_allclose(found.directed, expected, atol=2e-4)
    # The forward 6-mer is bases 54 to 59; the reverse one, from the contig's end, is 57 to 62.
    assert found.masked.nonzero()[0].tolist() == [0, 1, 2, 4, 5, 6]
    assert np.isnan(found.influence).nonzero()[0].tolist() == [0, 1, 2, unknown]


@given(st.lists(st.floats(-30, 5), min_size=4, max_size=4))
def test_log_odds_keep_their_digits_near_one(logits):
    log_p = torch.tensor(logits, dtype=torch.float64).log_softmax(dim=0).numpy()
    # 1 - p as a sum without cancellation, by hand.
    expected = [
        (log_p[k] - math.log(math.fsum(math.exp(log_p[n]) for n in range(4) if n != k)))
        / math.log(2)
        for k in range(4)
    ]
    np.testing.assert_allclose(log2_odds(log_p), expected, atol=1e-9)
    if log_p.max() < -1e-3:
        simple = (log_p - np.log1p(-np.exp(log_p))) / math.log(2)
        np.testing.assert_allclose(log2_odds(log_p), simple, atol=1e-9)


def simulated_genome(num_kmers: int, seed: int) -> str:
    """Return 6-mers ACxyGT; y is random, and x complements the y before it, on both strands."""
    free = "".join(np.random.default_rng(seed).choice(list("ACGT"), num_kmers + 1))
    pairs = zip(reverse_complement(free)[::-1], free[1:], strict=False)
    return "".join(f"AC{x}{y}GT" for x, y in pairs)


def network_of_the_genome() -> LlamaForCausalLM:
    """Return a network that has learned the pairs from random simulated genomes."""
    torch.manual_seed(0)
    config = small_config(32)
    config.initializer_range = 0.05
    network, kmers = LlamaForCausalLM(config), NATIVE.kmer_rows
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for step in range(60):
        begin, *ids = encode(simulated_genome(256, step)).ids.tolist()
        rows = torch.tensor([[begin, *ids[n : n + 16]] for n in range(0, 256, 16)])
        logits = network(rows).logits[:, :-1, kmers].flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, rows[:, 1:].flatten() - kmers.start).backward()
        optimizer.step()
        optimizer.zero_grad()
    return network.eval()


def test_planted_pairs_of_a_simulated_genome_are_found(tmp_path):
    model = Model(LoadedModel(network_of_the_genome(), NATIVE))
    fasta = write_fasta(tmp_path / "r.fa", {"c": simulated_genome(8, seed=1000)})
    with Reference(fasta) as reference:
        found = model.dependency(reference, Interval("c", 0, 48)).dependency
    variable = [at for at in range(48) if at % 6 in (2, 3)]
    planted = [(at, at + 5) for at in range(3, 42, 6)]
    others = {*itertools.combinations(variable, 2)} - {*planted}
    assert min(found[pair] for pair in planted) > 5 * max(found[pair] for pair in others)


class TestCommand:
    def run(self, folder, *words):
        common = ["--model", str(folder / "model"), "--reference", str(folder / "r.fa")]
        return main(["dependency", *common, *map(str, words)])

    def test_files_agree(self, folder, tmp_path, capsys, model, reference):
        pyBigWig = pytest.importorskip("pyBigWig")
        outputs = [tmp_path / name for name in ("a.parquet", "a.npz", "a.bw")]
        words = ["--region", "c:51-70", "--window", WINDOW_BP, "--output", *outputs]
        assert self.run(folder, *words) == 0
        captured = capsys.readouterr()
        summary = json.loads(captured.out)
        expected = model.dependency(reference, Interval("c", 50, 70), window_bp=WINDOW_BP)
        assert (summary["bases"], summary["known_bases"], summary["missing_bases"]) == (20, 19, 1)
        assert summary["masked_bases"] == expected.masked.sum() > 0
        assert f"{summary['masked_bases']} known bases have no dependencies" in captured.err
        assert summary["tokens_read"] == expected.tokens_read

        arrays = np.load(outputs[1])
        for name in ("dependency", "directed", "influence"):
            np.testing.assert_array_equal(arrays[name], getattr(expected, name))
        assert arrays["position"].tolist() == list(range(51, 71))
        assert "".join(arrays["ref"]) == expected.bases == BASES[50:70].upper()

        table = pq.read_table(outputs[0])
        settings = json.loads(table.schema.metadata[b"carbon"])
        assert settings.items() <= summary.items() and settings["window_bp"] == WINDOW_BP
        rows = table.to_pylist()
        assert len(rows) == 20 * 19
        for row in rows:
            i, j = row["position"] - 51, row["affected_position"] - 51
            assert (row["ref"], row["affected_ref"]) == (expected.bases[i], expected.bases[j])
            for name in ("dependency", "directed"):
                value = getattr(expected, name)[i, j]
                assert row[name] == value or (row[name] is None and np.isnan(value))

        with pyBigWig.open(str(outputs[2])) as track:
            found = np.array(track.values("c", 50, 70), dtype=np.float32)
        np.testing.assert_array_equal(found, expected.influence)

    def test_a_gene_with_a_picture(self, folder, tmp_path, capsys):
        pytest.importorskip("matplotlib")
        words = ["--gene", "ABC", "--annotation", folder / "g.gff3", "--flank", 2]
        words += ["--output", tmp_path / "a.npz", "--plot"]
        assert self.run(folder, *words, tmp_path / "a.svg") == 0
        assert json.loads(capsys.readouterr().out.splitlines()[0])["region"] == "c:9-32"
        assert "ABC" in (tmp_path / "a.svg").read_text()

    def test_a_dry_run_counts_what_a_run_reads(self, folder, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr("carbon.inference.dependency.job._LEAST_SECONDS", 0)
        words = ["--region", "c:1-16", "--offsets", "0,5", "--output", tmp_path / "a.npz"]
        assert self.run(folder, *words, "--dry-run") == 0
        plan = json.loads(capsys.readouterr().out)
        assert not list(tmp_path.iterdir()) and plan["tokens_per_second"] > 0
        assert self.run(folder, *words) == 0
        assert json.loads(capsys.readouterr().out)["tokens_read"] == plan["tokens"]


def test_memory_bounds_a_map(model, monkeypatch):
    method = dependency_method_for(model.runner, DependencyOptions(window_bp=100))
    assert method.longest_bp == 95
    monkeypatch.setattr(maps, "_CELL_BYTES", 2**60)
    assert method.longest_bp == 0
    with pytest.raises(UserError, match="the longest map"):
        maps.check_length(Interval("c", 0, 2), method)


def test_a_region_past_the_end_is_an_error(model, reference):
    with pytest.raises(GenomeError):
        model.dependency(reference, Interval("c", 100, LENGTH_BP + 1))

"""The task `representation`: planted signals are found, absent ones are not, groups stay whole."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import UserError
from carbon.genome import STOP_CODONS, reverse_complement
from eval.__main__ import main
from eval.models import LAST_LAYER, CarbonModel
from eval.tasks.common.building import Source
from eval.tasks.representation import RANDOM, maps
from eval.tasks.representation.baselines import KmerShares
from eval.tasks.representation.build import (
    BLOCK_BP,
    QUESTIONS,
    Wanted,
    phase_windows,
    strand_windows,
    taxonomy_windows,
)
from eval.tasks.representation.cross_validation import Choice, Folds, read
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.finetune import base_folder

CODONS = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
SENSE = [codon for codon in CODONS if codon not in STOP_CODONS]
# Purine, any base, pyrimidine: the phase of such genes stands in every codon.
PATTERN = ["GCT", "GAC", "AAC", "ATT"]


def genome(folder, name, num_genes=12, codons=SENSE, num_codons=60):
    """Write contigs of a gene each, every other on the reverse strand, and their annotation."""
    random = np.random.default_rng(len(name))
    records, lines, frames = {}, [], {}
    for n in range(num_genes):
        cds = "ATG" + "".join(random.choice(codons, num_codons)) + "TAA"
        frames[f"g{n}"] = cds
        strand = "+-"[n % 2]
        inside = cds if strand == "+" else reverse_complement(cds)
        records[f"c{n}"] = random_bases(90, n) + inside + random_bases(90, n + 50)
        tags = f'gene_id "g{n}"; transcript_id "g{n}.1";'
        lines += [
            f"c{n}\tx\t{kind}\t91\t{90 + len(cds)}\t.\t{strand}\t0\t{tags}\n"
            for kind in ("gene", "exon", "CDS")
        ]
    fasta = write_fasta(folder / f"{name}.fa", records)
    (folder / f"{name}.gtf").write_text("".join(lines))
    return Source(name, fasta, folder / f"{name}.gtf"), frames


class TestWindows:
    @pytest.mark.parametrize("num_windows", [24, 100])
    def test_phase_is_the_distance_from_the_begin_of_a_codon(self, tmp_path, num_windows):
        source, frames = genome(tmp_path, "a")
        found, again, other = (
            phase_windows([source], Wanted(num_windows, 60, seed)) for seed in (0, 0, 1)
        )
        assert found.windows == again.windows != other.windows
        assert found.classes == ("0", "1", "2") and len(found.windows) == num_windows
        for window in found.windows:
            name, _, gene = window.group.partition(":")
            cds = frames[gene]
            places = [i for i in range(len(cds)) if cds.startswith(window.bases, i)]
            assert name == "a.fa" and len(window.bases) == 60
            assert window.label in {place % 3 for place in places}
        counts = np.bincount([window.label for window in found.windows])
        assert counts.max() - counts.min() <= 1

    def test_strand_is_that_of_the_gene(self, tmp_path):
        source, frames = genome(tmp_path, "a")
        found = strand_windows([source], Wanted(40, 60, 0)).windows
        assert sum(window.label for window in found) == 20
        for window in found:
            cds = frames[window.group.partition(":")[2]]
            turned = reverse_complement(window.bases) if window.label else window.bases
            assert turned in cds

    def test_windows_of_a_genome_keep_to_blocks_and_known_bases(self, tmp_path):
        text = random_bases(BLOCK_BP + 500, 1) + "N" * 3000 + random_bases(2000, 2)
        a = write_fasta(tmp_path / "a.fa", {"x": text, "short": "ACGT"})
        b = write_fasta(tmp_path / "b.fa", {"y": random_bases(4000, 3)})
        sources = [Source("one", a), Source("two", b)]
        found = taxonomy_windows(sources, Wanted(60, 300, 0))
        assert found.classes == ("one", "two") and "single genomes are told apart" in found.notes[0]
        assert [window.label for window in found.windows].count(0) == 30
        for window in found.windows[:30]:
            block = int(window.group.rpartition(":")[2])
            places = [
                max(text.find(s), -1) for s in (window.bases, reverse_complement(window.bases))
            ]
            start = max(places)
            assert start >= 0 and start // BLOCK_BP == (start + 299) // BLOCK_BP == block

    def test_genomes_are_groups_where_each_group_has_two(self, tmp_path):
        sources = [
            Source(group, write_fasta(tmp_path / f"{n}.fa", {"c": random_bases(2000, n)}))
            for n, group in enumerate(("one", "one", "two", "two", "two"))
        ]
        found = taxonomy_windows(sources, Wanted(50, 60, 0))
        assert {window.group for window in found.windows} == {f"{n}.fa" for n in range(5)}
        assert [window.label for window in found.windows].count(0) == 25

    @pytest.mark.parametrize(
        ("question", "with_genes", "window_bp", "message"),
        [
            ("strand", False, 60, "strand and codon_phase need genes"),
            ("codon_phase", True, 600, "0 genes have an open reading frame of 603 bp"),
            ("taxonomy", True, 60, "two groups or more"),
        ],
    )
    def test_what_cannot_be_drawn_is_told(self, tmp_path, question, with_genes, window_bp, message):
        source, _ = genome(tmp_path, "a")
        source = source if with_genes else source._replace(annotation=None)
        with pytest.raises(UserError, match=message):
            QUESTIONS[question]([source], Wanted(30, window_bp, 0))


def vectors(seed, labels, strength):
    """Return noise, to whose first two coordinates the class adds its own sign."""
    noise = np.random.default_rng(seed).normal(size=(len(labels), 12))
    noise[:, :2] += strength * (2 * np.array(labels)[:, None] - 1)
    return noise.astype(np.float32)


LABELS = [n % 2 for n in range(120)]
GROUPS = [f"g{n // 4}" for n in range(120)]


class TestCrossValidation:
    def test_a_planted_signal_is_found_in_the_layer_that_has_it(self):
        folds = Folds(LABELS, GROUPS, 0)
        features = {"a": vectors(1, LABELS, 0), "b": vectors(2, LABELS, 3)}
        found = read(features, folds)
        assert found.right.mean() > 0.97  # two coordinates 6 SD apart
        assert {choice.layer for choice in found.chosen} == {"b"}
        assert found.each[Choice("a", "linear")].mean() < 0.7

    def test_noise_is_told_at_chance_however_many_layers_are_tried(self):
        """Of 12 choices the best is above chance; chosen inside of the parts, it is not."""
        folds = Folds(LABELS, GROUPS, 0)
        features = {f"{n}": vectors(n, LABELS, 0) for n in range(6)}
        found = read(features, folds)
        # 120 fair coins have an SD of 0.046.
        assert abs(found.right.mean() - 0.5) < 0.14
        assert max(each.mean() for each in found.each.values()) > 0.55

    def test_a_circle_needs_the_rbf_kernel(self):
        random = np.random.default_rng(0)
        angle, labels = random.uniform(0, 2 * np.pi, 120), np.array(LABELS)
        radius = 1 + 2 * labels
        circle = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        found = read({"a": circle.astype(np.float32)}, Folds(LABELS, GROUPS, 0))
        assert {choice.kernel for choice in found.chosen} == {"rbf"}
        assert found.right.mean() > 0.97 and found.each[Choice("a", "linear")].mean() < 0.8

    def test_what_only_a_group_tells_is_not_told(self):
        """Each group has a vector of its own: known by heart it is right, held out it is not."""
        labels = [n // 4 % 2 for n in range(120)]
        of_group = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
        features = {"a": np.repeat(of_group, 4, axis=0)}
        whole = read(features, Folds(labels, GROUPS, 0))
        divided = read(features, Folds(labels, [f"w{n}" for n in range(120)], 0))
        assert whole.right.mean() < 0.75 and divided.right.mean() == 1.0

    @settings(max_examples=10, deadline=None)
    @given(seed=st.integers(0, 99), size=st.integers(1, 6))
    def test_no_group_is_divided_and_all_are_told_once(self, seed, size):
        groups = [f"g{n // size}" for n in range(120)]
        folds = Folds(LABELS if size > 1 else sorted(LABELS), groups, seed)
        tested = np.concatenate([test for _, test in folds.parts])
        assert sorted(tested.tolist()) == list(range(120))
        for train, test in folds.parts:
            assert not set(folds.groups[train]) & set(folds.groups[test])
            for a, b in folds.inside(train):
                assert not set(folds.groups[a]) & set(folds.groups[b])
                assert set(a) | set(b) == set(train)


class TestStates:
    def test_states_are_those_of_embed(self, model):
        """Each pool and layer next to `Model.embed`, which reads one sequence at a time."""
        sequences = [random_bases(60, n) for n in range(3)]
        for pool, by_layer in CarbonModel(model, "m").states(sequences).items():
            assert next(iter(by_layer)) == LAST_LAYER
            for name, rows in by_layer.items():
                layer = None if name == LAST_LAYER else int(name.removeprefix("layer "))
                expected = np.stack(list(model.embed(sequences, pool=pool, layer=layer)))
                np.testing.assert_allclose(rows, expected, atol=2e-5)

    def test_random_weights_have_the_shape_and_nothing_else(self, model, network):
        wrapped = CarbonModel(model, "m")
        one, same, other = (wrapped.untrained(seed).carbon.model.network for seed in (1, 1, 2))
        for (name, a), b, c, d in zip(
            one.named_parameters(), same.parameters(), other.parameters(), network.parameters(),
            strict=True,
        ):  # fmt: skip
            assert a.shape == d.shape and a.equal(b), name
            assert "norm" in name or not (a.equal(c) or a.equal(d)), name

    def test_shares_of_6_mers_are_those_of_a_slow_count(self):
        sequence = random_bases(61, 5)
        every = [sequence[i : i + 6] for i in range(61 - 5)]
        tokens = [sequence[i : i + 6] for i in range(0, 60, 6)]
        for offsets, counted in ((range(6), every), ((0,), tokens)):
            ((_, rows),) = KmerShares("x", offsets).states([sequence])["x"].items()
            shares = sorted(rows[0][rows[0] > 0].tolist())
            expected = sorted(counted.count(k) / len(counted) for k in set(counted))
            assert shares == pytest.approx(expected)


def test_a_run_finds_a_planted_frame(tmp_path, network, capsys):
    source, _ = genome(tmp_path, "a", codons=PATTERN)
    model, data = base_folder(tmp_path, network), tmp_path / "data"
    words = ["--source", f"a={source.fasta},{source.annotation}", "--window-bp", "60"]
    words += ["--examples", "36", "--output"]
    assert main(["build", "representation", *words, str(tmp_path / "all")]) == 0
    assert "taxonomy is left out: there is one group of genomes" in capsys.readouterr().err
    words = ["--questions", "codon_phase", *words, str(data)]
    assert main(["build", "representation", *words]) == 0
    words = ["--data", str(data), "--train", str(source.fasta), "--output", str(tmp_path / "out")]
    assert main(["run", "--model", f"m={model}", *words]) == 0, capsys.readouterr().err
    records = {
        name: json.loads((tmp_path / "out/representation" / f"{name}.json").read_text())["summary"]
        for name in ("m", "6-mers", "tokens")
    }
    # Tokens alone give the phase; 6-mers of all places are nearly the same in all three.
    assert records["tokens"]["value"]["value"] > 0.9
    assert records["m"]["value"]["low"] > 1 / 3 > records["6-mers"]["value"]["low"]
    # The network of the tests has random weights of seed 0 itself.
    values = {"mean": records["m"]["value"]} | records["m"]["others"]
    assert values["mean"] == values[f"mean, {RANDOM}"]
    assert values["mean"]["num_samples"] == 36
    assert len(records["m"]["scatters"]["codon_phase: PCA, mean"]["x"]) == 36
    assert records["m"]["curves"]["codon_phase: mean, linear"]["x"] == [1.0, 2.0]


class TestMaps:
    def test_principal_components_are_those_of_the_covariance(self):
        vectors = np.random.default_rng(0).normal(size=(50, 4)) * [5, 1, 1, 1]
        vectors[:, 1] += vectors[:, 0]
        scaled = (vectors - vectors.mean(0)) / vectors.std(0)
        _, axes = np.linalg.eigh(scaled.T @ scaled)
        expected = scaled @ axes[:, :-3:-1]
        found = np.array(maps.map_of(vectors, maps.planes()["PCA"], 0))
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)
        assert (found[np.abs(found).argmax(axis=0), [0, 1]] > 0).all()

    def test_umap_is_made_where_it_is_installed(self, monkeypatch):
        asked = {}

        class Umap:
            def __init__(self, **settings):
                asked.update(settings)

            def fit_transform(self, vectors):
                return vectors[:, :2]

        monkeypatch.setattr(maps, "find_spec", lambda name: None)
        assert list(maps.planes()) == ["PCA"]
        monkeypatch.setattr(maps, "find_spec", lambda name: object())
        monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
        vectors = np.random.default_rng(0).normal(size=(50, 4))
        assert np.shape(maps.map_of(vectors, maps.planes()["UMAP"], 3)) == (50, 2)
        assert asked == {"n_neighbors": 49, "metric": "cosine", "random_state": 3}

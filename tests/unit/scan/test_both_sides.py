"""Scans of both sides against whole stock forwards, and against the deltas of `tiled` variants."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.inference import Model
from carbon.inference.jobs import LoadingOptions, ScanJob
from carbon.inference.options import STRANDS_READ, ScanOptions
from carbon.inference.scan.both_sides import _sites, num_tile_tokens
from carbon.inference.scan.job import _expected_blocks, fingerprints, open_scan
from carbon.inference.scan.score import KmerPositions
from carbon.inference.scan.windows import window_blocks
from carbon.inference.variants.tiles import num_tiled_tokens
from carbon.model import LoadedModel, save_model
from carbon.tokenizer import NATIVE
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.parallel import Stopped, stop_once_behind
from tests.helpers.reference import stock_log_likelihood
from tests.helpers.scan import run_scan, scanned

WINDOW_BP, CONTEXT_BP, DOWNSTREAM_BP = 72, 24, 10
STEP_BP = 36  # (72 - 24 - 10) // 6 * 6
OPTIONS = {
    "sides": "both",
    "window_bp": WINDOW_BP,
    "least_context_bp": CONTEXT_BP,
    "downstream_bp": DOWNSTREAM_BP,
}
WORDS = ["--sides", "both", "--window", 72, "--least-context", 24, "--downstream", 10]
BASES = random_bases(60, 1) + random_bases(30, 2).lower() + "NRN" + random_bases(61, 3)
LENGTH_BP = len(BASES)
WHOLE = Interval("c", 0, LENGTH_BP)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(5)
    return LlamaForCausalLM(small_config(32)).eval()


@pytest.fixture(scope="module")
def model(network):
    return Model(LoadedModel(network, NATIVE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("both-sides")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": BASES, "d": random_bases(50, 4)})
    return folder


@pytest.fixture(scope="module")
def reference(folder):
    return Reference(folder / "r.fa")


def by_definition(network, position, strands="both", offsets=(0,)):
    """Return log P of A, C, G and T at a position, from whole texts."""
    likelihoods = []
    for strand in STRANDS_READ[strands]:
        bases, at, alleles = BASES.upper(), position, "ACGT"
        if strand == "-":
            bases, at, alleles = reverse_complement(bases), LENGTH_BP - 1 - position, "TGCA"
        tile = max(0, (at - CONTEXT_BP) // STEP_BP) * STEP_BP
        for offset in offsets:
            start = tile + offset
            left = "N" * (6 + at - start) if at < start else bases[start:at]
            right = bases[at + 1 : at + 1 + DOWNSTREAM_BP]
            texts = [left + allele + right for allele in alleles]
            likelihoods.append([stock_log_likelihood(network, text, "chain") for text in texts])
    mean = torch.tensor(likelihoods, dtype=torch.float64).mean(dim=0)
    return mean.log_softmax(dim=0).numpy()


@pytest.fixture(scope="module")
def whole(model, reference):
    return scanned(model, reference, WHOLE, **OPTIONS)


# The contig's ends, positions where the next tile owns the base, one 6-mer, and next to N.
PLACES = [0, 1, 23, 24, 59, 60, 62, 65, 89, 93, 130, 153]


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({}, PLACES),
        ({"strands": "reverse", "offsets": (2,)}, PLACES),
        ({"offsets": (0, 3, 5)}, [1, 60, 89, 153]),
    ],
)
def test_values_are_those_of_whole_forwards(network, model, reference, options, places):
    for place in places:
        where = Interval("c", place, place + 1)
        found = scanned(model, reference, where, **OPTIONS, **options).log_probabilities[0]
        expected = by_definition(network, place, **options)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_deltas_are_those_of_tiled_variants(model, reference):
    where = Interval("c", 76, 106)
    chunk = scanned(model, reference, where, **OPTIONS, offsets=(0, 1))
    bases = BASES[where.start : where.end].upper()
    known = [n for n, base in enumerate(bases) if base in "ACGT"]
    snvs = [
        Variant("c", where.start + n, bases[n], alt)
        for n in known
        for alt in "ACGT"
        if alt != bases[n]
    ]
    tiled = {name: value for name, value in OPTIONS.items() if name != "sides"}
    scores = model.score_variants(reference, snvs, protocol="tiled", offsets=(0, 1), **tiled)
    deltas = np.array([score.delta for score in scores]).reshape(-1, 3)
    np.testing.assert_allclose(chunk.worst_delta[known], deltas.min(axis=1), atol=1e-5)
    np.testing.assert_allclose(chunk.mean_delta[known], deltas.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(np.exp(chunk.log_probabilities[known]).sum(axis=1), 1, atol=1e-6)
    unknown = sorted(set(range(len(bases))) - set(known))
    assert unknown == [14, 15, 16]
    assert np.isnan(chunk.log_probabilities[unknown]).all()


def test_a_region_has_the_bits_of_the_whole_contig(model, reference, whole):
    for start, end in ((0, 1), (20, 27), (70, 100)):
        part = scanned(model, reference, Interval("c", start, end), **OPTIONS)
        np.testing.assert_array_equal(part.log_probabilities, whole.log_probabilities[start:end])


def test_the_reverse_complement_has_the_turned_track(model, tmp_path, whole):
    turned = Reference(write_fasta(tmp_path / "t.fa", {"c": reverse_complement(BASES)}))
    other = scanned(model, turned, WHOLE, **OPTIONS)
    np.testing.assert_allclose(
        whole.log_probabilities, other.log_probabilities[::-1, ::-1], atol=1e-6
    )


@pytest.mark.parametrize("offsets", [(0,), (0, 4)])
def test_counted_tokens_are_those_that_run(model, reference, offsets):
    method = model.scan_method(**OPTIONS, offsets=offsets)
    windows = [w for block in window_blocks(reference, [WHOLE], method, 1) for w in block]
    assert len(windows) == 2 * len(offsets) * 4
    for window in windows:
        tiled = method.tiled(offsets[window.number % len(offsets)])
        sites = list(_sites(reference, window, DOWNSTREAM_BP))
        expected = num_tiled_tokens(model.runner, reference, sites, tiled)
        assert num_tile_tokens(model.runner, reference, window, method) == expected


def test_position_in_the_kmer(model, reference):
    method = model.scan_method(**OPTIONS, offsets=(2,), strands="reverse")
    chunk = scanned(model, reference, WHOLE, **OPTIONS, offsets=(2,), strands="reverse")
    counted = KmerPositions(method, {"c": LENGTH_BP})
    counted.add(chunk)
    summary = counted.summary()
    turned = chunk.log_p_ref[::-1]
    for position in range(6):
        values = turned[(position + 2) % 6 :: 6]
        values = values[~np.isnan(values)]
        assert summary["bases"][position] == len(values)
        assert summary["mean"][position] == pytest.approx(values.mean(), abs=1e-5)
        assert summary["sd"][position] == pytest.approx(values.std(), abs=1e-4)


class TestCommand:
    def test_missing_bases_are_counted_and_have_no_value(self, folder, tmp_path, capsys, model):
        outputs = [tmp_path / name for name in ("a.parquet", "a.tsv")]
        assert run_scan(folder, *WORDS, "--region", "c:81-100", "--output", *outputs) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["bases"], summary["known_bases"], summary["missing_bases"]) == (20, 17, 3)
        assert (summary["sides"], summary["downstream_bp"]) == ("both", 10)
        assert summary["strands"] == "both" and "downstream" in summary["values"]
        assert sum(summary["log_p_ref_by_position_in_kmer"]["bases"]) == 17
        columns = pq.read_table(outputs[0]).to_pydict()
        assert [n for n in range(20) if columns["A"][n] is None] == [10, 11, 12]
        rows = [line.split("\t") for line in outputs[1].read_text().splitlines()[2:]]
        assert rows[10] == ["c", "91", "N", *["."] * 5] and "." not in rows[9]
        with Reference(folder / "r.fa") as reference:
            expected = scanned(model, reference, Interval("c", 80, 100), **OPTIONS)
        found = np.array([columns[base] for base in "ACGT"], dtype=np.float32).T
        np.testing.assert_array_equal(found, expected.log_probabilities)
        assert expected.tokens_read == summary["tokens_read"]

    def test_a_dry_run_counts_what_the_network_reads(
        self, folder, tmp_path, capsys, monkeypatch, read_tokens
    ):
        monkeypatch.setattr("carbon.inference.scan.plan._LEAST_SECONDS", 0)
        words = [*WORDS, "--region", "c:81-130", "--offsets", "0,2", "--output", tmp_path / "o.tsv"]
        assert run_scan(folder, *words, "--dry-run") == 0
        plan = json.loads(capsys.readouterr().out)
        assert not list(tmp_path.iterdir())
        read_tokens.clear()
        assert run_scan(folder, *words) == 0
        summary = json.loads(capsys.readouterr().out)
        assert plan["tokens"] == summary["tokens_read"] == sum(read_tokens)
        assert plan["bases"] == 50 and plan["hours"] >= 0 and plan["tokens_per_second"] > 0
        assert "hours_h200" not in plan  # rates are those of long rows

    def test_a_resumed_scan_has_the_bytes_of_one_run(self, folder, tmp_path, monkeypatch, capsys):
        (tmp_path / "r.bed").write_text("c\t40\t60\nd\t5\t25\n")
        words = [*WORDS, "--regions-file", tmp_path / "r.bed", "--output"]
        assert run_scan(folder, *words, tmp_path / "whole.tsv") == 0
        written = stop_once_behind(monkeypatch, 2)
        with pytest.raises(Stopped):
            run_scan(folder, *words, tmp_path / "cut.tsv")
        capsys.readouterr()
        for name, value in (("flank_bp", ["--flank", "3"]), ("contigs", ["--contigs", "chr"])):
            assert run_scan(folder, *words, tmp_path / "cut.tsv", *value, "--resume") == 2
            assert f"differs in: {name};" in capsys.readouterr().err
        assert run_scan(folder, *words, tmp_path / "cut.tsv", "--resume") == 0
        assert written == list(range(len(written)))
        assert (tmp_path / "cut.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()

    @pytest.mark.nightly
    def test_two_processes_write_the_bytes_of_one(self, folder, tmp_path, capsys):
        words = [*WORDS, "--genome", "--output"]
        assert run_scan(folder, *words, tmp_path / "one.tsv") == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["bases"], summary["missing_bases"]) == (LENGTH_BP + 50, 3)
        assert run_scan(folder, *words, tmp_path / "two.tsv", "--processes", "2") == 0
        assert (tmp_path / "two.tsv").read_bytes() == (tmp_path / "one.tsv").read_bytes()

    def test_a_scan_of_the_left_states_nothing_new(self, folder, tmp_path, capsys):
        assert run_scan(folder, "--region", "c:1-20", "--output", tmp_path / "o.tsv") == 0
        summary = json.loads(capsys.readouterr().out)
        new = {"sides", "downstream_bp", "missing_bases", "log_p_ref_by_position_in_kmer"}
        assert not new & set(summary) and summary["strands"] == "forward"


def scan_job(folder, tmp_path, **options):
    loading = LoadingOptions(model=str(folder / "model"))
    method = ScanOptions(**OPTIONS, offsets=(0, 1))
    output = (str(tmp_path / "o.tsv"),)
    return ScanJob(
        loading=loading, reference=folder / "r.fa", output=output, method=method, **options
    )


@pytest.mark.parametrize(
    "place", [{"genome": True}, {"contig": "c"}, {"region": "c:70-154"}, {"region": "c:1-5"}]
)
def test_expected_tiles_are_those_that_there_are(folder, tmp_path, model, place):
    method = model.scan_method(**OPTIONS, offsets=(0, 1))
    with open_scan(scan_job(folder, tmp_path, **place)) as scan:
        tiles = list(window_blocks(scan.reference, scan.places, method, 1))
        expected = len(_expected_blocks(scan))
    assert len(tiles) / 2 <= expected <= len(tiles)


def test_a_changed_table_of_contigs_is_another_scan(folder, tmp_path):
    table = tmp_path / "names.tsv"
    jobs = []
    for text in ("c\tone\n", "c\ttwo\n"):
        table.write_text(text)
        jobs.append(fingerprints(scan_job(folder, tmp_path, contigs=str(table), genome=True)))
    assert jobs[0]["contigs"] != jobs[1]["contigs"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sides": "both", "least_context_bp": -5}, "do not fit into a window"),
        ({"sides": "right"}, "give one of left, both"),
        ({"sides": "both", "combine": "token_start"}, "takes the mean over offsets"),
        ({"downstream_bp": 6}, "only a scan of both sides"),
        ({"sides": "both", "window_bp": 60, "downstream_bp": 50}, "do not fit into a window"),
        ({"sides": "both", "offsets": (6,)}, "give some of 0 to 5"),
    ],
)
def test_options_that_cannot_be(model, options, message):
    with pytest.raises(UserError, match=message):
        model.scan_method(**options)

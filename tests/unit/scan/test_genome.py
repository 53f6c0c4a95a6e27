"""A scan of all contigs: the scans of each, one behind the other, and what it costs told before."""

import json

import pandas as pd
import pytest

from carbon.cli import main
from carbon.inference.scan import windows
from carbon.model import save_model
from tests.helpers.files import write_fasta
from tests.helpers.parallel import Stopped, stop_once_behind
from tests.helpers.scan import BASES, GAPPED, run_scan

HOW = ("--offsets", "0,3", "--strands", "both", "--window", "72", "--least-context", "30")
SMALL = {"c": BASES[:100] + BASES[100:150].lower(), "gaps": GAPPED[60:140], "short": "ACG"}
LENGTHS_BP = {contig: len(bases) for contig, bases in SMALL.items()}


@pytest.fixture(scope="module")
def small(tmp_path_factory, network):
    """A model, and a genome of few windows."""
    folder = tmp_path_factory.mktemp("small")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", SMALL)
    return folder


@pytest.fixture
def few_windows(monkeypatch):
    """Have blocks of eight windows, so that several contigs meet in one."""
    monkeypatch.setattr(windows, "BLOCK_TOKENS", 100)


def rows_of(path) -> pd.DataFrame:
    return pd.read_csv(path, sep="\t", skiprows=1)


def test_a_genome_is_its_contigs(small, tmp_path, capsys, few_windows):
    import pyBigWig

    names = [tmp_path / name for name in ("g.tsv", "g.parquet", "g.bw")]
    assert run_scan(small, "--genome", *HOW, "--output", *names) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["region"], summary["bases"]) == ("genome", sum(LENGTHS_BP.values()))
    found, tokens_read = rows_of(names[0]), 0
    assert list(found.contig.unique()) == list(LENGTHS_BP)
    dataset = pd.read_parquet(names[1]).astype({"contig": str})
    pd.testing.assert_frame_equal(
        dataset[found.columns].sort_values(["contig", "position"], ignore_index=True),
        found.sort_values(["contig", "position"], ignore_index=True),
        check_dtype=False,
        rtol=1e-5,
    )
    with pyBigWig.open(str(names[2])) as track:
        assert track.chroms() == LENGTHS_BP
        for contig, length_bp in LENGTHS_BP.items():
            paths = [tmp_path / f"one.{ending}" for ending in ("tsv", "bw")]
            assert run_scan(small, "--contig", contig, *HOW, "--output", *paths) == 0
            tokens_read += json.loads(capsys.readouterr().out)["tokens_read"]
            alone = rows_of(paths[0])
            part = found[found.contig == contig].reset_index(drop=True)
            pd.testing.assert_frame_equal(part, alone, rtol=1e-5, atol=2e-6)
            with pyBigWig.open(str(paths[1])) as expected:
                pd.testing.assert_series_equal(
                    pd.Series(track.values(contig, 0, length_bp)),
                    pd.Series(expected.values(contig, 0, length_bp)),
                    rtol=1e-5,
                    atol=2e-6,
                )
    assert summary["tokens_read"] == tokens_read


def test_a_genome_goes_on_where_it_was_stopped(small, tmp_path, capsys, monkeypatch, few_windows):
    def scan(name, *more):
        output = [tmp_path / f"{name}.parquet", tmp_path / f"{name}.tsv"]
        return run_scan(small, "--genome", *HOW, *more, "--output", *output)

    assert scan("whole") == 0
    written = stop_once_behind(monkeypatch, 2)
    with pytest.raises(Stopped):
        scan("cut")
    assert not list(tmp_path.glob("cut.*"))
    assert scan("cut") == 2
    assert "continue with --resume" in capsys.readouterr().err
    assert scan("cut", "--resume") == 0
    assert written == list(range(len(written)))
    assert (tmp_path / "cut.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    files = [path for path in (tmp_path / "whole.parquet").rglob("*") if path.is_file()]
    assert len(files) == len(LENGTHS_BP)
    for path in files:
        same = tmp_path / "cut.parquet" / path.relative_to(tmp_path / "whole.parquet")
        assert same.read_bytes() == path.read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_a_plan_counts_what_the_scan_reads_and_writes_nothing(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("carbon.inference.scan.plan._LEAST_SECONDS", 0)
    words = ["--genome", *HOW, "--output", tmp_path / "a.parquet", tmp_path / "a.bw"]
    assert run_scan(small, *words, "--dry-run") == 0
    plan = json.loads(capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []
    assert run_scan(small, *words) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (plan["contigs"], plan["bases"]) == (3, summary["bases"])
    assert plan["tokens"] == summary["tokens_read"]
    assert plan["hours"] == pytest.approx(
        plan["tokens"] / plan["tokens_per_second"] / 3600, abs=1e-4, rel=1e-3
    )
    # Two offsets and two strands of four float32 as base64, which makes four bytes of three.
    kept = round(plan["bases"] * 4 * 16 * 4 / 3)
    outputs = [str(tmp_path / "a.parquet"), str(tmp_path / "a.bw")]
    assert plan["bytes"].pop("blocks") == kept
    assert list(plan["bytes"]) == outputs and min(plan["bytes"].values()) > 0


def test_any_name_of_a_contig_is_a_folder(small, tmp_path):
    """Of `a=b c` a FASTA takes what stands before the blank."""
    names = ["gi|1/2", "..", "a=b c", "%2F"]
    fasta = write_fasta(tmp_path / "r.fa", {n: BASES[: 9 + i] for i, n in enumerate(names)})
    output = tmp_path / "o.parquet"
    words = ["scan", "--model", f"{small}/model", "--reference", fasta, "--genome"]
    assert main([*map(str, words), "--output", str(output)]) == 0
    counts = pd.read_parquet(output).contig.value_counts()
    assert dict(counts) == {name.split()[0]: 9 + i for i, name in enumerate(names)}
    assert {path.parent.parent for path in output.rglob("*") if path.is_file()} == {output}


def test_what_cannot_be_done_is_told_before_anything_is_read(folder, tmp_path, capsys):
    taken = tmp_path / "o.parquet"
    taken.mkdir()
    (taken / "mine").touch()
    for words, message in (
        (["--output", taken], "o.parquet: exists already"),
        (["--output", tmp_path / "no" / "o.tsv"], "the folder"),
        (
            ["--output", tmp_path / "o.tsv", "--plot", tmp_path / "o.png"],
            "do not fit into a readable figure",
        ),
    ):
        for more in ([], ["--dry-run"]):
            assert run_scan(folder, "--genome", *HOW, *words, *more) == 2
            assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["o.parquet"]
    assert [path.name for path in taken.iterdir()] == ["mine"]

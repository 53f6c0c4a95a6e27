"""What `carbon scan` writes: every format the same values, of a region or a gene."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from carbon.errors import GenomeError
from carbon.genome import Interval, Reference, read_annotation
from carbon.genome.genes import find_gene
from carbon.inference import ScanChunk
from carbon.inference.scan import formats
from carbon.reports import figures
from tests.helpers.files import write_fasta
from tests.helpers.scan import BASES, GAPPED, run_scan, scanned


class TestFiles:
    def test_formats_agree(self, folder, tmp_path, capsys, model, reference):
        import pyBigWig

        words = ["--region", "gaps:91-330", "--offsets", "0,3", "--strands", "both"]
        tracks = ["mean_delta", "worst_delta", "log_p_ref", "entropy_nats"]
        paths = [tmp_path / name for name in ("a.parquet", "a.tsv", "a.bw")]
        paths += [tmp_path / f"a.{track}.bw" for track in tracks]
        words += ["--window", "72", "--least-context", "30", "--output", *paths]
        assert run_scan(folder, *words) == 0
        summary = json.loads(capsys.readouterr().out)
        expected = scanned(
            model, reference, Interval("gaps", 90, 330), offsets=[0, 3], strands="both",
            window_bp=72, least_context_bp=30,
        )  # fmt: skip
        assert (summary["bases"], summary["known_bases"]) == (240, 219)
        assert summary["tokens_read"] == expected.tokens_read
        assert (summary["window_bp"], summary["least_context_bp"]) == (72, 30)
        assert (summary["region"], summary["offsets"]) == ("gaps:91-330", [0, 3])
        assert summary["outputs"] == [str(path) for path in paths]

        table = pq.read_table(paths[0])
        settings = json.loads(table.schema.metadata[b"carbon"])
        made = {"outputs", "bases", "known_bases", "tokens_read"}
        assert settings == {k: v for k, v in summary.items() if k not in made}
        columns = table.to_pydict()
        names = ["contig", "position", "ref", *"ACGT", "entropy_nats"]
        assert list(columns) == names
        assert columns["position"] == list(range(91, 331)) and set(columns["contig"]) == {"gaps"}
        assert "".join(columns["ref"]) == GAPPED[90:330].upper()
        values = np.array([columns[base] for base in "ACGT"], dtype=np.float32).T
        np.testing.assert_array_equal(values, expected.log_probabilities)

        lines = paths[1].read_text().splitlines()
        assert json.loads(lines[0][2:]) == settings and lines[1].split("\t") == names
        for line, *row in zip(lines[2:], *columns.values(), strict=True):
            cells = line.split("\t")
            assert cells[:3] == [row[0], str(row[1]), row[2]]
            np.testing.assert_allclose([float(x) for x in cells[3:]], row[3:], rtol=1e-5, atol=1e-6)

        for track, path in zip(["mean_delta", *tracks], paths[2:], strict=True):
            with pyBigWig.open(str(path)) as browser:
                assert browser.chroms() == {"gaps": 400}  # as of UCSC's tools, what has values
                found = browser.values("gaps", 0, 400)
            assert np.isnan(found[:90]).all() and np.isnan(found[330:]).all()
            np.testing.assert_array_equal(
                np.array(found[90:330], dtype=np.float32), getattr(expected, track)
            )

    def test_a_whole_contig(self, folder, tmp_path, capsys):
        assert run_scan(folder, "--contig", "short", "--output", tmp_path / "a.parquet") == 0
        assert run_scan(folder, "--region", "short", "--output", tmp_path / "b.parquet") == 0
        assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
        captured = capsys.readouterr()
        assert json.loads(captured.out.splitlines()[0])["region"] == "short:1-3"
        assert "scanning windows: " in captured.err

    def test_row_groups_are_written_as_they_are_ready(self, tmp_path, monkeypatch):
        monkeypatch.setattr(formats, "_PARQUET_ROWS", 50)
        with formats.write_parquet(tmp_path / "a.parquet", {}, {}) as write:
            for at in range(0, 200, 20):
                values = np.full((20, 4), -at, dtype=np.float32)
                write(ScanChunk(Interval("c", at, at + 20), BASES[at : at + 20], values, 1))
        file = pq.ParquetFile(tmp_path / "a.parquet")
        assert file.num_row_groups >= 4
        found = file.read().to_pydict()
        assert found["position"] == list(range(1, 201)) and "".join(found["ref"]) == BASES[:200]
        assert found["A"] == [float(-(i // 20 * 20)) for i in range(200)]

    @pytest.mark.parametrize(("annotation", "name"), [("g.gff3", "ABC"), ("g.gtf", "g1")])
    def test_a_gene(self, folder, tmp_path, capsys, annotation, name):
        """The gene lies at 101-280 of the turned contig, 121-300 of 400 as it is written."""
        words = ["--annotation", folder / annotation, "--gene", name]
        words += ["--output", tmp_path / "a.tsv"]
        assert run_scan(folder, *words, "--flank", "130", "--strands", "gene") == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["region"], summary["strands"]) == ("c1:1-400", "reverse")
        assert summary["gene"] == name
        assert run_scan(folder, *words) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["region"], summary["strands"]) == ("c1:121-300", "forward")

    @pytest.mark.parametrize(
        ("package", "words"),
        [("pyBigWig", ["--output", "a.bw"]),
         ("matplotlib", ["--output", "a.tsv", "--plot", "a.png"])],
    )  # fmt: skip
    def test_a_missing_extra_is_named(self, folder, capsys, monkeypatch, package, words):
        monkeypatch.setattr(figures, "find_spec", lambda name: None)
        assert run_scan(folder, "--region", "c:1-9", *words) == 2
        message = capsys.readouterr().err
        assert package in message and "pip install 'carbon-dna[scan]'" in message


def test_an_identifier_goes_before_a_name(tmp_path):
    """Where one gene's name is another's identifier, the identifier is meant."""
    reference = Reference(write_fasta(tmp_path / "r.fa", {"c": BASES}))
    (tmp_path / "g.gff3").write_text(
        "c\tx\tgene\t1\t9\t.\t+\t.\tID=one;Name=two\n"
        "c\tx\tgene\t20\t29\t.\t+\t.\tID=two;Name=three\n"
    )
    annotation = read_annotation(tmp_path / "g.gff3", reference)
    assert find_gene(annotation, "two").interval.start == 19
    assert find_gene(annotation, "one").interval.start == 0
    with pytest.raises(GenomeError, match="near names: two"):
        find_gene(annotation, "TWO")

"""Scans against `right_end`, stock transformers, sums over 4,096 6-mers, and each other."""

import numpy as np
import pytest

from carbon.genome import Interval
from carbon.inference import ScanChunk
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.scan import run_scan


def pixels(path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(path)


class TestPicture:
    def draw(self, folder, path, *words):
        place = ["--gene", "ABC", "--annotation", folder / "g.gff3"]
        return run_scan(
            folder, *(words or place), "--output", path.with_suffix(".tsv"), "--plot", path
        )

    @pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
    def test_the_same_scan_is_the_same_file(self, folder, tmp_path, ending):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            assert self.draw(folder, tmp_path / name / f"x.{ending}") == 0
        one, two = ((tmp_path / name / f"x.{ending}").read_bytes() for name in ("a", "b"))
        assert one == two and len(one) > 5000

    def test_genes_are_named_and_drawn(self, folder, tmp_path):
        assert self.draw(folder, tmp_path / "x.svg") == 0
        text = (tmp_path / "x.svg").read_text()
        assert ">ABC " in text and ">ABC, c1:121-300" in text
        assert self.draw(folder, tmp_path / "y.svg", "--region", "c1:121-300") == 0
        assert ">ABC" not in (tmp_path / "y.svg").read_text()
        words = ["--annotation", folder / "g.gff3", "--region", "c1:1-130"]
        assert self.draw(folder, tmp_path / "z.svg", *words) == 0
        text = (tmp_path / "z.svg").read_text()
        assert ">ABC" in text and ">TWIN" in text

    def test_a_legend_tells_every_colour_that_is_drawn(self, folder, tmp_path):
        assert self.draw(folder, tmp_path / "x.svg") == 0
        text = (tmp_path / "x.svg").read_text()
        colours = ["mean delta of a base's three SNVs", "SNV less likely than the reference",
                   "SNV more likely", "reference base, or unknown"]  # fmt: skip
        of_genes = ["coding exon (CDS)", "exon that is not coding"]
        assert all(f">{label}<" in text.replace("&#x27;", "'") for label in colours + of_genes)
        assert self.draw(folder, tmp_path / "y.svg", "--region", "c1:121-300") == 0
        text = (tmp_path / "y.svg").read_text().replace("&#x27;", "'")
        assert all(f">{label}<" in text for label in colours)
        assert not any(label in text for label in of_genes)

    def test_red_is_less_likely_and_blue_more(self, tmp_path):
        """A region where A is likely and T is not, all else as the reference."""
        from carbon.inference.scan.picture import draw_scan

        values = np.tile(np.log([0.6, 0.15, 0.15, 0.1]).astype("f4"), (130, 1))
        chunk = ScanChunk(Interval("c", 0, 130), "G" * 130, values, 1)
        draw_scan(chunk, [], tmp_path / "x.png", "t")
        image = pixels(tmp_path / "x.png")[..., :3]
        red = (image[..., 0] > 0.3) & (image[..., 1:].max(axis=2) < 0.2)
        blue = (image[..., 2] > 0.3) & (image[..., 0] < 0.2)
        # Rows of the map from top to bottom are A, C, G, T; most of their width has one colour.
        left = slice(0, image.shape[1] * 3 // 4)
        wide = image.shape[1] // 3
        blue_rows = np.flatnonzero(blue[:, left].sum(axis=1) > wide)
        assert len(blue_rows) > 10
        grey = (np.abs(image - 0.604).max(axis=2) < 0.02)[:, left].sum(axis=1) > wide
        assert blue_rows.max() < np.flatnonzero(grey).min()
        assert not red[: np.flatnonzero(grey).min(), left].any()

    @pytest.mark.parametrize("length_bp", [1, 50, 700])
    def test_any_length_is_drawn(self, folder, tmp_path, length_bp):
        path = tmp_path / "x.png"
        assert self.draw(folder, path, "--region", f"gaps:101-{min(100 + length_bp, 400)}") == 0
        assert pixels(path).shape[0] > 300

    def test_columns_of_a_long_region_are_means(self, tmp_path):
        from carbon.inference.scan.picture import draw_scan

        for length_bp, note in ((2000, None), (4001, "means of 3 bp")):
            values = np.full((length_bp, 4), np.log(0.25), dtype=np.float32)
            chunk = ScanChunk(Interval("c", 0, length_bp), random_bases(length_bp), values, 1)
            draw_scan(chunk, [], tmp_path / "x.svg", "t")
            text = (tmp_path / "x.svg").read_text()
            assert ("means of" in text) == bool(note) and (note or "nats") in text

    def test_a_contig_of_n_is_drawn(self, tmp_path):
        from carbon.inference.scan.picture import draw_scan

        values = np.full((30, 4), np.log(0.25), dtype=np.float32)
        draw_scan(ScanChunk(Interval("c", 0, 30), "N" * 30, values, 1), [], tmp_path / "x.png", "t")
        assert pixels(tmp_path / "x.png").shape[0] > 300

    def test_too_much_to_draw_is_refused(self, folder, tmp_path, capsys):
        fasta = write_fasta(tmp_path / "long.fa", {"c": random_bases(20_001)})
        words = ["--reference", fasta, "--region", "c"]
        assert self.draw(folder, tmp_path / "x.png", *words) == 2
        assert "20001 bases make no readable picture" in capsys.readouterr().err

"""The picture of a scan: deterministic, in the right colours, of any length that can be read."""

import numpy as np
import pytest

from carbon.genome import Interval
from carbon.inference import ScanChunk
from carbon.inference.scan.picture import draw_scan
from tests.helpers.files import random_bases
from tests.helpers.scan import run_scan


def pixels(path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(path)


def draw(folder, path, *place):
    return run_scan(folder, *place, "--output", path.with_suffix(".tsv"), "--plot", path)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_scan_is_the_same_file(folder, tmp_path, ending):
    place = ["--gene", "ABC", "--annotation", folder / "g.gff3"]
    paths = [tmp_path / name / f"x.{ending}" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        assert draw(folder, path, *place) == 0
    one, two = (path.read_bytes() for path in paths)
    assert one == two and len(one) > 5000


def test_genes_of_a_region_are_named_where_there_is_an_annotation(folder, tmp_path):
    region = ["--region", "c1:1-130"]
    for name, more in (("with", ["--annotation", folder / "g.gff3"]), ("without", [])):
        assert draw(folder, tmp_path / f"{name}.svg", *region, *more) == 0
        text = (tmp_path / f"{name}.svg").read_text()
        assert (">ABC" in text, ">TWIN" in text) == ((True,) * 2 if more else (False,) * 2)


def test_red_is_less_likely_and_blue_more(tmp_path):
    """A region where A is likely and T is not, all else as the reference."""
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


@pytest.mark.parametrize(
    ("bases", "note"),
    [("A", False), ("N" * 30, False), (random_bases(2000), False), (random_bases(4001), True)],
    ids=["one base", "unknown", "long", "in columns"],
)
def test_any_region_is_drawn(tmp_path, bases, note):
    """Of a long one a column is a mean, which the picture states."""
    values = np.full((len(bases), 4), np.log(0.25), dtype=np.float32)
    draw_scan(
        ScanChunk(Interval("c", 0, len(bases)), bases, values, 1), [], tmp_path / "x.svg", "t"
    )
    assert ("means of 3 bp" in (tmp_path / "x.svg").read_text()) == note

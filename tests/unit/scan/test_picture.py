"""The picture of a scan: deterministic, in the right colours, of any length that can be read."""

import numpy as np
import pytest

from carbon.genome import Interval
from carbon.inference import ScanChunk
from carbon.inference.scan.figure import draw_scan
from tests.helpers.files import random_bases
from tests.helpers.scan import run_scan


def pixels(path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(path)


def drawn(path, bases, log_p=(0.25,) * 4):
    """Draw bases that all have the same four probabilities."""
    values = np.tile(np.log(log_p).astype("f4"), (len(bases), 1))
    draw_scan(ScanChunk(Interval("c", 0, len(bases)), bases, values, 1), [], path, "t")
    return path


@pytest.mark.parametrize(
    "ending", ["svg", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("png", "pdf"))]
)
def test_the_same_scan_is_the_same_file(tmp_path, ending):
    one, two = (drawn(tmp_path / f"{n}.{ending}", "ACGT" * 3).read_bytes() for n in "ab")
    assert one == two and len(one) > 5000


def test_genes_of_a_region_are_named(folder, tmp_path):
    words = ["--region", "c1:1-130", "--output", tmp_path / "x.tsv", "--plot", tmp_path / "x.svg"]
    assert run_scan(folder, *words, "--annotation", folder / "g.gff3") == 0
    text = (tmp_path / "x.svg").read_text()
    assert ">ABC" in text and ">TWIN" in text


def test_red_is_less_likely_and_blue_more(tmp_path):
    """A region where A is likely and T is not, all else as the reference."""
    image = pixels(drawn(tmp_path / "x.png", "G" * 130, [0.6, 0.15, 0.15, 0.1]))[..., :3]
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
    [
        ("N", False),
        (random_bases(4001), True),
        pytest.param("A", False, marks=pytest.mark.nightly),
        pytest.param(random_bases(2000), False, marks=pytest.mark.nightly),
    ],
    ids=["unknown", "in columns", "one base", "long"],
)
def test_any_region_is_drawn(tmp_path, bases, note):
    """Of a long one a column is a mean, which the picture states."""
    assert ("means of 3 bp" in drawn(tmp_path / "x.svg", bases).read_text()) == note

"""A bigWig is whole or there is none, whatever the disk does."""

import numpy as np
import pytest

from carbon.inference.scan import bigwig
from carbon.inference.scan.bigwig import open_bigwig
from tests.helpers.files import room_for
from tests.helpers.scan import run_scan


def values_with_gaps(num_bases):
    values = np.random.default_rng(0).standard_normal(num_bases).astype(np.float32)
    values[100:200] = np.nan
    return values


def write(path, values):
    with open_bigwig(path, {"c": len(values) + 50}) as write_span:
        for at in range(0, len(values), 4000):
            write_span("c", at + 7, values[at : at + 4000])


def test_a_scan_on_a_full_disk_leaves_nothing_and_says_so(folder, tmp_path, capsys):
    words = ["--contig", "c", "--output", tmp_path / "a.bw"]
    with room_for(3000):
        assert run_scan(folder, *words) == 1
    message = f"{tmp_path}/.a.bw.progress: file too large"
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_on_a_disk_without_room_a_file_is_refused(tmp_path):
    values = values_with_gaps(20_000)
    write(tmp_path / "whole.bw", values)
    whole_bytes = (tmp_path / "whole.bw").stat().st_size
    for size in (0, whole_bytes // 2, whole_bytes):
        with room_for(size), pytest.raises(OSError, match="not written whole"):
            write(tmp_path / "torn.bw", values)
    with room_for(whole_bytes + 200_000):
        write(tmp_path / "same.bw", values)
    assert (tmp_path / "same.bw").read_bytes() == (tmp_path / "whole.bw").read_bytes()


def test_a_hole_in_the_values_is_seen(tmp_path):
    """A block that the disk lost, between others that are whole."""
    values = values_with_gaps(300_000)
    path = tmp_path / "a.bw"
    write(path, values)
    span = bigwig._Span("c", 7)
    span.add(values)
    lengths_bp = {"c": len(values) + 50}
    bigwig._check_values(str(path), lengths_bp, [span])
    whole = path.read_bytes()
    for share in (0.1, 0.5):
        at = int(share * len(whole))
        path.write_bytes(whole[:at] + bytes(512) + whole[at + 512 :])
        with pytest.raises((ValueError, RuntimeError)):
            bigwig._check_values(str(path), lengths_bp, [span])


def test_a_library_that_breaks_its_memory_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "dies.py").write_text("import os, sys; sys.stdin.buffer.read(99); os.abort()")
    monkeypatch.setattr(bigwig, "__file__", str(tmp_path / "dies.py"))
    with pytest.raises(OSError, match="killed by SIGABRT"):
        write(tmp_path / "a.bw", values_with_gaps(400_000))


def test_values_of_none_and_of_the_last_base(tmp_path):
    pyBigWig = pytest.importorskip("pyBigWig")
    with open_bigwig(tmp_path / "a.bw", {"c": 9, "d": 5}) as write_span:
        write_span("c", 0, np.full(9, np.nan, dtype=np.float32))
    with open_bigwig(tmp_path / "b.bw", {"c": 9, "d": 5}) as write_span:
        write_span("c", 3, np.arange(6, dtype=np.float32))
        write_span("d", 4, np.ones(1, dtype=np.float32))
    with pyBigWig.open(str(tmp_path / "a.bw")) as empty:
        assert empty.header()["nBasesCovered"] == 0
    with pyBigWig.open(str(tmp_path / "b.bw")) as both:
        assert both.values("c", 3, 9) == list(range(6)) and both.values("d", 4, 5) == [1]

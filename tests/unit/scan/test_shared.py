"""A scan that processes share writes the bytes of one process, in every format at once."""

import pytest

from carbon.inference.scan import regions
from tests.helpers.blocks import Stopped, stop_once_behind
from tests.helpers.scan import run_scan


def test_from_blocks_come_the_bytes_of_one_process(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(regions, "_BLOCK_TOKENS", 100)
    names = ("o.parquet", "o.tsv", "o.bw", "o.png")
    alone, shared = ([tmp_path / way / name for name in names] for way in ("alone", "shared"))
    for paths in (alone, shared):
        paths[0].parent.mkdir()

    def scan(paths, *more):
        words = ["--region", "gaps:91-330", "--frames", "0,3", "--strands", "both", *more]
        words += ["--window", "72", "--least-context", "30", "--plot", paths[3]]
        return run_scan(folder, *words, "--output", *paths[:3])

    assert scan(alone) == 0
    told = capsys.readouterr().out
    monkeypatch.setenv("CARBON_LAUNCH", "l")
    written = stop_once_behind(monkeypatch, 3)
    with pytest.raises(Stopped):
        scan(shared)
    assert not any(path.exists() for path in shared)
    assert scan(shared, "--flank", "3") == 2
    assert "differs in: region; give the same" in capsys.readouterr().err
    assert scan(shared) == 0
    assert written == [0, 1, 2, 3]
    assert capsys.readouterr().out == told.replace("alone", "shared")
    for one, other in zip(alone, shared, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    left = sorted(path.name for path in shared[0].parent.iterdir())
    assert left == sorted([".o.parquet.blocks", *names])

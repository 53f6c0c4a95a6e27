"""A scan by two processes writes the bytes of one, in every format at once; so does one resumed."""

import pytest

from carbon.inference.scan import windows
from tests.helpers.parallel import Stopped, stop_once_behind
from tests.helpers.scan import run_scan


@pytest.mark.nightly
def test_from_blocks_come_the_bytes_of_one_process(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(windows, "BLOCK_TOKENS", 100)
    names = ("o.parquet", "o.tsv", "o.bw", "o.png")
    alone, shared = ([tmp_path / way / name for name in names] for way in ("alone", "shared"))
    for paths in (alone, shared):
        paths[0].parent.mkdir()

    def scan(paths, *more):
        words = ["--region", "gaps:91-330", "--offsets", "0,3", "--strands", "both", *more]
        words += ["--window", "72", "--least-context", "30", "--plot", paths[3]]
        return run_scan(folder, *words, "--output", *paths[:3])

    assert scan(alone) == 0
    told = capsys.readouterr().out
    written = stop_once_behind(monkeypatch, 3)
    with pytest.raises(Stopped):
        scan(shared)
    assert not any(path.exists() for path in shared)
    assert scan(shared, "--flank", "3", "--resume") == 2
    assert "differs in: flank_bp, region; give the same" in capsys.readouterr().err
    assert scan(shared, "--resume") == 0
    assert written == [0, 1, 2, 3]
    assert capsys.readouterr().out == told.replace("alone", "shared")
    for one, other in zip(alone, shared, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert sorted(path.name for path in shared[0].parent.iterdir()) == sorted(names)
    two = [tmp_path / "two" / name for name in names]
    two[0].parent.mkdir()
    assert scan(two, "--processes", "2") == 0
    for one, other in zip(alone, two, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name

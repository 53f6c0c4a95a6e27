"""Functions that oracles name, in a module of their own."""

import pytest

ORACLES = """
import os, time

def gc(sequences):
    print("what an oracle prints is no answer")
    return [(s.count("G") + s.count("C")) / len(s) for s in sequences]

def at(sequences):
    return [1 - value for value in gc(sequences)]

def raises(sequences):
    if any(s.startswith("T") for s in sequences):
        raise ValueError("no T\\nsecond line")
    return [1] * len(sequences)

def no_numbers(sequences):
    return [1.0] * (len(sequences) - 1) + ["high"]

def not_finite(sequences):
    return [float("nan")] * len(sequences)

def too_few(sequences):
    return [1.0]

def hangs(sequences):
    time.sleep(60)

def ends(sequences):
    os._exit(3)

def no_list(sequences):
    return None
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """A module `some_oracles` in the folder that commands run in."""
    (tmp_path / "some_oracles.py").write_text(ORACLES)
    monkeypatch.chdir(tmp_path)
    return tmp_path

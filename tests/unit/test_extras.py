"""`carbon doctor` on extras, `carbon --version`, and rooms that the wheel does not have."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from carbon import extras
from carbon.cli import ROOMS, main


class Installed:
    """A distribution with its version, and what it asks for."""

    def __init__(self, version: str, requires: list[str], offered: list[str]) -> None:
        self.version, self.requires = version, requires
        self.metadata = self
        self.get_all = {"Provides-Extra": offered}.get


PACKAGES = {
    "carbon-dna": Installed(
        "0.2.0",
        [
            "numpy>=2",
            'gradio>=6; extra == "demo"',
            'plotly>=6; extra == "demo"',
            'ghost; extra == "scan"',
            'never; sys_platform == "plan9" and extra == "scan"',
            'carbon-dna[demo,scan]; extra == "all"',
        ],
        ["demo", "scan", "all", "unheard-of"],
    ),
    "gradio": Installed("6.1", [], []),
    "plotly": Installed("5.9", [], []),  # too old
}


def test_each_extra_is_whole_or_says_what_it_lacks(monkeypatch):
    def distribution(name):
        if name not in PACKAGES:
            raise PackageNotFoundError(name)
        return PACKAGES[name]

    monkeypatch.setattr(extras, "distribution", distribution)
    assert extras.extras_told() == {
        "scan": "lacks ghost",
        "demo": "lacks plotly",
        "all": "lacks ghost, plotly",
    }
    monkeypatch.setitem(PACKAGES, "plotly", Installed("6.0", [], []))
    assert extras.extras_told()["demo"] == "ok"
    monkeypatch.delitem(PACKAGES, "carbon-dna")
    assert set(extras.extras_told().values()) == {"not known: carbon-dna is not installed here"}


def test_every_extra_that_users_install_is_reported():
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    declared = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert set(extras.TOLD) == set(declared) - {"rooms", "docs", "dev"}


def test_the_version_tells_torch_and_device(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code in (None, 0)
    told = capsys.readouterr().out
    assert re.fullmatch(rf"carbon \S+, torch {re.escape(torch.__version__)}, .+\n", told)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_where_it_runs(room, capsys):
    assert main([room, "--help"]) == 2
    assert f"`python -m {room}`" in capsys.readouterr().err

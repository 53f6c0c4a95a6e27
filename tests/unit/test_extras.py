"""`carbon doctor` on extras, and `carbon --version`."""

import importlib.metadata
import re
from importlib.metadata import PackageNotFoundError

import torch

from carbon import errors
from carbon.cli import main


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

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    assert errors.extras_status() == {
        "scan": "lacks ghost",
        "demo": "lacks plotly",
        "all": "lacks ghost, plotly",
    }
    monkeypatch.setitem(PACKAGES, "plotly", Installed("6.0", [], []))
    assert errors.extras_status()["demo"] == "ok"
    monkeypatch.delitem(PACKAGES, "carbon-dna")
    assert set(errors.extras_status().values()) == {"not known: carbon-dna is not installed here"}


def test_the_version_names_torch_and_the_device(capsys):
    assert main(["--version"]) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(rf"carbon \S+, torch {re.escape(torch.__version__)}, .+\n", said)

"""Tables of the code, of folders and of documents that list the same things."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from carbon.errors import EXTRAS as REPORTED
from data_pipeline.sources import SOURCES
from demo.panels import PANELS
from eval.tasks import TASKS

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
UNREPORTED = {"packages", "docs", "dev"}  # extras that `carbon doctor` leaves out
NOT_IN_ALL = {"all", "gpu", "docs", "dev"}  # extras that need a GPU or a compiler, or build Carbon


def rows(page, pattern):
    """Return the first cells of a table in a document that match a pattern of one group or more."""
    return re.findall(rf"^\| {pattern} \|", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)


def extras_within(extra):
    """Return the extras that an extra consists of, and itself."""
    parts = [Requirement(text) for text in EXTRAS[extra]]
    inner = {name for part in parts if part.name == "carbon-dna" for name in part.extras}
    return {extra}.union(*map(extras_within, inner))


def names_in(cells):
    return {name for cell in cells for name in re.findall(r"`([a-z]+)`", cell)}


STRANDS = {True: "both", False: "one"}
SAME = {
    "extras: carbon doctor": (set(REPORTED), EXTRAS.keys() - UNREPORTED),
    "extras: all": (extras_within("all"), EXTRAS.keys() - NOT_IN_ALL | {"all"}),
    "extras: docs/install.md": (
        names_in(rows("docs/install.md", r"(`[^|]*)")), EXTRAS.keys() - {"packages"},
    ),
    "tasks: folders": (
        {path.parent.name for path in ROOT.glob("eval/tasks/*/README.md")}, TASKS.keys(),
    ),
    "panels: modules": (
        {path.stem for path in ROOT.glob("demo/panels/*.py")} - {"__init__"},
        {panel.__module__.rpartition(".")[2] for panel in PANELS},
    ),
    "sources: docs/corpus.md": (
        rows("docs/corpus.md", r"`(\w+)` \| (both|one)"),
        [(name, STRANDS[source.both_strands]) for name, source in SOURCES.items()
         if not source.clade],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_what_is_there_is_listed_and_what_is_listed_is_there(what):
    found, expected = SAME[what]
    assert found == expected

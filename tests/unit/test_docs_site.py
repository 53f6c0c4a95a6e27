"""The site: both engines build it in strict mode, and what is wrong with a page is told."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from carbon.cli import COMMANDS
from train.config import TrainConfig

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site():
    """The module that builds the site."""
    pytest.importorskip("nbconvert")
    sys.path.insert(0, str(ROOT / "scripts"))
    module = importlib.import_module("docs_site")
    sys.path.remove(str(ROOT / "scripts"))
    return module


@pytest.fixture(scope="module")
def pages(site):
    """The folder of its pages, put together."""
    site.put_together(ROOT, ROOT / "build" / "docs")
    return ROOT / "build" / "docs"


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "package"), [("zensical", "zensical"), ("mkdocs", "material")])
def test_it_builds_and_every_link_holds(site, pages, engine, package):
    pytest.importorskip(package)
    assert site.build(engine) == []
    api = (site.SITE / "reference" / "python.html").read_text()
    assert 'id="carbon.Model.score_variants"' in api and "log-likelihood" in api
    assert (site.SITE / "walkthrough.html").read_text().count("<img") == 1


@pytest.mark.nightly
def test_the_reference_is_that_of_the_code(pages):
    folder = pages / "reference"
    commands = (folder / "commands.md").read_text()
    for name in COMMANDS:
        assert re.search(rf"^##+ carbon {name}$", commands, re.M), name
    for words in ("--least-context", "carbon eval report", "--world-size", "--calls-per-minute"):
        assert words in commands
    recipes = (folder / "recipes.md").read_text()
    resolved = TrainConfig.load(ROOT / "train" / "recipes" / "tiny.toml").to_toml()
    keys = set(re.findall(r"^(\w+) =", resolved, re.M)) - {"mrna", "eukaryote"}  # of mixtures
    assert len(keys) > 40 and [key for key in keys if f"| `{key}` |" not in recipes] == []
    fold = next(line for line in recipes.splitlines() if line.startswith("| `data.split.fold` |"))
    assert "| integer |" in fold and fold.endswith("| index of the test fold, from 0. |")


@pytest.mark.parametrize(
    "place",
    [
        "reference/recipes.md",
        "reference/formats.md",
        "reference/commands.md",
        pytest.param("reference/python.md", marks=pytest.mark.nightly),
    ],
)
def test_the_reference_in_docs_is_that_of_the_code(site, place):
    """Run `python scripts/docs_reference.py` after a change of options, keys or docstrings."""
    reference = importlib.import_module("docs_reference")
    assert (DOCS / place).read_text(encoding="utf-8") == reference.TREE_PAGES[place](ROOT)


def test_the_first_page_names_every_page():
    first = (DOCS / "README.md").read_text()
    pages = [*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md"), *DOCS.glob("*.ipynb")]
    names = {path.relative_to(DOCS).as_posix() for path in pages} - {"README.md"}
    assert [name for name in sorted(names) if f"]({name})" not in first] == []


def test_what_is_wrong_is_told(tmp_path, site):
    page = """<h1 id="here">x</h1><a href="#here"></a><a href="#there"></a>
    <a href="other.html#here"></a><a href="https://arxiv.org/"></a>
    <script src="https://cdn.example/x.js"></script><link href="//fonts.example/f.css">"""
    (tmp_path / "index.html").write_text(page)
    (tmp_path / "a.css").write_text("@import 'https://a.example/a'; b{background:url(b.png)}")
    assert site.complaints(tmp_path) == [
        "index.html: loads https://cdn.example/x.js",
        "index.html: loads //fonts.example/f.css",
        "index.html: links to #there, and there is no such heading",
        "index.html: links to other.html#here, which is not there",
        "a.css: loads https://a.example/a",
    ]

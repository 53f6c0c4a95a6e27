"""The site: it builds in strict mode, and what is wrong with a page is reported."""

import importlib
import logging
import re
from pathlib import Path

import pytest

from carbon.cli import COMMANDS
from train.config import TrainConfig

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """The scripts that make pages can be imported."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "scripts"))
        yield


@pytest.mark.nightly
def test_it_builds_and_every_link_holds(tmp_path):
    pytest.importorskip("material")
    build(ROOT / "mkdocs.yml", tmp_path)
    api = (tmp_path / "reference" / "python.html").read_text()
    assert 'id="carbon.Model.score_variants"' in api and "log-likelihood" in api
    assert (tmp_path / "walkthrough.html").read_text().count("<img") == 1
    tasks = (tmp_path / "tasks" / "index.html").read_text()
    assert 'href="clinvar_coding.html"' in tasks and (tmp_path / "tasks/brca2.html").exists()
    assert 'href="contributing.html"' in (tmp_path / "index.html").read_text()


def build(settings: Path, site: Path, **changes) -> None:
    """Build by a `mkdocs.yml` as `scripts/docs` does; raises `Abort` where a warning is logged."""
    commands = importlib.import_module("mkdocs.commands.build")
    load_config = importlib.import_module("mkdocs.config").load_config
    commands.build(load_config(str(settings), site_dir=str(site), strict=True, **changes))


def test_the_reference_is_that_of_the_code():
    """What the pages must hold, read from elsewhere than the code that makes them."""
    commands = (DOCS / "reference" / "commands.md").read_text()
    for name in COMMANDS:
        assert re.search(rf"^##+ carbon {name}$", commands, re.M), name
    for words in ("--least-context", "carbon eval report", "--world-size", "--calls-per-minute"):
        assert words in commands
    recipes = (DOCS / "reference" / "recipes.md").read_text()
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
def test_the_reference_in_docs_is_that_of_the_code(place):
    """Run `python scripts/docs_reference.py` after a change of options, keys or docstrings."""
    reference = importlib.import_module("docs_reference")
    assert (DOCS / place).read_text(encoding="utf-8") == reference.TREE_PAGES[place](ROOT)


def test_the_first_page_names_every_page():
    first = (DOCS / "README.md").read_text()
    pages = [*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md"), *DOCS.glob("*.ipynb")]
    names = {path.relative_to(DOCS).as_posix() for path in pages} - {"README.md"}
    assert [name for name in sorted(names) if f"]({name})" not in first] == []


def test_a_link_to_nothing_ends_the_build(tmp_path, caplog):
    exceptions = pytest.importorskip("mkdocs.exceptions")
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "other.md").write_text("# There\n")
    page = "# Here\n[a](#here) [b](other.md#there) [c](https://arxiv.org/)\n"
    (pages / "index.md").write_text(page)
    less = {"docs_dir": str(pages), "hooks": [], "plugins": [], "theme": "mkdocs"}
    less |= {"markdown_extensions": [], "nav": ["index.md", "other.md"]}
    build(ROOT / "mkdocs.yml", tmp_path / "site", **less)
    wrong = "[a](#nowhere) [b](other.md#nowhere) [c](absent.md) [d](/other.md) [e](gone/)\n"
    (pages / "index.md").write_text(page + wrong)
    with caplog.at_level(logging.WARNING), pytest.raises(exceptions.Abort, match="5 warnings"):
        build(ROOT / "mkdocs.yml", tmp_path / "site", **less)
    for target in ("#nowhere", "other.md#nowhere", "absent.md", "/other.md", "gone/"):
        assert f"'{target}'" in caplog.text


def test_what_a_page_loads_from_elsewhere_is_reported(tmp_path):
    pytest.importorskip("nbconvert")
    hook = importlib.import_module("docs_hook")
    page = """<a href="https://arxiv.org/"></a><img alt="" src="https://a.example/b.png">
    <link rel="icon" href="own.png"><img src="data:image/png;base64,//8="><code>&lt;img src="//x"
    <script src="https://cdn.example/x.js"></script><link href="//fonts.example/f.css">"""
    (tmp_path / "index.html").write_text(page)
    (tmp_path / "a.css").write_text("@import 'https://a.example/a'; b{background:url(b.png)}")
    assert hook.loaded_from_elsewhere(tmp_path) == [
        "index.html: loads https://a.example/b.png",
        "index.html: loads https://cdn.example/x.js",
        "index.html: loads //fonts.example/f.css",
        "a.css: loads https://a.example/a",
    ]


def test_links_lead_to_where_their_targets_stand():
    pytest.importorskip("nbconvert")
    hook = importlib.import_module("docs_hook")
    places = {DOCS / "a.md": "a.md", ROOT / "CHANGELOG.md": "changelog.md"}
    text = "[a](../a.md#b) [c](../../CHANGELOG.md) [d](../../LICENSE) ![e](https://x.org/e.png)\n"
    fence = "```\n[a](../a.md)\n```\n"
    found = hook.with_links(text + fence, DOCS / "tutorials/t.md", "tutorials/t.md", places)
    assert found == "[a](../a.md#b) [c](../changelog.md) d ![e](https://x.org/e.png)\n" + fence

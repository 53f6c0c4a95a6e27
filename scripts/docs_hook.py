"""What MkDocs adds to `docs/`: pages from elsewhere in the checkout, and pages made of the code.

`mkdocs.yml` names this file as a hook. MkDocs itself checks links and anchors (`validation`). A
warning ends a strict build.
"""

import logging
import os
import re
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from traitlets.config import Config

import carbon

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = "walkthrough.ipynb"
_FENCE = re.compile(r"(^```.*?^```$)", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_ELSEWHERE = r"""["']?((?:https?:)?//[^\s"')>]+)"""
_LOADED = {
    ".html": re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=" + _ELSEWHERE),
    ".css": re.compile(r"(?:@import\s+|url\()\s*" + _ELSEWHERE),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that `docs/` lacks; the notebook becomes a page with its pictures."""
    for source, place in {
        ROOT / "CHANGELOG.md": "changelog.md",
        ROOT / "CONTRIBUTING.md": "contributing.md",
        **{path: f"pretrained/{path.parent.name}.md" for path in _readmes("carbon/pretrained")},
        **{path: f"tasks/{path.parent.name}.md" for path in _readmes("eval/tasks")},
    }.items():
        files.append(File.generated(config, place, abs_src_path=str(source)))
    names = [name for name in carbon.__all__ if not name.startswith("__")]
    decisions = "".join(f"- [{title}]({page})\n" for page, title in _titles(files, "decisions"))
    tasks = "".join(
        f"- [{title}]({page}): `{Path(page).stem}`\n" for page, title in _titles(files, "tasks")
    )
    contents: dict[str, str | bytes] = {
        "reference/python.md": "# Python\n\nThe public names of `import carbon`, from their "
        "docstrings. The [walkthrough](../walkthrough.md) uses most of them.\n\n"
        + "\n".join(f"::: carbon.{name}\n" for name in names),
        "decisions/index.md": "# Decisions\n\nChoices worth arguing over, half a page each.\n\n"
        + decisions,
        "tasks/index.md": f"# Tasks\n\nThe tasks of `carbon eval`.\n\n{tasks}",
        **_pages_of_notebook(ROOT / "docs" / NOTEBOOK),
    }
    for place, content in contents.items():
        if file := files.get_file_from_path(place):
            files.remove(file)
        files.append(File.generated(config, place, content=content))
    return files


def _readmes(folder: str) -> list[Path]:
    return sorted((ROOT / folder).glob("*/README.md"))


def _titles(files: Files, folder: str) -> list[tuple[str, str]]:
    """Return name and title of each page of a folder."""
    return sorted(
        (Path(file.src_uri).name, file.content_string.partition("\n")[0].lstrip("# "))
        for file in files
        if Path(file.src_uri).parent == Path(folder)
    )


def _pages_of_notebook(notebook: Path) -> dict[str, str | bytes]:
    """Run a notebook; return it as Markdown, and its pictures."""
    cells = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    no_port = Config({"KernelManager": {"transport": "ipc"}})
    with TemporaryDirectory() as folder, chdir(folder):  # names of sockets may be relative to it
        place: dict[str, Any] = {"metadata": {"path": folder}}
        NotebookClient(cells, timeout=300, config=no_port, resources=place).execute()
    exporter = MarkdownExporter()  # type: ignore[no-untyped-call]
    text, resources = exporter.from_notebook_node(cells)
    return {f"{notebook.stem}.md": text, **resources["outputs"]}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with links to the places of their targets in the site."""
    if not page.file.abs_src_path:
        return markdown
    source = Path(page.file.abs_src_path)
    places = {Path(f.abs_src_path): f.src_uri for f in files if f.abs_src_path}
    places[ROOT / "docs" / NOTEBOOK] = "walkthrough.md"
    for file in files:  # pages that replace one of `docs/`
        places.setdefault(ROOT / "docs" / file.src_uri, file.src_uri)
    return with_links(markdown, source, page.file.src_uri, places)


def with_links(text: str, source: Path, place: str, places: Mapping[Path, str]) -> str:
    """Return a page whose links lead to where their targets stand in the site.

    A link to a file that the site does not have becomes the link's words.

    Args:
        text: Markdown.
        source: the file that it is from.
        place: of the page in the site.
        places: of all files that the site has.
    """

    def moved(link: re.Match[str]) -> str:
        mark, words, target = link.groups()
        path, hash_sign, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return link[0]
        file = (source.parent / path).resolve()
        if file not in places:
            return words
        address = os.path.relpath(places[file], Path(place).parent)
        return f"{mark}[{words}]({Path(address).as_posix()}{hash_sign}{anchor})"

    pieces = _FENCE.split(text)
    return "".join(p if p.startswith("```") else _LINK.sub(moved, p) for p in pieces)


def on_post_build(config: MkDocsConfig) -> None:
    """Warn of addresses that a browser fetches from elsewhere to show a page."""
    for complaint in loaded_from_elsewhere(Path(config.site_dir)):
        logging.getLogger("mkdocs.hooks.docs").warning(complaint)


def loaded_from_elsewhere(site: Path) -> list[str]:
    """Return a line for each address of another host that a page or a style sheet loads."""
    return [
        f"{path.relative_to(site)}: loads {address}"
        for suffix, pattern in _LOADED.items()
        for path in sorted(site.rglob(f"*{suffix}"))
        for address in pattern.findall(path.read_text(encoding="utf-8"))
    ]

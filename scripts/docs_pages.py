"""The pages of the site: where each comes from, and links that hold where it goes to."""

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from docs_reference import reference_pages

_FENCE = re.compile(r"(^```.*?^```$)", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_NOTEBOOK_SECONDS = 300


def put_together(root: Path, target: Path) -> None:
    """Make the folder that MkDocs and Zensical read, anew."""
    shutil.rmtree(target, ignore_errors=True)
    places, generated = _places(root), reference_pages(root) | task_index(root)
    targets = places | {root / "docs" / place: place for place in generated}
    for source, place in places.items():
        page = target / place
        page.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md" and source.suffix == ".md":
            text = source.read_text(encoding="utf-8")
            page.write_text(_with_links(text, source, place, targets), encoding="utf-8")
        elif source.suffix == ".ipynb":
            _run_notebook(source, page)
        else:
            shutil.copy(source, page)
    for place, text in generated.items():
        page = target / place
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


def task_index(root: Path) -> dict[str, str]:
    """Return the page that links to the README of each evaluation task."""
    titles = {
        path.parent.name: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        for path in sorted((root / "eval" / "tasks").glob("*/README.md"))
    }
    links = "\n".join(f"- [{title}]({name}.md): `{name}`" for name, title in titles.items())
    return {"tasks/index.md": f"# Tasks\n\nThe tasks of `carbon eval`.\n\n{links}\n"}


def _places(root: Path) -> dict[Path, str]:
    """Return where each file of the checkout stands in the site."""
    docs = root / "docs"
    places = {
        path: path.relative_to(docs).as_posix()
        for path in sorted(docs.rglob("*"))
        if path.suffix in (".md", ".png", ".svg", ".css")
    }
    places[docs / "README.md"] = "index.md"
    places[docs / "walkthrough.ipynb"] = "walkthrough.md"
    places[root / "CHANGELOG.md"] = "changelog.md"
    places[root / "CONTRIBUTING.md"] = "contributing.md"
    for card in sorted((root / "carbon" / "pretrained").glob("*/README.md")):
        places[card] = f"pretrained/{card.parent.name}.md"
    for task in sorted((root / "eval" / "tasks").glob("*/README.md")):
        places[task] = f"tasks/{task.parent.name}.md"
    return places


def _with_links(text: str, source: Path, place: str, places: Mapping[Path, str]) -> str:
    """Return a page whose links lead to where their targets stand in the site.

    A link to a file that the site does not have becomes the file's name, behind the words.
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


def _run_notebook(notebook: Path, page: Path) -> None:
    """Run a notebook and write it as Markdown, its pictures beside it."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import MarkdownExporter
    from traitlets.config import Config

    cells = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    no_port = Config({"KernelManager": {"transport": "ipc"}})
    with TemporaryDirectory() as folder, chdir(folder):  # names of sockets may be relative to it
        place = {"metadata": {"path": folder}}
        seconds = _NOTEBOOK_SECONDS
        NotebookClient(cells, timeout=seconds, config=no_port, resources=place).execute()
    exporter = MarkdownExporter()  # type: ignore[no-untyped-call]
    text, resources = exporter.from_notebook_node(cells)
    page.write_text(text, encoding="utf-8")
    for name, picture in resources["outputs"].items():
        (page.parent / name).write_bytes(picture)

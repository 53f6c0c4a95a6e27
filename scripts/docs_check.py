"""What a built site must hold: links and anchors that exist, and nothing loaded from elsewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
_IN_CSS = re.compile(r"""(?:@import\s+|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


class _Page(HTMLParser):
    """The names and the addresses of a page.

    Attributes:
        anchors: what a link to the page may name behind `#`.
        loaded: addresses that a browser fetches to show the page.
        links: addresses that a reader may follow.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the names and addresses of one element."""
        for name, value in attrs:
            if not value:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            elif (tag, name) in _LOADS:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def complaints(site: Path) -> list[str]:
    """Return a line for each address that is from elsewhere, and each link to what is not there."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    return [
        *(f"{path.relative_to(site)}: {told}" for path in pages for told in _of(path, pages, site)),
        *(
            f"{path.relative_to(site)}: loads {address}"
            for path in sorted(site.rglob("*.css"))
            for address in _IN_CSS.findall(path.read_text(encoding="utf-8"))
        ),
    ]


def _of(path: Path, pages: dict[Path, _Page], site: Path) -> Iterator[str]:
    page = pages[path]
    yield from (f"loads {address}" for address in page.loaded if _is_outside(address))
    for address in page.links + page.loaded:
        target = urlsplit(address)
        if target.scheme or target.netloc:
            continue
        base = site if target.path.startswith("/") else path.parent
        file = (base / unquote(target.path).lstrip("/")).resolve() if target.path else path
        file = file / "index.html" if file.is_dir() else file
        if not file.exists():
            yield f"links to {address}, which is not there"
        elif target.fragment and file in pages and not _has(pages[file], target.fragment):
            yield f"links to {address}, and there is no such heading"


def _is_outside(address: str) -> bool:
    target = urlsplit(address)
    return bool(target.netloc) or target.scheme in ("http", "https")


def _has(page: _Page, fragment: str) -> bool:
    return unquote(fragment) in page.anchors or fragment.startswith("__")

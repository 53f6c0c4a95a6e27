"""Who can use the demo, and whom it speaks to: axe, contrast, focus, addresses, cards, pictures."""

import os
import re
from pathlib import Path

import pytest
import requests

from demo.app import make_panels
from tests.browser.test_demo import PAGES

_OUTSIDE = """[...document.querySelectorAll("[href], [src], [action]")]
  .map((e) => e.href?.baseVal ?? e.href ?? e.src ?? e.action)
  .filter((url) => url && !url.startsWith(location.origin) && !/^(data|blob|#)/.test(url))"""


@pytest.fixture(scope="session")
def axe():
    """The script of axe-core: a file that CARBON_AXE names, or that of axe-playwright-python."""
    if path := os.environ.get("CARBON_AXE"):
        return Path(path).read_text()
    package = pytest.importorskip("axe_playwright_python", reason="no axe-playwright-python")
    return (Path(package.__file__).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("who", ["visitor", "phone"])
def test_axe_finds_nothing(request, axe, who, name):
    """By day at a desk and by night on a phone; best practices are left to Gradio."""
    seen = request.getfixturevalue(who)
    seen.open(PAGES[name])
    if name != "tokenizer":
        seen.drawn()
    seen.page.wait_for_timeout(300)
    seen.page.evaluate(axe)
    rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}"
    found = seen.page.evaluate(f"axe.run(document, {rules})")["violations"]
    assert [(v["id"], [node["html"][:200] for node in v["nodes"]]) for v in found] == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_points_elsewhere(visitor, name):
    """No address of another host, no button of Plotly's cloud, none of Gradio's own settings."""
    visitor.open(PAGES[name])
    if name != "tokenizer":
        visitor.drawn()
    assert visitor.page.evaluate(_OUTSIDE) == []
    head = visitor.page.evaluate("document.head.innerHTML")
    assert not re.search(r'content="[^"]*gradio', head, re.IGNORECASE)
    foreign = re.compile("^Settings|Share|cloud|Gradio|Record", re.IGNORECASE)
    for role in ("button", "link"):
        assert visitor.page.get_by_role(role, name=foreign).count() == 0
    assert visitor.page.locator("[data-title*='Share']").count() == 0


def test_every_page_has_a_title_and_a_card_of_its_own(address, lab):
    for panel in make_panels(lab):
        text = requests.get(address + panel.path).text
        assert f"<title>{panel.title} · Carbon</title>" in text and text.count("<title>") == 1
        assert text.count('property="og:title"') == text.count('property="og:image"') == 1
        assert "twitter:" not in text
    (picture,) = re.findall(r'property="og:image" content="([^"]*)"', text)
    assert picture.startswith(address) and requests.get(picture).content[1:4] == b"PNG"
    (icon,) = re.findall(r'rel="icon"[^>]*href="([^"]*)"', text) or ["/favicon.ico"]
    assert b"<svg" in requests.get(f"{address}/favicon.ico").content, icon


def test_the_host_of_a_card_is_no_markup(address):
    host = {"Host": 'x"><script>alert(1)</script>'}
    assert "<script>alert" not in requests.get(address + "/read", headers=host).text


@pytest.mark.parametrize(("kind", "begins"), [("PNG", b"\x89PNG"), ("SVG", b"<svg")])
def test_figures_are_saved(visitor, kind, begins):
    visitor.open("/read")
    visitor.drawn()
    with visitor.page.expect_download() as download:
        visitor.page.locator(f"[data-title='Save as {kind}']").click()
    assert download.value.suggested_filename == f"carbon-track.{kind.lower()}"
    assert Path(download.value.path()).read_bytes().startswith(begins)


def test_the_answer_comes_first_on_a_phone(phone):
    phone.open("/read")
    phone.drawn()
    tops = phone.page.evaluate("""["#view-track", "button.primary"].map(
      (name) => document.querySelector(name).getBoundingClientRect().top)""")
    assert tops[0] < tops[1]
    phone.field("Gene or region").fill("nowhere")
    phone.page.get_by_role("button", name="Read", exact=True).click()
    alert = phone.page.get_by_role("alert")
    alert.wait_for()
    phone.page.wait_for_function("""(() => {
      const { top, bottom } = document.querySelector("#status").getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight;
    })()""")


def test_what_has_the_focus_is_seen(visitor):
    """Along a whole page by the tabulator key."""
    visitor.open("/variant")
    seen = set()
    for _ in range(60):
        visitor.page.keyboard.press("Tab")
        found = visitor.page.evaluate("""(() => {
          const e = document.activeElement, { outlineStyle, boxShadow } = getComputedStyle(e);
          return [e.outerHTML.slice(0, 120), outlineStyle !== "none" || boxShadow !== "none"];
        })()""")
        seen.add(tuple(found))
    unseen = [html for html, shown in seen if not shown and not html.startswith("<body")]
    assert len(seen) > 15 and unseen == []

"""Who can use the demo: axe, focus, the keyboard alone, and a phone; the switch of models."""

import os
from pathlib import Path

import pytest

from carbon.inference import load
from demo.models import AllowedModels
from demo.panels import PANELS
from tests.helpers.demo import make_lab
from tests.helpers.server import served

_RULES = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}"
_FOCUSED = """(() => {
  const e = document.activeElement, { outlineStyle, boxShadow } = getComputedStyle(e);
  return [e.outerHTML.slice(0, 120), e.tagName, e.textContent.trim(),
          outlineStyle !== "none" || boxShadow !== "none"];
})()"""


@pytest.fixture(scope="session")
def axe():
    """The script of axe-core: a file that CARBON_AXE names, or that of axe-playwright-python."""
    if path := os.environ.get("CARBON_AXE"):
        return Path(path).read_text()
    package = pytest.importorskip("axe_playwright_python", reason="no axe-playwright-python")
    return (Path(package.__file__).parent / "axe.min.js").read_text()


def violations(visitor, axe):
    """Return what axe finds once nothing moves any more; best practices are left to Gradio."""
    visitor.until("document.getAnimations().every((each) => each.playState !== 'running')")
    visitor.page.evaluate(axe)
    found = visitor.page.evaluate(f"axe.run(document, {_RULES})")["violations"]
    return [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "panel", [p for p in PANELS if p.name != "compare"], ids=lambda panel: panel.name
)
def test_axe_finds_nothing_by_day_at_a_desk_and_by_night_on_a_phone(visitor, axe, panel):
    visitor.open_figures(panel)
    assert violations(visitor, axe) == []
    visitor.turn_into_a_phone_by_night()
    assert violations(visitor, axe) == []


@pytest.mark.nightly
def test_by_keyboard_alone_and_what_has_the_focus_is_seen(visitor):
    """From the top of a page to its field, and on to the button, without a mouse."""
    visitor.open("/variant")
    unseen = []

    def tab_until(reached):
        for _ in range(60):
            visitor.page.keyboard.press("Tab")
            html, tag, text, is_seen = visitor.page.evaluate(_FOCUSED)
            if not is_seen and tag != "BODY":
                unseen.append(html)
            if reached(tag, text):
                return
        raise AssertionError("the focus does not come there")

    tab_until(lambda tag, text: tag == "TEXTAREA")
    visitor.page.keyboard.press("Control+A")
    visitor.page.keyboard.type("c1:116 C>A")
    button = visitor.page.locator("button.primary").first.inner_text().strip()
    tab_until(lambda tag, text: text == button)
    visitor.page.keyboard.press("Enter")
    visitor.until("location.search.includes('116')")
    assert unseen == []


def choose(visitor, number, url):
    """Choose the other model where it stands for the n-th time, and wait for its answer."""
    visitor.forget_status()
    visitor.page.locator("label", has_text="other").nth(number).click()
    visitor.answered()
    visitor.page.wait_for_url(f"**{url}")


@pytest.mark.nightly
def test_a_model_is_switched_goes_along_and_is_compared(visitor, axe, lab, model, tmp_path):
    own = make_lab(tmp_path, model)
    (tmp_path / "other").symlink_to(lab.runs / "model")
    own.allowed = AllowedModels({"other": str(tmp_path / "other")}, False, load)
    with served(own) as address:
        visitor.address = address
        visitor.open("/variant")
        assert "model" in visitor.page.locator("details.model summary").inner_text()
        choose(visitor, 0, "/variant?base_model=other")
        visitor.page.get_by_role("link", name="Two models").first.click()
        visitor.page.wait_for_url("**/compare?base_model=other")
        visitor.open("/compare")
        assert "base_model" not in visitor.page.url
        rows = visitor.page.locator("#view-summary tbody tr")
        names = [rows.nth(n).locator("td").nth(0).inner_text() for n in (0, 1)]
        assert names == ["model", "other"]
        visitor.drawn()
        assert violations(visitor, axe) == []
        visitor.page.goto("about:blank")

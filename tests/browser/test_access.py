"""Who can use the demo: axe, focus, the keyboard alone, and a phone."""

import os
from pathlib import Path

import pytest

from demo.panels import PANELS

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
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_axe_finds_nothing_by_day_at_a_desk_and_by_night_on_a_phone(visitor, axe, panel):
    visitor.open_figures(panel)
    assert violations(visitor, axe) == []
    visitor.turn_into_a_phone_by_night()
    assert violations(visitor, axe) == []


def test_the_answer_comes_first_on_a_phone_by_night(phone, axe):
    """Axe finds nothing there; for a page by day see test_models.py."""
    phone.open("/read")
    phone.drawn()
    phone.is_dark()
    assert violations(phone, axe) == []
    tops = phone.page.evaluate("""["#view-track", "button.primary"].map(
      (name) => document.querySelector(name).getBoundingClientRect().top)""")
    assert tops[0] < tops[1]
    phone.field("Gene or region").fill("nowhere")
    phone.page.get_by_role("button", name="Read", exact=True).click()
    phone.page.get_by_role("alert").wait_for()
    phone.until("""(() => {
      const { top, bottom } = document.querySelector("#status").getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight;
    })()""")


def test_by_keyboard_alone_and_what_has_the_focus_is_seen(visitor):
    """From the top of a page to its field, and on to the button, without a mouse."""
    visitor.open("/tokenizer")
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
    visitor.page.keyboard.type("GGGGGGTTTTTT")
    button = visitor.page.locator("button.primary").first.inner_text().strip()
    tab_until(lambda tag, text: text == button)
    visitor.page.keyboard.press("Enter")
    visitor.until("location.search.includes('GGGGGGTTTTTT')")
    assert unseen == []

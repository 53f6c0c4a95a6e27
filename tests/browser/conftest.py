"""Chromium before the demo: every page is watched for errors and for requests to elsewhere."""

import os
import re
import shutil

import pytest
from playwright.sync_api import sync_playwright

from demo.panels import PANELS
from tests.helpers.demo import make_full_lab
from tests.helpers.server import served

SCREENSHOTS = os.environ.get("CARBON_SCREENSHOTS")  # a folder for pictures, if any are wanted
WIDTHS = {"wide": 1400, "narrow": 390}
# At every frame, as is Playwright's default, takes half of the browser's time.
POLLING_MS = 100
# What a page says when it is left while it is being answered; wrong only where it stays.
_LEFT = ("AbortError", "Connection errored out")
_DRAWN = """(() => {
  const all = [...document.querySelectorAll(".figure")], has = (e) => e.querySelector(".main-svg");
  return all.some(has) && all.every((e) => e.hidden || has(e));
})()"""
_ANSWERED = "document.querySelector('#status .done') && document.querySelector('#share input')"
_DARK = """(() => {
  const light = (color) => {
    const [red, green, blue] = color.match(/[0-9.]+/g).map(Number);
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255;
  };
  const ink = [...document.querySelectorAll(".js-plotly-plot text")].slice(0, 1);
  return light(getComputedStyle(document.body).backgroundColor) < 0.2
    && ink.every((e) => light(getComputedStyle(e).fill) > 0.6);
})()"""


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A browser with a folder of its own, where it keeps the scripts that it has compiled."""
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path  # of `playwright install chromium`
        path = next(filter(shutil.which, ("chromium", "chromium-browser", "chrome", own)), None)
        if path is None:
            if "browser" in os.environ.get("CARBON_REQUIRE", ""):
                pytest.fail("CARBON_REQUIRE has browser, but there is no chromium")
            pytest.skip("no chromium")
        browser = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("chromium"),
            executable_path=shutil.which(path),
            args=["--no-sandbox"],
            accept_downloads=True,
        )
        browser.set_default_timeout(180_000)  # a busy machine is no failure
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(model, tmp_path_factory):
    return make_full_lab(tmp_path_factory.mktemp("lab"), model)


@pytest.fixture(scope="session")
def address(lab):
    with served(lab) as found:
        yield found


class Visitor:
    """A page that is looked at, and what went wrong in it."""

    def __init__(self, page, address):
        self.page, self.address, self.wrong, self.leaving = page, address, [], []
        page.on("console", lambda m: self._told(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self._told(str(error)))
        page.on("request", lambda request: self._asked(request.url))
        page.on("framenavigated", lambda frame: self.leaving.clear())

    def _told(self, text):
        left = any(words in text for words in _LEFT)
        (self.leaving if left else self.wrong).append(text)

    def _asked(self, url):
        if not url.startswith((self.address, "data:", "blob:")):
            self.wrong.append(f"asked {url}")

    def open(self, path):
        """Go to a page and wait for its first answer, and for the link that comes with it."""
        self.page.goto(self.address + path)
        self.until(_ANSWERED)

    def open_figures(self, panel, query=""):
        """Go to the page of a panel, and wait for its figures where it has some."""
        self.open(("/" if panel is PANELS[0] else f"/{panel.name}") + query)
        if panel.name != "write" and any(view.kind == "figure" for view in panel.views):
            self.drawn()  # Write has a figure of designs alone

    def until(self, condition):
        """Wait for a condition in the page's own language; return its value."""
        return self.page.wait_for_function(condition, polling=POLLING_MS).json_value()

    def drawn(self):
        """Wait for the figures; they are drawn after the answer has come."""
        self.until(_DRAWN)

    def answered(self):
        """Wait for an answer that comes after the page's first."""
        self.page.locator("#status .done").wait_for(state="attached")

    def forget_status(self):
        """Take the last answer's status away, so that the next one's can be waited for."""
        self.page.evaluate("document.querySelector('#status .status').className = 'status'")

    def press(self, button):
        """Press a button and wait until the answer has come."""
        self.forget_status()
        self.page.get_by_role("button", name=button, exact=True).click()
        self.answered()

    def field(self, label):
        """Return a text field; its name goes on with what stands below the label."""
        name = re.compile(rf"^{label}")
        names = (self.page.get_by_role(role, name=name) for role in ("textbox", "combobox"))
        return next(names).or_(next(names))

    def upload(self, number, path):
        """Give a file to a field and wait until the server has it."""
        uploaded = self.page.locator(".file-preview a[href]")  # of all fields
        num_before = uploaded.count()
        self.page.locator("input[type=file]").nth(number).set_input_files(path)
        uploaded.nth(num_before).wait_for()

    def turn_into_a_phone_by_night(self):
        """Be narrow and dark, and wait until the page and its figures are."""
        self.page.set_viewport_size({"width": WIDTHS["narrow"], "height": 900})
        self.page.emulate_media(color_scheme="dark")
        # A figure that is drawn while the colours change keeps the ink of the day.
        redraw = "document.body.classList.add('dark')"
        self.page.wait_for_function(f"{_DARK} || {redraw}", polling=500)
        self.until(f"document.documentElement.scrollWidth <= {WIDTHS['narrow']}")

    def keep(self, name):
        """Take a picture of the page where `CARBON_SCREENSHOTS` names a folder for it."""
        if SCREENSHOTS:
            self.page.screenshot(path=f"{SCREENSHOTS}/{name}.png", full_page=True)


@pytest.fixture
def visitor(chromium, address):
    """Somebody at a desk, by day."""
    page = chromium.new_page()
    page.set_viewport_size({"width": WIDTHS["wide"], "height": 900})
    page.emulate_media(color_scheme="light")
    found = Visitor(page, address)
    yield found
    stayed = list(found.leaving)  # what is said while the page closes is no fault of it
    page.close()
    assert found.wrong + stayed == []

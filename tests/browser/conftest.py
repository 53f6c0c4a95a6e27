"""Chromium before the demo: every page is watched for errors and for requests to elsewhere."""

import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.helpers.demo import learned_example, make_lab
from tests.helpers.server import served

SCREENSHOTS = Path(os.environ.get("CARBON_SCREENSHOTS", "test-artefacts/screenshots"))
ANSWERED = re.compile(r"^\d+\.\d\d s$")
WIDTHS = {"wide": 1400, "narrow": 390}
# What a page says when it is left while it is being answered; wrong only where it stays.
_LEFT = ("AbortError", "Connection errored out")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A browser with a folder of its own, where it keeps the scripts that it has compiled."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
    if path is None:
        if "browser" in os.environ.get("CARBON_REQUIRE", ""):
            pytest.fail("CARBON_REQUIRE has browser, but there is no chromium")
        pytest.skip("no chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("chromium"),
            executable_path=path,
            args=["--no-sandbox"],
            accept_downloads=True,
        )
        browser.set_default_timeout(180_000)  # a busy machine is no failure
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(model, tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("lab"), model, learned=learned_example())


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
        self.page.goto(self.address + path)
        self.answered()

    def drawn(self):
        """Wait for a figure; it is drawn after the answer has come."""
        self.page.locator(".js-plotly-plot .main-svg").first.wait_for()

    def answered(self):
        self.page.locator("#status").get_by_text(ANSWERED).wait_for()

    def press(self, button):
        """Press a button and wait until the answer has come."""
        self.page.evaluate("document.querySelector('#status .status').textContent = ''")
        self.page.get_by_role("button", name=button, exact=True).click()
        self.answered()

    def field(self, label):
        """Return a text field; its name goes on with what stands below the label."""
        name = re.compile(rf"^{label}")
        names = (self.page.get_by_role(role, name=name) for role in ("textbox", "combobox"))
        return next(names).or_(next(names))

    def status(self):
        return self.page.locator("#status").inner_text().strip()

    def keep(self, name):
        self.page.wait_for_timeout(400)  # figures are drawn after the answer has come
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@contextmanager
def _visiting(chromium, address, width, scheme):
    page = chromium.new_page()
    page.set_viewport_size({"width": WIDTHS[width], "height": 900})
    page.emulate_media(color_scheme=scheme)
    found = Visitor(page, address)
    yield found
    stayed = list(found.leaving)  # what is said while the page closes is no fault of it
    page.close()
    assert found.wrong + stayed == []


@pytest.fixture
def visitor(chromium, address):
    """Somebody at a desk, by day."""
    with _visiting(chromium, address, "wide", "light") as found:
        yield found


@pytest.fixture
def phone(chromium, address):
    """Somebody with a phone, by night."""
    with _visiting(chromium, address, "narrow", "dark") as found:
        yield found

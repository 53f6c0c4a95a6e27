"""The switch of models as a visitor meets it."""

from carbon.inference import load
from carbon.offered import Offer
from tests.browser.test_access import axe as axe
from tests.browser.test_access import violations
from tests.helpers.demo import make_lab
from tests.helpers.server import served


def choose(visitor, number, url):
    """Choose the other model where it stands for the n-th time, and wait for its answer."""
    visitor.forget_status()
    visitor.page.locator("label", has_text="other").nth(number).click()
    visitor.answered()
    visitor.page.wait_for_url(f"**{url}")


def test_a_model_is_switched_goes_along_and_is_compared(visitor, axe, lab, model, tmp_path):
    own = make_lab(tmp_path, model)
    (tmp_path / "other").symlink_to(lab.runs / "model")
    own.offer = Offer({"other": str(tmp_path / "other")}, False, load)
    with served(own) as address:
        visitor.address = address
        visitor.open("/read")
        assert "model" in visitor.page.locator("header.model summary").inner_text()
        choose(visitor, 0, "/read?base_model=other")
        visitor.page.get_by_role("link", name="Inside a token").first.click()
        visitor.page.wait_for_url("**/token?base_model=other")
        visitor.open("/compare?b=")
        assert "base_model" not in visitor.page.url
        visitor.page.locator("#view-told").get_by_text("A and B are the same").wait_for()
        choose(visitor, 1, "/compare?b=&model_b=other")  # of B, below the page's
        rows = visitor.page.locator("#view-told tbody tr")
        assert [rows.nth(n).locator("td").nth(2).inner_text() for n in (0, 1)] == ["model", "other"]
        visitor.drawn()
        assert violations(visitor, axe) == []
        visitor.page.goto("about:blank")

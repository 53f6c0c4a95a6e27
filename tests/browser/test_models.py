"""The switch of models as a visitor meets it."""

from carbon.inference import load
from carbon.offered import Offer
from tests.browser.test_access import axe as axe
from tests.helpers.demo import make_lab
from tests.helpers.server import served


def test_a_model_is_switched_in_place_and_goes_along(visitor, axe, lab, model, tmp_path):
    own = make_lab(tmp_path, model)
    own.offer = Offer({"other": str(lab.runs / "model")}, False, load)
    with served(own) as address:
        visitor.address = address
        visitor.open("/read")
        card = visitor.page.locator("header.model summary")
        assert "model" in card.inner_text()
        visitor.page.evaluate("document.querySelector('#status .status').textContent = ''")
        visitor.page.locator("label", has_text="other").first.click()
        visitor.answered()
        visitor.page.wait_for_url("**/read?base_model=other")
        visitor.page.evaluate(axe)
        rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}"
        found = visitor.page.evaluate(f"axe.run(document, {rules})")["violations"]
        assert [violation["id"] for violation in found] == []
        visitor.page.get_by_role("link", name="Inside a token").first.click()
        visitor.page.wait_for_url("**/token?base_model=other")
        visitor.answered()
        visitor.open("/token")
        assert "base_model" not in visitor.page.url
        visitor.page.goto("about:blank")


def test_two_models_are_compared_by_a_choice_that_the_link_holds(
    visitor, axe, lab, model, tmp_path
):
    own = make_lab(tmp_path, model)
    (tmp_path / "other").symlink_to(lab.runs / "model")
    own.offer = Offer({"other": str(tmp_path / "other")}, False, load)
    with served(own) as address:
        visitor.address = address
        visitor.open("/compare?b=")
        assert "A and B are the same" in visitor.page.locator("#view-told").inner_text()
        visitor.page.evaluate("document.querySelector('#status .status').textContent = ''")
        visitor.page.locator("label", has_text="other").nth(1).click()  # of B, below the page's
        visitor.answered()
        visitor.page.wait_for_url("**/compare?b=&model_b=other")
        rows = visitor.page.locator("#view-told tbody tr")
        assert [rows.nth(n).locator("td").nth(2).inner_text() for n in (0, 1)] == ["model", "other"]
        visitor.drawn()
        visitor.keep("compare-models-1400")
        visitor.page.evaluate(axe)
        rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}"
        found = visitor.page.evaluate(f"axe.run(document, {rules})")["violations"]
        assert [violation["id"] for violation in found] == []
        visitor.page.goto("about:blank")

"""Gene, Write and Inside as a visitor meets them."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.helpers.demo import genbank_record
from tests.helpers.run_lines import step_line

_RANGE = "document.querySelector('#view-track .js-plotly-plot').layout.xaxis.range"
_DRAWN_TEXT = """name => [...document.querySelectorAll('#view-track .js-plotly-plot')]
  .flatMap(plot => plot.data || []).find(trace => trace.name === name)?.text?.join('')"""
# Notes how many groups of ten bases are drawn, and how many of them again.
_NOTE_DRAWING = """window.groups = 0; window.removed = 0; new MutationObserver((changes) => {
  const count = (nodes) => [...nodes].filter((node) => node.className === "ten").length;
  for (const change of changes) {
    groups += count(change.addedNodes); removed += count(change.removedNodes);
  }
}).observe(document, { subtree: true, childList: true });"""


@pytest.mark.parametrize("page", ["gene", "write", "inside"])
def test_a_page_answers_its_example_at_two_widths(visitor, page):
    visitor.open(f"/{page}")
    if page != "write":  # which has a figure of designs alone
        visitor.drawn()
    visitor.keep(f"{page}-1400")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 1400
    visitor.turn_into_a_phone_by_night()
    visitor.keep(f"{page}-390-dark")


def test_a_pasted_genbank_record_lists_its_genes(visitor):
    visitor.open("/gene")
    visitor.field("Gene, region, variant or DNA").fill(genbank_record())
    visitor.press("Read")
    visitor.page.locator("#view-genes").get_by_role("link", name="XYZ1").click()
    visitor.page.locator("#view-facts").get_by_text("own:1-800").wait_for()


@pytest.mark.nightly
@pytest.mark.parametrize("view", ["constraint", "dependency map"])
def test_each_view_of_a_gene(visitor, view):
    visitor.open(f"/gene?view={view.replace(' ', '+')}")
    visitor.drawn()
    visitor.keep(f"gene-{view.split()[0]}-1400")
    visitor.turn_into_a_phone_by_night()
    visitor.keep(f"gene-{view.split()[0]}-390-dark")


@pytest.mark.nightly
def test_letters_of_both_strands_a_zoom_and_figures_that_are_saved(visitor):
    visitor.open("/gene?input=c1:1-1200&start_bp=100&width_bp=60")
    visitor.drawn()
    assert visitor.page.evaluate(_RANGE) == [100.5, 160.5]
    forward, reverse = (
        visitor.page.evaluate(_DRAWN_TEXT, f"{strand} strand") for strand in ("forward", "reverse")
    )
    assert forward.translate(str.maketrans("ACGT", "TGCA")) == reverse
    for kind, begins in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with visitor.page.expect_download() as download:
            visitor.page.locator(f"#view-track [data-title='Save as {kind}']").click()
        assert download.value.suggested_filename == f"carbon-track.{kind.lower()}"
        assert Path(download.value.path()).read_bytes().startswith(begins)
    box = visitor.page.locator("#view-track .nsewdrag").first.bounding_box()
    visitor.page.mouse.move(box["x"] + 50, box["y"] + 50)
    visitor.page.mouse.down()
    visitor.page.mouse.move(box["x"] + 200, box["y"] + 50, steps=5)
    visitor.page.mouse.up()
    visitor.until(f"(([a, b]) => b - a < 60)({_RANGE})")
    visitor.until("!location.search.includes('start_bp=100&width_bp=60')")
    visitor.page.go_back()
    visitor.until("location.search.includes('start_bp=100&width_bp=60')")


def test_new_bases_are_appended_to_those_on_the_page(visitor):
    visitor.page.add_init_script(_NOTE_DRAWING)
    visitor.open("/write?input=ATGGCC&length_bp=600")
    expect(visitor.page.locator("#view-bases .base")).to_have_count(606)
    expect(visitor.page.locator("#view-random .base")).to_have_count(600)
    visitor.keep("write-600-bases-1400")
    # 606 bases in 61 groups, and 600 random ones in 60.
    assert visitor.page.evaluate("[window.groups, window.removed]") == [121, 0]


@pytest.mark.nightly
def test_bases_are_explained_go_on_and_come_back_by_the_address(visitor, address):
    visitor.open("/write?input=ATGGCC&length_bp=60")
    bases, strip = (visitor.page.locator(f"#view-bases {name}") for name in (".base", ".strip"))
    expect(bases).to_have_count(66)
    bases.nth(10).hover()
    tip = visitor.page.locator("#view-bases .tip")
    assert tip.inner_text().startswith("base 11: ") and tip.inner_text().count("%") == 4
    strip.focus()
    visitor.page.keyboard.press("ArrowRight")
    assert tip.inner_text().startswith("base 12: ")
    first = strip.inner_text()
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("link", name="Download written.fa").click()
    header, *lines = download.value.path().read_text().splitlines()
    assert header.startswith(">written") and first.endswith("".join(lines))
    visitor.press("Continue")
    expect(bases).to_have_count(126)
    assert strip.inner_text().startswith(first)
    link, shown = visitor.page.url.removeprefix(address), strip.inner_text()
    visitor.open(link)
    expect(strip).to_have_text(shown)


@pytest.mark.nightly
def test_a_run_is_drawn_while_it_trains(visitor, lab):
    visitor.open("/inside?run=a_run")
    facts = visitor.page.locator("#view-training")
    facts.get_by_text("a_run").first.wait_for()
    with (lab.runs / "a_run" / "metrics.jsonl").open("a") as sink:
        for step in range(61, 65):
            sink.write(json.dumps(step_line(step)) + "\n")
    facts.get_by_text("64", exact=True).wait_for()
    visitor.keep("inside-run-1400")

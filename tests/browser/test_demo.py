"""The pages of the demo as a visitor meets them: each once, at two widths."""

import json
import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import expect

from demo.panels import PANELS
from tests.helpers.demo import panel_of
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.run_lines import step_line
from tests.helpers.server import asked

HOSTILE = "<img src=x onerror=window.hacked=1>"
_OUTSIDE = """[...document.querySelectorAll("[href], [src], [action]")]
  .map((e) => e.href?.baseVal ?? e.href ?? e.src ?? e.action)
  .filter((url) => url && !url.startsWith(location.origin) && !/^(data|blob|#)/.test(url))"""
_FOREIGN = re.compile("^Settings|cloud|Gradio|Record", re.IGNORECASE)
# Notes every step whose title is drawn, so that none is missed while the machine does other work.
_NOTE_STEPS = r"""window.steps = [];
new MutationObserver(() => {
  const step = document.querySelector(".gtitle")?.textContent.match(/Step ([0-9,]+)/)?.[1];
  if (step && step !== steps.at(-1)) steps.push(step);
}).observe(document, { subtree: true, childList: true, characterData: true });"""
# The place of a variant's cell in the heat map, from the corner of the axes that it lies in.
_CELL = """(() => {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const heat = (plot._fullData || []).find((trace) => trace.type === "heatmap");
    if (!heat) continue;
    const axis = (a) => plot._fullLayout[heat[a + "axis"].replace(a, a + "axis")];
    const column = [5, 6, 7, 8].find((each) => heat.customdata[1][each]);
    const at = { x: axis("x").d2p(heat.x[column]), y: axis("y").d2p("C") };
    return [heat.xaxis + heat.yaxis, at];
  }
})()"""
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


def look_at(visitor, name, query=""):
    """Visit a page at a desk: an answer without requests to elsewhere or a word of Gradio's."""
    (panel,) = [panel for panel in PANELS if panel.name == name]
    urls = []
    visitor.page.on("request", lambda request: urls.append(request.url))
    visitor.open_figures(panel, query)
    visitor.keep(f"{name}-1400")
    assert len([url for url in urls if "/carbon/" in url]) <= 10
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert visitor.page.evaluate(_OUTSIDE) == []
    head = visitor.page.evaluate("document.head.innerHTML")
    assert not re.search(r'content="[^"]*gradio', head, re.IGNORECASE)
    for role in ("button", "link"):
        assert visitor.page.get_by_role(role, name=_FOREIGN).count() == 0


def look_at_night(visitor, name):
    """Look at the same page on a phone by night: it is dark, and no wider than the screen."""
    visitor.turn_into_a_phone_by_night()
    visitor.keep(f"{name}-390-dark")


@pytest.mark.parametrize(
    "name", ["gene", "inside", pytest.param("predict", marks=pytest.mark.nightly)]
)
def test_a_page(visitor, name):
    look_at(visitor, name)
    look_at_night(visitor, name)


def test_start_replays_how_a_gene_was_learned_and_leads_to_other_pages(visitor):
    """The last step stands; a replay shows all, and the slider one."""
    visitor.page.add_init_script(_NOTE_STEPS)
    look_at(visitor, "start")
    assert visitor.page.evaluate("steps") == ["9,000"]
    visitor.page.get_by_role("button", name="Watch it learn").click()
    visitor.until("steps.length >= 4")
    assert visitor.page.evaluate("steps") == ["9,000", "0", "25", "9,000"]
    rail = visitor.page.locator(".slider-rail-touch-rect")
    rail.scroll_into_view_if_needed()
    box = rail.bounding_box()
    visitor.page.mouse.click(box["x"] + 3, box["y"] + box["height"] / 2)
    visitor.until("steps.at(-1) === '0'")
    look_at_night(visitor, "start")
    visitor.page.locator("#input textarea").fill("Y2* of abc")
    visitor.page.get_by_role("button", name="Go", exact=True).click()
    visitor.page.wait_for_url(lambda url: url.startswith(f"{visitor.address}/variant?input=Y2"))
    visitor.leaving.clear()
    visitor.page.goto("about:blank")


def test_variant_is_shared_and_on_a_phone_the_input_comes_first(visitor):
    look_at(visitor, "variant", "?input=Y7%2A+of+ABC")
    visitor.page.locator("#share summary").click()
    assert visitor.page.locator("#share input").input_value() == visitor.page.url
    visitor.until("document.querySelector('#share img').naturalWidth === 1200")
    assert "Y7* of ABC" in visitor.page.locator("#share figcaption").inner_text()
    look_at_night(visitor, "variant")
    tops = visitor.page.evaluate("""["nav.pages", "#input", "button.primary", "#view-verdict"].map(
      (name) => document.querySelector(name).getBoundingClientRect().top)""")
    assert tops == sorted(tops)
    links = visitor.page.evaluate("""[...document.querySelectorAll("nav.pages a")].map(
      (link) => Math.round(link.getBoundingClientRect().top))""")
    assert len(links) >= 2 and len(set(links)) == 1
    visitor.page.locator("#input textarea").fill("nowhere")
    visitor.page.get_by_role("button", name="Score", exact=True).click()
    visitor.page.get_by_role("alert").wait_for()
    visitor.until("""(() => {
      const { top, bottom } = document.querySelector("#status").getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight;
    })()""")


def test_write_appends_new_bases_to_those_on_the_page(visitor):
    visitor.page.add_init_script(_NOTE_DRAWING)
    look_at(visitor, "write", "?input=ATGGCC&length_bp=600")
    expect(visitor.page.locator("#view-bases .base")).to_have_count(606)
    expect(visitor.page.locator("#view-random .base")).to_have_count(600)
    # 606 bases in 61 groups, and 600 random ones in 60.
    assert visitor.page.evaluate("[window.groups, window.removed]") == [121, 0]
    look_at_night(visitor, "write")


def test_a_cancelled_job(visitor, lab, tmp_path, monkeypatch):
    """Many variants are stopped half-way, and the next question is answered."""
    score, num_scored, is_stopped = lab.model.score_variants, count(1), Event()

    def score_some_and_wait(*arguments, **options):
        if next(num_scored) > 3:
            is_stopped.wait(60)
        return score(*arguments, **options)

    bases = random_bases(1400, seed=1)
    records = [f"c1\t{n}\t.\t{bases[n - 1]}\t{'A' if bases[n - 1] != 'A' else 'C'}\t.\t.\t."
               for n in range(100, 300)]  # fmt: skip
    fasta = write_fasta(tmp_path / "many.fa", {"c1": bases})
    vcf = write_vcf(tmp_path / "many.vcf", records, "##contig=<ID=c1,length=1400>\n")
    visitor.open("/variant")
    visitor.page.get_by_role("button", name="More settings").click()
    visitor.upload(0, vcf)
    visitor.upload(1, fasta)
    monkeypatch.setattr(lab.model, "score_variants", score_some_and_wait)
    visitor.page.get_by_role("button", name="Score", exact=True).click()
    visitor.page.locator("#status .busy").wait_for()
    visitor.keep("progress-1400")
    visitor.page.get_by_role("button", name="Stop", exact=True).click()
    is_stopped.set()
    status = visitor.page.locator("#status")
    status.get_by_text("Stopped.").wait_for()
    # The model has its next turn when the job has ended, and nothing more can come of it.
    data = [field.default for field in panel_of(lab, "start").fields]
    assert asked(visitor.address, "start", data)[0] == "complete"
    assert status.inner_text().strip() == "Stopped."
    # Gradio may think that something failed, and says so in a layer that nobody sees.
    layer = status.locator("[data-testid=status-tracker]")
    assert layer.evaluate("layer => getComputedStyle(layer).display") == "none"
    visitor.page.goto("about:blank")


@pytest.mark.nightly
def test_a_protein_is_refused_and_names_are_suggested(visitor):
    visitor.open("/variant")
    field = visitor.page.locator("#input textarea")
    field.fill("MAVSKVYARSVYDSRGN")
    visitor.page.get_by_role("button", name="Score", exact=True).click()
    visitor.page.get_by_role("alert").get_by_text("this looks like a protein").wait_for()
    expect(visitor.page.locator("#status mark")).to_have_text("M")
    assert visitor.page.locator("#view-verdict").inner_text().strip() == ""
    field.press("Control+A")
    field.press_sequentially("ab")
    visitor.page.locator("#suggestions").get_by_role("button", name="ABC").click()
    visitor.page.locator("#view-verdict .verdict").wait_for()
    expect(field).to_have_value("ABC")


@pytest.mark.nightly
def test_who_waits_learns_how_many_come_first(visitor, lab, monkeypatch):
    compare, is_open, has_begun = lab.model.compare_alleles, Event(), Event()

    def compare_and_wait(*arguments, **options):
        has_begun.set()
        is_open.wait(60)
        return compare(*arguments, **options)

    visitor.open("/variant")
    stop = visitor.page.get_by_role("button", name="Stop", exact=True)
    assert not stop.is_visible()
    monkeypatch.setattr(lab.model, "compare_alleles", compare_and_wait)
    visitor.page.get_by_role("button", name="Score", exact=True).click()
    has_begun.wait(60)
    second = visitor.page.context.new_page()
    second.goto(f"{visitor.address}/")
    second.locator("#status").get_by_text("Waiting, 1 before you").wait_for()
    assert stop.is_visible()
    is_open.set()
    second.locator("#status .done").wait_for(state="attached")
    visitor.answered()
    assert not stop.is_visible()
    second.close()


@pytest.mark.nightly
def test_enter_answers_a_wrong_letter_is_marked_and_a_cell_is_a_click(visitor):
    visitor.open("/variant")
    variant = visitor.page.locator("#input textarea")
    variant.fill("c1:114 Q>T")
    variant.press("Enter")
    expect(visitor.page.locator("#status mark")).to_have_text("Q")
    visitor.page.locator(".figure").first.wait_for(state="hidden")
    visitor.keep("wrong-letter-1400")
    variant.fill("ABC:c.4U>A")
    variant.press("Enter")
    visitor.page.locator("#view-verdict").get_by_text("c1:114 T>A").wait_for()
    visitor.drawn()
    subplot, at = visitor.until(_CELL)
    cells = visitor.page.locator(f".nsewdrag[data-subplot={subplot}]").last
    for _ in range(100):  # the page may still be on its way to the answer
        cells.hover(position=at, force=True)
        cells.click(position=at, force=True)
        with suppress(AssertionError):
            expect(variant).not_to_have_value("ABC:c.4U>A", timeout=2000)
            break
    visitor.page.wait_for_url("**/variant?input=c1%3A*")
    visitor.page.go_back()
    visitor.until("location.search.includes('c.4U')")
    expect(variant).to_have_value("ABC:c.4U>A")


@pytest.mark.nightly
def test_hostile_names_are_shown_and_not_run(visitor, tmp_path):
    path = tmp_path / "<img src=x onerror=window.hacked=2>.fa"
    write_fasta(path, {f"{HOSTILE.replace(' ', '/')} {HOSTILE}": random_bases(900)})
    visitor.open("/variant")
    visitor.page.get_by_role("button", name="More settings").click()
    visitor.upload(1, path)
    visitor.press("Score")
    visitor.page.get_by_text("onerror").first.wait_for()
    visitor.drawn()
    visitor.keep("hostile-1400")
    assert visitor.page.evaluate("window.hacked") is None
    assert visitor.page.locator("img[src=x]").count() == 0


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

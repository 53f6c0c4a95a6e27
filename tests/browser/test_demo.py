"""The demo as a visitor meets it."""

import json
import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Error, expect

from carbon.tokenizer import K
from demo.panels import PANELS
from tests.helpers.demo import panel_of
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.run_lines import step_line
from tests.helpers.server import asked

QUICK = ("primer", "read")  # panels that every run visits; the others are left to the nightly run
HOSTILE = "<img src=x onerror=window.hacked=1>"
_OUTSIDE = """[...document.querySelectorAll("[href], [src], [action]")]
  .map((e) => e.href?.baseVal ?? e.href ?? e.src ?? e.action)
  .filter((url) => url && !url.startsWith(location.origin) && !/^(data|blob|#)/.test(url))"""
_FOREIGN = re.compile("^Settings|Share|cloud|Gradio|Record", re.IGNORECASE)
_RANGE = "document.querySelector('.js-plotly-plot').layout.xaxis.range"
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
    const column = [20, 21, 22, 23].find((each) => heat.customdata[1][each]);
    const at = { x: axis("x").d2p(heat.x[column]), y: axis("y").d2p("C") };
    return [heat.xaxis + heat.yaxis, at];
  }
})()"""


@pytest.mark.parametrize(
    "panel",
    [
        panel if panel.name in QUICK else pytest.param(panel, marks=pytest.mark.nightly)
        for panel in PANELS
    ],
    ids=lambda panel: panel.name,
)
def test_a_page_answers_its_example_at_a_desk_and_on_a_phone(visitor, panel):
    """At once, without a request to elsewhere or a word of Gradio's, and as wide as the screen."""
    visitor.open_figures(panel)
    visitor.keep(f"{panel.name}-1400")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert visitor.page.evaluate(_OUTSIDE) == []
    head = visitor.page.evaluate("document.head.innerHTML")
    assert not re.search(r'content="[^"]*gradio', head, re.IGNORECASE)
    for role in ("button", "link"):
        assert visitor.page.get_by_role(role, name=_FOREIGN).count() == 0
    assert visitor.page.locator("[data-title*='Share']").count() == 0
    visitor.turn_into_a_phone_by_night()
    visitor.keep(f"{panel.name}-390-dark")


@pytest.mark.nightly
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_every_example_of_a_page_works(visitor, lab, panel):
    panel = panel_of(lab, panel.name)
    for example in panel.examples():
        visitor.open(panel.link(example.values))


def test_a_gene_lights_up_by_itself_and_by_the_slider(visitor):
    """Steps play once, the last stays, and one that is chosen stands still."""
    visitor.page.add_init_script(_NOTE_STEPS)
    visitor.open("/")
    played = ["9,000", "0", "25", "9,000"]  # the last is drawn before it plays
    visitor.until(f"steps.length >= {len(played)}")
    rail = visitor.page.locator(".slider-rail-touch-rect")
    rail.scroll_into_view_if_needed()
    box = rail.bounding_box()
    visitor.page.mouse.click(box["x"] + 3, box["y"] + box["height"] / 2)
    visitor.until("steps.at(-1) === '0'")
    visitor.page.locator(".updatemenu-button").click()
    visitor.until("steps.at(-1) === '9,000'")
    assert visitor.page.evaluate("steps") == [*played, "0", "25", "9,000"]


@pytest.mark.nightly
def test_a_sequence_travels_and_goes_on_to_another_page(visitor):
    visitor.open("/")
    strands, splicing = (visitor.page.locator(f"#view-{name}") for name in ("strands", "splicing"))
    strands.get_by_text("the first 66 coding bases of ABC").wait_for()
    marked = visitor.until(
        "[...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => plot.data || [])"
        ".find(trace => trace.name == 'the bases that travel')?.x"
    )
    assert marked == [110.5, 176.5, None]
    visitor.field("Or a sequence of your own").fill("ACGTTGCATTAGCATGACGTTGCA")
    visitor.press("Show")
    strands.get_by_text("your own, of 24 bases").wait_for()
    splicing.get_by_text("without a cut").wait_for()
    visitor.keep("primer-own-1400")
    visitor.page.get_by_role("link", name="Let the model write on").click()
    visitor.page.wait_for_url("**/generate?prompt=ACGTTGCATTAGCATGAC")


@pytest.mark.nightly
def test_bases_stream_in_are_explained_go_on_and_come_back_by_the_address(visitor, address):
    visitor.open("/generate?prompt=ATGGCC&length_bp=60")
    bases, strip = (visitor.page.locator(name) for name in (".strip .base", ".strip"))
    expect(bases).to_have_count(66)
    bases.nth(10).hover()
    told = visitor.page.locator(".tip").inner_text()
    assert told.startswith("base 11: ") and told.count("%") == 4
    strip.focus()
    visitor.page.keyboard.press("ArrowRight")
    assert visitor.page.locator(".tip").inner_text().startswith("base 12: ")
    first = strip.inner_text()
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("link", name="Download generated.fa").click()
    header, *lines = download.value.path().read_text().splitlines()
    assert header.startswith(">generated model=") and first.endswith("".join(lines))
    visitor.page.get_by_role("button", name="Show the code").click()
    visitor.page.get_by_text("carbon generate --model").first.wait_for()
    visitor.press("Continue")
    expect(bases).to_have_count(126)
    assert strip.inner_text().startswith(first)
    visitor.until(f"location.search.includes('{first}')")
    link, shown = visitor.page.url.removeprefix(address), strip.inner_text()
    visitor.open(link)
    expect(strip).to_have_text(shown)
    assert visitor.field("Prompt").input_value() == first
    visitor.page.goto(visitor.address + "/generate?length_bp=many")
    visitor.page.get_by_role("alert").get_by_text("'many' is not a number").wait_for()
    visitor.press("Generate")


@pytest.mark.nightly
def test_a_wrong_place_is_told_a_near_name_is_a_click_away_and_back_is_one_too(visitor):
    visitor.open("/read")
    visitor.page.evaluate("window.stayed = true")
    place = visitor.field("Gene or region")
    place.fill("c1:5000-6000")
    visitor.page.get_by_role("button", name="Read", exact=True).click()
    visitor.page.get_by_role("alert").get_by_text("the contig has bases 1 to 1400").wait_for()
    visitor.keep("error-1400")
    place.fill("ABD")
    near = visitor.page.locator("#status a", has_text="ABC")
    for _ in range(20):  # a key is dropped while the answer before it ends
        place.press("Enter")
        with suppress(Error):
            near.wait_for(timeout=5000)
            break
    near.click()
    visitor.answered()
    expect(place).to_have_value("ABC")
    place.fill("c1:50-100")
    visitor.press("Read")
    visitor.page.wait_for_url("**/read?place=c1*")
    visitor.until("[...document.querySelectorAll('textarea, input')]"
                  ".some(e => e.value === location.href)")  # fmt: skip
    visitor.page.go_back()
    visitor.until("!location.search.includes('c1')")
    expect(place).to_have_value("ABC")
    visitor.answered()
    assert visitor.page.evaluate("window.stayed")
    assert visitor.page.title() == "Read a sequence · Carbon"
    place.fill("c1:50-100")
    visitor.press("Read")
    visitor.page.wait_for_url("**/read?place=c1*")
    place.fill("AB")  # names are offered as they are typed, and answered when they are chosen
    visitor.page.get_by_role("option", name="ABC").click()
    visitor.until("!location.search.includes('c1')")
    expect(place).to_have_value("ABC")


@pytest.mark.nightly
def test_zoom_token_grid_and_figures_that_are_saved(visitor):
    visitor.open("/read?place=c1:1-1200&grid=True&start_bp=100&width_bp=60")
    visitor.drawn()
    left, right = visitor.page.evaluate(_RANGE)
    assert (left, right) == (100.5, 160.5)
    letters = "document.querySelector('.js-plotly-plot').data.some(t => t.name === 'the bases')"
    assert visitor.page.evaluate(letters)
    shapes = visitor.page.evaluate(
        "document.querySelector('.js-plotly-plot').layout.shapes.map(s => s.x0)"
    )
    assert shapes and all((x - 0.5) % K == 0 for x in shapes)
    for kind, begins in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with visitor.page.expect_download() as download:
            visitor.page.locator(f"[data-title='Save as {kind}']").click()
        assert download.value.suggested_filename == f"carbon-track.{kind.lower()}"
        assert Path(download.value.path()).read_bytes().startswith(begins)
    box = visitor.page.locator(".nsewdrag").first.bounding_box()
    visitor.page.mouse.move(box["x"] + 50, box["y"] + 50)
    visitor.page.mouse.down()
    visitor.page.mouse.move(box["x"] + 200, box["y"] + 50, steps=5)
    visitor.page.mouse.up()
    visitor.until(f"(([a, b]) => b - a < {right - left})({_RANGE})")
    visitor.until("!location.search.includes('start_bp=100&width_bp=60')")
    start_bp = int(visitor.page.url.partition("start_bp=")[2].partition("&")[0])
    assert start_bp == pytest.approx(visitor.page.evaluate(_RANGE)[0] - 0.5, abs=1)
    visitor.page.go_back()
    visitor.until("location.search.includes('start_bp=100&width_bp=60')")


@pytest.mark.nightly
def test_enter_answers_a_wrong_letter_is_marked_and_a_cell_is_a_click(visitor):
    visitor.open("/variant")
    variant = visitor.field("Variant")
    variant.fill("c1:114 Q>T")
    variant.press("Enter")
    expect(visitor.page.locator("#status mark")).to_have_text("Q")
    visitor.page.locator(".figure").first.wait_for(state="hidden")
    assert visitor.page.locator("#view-facts").inner_text().strip() == ""
    visitor.keep("wrong-letter-1400")
    variant.fill("chr1-114-A-T")
    variant.press("Enter")
    visitor.page.locator("#status").get_by_text("no contig 'chr1'").wait_for()
    variant.fill("ABC:c.4U>A")
    variant.press("Enter")
    visitor.answered()
    visitor.page.locator("#view-facts").get_by_text("c1:114 T>A").wait_for()
    visitor.drawn()
    subplot, at = visitor.until(_CELL)
    cells = visitor.page.locator(f".nsewdrag[data-subplot={subplot}]").last
    for _ in range(100):  # the page may still be on its way to the answer
        cells.hover(position=at, force=True)
        cells.click(position=at, force=True)
        with suppress(AssertionError):
            expect(variant).not_to_have_value("ABC:c.4U>A", timeout=2000)
            break
    visitor.page.wait_for_url("**/variant?variant=c1%3A*")


def test_a_cancelled_job(visitor, lab, tmp_path, monkeypatch):
    """Many variants are stopped half-way, and the next question is answered."""
    score, num_scored, is_stopped = lab.model.score_variants, count(1), Event()

    def score_twenty_and_wait(*arguments, **options):
        if next(num_scored) > 20:
            is_stopped.wait(60)
        return score(*arguments, **options)

    monkeypatch.setattr(lab.model, "score_variants", score_twenty_and_wait)
    bases = random_bases(1400, seed=1)
    records = [f"c1\t{n}\t.\t{bases[n - 1]}\t{'A' if bases[n - 1] != 'A' else 'C'}\t.\t.\t."
               for n in range(100, 300)]  # fmt: skip
    fasta = write_fasta(tmp_path / "many.fa", {"c1": bases})
    vcf = write_vcf(tmp_path / "many.vcf", records, "##contig=<ID=c1,length=1400>\n")
    visitor.open("/variant")
    visitor.field("Variant").fill("")
    visitor.page.get_by_role("button", name="More settings").click()
    visitor.upload(0, vcf)
    visitor.upload(1, fasta)
    visitor.page.get_by_role("button", name="Score", exact=True).click()
    visitor.page.locator("#status progress").wait_for()
    visitor.keep("progress-1400")
    visitor.page.get_by_role("button", name="Stop", exact=True).click()
    is_stopped.set()
    status = visitor.page.locator("#status")
    status.get_by_text("Stopped.").wait_for()
    # The model has its next turn when the job has ended, and nothing more can come of it.
    data = [field.default for field in panel_of(lab, "token").fields]
    assert asked(visitor.address, "token", data)[0] == "complete"
    assert status.inner_text().strip() == "Stopped."
    # Gradio may think that something failed, and says so in a layer that nobody sees.
    layer = status.locator("[data-testid=status-tracker]")
    assert layer.evaluate("layer => getComputedStyle(layer).display") == "none"
    visitor.page.goto("about:blank")


@pytest.mark.nightly
def test_hostile_names_are_shown_and_not_run(visitor, tmp_path):
    path = tmp_path / "<img src=x onerror=window.hacked=2>.fa"
    names = [f"{HOSTILE.replace(' ', '/')}{n} {HOSTILE}" for n in range(5)]
    write_fasta(path, {name: random_bases(90, seed=n) for n, name in enumerate(names)})
    visitor.open("/embeddings")
    visitor.upload(0, path)
    visitor.press("Draw the map")
    visitor.page.get_by_text("onerror").first.wait_for()
    visitor.drawn()
    visitor.keep("hostile-1400")
    assert visitor.page.evaluate("window.hacked") is None
    assert visitor.page.locator("img[src=x]").count() == 0


@pytest.mark.nightly
def test_a_run_is_drawn_while_it_trains(visitor, lab):
    visitor.open("/training")
    facts = visitor.page.locator("#view-facts")
    facts.get_by_text("a_run").first.wait_for()
    with (lab.runs / "a_run" / "metrics.jsonl").open("a") as sink:
        for step in range(61, 65):
            sink.write(json.dumps(step_line(step)) + "\n")
    facts.get_by_text("64", exact=True).wait_for()
    visitor.keep("training-1400")

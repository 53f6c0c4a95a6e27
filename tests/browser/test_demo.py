"""The shell of the demo, Start and Variant as a visitor meets them."""

import re
from contextlib import suppress
from itertools import count
from threading import Event

import pytest
from playwright.sync_api import expect

from carbon.genome import Variant
from demo.panels import PANELS
from tests.helpers.demo import genbank_record, panel_of
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.server import asked

OWN = ("start", "variant")  # pages that every run visits here, at two widths
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
_DELTAS = """(() => {
  const traces = [...document.querySelectorAll(".js-plotly-plot")].flatMap((plot) => plot.data);
  const heat = traces.find((trace) => trace.type === "heatmap");
  const mark = traces.find((trace) => trace.name === "this variant");
  return [heat.z, heat.y, heat.x, mark.x[0]];
})()"""


@pytest.mark.parametrize(
    "panel",
    [
        panel if panel.name in OWN else pytest.param(panel, marks=pytest.mark.nightly)
        for panel in PANELS
        # Two models need a second one: see test_access.py; for Write, test_gene_write_inside.py.
        if panel.name not in ("compare", "write")
    ],
    ids=lambda panel: panel.name,
)
def test_a_page_answers_its_example_at_a_desk_and_on_a_phone(visitor, panel):
    """At once, without a request to elsewhere or a word of Gradio's, and as wide as the screen."""
    urls = []
    visitor.page.on("request", lambda request: urls.append(request.url))
    visitor.open_figures(panel)
    visitor.keep(f"{panel.name}-1400")
    assert len([url for url in urls if "/carbon/" in url]) <= 10
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert visitor.page.evaluate(_OUTSIDE) == []
    head = visitor.page.evaluate("document.head.innerHTML")
    assert not re.search(r'content="[^"]*gradio', head, re.IGNORECASE)
    for role in ("button", "link"):
        assert visitor.page.get_by_role(role, name=_FOREIGN).count() == 0
    visitor.turn_into_a_phone_by_night()
    visitor.keep(f"{panel.name}-390-dark")


@pytest.mark.nightly
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_every_example_of_a_page_works(visitor, lab, panel):
    if panel.is_available(lab):
        panel = panel_of(lab, panel.name)
        for example in panel.examples():
            visitor.open(panel.link(example.values))


def test_at_most_three_controls_stand_before_the_button(lab):
    for panel in PANELS:
        if panel.is_available(lab):
            assert sum(not field.more for field in panel(lab).fields) <= 3, panel.name


def test_a_gene_lights_up_again_on_demand(visitor):
    """The last step stands; a replay shows all, and the slider one."""
    visitor.page.add_init_script(_NOTE_STEPS)
    visitor.open("/")
    visitor.drawn()
    assert visitor.page.evaluate("steps") == ["9,000"]
    visitor.page.get_by_role("button", name="Watch it learn").click()
    visitor.until("steps.length >= 4")
    assert visitor.page.evaluate("steps") == ["9,000", "0", "25", "9,000"]
    rail = visitor.page.locator(".slider-rail-touch-rect")
    rail.scroll_into_view_if_needed()
    box = rail.bounding_box()
    visitor.page.mouse.click(box["x"] + 3, box["y"] + box["height"] / 2)
    visitor.until("steps.at(-1) === '0'")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("Y2* of abc", "/variant?input=Y2", id="protein change"),
        *(
            pytest.param(text, f"/{path}", id=name, marks=pytest.mark.nightly)
            for name, text, path in [
                ("row of a VCF", "c1\t116\trs1\tC\tA", "variant?input=c1"),
                ("gene", "abc", "gene?input=abc"),
                ("region", "C1:1-90", "gene?input=C1"),
                ("bases", "ACGTTGCATTAGCATGACGTTGCA", "gene?input=ACGT"),
                ("FASTA", ">mine\nACGTTGCATTAGCATGACGTTGCA", "gene?input=%3Emine"),
                ("GenBank", genbank_record(), "gene?input=LOCUS"),
            ]
        ),
    ],
)
def test_a_paste_of_each_kind_leads_to_its_page(visitor, text, path):
    visitor.open("/")
    visitor.page.locator("#input textarea").fill(text)
    visitor.page.get_by_role("button", name="Go", exact=True).click()
    visitor.page.wait_for_url(lambda url: url.startswith(visitor.address + path))
    visitor.leaving.clear()
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


def test_a_variant_has_one_delta_and_travels(visitor):
    """Headline, table, strip and heat map agree, at other settings too; the gene goes along."""
    for state in ("", "&strands=forward&window_bp=96"):
        visitor.open(f"/variant?input=Y7%2A+of+ABC{state}")
        visitor.drawn()
        facts = visitor.page.locator("#view-verdict dl").inner_text()
        delta = float(re.search(r"([+-]\d+\.\d+) nats", facts)[1])
        row = visitor.page.locator("#view-alleles tr", has_text="Y7*").locator("td.number")
        assert float(row.inner_text()) == delta
        heat, alts, places, mark = visitor.page.evaluate(_DELTAS)
        variant = Variant.parse(re.search(r"c1:\d+ \w>\w", facts)[0])
        cell = heat[alts.index(variant.alt)][places.index(variant.position + 1)]
        assert round(mark, 2) == round(cell, 2) == delta
        words = visitor.page.locator("#view-verdict .verdict").inner_text()
        assert (
            ("less likely" in words) == (delta < 0) or "as likely" in words or "disagree" in words
        )
        assert ("forward only" in facts) == bool(state)
    link = visitor.page.locator("nav.pages a", has_text="Two models").or_(
        visitor.page.locator("nav.pages a", has_text="Predict")
    )
    assert "input=Y7" in link.first.get_attribute("href")


def test_a_state_is_shared(visitor):
    visitor.open("/variant?input=Y7%2A+of+ABC")
    visitor.page.locator("#share summary").click()
    link = visitor.page.locator("#share input").input_value()
    assert link == visitor.page.url
    picture = visitor.page.locator("#share img")
    visitor.until("document.querySelector('#share img').naturalWidth === 1200")
    assert "Y7* of ABC" in visitor.page.locator("#share figcaption").inner_text()
    visitor.page.goto(link)
    preview = visitor.page.locator("meta[property='og:image']").get_attribute("content")
    assert preview.endswith(picture.get_attribute("src") or "")
    assert visitor.page.title() == "Y7* of ABC · Carbon"


def test_on_a_phone_the_input_comes_first_and_the_navigation_is_one_row(phone):
    phone.open("/variant")
    phone.drawn()
    phone.is_dark()
    tops = phone.page.evaluate("""["nav.pages", "#input", "button.primary", "#view-verdict"].map(
      (name) => document.querySelector(name).getBoundingClientRect().top)""")
    assert tops == sorted(tops)
    links = phone.page.evaluate("""[...document.querySelectorAll("nav.pages a")].map(
      (link) => Math.round(link.getBoundingClientRect().top))""")
    assert len(links) >= 2 and len(set(links)) == 1
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    phone.page.locator("#input textarea").fill("nowhere")
    phone.page.get_by_role("button", name="Score", exact=True).click()
    phone.page.get_by_role("alert").wait_for()
    phone.until("""(() => {
      const { top, bottom } = document.querySelector("#status").getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight;
    })()""")


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

"""The demo as a visitor meets it."""

import json

import pytest
from playwright.sync_api import expect

from carbon.adapt.config import WayConfig
from carbon.adapt.loading import write_adapted
from carbon.tokenizer import K
from demo.app import make_panels
from tests.helpers.adapt import NUMBERS, adapted_of
from tests.helpers.files import random_bases, write_fasta, write_vcf

PAGES = {
    "primer": "/", "generate": "/generate", "read": "/read", "variant": "/variant",
    "token": "/token", "tokenizer": "/tokenizer", "embeddings": "/embeddings",
    "design": "/design", "compare": "/compare",
}  # fmt: skip
HOSTILE = "<img src=x onerror=window.hacked=1>"


def luminance(color):
    red, green, blue = (int(part) for part in color[4:-1].split(",")[:3])
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


@pytest.mark.parametrize("name", PAGES)
def test_a_page_answers_its_example_at_once(visitor, name):
    visitor.open(PAGES[name])
    if name != "tokenizer":
        visitor.drawn()
    visitor.keep(f"{name}-1400")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 1400


@pytest.mark.parametrize("name", PAGES)
def test_a_page_on_a_phone_in_the_dark(phone, name):
    phone.open(PAGES[name])
    if name != "tokenizer":
        phone.drawn()
    phone.keep(f"{name}-390-dark")
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    body = phone.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert luminance(body) < 0.2
    if name != "tokenizer":
        ink = phone.page.locator(".js-plotly-plot text").first.evaluate(
            "e => getComputedStyle(e).fill"
        )
        assert luminance(ink) > 0.6


@pytest.mark.parametrize("name", PAGES)
def test_every_example_of_a_page_works(visitor, lab, name):
    (panel,) = [panel for panel in make_panels(lab) if panel.name == name]
    for example in panel.examples():
        visitor.open(panel.link(example.values))


def test_a_gene_lights_up_by_itself_and_by_the_slider(visitor):
    """Steps play once, the last stays, and one that is chosen stands still."""
    shown = "(document.querySelector('.js-plotly-plot')?.layout?.title?.text ?? '')"
    visitor.page.goto(visitor.address)
    for step in ("0", "25", "9,000"):
        visitor.page.wait_for_function(f"{shown}.includes('Step {step}<')")
    visitor.page.wait_for_timeout(1500)
    assert "Step 9,000" in visitor.page.evaluate(shown)
    rail = visitor.page.locator(".slider-rail-touch-rect")
    rail.scroll_into_view_if_needed()
    box = rail.bounding_box()
    visitor.page.mouse.click(box["x"] + 3, box["y"] + box["height"] / 2)
    visitor.page.wait_for_function(f"{shown}.includes('Step 0<')")
    visitor.open("/?step=25")
    visitor.page.wait_for_timeout(1500)
    assert "Step 25<" in visitor.page.evaluate(shown)
    visitor.page.locator(".updatemenu-button").click()
    visitor.page.wait_for_function(f"{shown}.includes('Step 9,000<')")


def test_a_sequence_travels_and_goes_on_to_another_page(visitor):
    visitor.open("/")
    strands, splicing = (visitor.page.locator(f"#view-{name}") for name in ("strands", "splicing"))
    strands.get_by_text("the first 66 coding bases of ABC").wait_for()
    marked = visitor.page.wait_for_function(
        "[...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => plot.data || [])"
        ".find(trace => trace.name == 'the bases that travel')?.x"
    ).json_value()
    assert marked == [110.5, 176.5, None]
    visitor.field("Or a sequence of your own").fill("ACGTTGCATTAGCATGACGTTGCA")
    visitor.press("Show")
    strands.get_by_text("your own, of 24 bases. The gene ABC stands beside it.").wait_for()
    splicing.get_by_text("without a cut").wait_for()
    visitor.keep("primer-own-1400")
    visitor.page.get_by_role("link", name="Let the model write on").click()
    visitor.page.wait_for_url("**/generate?prompt=ACGTTGCATTAGCATGAC")


def test_bases_stream_in_and_tell_what_the_model_thought(visitor):
    visitor.open("/generate?prompt=ATGGCC&length_bp=60")
    bases = visitor.page.locator(".strip .base")
    assert bases.count() == 66
    bases.nth(10).hover()
    told = visitor.page.locator(".tip").inner_text()
    assert told.startswith("base 11: ") and told.count("%") == 4
    visitor.page.locator(".strip").focus()
    visitor.page.keyboard.press("ArrowRight")
    assert visitor.page.locator(".tip").inner_text().startswith("base 12: ")


def test_continue_takes_the_bases_into_the_prompt(visitor):
    visitor.open("/generate?prompt=ATGGCC&length_bp=30")
    first = visitor.page.locator(".strip").inner_text()
    visitor.press("Continue")
    visitor.page.wait_for_function("document.querySelectorAll('.strip .base').length == 66")
    assert visitor.page.locator(".strip").inner_text().startswith(first)
    assert visitor.field("Prompt").input_value() == first


def test_the_fasta_is_downloaded(visitor):
    visitor.open("/generate?length_bp=30")
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("link", name="Download generated.fa").click()
    header, *bases = download.value.path().read_text().splitlines()
    assert header.startswith(">generated model=") and "length_bp=30" in header
    assert visitor.page.locator(".strip").inner_text().endswith("".join(bases))


def test_the_address_holds_the_state(visitor, chromium, address):
    visitor.open("/generate")
    visitor.field("Prompt").fill("CCCTTTAAA")
    visitor.press("Generate")
    visitor.page.wait_for_function("location.search.includes('CCCTTTAAA')")
    link = visitor.page.url.removeprefix(address)
    shown = visitor.page.locator(".strip").inner_text()
    visitor.open("/read")
    visitor.open(link)
    assert visitor.field("Prompt").input_value() == "CCCTTTAAA"
    assert visitor.page.locator(".strip").inner_text() == shown


def test_an_impossible_link_is_told(visitor):
    visitor.page.goto(visitor.address + "/generate?length_bp=many")
    visitor.page.get_by_role("alert").get_by_text("'many' is not a number").wait_for()
    visitor.press("Generate")


def test_errors_are_sentences_and_the_page_goes_on(visitor):
    visitor.open("/read")
    visitor.field("Gene or region").fill("c1:5000-6000")
    visitor.page.get_by_role("button", name="Read", exact=True).click()
    visitor.page.get_by_role("alert").get_by_text("the contig has bases 1 to 1400").wait_for()
    visitor.keep("error-1400")
    visitor.field("Gene or region").fill("c1:50-100")
    visitor.press("Read")


def test_enter_answers_and_a_wrong_letter_is_marked(visitor):
    visitor.open("/variant")
    variant = visitor.field("Variant")
    variant.fill("c1:114 Q>T")
    variant.press("Enter")
    mark = visitor.page.locator("#status mark")
    mark.wait_for()
    assert mark.inner_text() == "Q"
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


def test_a_near_name_is_a_click_away_and_back_is_one_too(visitor):
    visitor.open("/read")
    visitor.page.evaluate("window.stayed = true")
    place = visitor.field("Gene or region")
    place.fill("ABD")
    place.press("Enter")
    visitor.page.locator("#status a", has_text="ABC").click()
    visitor.answered()
    assert place.input_value() == "ABC"
    place.fill("c1:50-100")
    visitor.press("Read")
    visitor.page.wait_for_url("**/read?place=c1*")
    links = visitor.page.locator("textarea, input").evaluate_all("all => all.map(e => e.value)")
    assert visitor.page.url in links
    visitor.page.go_back()
    visitor.page.wait_for_function("!location.search.includes('c1')")
    visitor.page.wait_for_function(
        "[...document.querySelectorAll('textarea, input')].some(e => e.value === 'ABC')"
    )
    visitor.answered()
    assert visitor.page.evaluate("window.stayed")
    assert visitor.page.title() == "Read a sequence · Carbon"


def test_zoom_and_token_grid(visitor):
    visitor.open("/read?place=c1:1-1200&grid=True&start_bp=100&width_bp=60")
    visitor.drawn()
    left, right = visitor.page.evaluate(
        "document.querySelector('.js-plotly-plot').layout.xaxis.range"
    )
    letters = "document.querySelector('.js-plotly-plot').data.some(t => t.name === 'the bases')"
    assert visitor.page.evaluate(letters)
    assert (left, right) == (100.5, 160.5)
    shapes = visitor.page.evaluate(
        "document.querySelector('.js-plotly-plot').layout.shapes.map(s => s.x0)"
    )
    assert shapes and all((x - 0.5) % K == 0 for x in shapes)
    box = visitor.page.locator(".nsewdrag").first.bounding_box()
    visitor.page.mouse.move(box["x"] + 50, box["y"] + 50)
    visitor.page.mouse.down()
    visitor.page.mouse.move(box["x"] + 200, box["y"] + 50, steps=5)
    visitor.page.mouse.up()
    visitor.page.wait_for_timeout(300)
    nearer = visitor.page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.range")
    assert nearer[1] - nearer[0] < right - left
    visitor.page.wait_for_function("!location.search.includes('start_bp=100&width_bp=60')")
    start_bp = int(visitor.page.url.partition("start_bp=")[2].partition("&")[0])
    assert start_bp == pytest.approx(nearer[0] - 0.5, abs=1)
    visitor.page.go_back()
    visitor.page.wait_for_function("location.search.includes('start_bp=100&width_bp=60')")


def test_names_are_offered_as_they_are_typed(visitor):
    visitor.open("/read?place=c1:50-100")
    place = visitor.field("Gene or region")
    place.fill("AB")
    visitor.page.get_by_role("option", name="ABC").click()
    visitor.page.wait_for_function("!location.search.includes('c1')")
    visitor.answered()
    assert place.input_value() == "ABC"


def test_a_pasted_genome(visitor):
    visitor.open("/read")
    visitor.page.get_by_role("button", name="More settings").click()
    visitor.field("Or paste one").fill(">own\n" + random_bases(300, seed=3))
    visitor.press("Read")
    visitor.page.locator("#view-facts").get_by_text("own:1-300").wait_for()


def test_proteins_of_open_frames_and_a_growing_track(visitor):
    visitor.open("/generate?prompt=ATGGCC&length_bp=600&no_stop_frame=0")
    visitor.drawn()
    visitor.page.locator("#view-frames td", has_text="MA").first.wait_for()
    visitor.keep("generate-600-1400")
    range_ = visitor.page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.range")
    assert range_ == [0.5, 606.5]


def test_a_click_on_the_heat_map_asks_for_that_variant(visitor):
    visitor.open("/variant")
    before = visitor.field("Variant").input_value()
    axis = visitor.page.wait_for_function(
        "[...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => plot.data || [])"
        ".find(trace => trace.type == 'heatmap')?.yaxis"
    ).json_value()
    map_ = visitor.page.locator(f".nsewdrag[data-subplot=x{axis}]").last
    box = map_.bounding_box()
    # Two places, for the first may be the reference's own base, which is no variant.
    for share in (0.13, 0.37):
        map_.click(position={"x": box["width"] * share, "y": box["height"] * share}, force=True)
        visitor.page.wait_for_timeout(1500)
    expect(visitor.field("Variant")).not_to_have_value(before, timeout=180_000)


def test_a_cancelled_job(visitor, tmp_path):
    """Many variants are stopped half-way, and the next question is answered."""
    bases = random_bases(1400, seed=1)
    records = [f"c1\t{n}\t.\t{bases[n - 1]}\t{'A' if bases[n - 1] != 'A' else 'C'}\t.\t.\t."
               for n in range(100, 300)]  # fmt: skip
    fasta = write_fasta(tmp_path / "many.fa", {"c1": bases})
    vcf = write_vcf(tmp_path / "many.vcf", records, "##contig=<ID=c1,length=1400>\n")
    visitor.open("/variant")
    visitor.field("Variant").fill("")
    visitor.page.get_by_role("button", name="More settings").click()
    files = visitor.page.locator("input[type=file]")
    for place, path in zip(range(2), (vcf, fasta), strict=True):
        files.nth(place).set_input_files(path)
        visitor.page.get_by_text(path.name.rpartition(".")[0]).first.wait_for()
    visitor.page.wait_for_timeout(500)
    visitor.page.get_by_role("button", name="Score", exact=True).click()
    visitor.page.locator("#status progress").wait_for()
    visitor.keep("progress-1400")
    visitor.page.get_by_role("button", name="Stop", exact=True).click()
    visitor.page.locator("#status").get_by_text("Stopped.").wait_for()
    visitor.page.wait_for_timeout(1000)
    assert visitor.status() == "Stopped."
    # Gradio may think that something failed, and says so in a layer that nobody sees.
    layer = visitor.page.locator("#status [data-testid=status-tracker]")
    assert layer.evaluate("layer => getComputedStyle(layer).display") == "none"
    visitor.open("/variant")


def test_hostile_names_are_shown_and_not_run(visitor, tmp_path):
    path = tmp_path / "<img src=x onerror=window.hacked=2>.fa"
    names = [f"{HOSTILE.replace(' ', '/')}{n} {HOSTILE}" for n in range(5)]
    write_fasta(path, {name: random_bases(90, seed=n) for n, name in enumerate(names)})
    visitor.open("/embeddings")
    visitor.page.locator("input[type=file]").first.set_input_files(path)
    visitor.page.wait_for_timeout(1000)
    visitor.press("Draw the map")
    visitor.page.get_by_text("onerror").first.wait_for()
    visitor.keep("hostile-1400")
    assert visitor.page.evaluate("window.hacked") is None
    assert visitor.page.locator("img[src=x]").count() == 0


def test_by_keyboard_alone(visitor):
    """From the top of the page to a field, and on to the button, without a mouse."""
    visitor.open("/tokenizer")
    for _ in range(40):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate("document.activeElement.tagName") == "TEXTAREA":
            break
    visitor.page.keyboard.press("Control+A")
    visitor.page.keyboard.type("GGGGGGTTTTTT")
    for _ in range(40):
        visitor.page.keyboard.press("Tab")
        focused = visitor.page.evaluate("document.activeElement.textContent.trim()")
        if focused == make_button(visitor):
            break
    outline = visitor.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_function("location.search.includes('GGGGGGTTTTTT')")


def make_button(visitor):
    return visitor.page.locator("button.primary").first.inner_text().strip()


def test_the_code_is_shown(visitor):
    visitor.open("/generate?length_bp=30")
    visitor.page.get_by_role("button", name="Show the code").click()
    visitor.page.get_by_text("carbon generate --model").first.wait_for()
    visitor.page.get_by_text("import carbon").first.wait_for()


def test_a_run_is_drawn_while_it_trains(visitor, lab):
    run = lab.runs / "a_run"
    run.mkdir()
    (run / "config.toml").write_text('[[stages]]\nname = "ce"\ntokens = 6400\n')
    line = {
        "tokens": 64,
        "stage": "ce",
        "objective": "ce",
        "loss": 8.0,
        "nats_per_base": 1.4,
        "learning_rate": 0.1,
        "gradient_norm": 1.0,
        "tokens_per_second": 10.0,
        "mfu": 0.1,
    }
    metrics = run / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(line | {"step": n}) + "\n" for n in range(1, 6)))
    visitor.open("/training")
    visitor.page.get_by_text("a_run").first.wait_for()
    with metrics.open("a") as sink:
        objective = {"objective": "fns", "loss": 1.3}
        for n in range(6, 12):
            sink.write(json.dumps(line | objective | {"step": n}) + "\n")
    visitor.page.locator("#view-facts").get_by_text("11", exact=True).wait_for()
    visitor.keep("training-1400")


def test_predictions_of_a_folder(visitor, lab):
    way = WayConfig(name="full", dropout=0.0)
    adapted, opened = adapted_of(lab.runs / "model", NUMBERS, way)
    folder = lab.runs / "activity"
    folder.mkdir()
    write_adapted(folder, adapted.network, opened, adapted.manifest)
    visitor.open("/predict")
    visitor.drawn()
    assert visitor.page.locator("#view-tables tbody tr").count() == 2
    visitor.field("Sequences").fill(">mine\nACGTTGCATTAGCATGACGT")
    visitor.press("Predict")
    (row,) = visitor.page.locator("#view-tables tbody tr").all()
    assert row.inner_text().startswith("mine")
    (panel,) = [panel for panel in make_panels(lab) if panel.name == "predict"]
    visitor.open(panel.link(panel.examples()[-1].values))
    assert visitor.page.locator("#view-facts tbody tr").count() == 2
    visitor.drawn()
    visitor.keep("predict-1400")


def test_the_page_for_programs(visitor, lab):
    visitor.page.goto(visitor.address + "/api")
    visitor.keep("api-1400")
    assert visitor.page.get_by_role("heading", level=2).count() == len(make_panels(lab))

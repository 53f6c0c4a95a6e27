"""The demo from outside: endpoints, limits, and what an attacker would try."""

import gc
import gzip
import json
import platform
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from gradio.state_holder import SessionState
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from carbon.errors import UserError
from demo.__main__ import main
from demo.app import make_panels
from demo.fields import Field, link_to
from demo.limits import Limits
from demo.preview import Card
from tests.helpers.demo import allow_other, answered, make_lab, page_of, panel_of, values_of
from tests.helpers.files import write_fasta
from tests.helpers.server import asked, served

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lab(model, tmp_path_factory):
    lab = make_lab(tmp_path_factory.mktemp("lab"), model)
    allow_other(lab)
    return lab


@pytest.fixture(scope="module")
def address(lab):
    with served(lab) as found:
        yield found


@pytest.fixture(scope="module")
def client(address):
    return Client(address, verbose=False, httpx_kwargs={"timeout": 120})


def data_of(panel, **given):
    return [given.get(field.name, field.default) for field in panel.fields]


def approximately(answer):
    """Return nested numbers for a comparison to the last bits that JSON and threads may move."""
    if isinstance(answer, dict):
        return {key: approximately(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [approximately(value) for value in answer]
    return pytest.approx(answer, rel=1e-5, abs=1e-6) if isinstance(answer, float) else answer


def test_port_0_is_any_free_port(lab, monkeypatch, capsys):
    answers = []

    def ask(app):
        answers.append(requests.get(app.local_url))
        app.close()

    monkeypatch.setattr("gradio.Blocks.block_thread", ask)
    given = {"model": "model", "genome": "genome.fa", "annotation": "genes.gff3"}
    files = [word for key, name in given.items() for word in (f"--{key}", str(lab.runs / name))]
    assert main([*files, "--port", "0"]) == 0
    assert answers[0].ok and answers[0].url in capsys.readouterr().err


THREADS_THAT_ALLOCATE = """
import ctypes, threading
from demo.__main__ import share_heap
{call}
libc, all_there = ctypes.CDLL(None), threading.Barrier(6)
libc.malloc.restype = ctypes.c_void_p
def allocate():
    all_there.wait()
    libc.malloc(1000)
    all_there.wait()
threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.parametrize(("call", "has_one"), [("share_heap()", True), ("", False)])
def test_all_threads_share_one_heap(call, has_one):
    program = THREADS_THAT_ALLOCATE.format(call=call)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, text=True, stderr=subprocess.PIPE, cwd=ROOT)
    assert (done.stderr.count("Arena ") == 1) == has_one


def test_every_panel_is_an_endpoint_and_there_are_no_others(lab, client, address):
    panels = make_panels(lab)
    found = set(client.view_api(return_format="dict")["named_endpoints"])
    assert found == {f"/{panel.name}" for panel in panels}
    told = requests.get(f"{address}/api").text
    assert all(f"<td>{field.name}</td>" in told for panel in panels for field in panel.fields)
    given = {"input": "ATGGCC", "length_bp": 36}
    expected = json.loads(json.dumps(answered(panel_of(lab, "write"), given)))
    assert client.predict(**given, api_name="/write") == approximately(expected)
    with pytest.raises(AppError, match=r"'nowhere': is not in genes\.gff3"):
        client.predict(input="nowhere", api_name="/gene")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("gene", {"phases": 5}),
        ("gene", {"phases": ["0"], "genome": "x.fa"}),
        ("inside", {"run": "no run"}),
        ("write", {"base_model": "/etc"}),
        ("write", None),
    ],
)
def test_values_that_fit_no_field_are_said_to(lab, address, caplog, capfd, name, given):
    data = [] if given is None else data_of(panel_of(lab, name), **given)
    kind, told = asked(address, name, data)
    assert kind == "error" and ("field" in told["error"] or "list of choices" in told["error"])
    assert "Traceback" not in str(told) + caplog.text + "".join(capfd.readouterr())


def test_an_uploaded_genome_is_read_and_a_program_is_not(client, tmp_path):
    fasta = write_fasta(tmp_path / "mine.fa", {"z": "ACGT" * 50})
    read = client.predict(input="z:1-12", genome=[handle_file(str(fasta))], api_name="/gene")
    assert (read["region"], read["bases"]) == ("z:1-12", "ACGT" * 3)
    script = tmp_path / "run.py"
    script.write_text("raise SystemExit('this was run')\n")
    with pytest.raises(AppError):
        client.predict(genome=[handle_file(str(script))], api_name="/gene")


def test_no_file_outside_the_uploads_is_read(lab, address, tmp_path):
    secret = write_fasta(tmp_path / "secret.fa", {"z": "ACGT" * 50})
    for route in ("file=", "file/"):
        for path in (secret, "/etc/passwd", "../../../../etc/passwd"):
            answer = requests.get(f"{address}/gradio_api/{route}{path}")
            assert answer.status_code in (403, 404) and "root:" not in answer.text
    panel = panel_of(lab, "gene")
    for files in (None, [{"path": str(secret), "meta": {"_type": "gradio.FileData"}}]):
        place = "z:1-12" if files else "c1:1-12"
        kind, told = asked(address, "gene", data_of(panel, input=place, genome=files))
        assert (kind == "error") == bool(files) and "ACGTACGTACGT" not in str(told)


def test_bodies_uploads_questions_and_sessions_are_bounded(lab, monkeypatch):
    """A session holds what was asked and answered, whether its visitor is still there or not."""

    def kept():
        return sum(type(item) is SessionState for item in gc.get_objects())

    monkeypatch.setattr("demo.app._SESSIONS", 5)
    limits = Limits(8, 2, upload_bytes=1000, clock=lambda: 0.0)
    before = kept()
    with served(lab, limits) as small:
        call, upload = (f"{small}/gradio_api/{path}" for path in ("call/start", "upload"))
        assert requests.post(call, json={"data": ["A" * 2**20]}).status_code == 413
        assert requests.post(call, data=iter([b'{"data":[]}'])).status_code == 413  # no length
        many = [("files", (f"{n}.fa", b"A" * 1000)) for n in range(100)]
        refused = requests.post(upload, files=[("files", ("g.fa", b"A" * 20_000_000))])
        assert refused.status_code == 413
        assert refused.json()["detail"].startswith("the upload has 19.1 MB, and a file has at most")
        large = {"files": ("large.fa", b"A" * 1001)}
        refused = requests.post(upload, files=large)
        assert refused.status_code == 413 and "exceeded maximum allowed size" in refused.text
        codes = [requests.post(upload, files=many[:4]).status_code for _ in range(2)]
        assert codes == [200, 429]  # the second and the third of this minute
        question = data_of(panel_of(lab, "inside"), input="ACGTTGCATTAG")
        answers = [asked(small, "inside", question) for _ in range(9)]
        assert [kind for kind, _ in answers] == ["complete"] * 8 + ["error"]
        assert "8 questions a minute" in answers[-1][1]["error"]
        assert kept() - before <= 6


def test_what_the_browser_is_told(lab, address):
    headers = requests.get(address).headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    for panel in make_panels(lab):
        text = requests.get(address + panel.path).text
        assert f"<title>{panel.title} · Carbon</title>" in text
        assert text.count("<title>") == 1
        assert text.count('property="og:title"') == text.count('property="og:image"') == 1
    picture = text.partition('property="og:image" content="')[2].partition('"')[0]
    assert picture.startswith(address) and requests.get(picture).content[1:4] == b"PNG"
    assert b"<svg" in requests.get(f"{address}/favicon.ico").content
    host = {"Host": 'x"><script>alert(1)</script>'}
    assert "<script>alert" not in requests.get(address + "/gene", headers=host).text


def test_an_unknown_address_leads_to_the_first_page(address):
    page = requests.get(f"{address}/<b>x", headers={"Accept": "text/html"})
    assert page.status_code == 404 and 'href="/"' in page.text and "<b>x" not in page.text
    assert requests.get(f"{address}/nothing").json() == {"detail": "Not Found"}


def test_own_assets_of_a_page_are_few_and_light(address):
    """At most 10 requests and 1 MB: two scripts, the names of genes, style and icon."""
    headers = {"Accept-Encoding": "gzip"}
    script = requests.get(f"{address}/carbon/plotly.js", headers=headers, stream=True).raw.read()
    own = requests.get(f"{address}/carbon/assets/demo.js").content
    genes = requests.get(f"{address}/carbon/genes.json").content
    assert json.loads(genes) == ["ABC"]
    assert len(script) + len(own) + len(genes) < 600_000
    plain = requests.get(f"{address}/carbon/plotly.js", headers={"Accept-Encoding": "identity"})
    assert gzip.decompress(script) == plain.content


def test_calls_of_the_last_minute_are_counted_by_address_and_kind():
    now = [0.0]
    limits = Limits(calls_per_minute=2, clock=lambda: now[0])
    for moment in (0, 10):
        now[0] = moment
        limits.admit("a")
    now[0] = 59.0
    limits.admit("b")
    limits.admit("a", "uploads")
    with pytest.raises(UserError, match="again in 1 s"):
        limits.admit("a")
    now[0] = 60.0
    limits.admit("a")
    with pytest.raises(UserError, match="again in 10 s"):
        limits.admit("a")


def test_an_answer_that_takes_too_long_is_broken_off():
    """Waiting between its items takes no time of it."""
    now = [0.0]
    limits = Limits(seconds_per_call=5, clock=lambda: now[0])

    def slow():
        for n in range(100):
            now[0] += 2
            yield n

    found = []
    with pytest.raises(UserError, match="more than 5 s"):
        for item in limits.timed(slow()):
            found.append(item)
            now[0] += 3
    assert found == [0, 1]


def asks_of(visitors):
    """Return for each visitor a question of another seed, by turns of either model."""
    return [
        {"seed": n, "length_bp": 36, "base_model": ("model", "other")[n % 2]}
        for n in range(visitors)
    ]


def visits(room, panel, visitors):
    """Let visitors ask at once; return the bases that they get."""

    def visit(given):
        kind, answer = asked(room, "write", data_of(panel, **given))
        assert kind == "complete", answer
        return answer[0]["bases"]

    with ThreadPoolExecutor(visitors) as pool:
        return list(pool.map(visit, asks_of(visitors)))


def expected_of(panel, visitors):
    return [
        answered(panel.with_model(given["base_model"]), given)["bases"]
        for given in asks_of(visitors)
    ]


def test_visitors_who_ask_at_once_each_get_their_own(lab, address):
    panel = panel_of(lab, "write")
    found = visits(address, panel, 6)
    assert found == expected_of(panel, 6) and len(set(found)) == 6


@pytest.mark.nightly
def test_a_class_behind_one_address_at_once(lab):
    """All are answered under the limits as they are, and memory comes back."""

    def peak_mib():
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    panel = panel_of(lab, "write")
    with served(lab, Limits()) as room:
        found = visits(room, panel, 30)
        first_mib = peak_mib()
        for _ in range(2):
            assert visits(room, panel, 30) == found
    assert found == expected_of(panel, 30)
    assert peak_mib() - first_mib < 100  # two rounds more keep nothing of a round's size


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("integer", "x", "is not a number"),
        ("integer", 1.5, "whole number"),
        ("number", "nan", "out of range"),
        ("integer", 201, "give 0 to 200$"),
        ("choice", "no such run of all", "there is no 'no such run of all'; give"),
        ("choices", ["a", "c"], "give one of a, b"),
        ("text", "A" * 201, "200 at most"),
        ("files", ["x.exe"], "end in"),
        ("files", ["x.a"] * 5, "4 at most"),
    ],
)
def test_values_that_are_not_possible(kind, value, message):
    endings = (".a", ".b") if kind == "files" else ("a", "b")
    field = Field("f", "F", "a", kind, endings, most=200)
    with pytest.raises(UserError, match=message):
        field.checked(value)


def test_a_link_leaves_out_what_is_as_it_was():
    fields = (Field("a", "A", "x"), Field("b", "B", ["0"], "choices", ("0", "1")))
    assert link_to("/p", fields, {"a": "x", "b": ["0"]}) == "/p"
    assert link_to("/p", fields, {"a": "ü&", "b": []}) == "/p?a=%C3%BC%26&b="


def test_an_upload_is_named_by_its_name_alone(lab, tmp_path):
    fasta = write_fasta(tmp_path / "mine.fa", {"z": "ACGT" * 50})
    genes = tmp_path / "a" / "genes.bed"  # before the FASTA in the order of paths
    genes.parent.mkdir()
    genes.write_text("z\t0\t9\tg\t0\t+\n")
    both = lab.genome_of([str(genes), str(fasta)])
    assert both.shown_files == ("mine.fa", "genes.bed")  # the reference of the shown program
    broken = tmp_path / "broken.fa"
    broken.write_text(">z\nMKV*\n")
    with pytest.raises(UserError) as raised:
        lab.genome_of([str(broken)])
    assert "broken.fa" in str(raised.value) and str(tmp_path) not in str(raised.value)
    page = page_of(panel_of(lab, "gene"))
    data = data_of(page.panel, input="nowhere", genome=[str(fasta), str(genes)])
    answers = page._ask(SimpleNamespace(client=None), *data)
    busy, *_, status = (updates[page.status] for updates in answers)
    assert "<progress>" in busy and "<progress>" not in status
    assert "genes.bed" in status and str(tmp_path) not in status


def shared_by(page, data):
    """Return the box of a page's answer that tells how to share it."""
    *_, last = page._ask(SimpleNamespace(client=None), *data)
    return last[page.share]


def test_a_shared_state_has_the_preview_of_its_answer(lab):
    panel = panel_of(lab, "variant")
    page = page_of(panel, previews={"/variant": Card("Variant", "How likely.")})
    given = {"input": "Y2* of ABC", "map_bp": 6}
    link, previews = panel.link(given), page.shell.previews
    assert previews.card_of(link).title == "Variant"
    box = shared_by(page, data_of(panel, **given))
    card = previews.card_of(link)
    assert card.title == "Y2* of ABC" and card.sentence.startswith("To the model, ")
    assert len(card.heights) == 6
    assert "Y2* of ABC" in box and "/carbon/card.png?state=%2Fvariant%3Finput" in box
    assert previews.card_of("/nowhere") is None


def test_an_upload_never_becomes_the_preview_of_others(lab, tmp_path):
    panel = panel_of(lab, "gene")
    page = page_of(panel, previews={"/gene": Card("Gene", "Read.")})
    fasta = write_fasta(tmp_path / "mine.fa", {"secret": "ACGT" * 20})
    given = {"genome": [str(fasta)], "phases": ["0"]}
    box = shared_by(page, data_of(panel, **given))
    assert page.shell.previews.card_of(panel.path).title == "Gene"
    assert "<b>Gene</b>" in box and "secret" not in box
    values = values_of(panel, **given)
    assert panel.card(values, answered(panel, {**values})).title.startswith("secret:1-80: ")

"""The demo from outside: endpoints, limits, and what an attacker would try."""

import gc
import json
import resource
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from gradio.state_holder import SessionState
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from carbon.errors import UserError
from carbon.genome.opened import Genome
from demo.__main__ import main
from demo.app import make_panels
from demo.fields import Field, checked_values, link_to
from demo.lab import Lab
from demo.limits import Limits
from demo.page import _status
from tests.helpers.demo import answered, make_lab
from tests.helpers.files import write_fasta
from tests.helpers.server import served

VISITORS = 30


@pytest.fixture(scope="module")
def lab(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    run = folder / "run"
    run.mkdir()
    (run / "config.toml").write_text('output = "run"\n[[stages]]\nname = "ce"\n')
    line = {"step": 1, "tokens": 64, "stage": "ce", "objective": "ce", "loss": 8.0,
            "nats_per_base": 1.4, "learning_rate": 0.1, "gradient_norm": 1.0,
            "tokens_per_second": 10.0, "mfu": 0.1}  # fmt: skip
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return make_lab(folder, model)


@pytest.fixture(scope="module")
def address(lab):
    with served(lab) as found:
        yield found


@pytest.fixture(scope="module")
def client(address):
    return Client(address, verbose=False)


def approximately(answer):
    """Return nested numbers for a comparison to the last bits that JSON and threads may move."""
    if isinstance(answer, dict):
        return {key: approximately(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [approximately(value) for value in answer]
    return pytest.approx(answer, rel=1e-5, abs=1e-6) if isinstance(answer, float) else answer


@pytest.mark.parametrize(
    "name",
    [
        "primer",
        "generate",
        "read",
        "variant",
        "token",
        "tokenizer",
        "training",
        "embeddings",
        "compare",
    ],
)
def test_endpoints_give_what_the_panels_answer(lab, client, name):
    (panel,) = [panel for panel in make_panels(lab) if panel.name == name]
    assert json.loads(json.dumps(client.predict(api_name=f"/{name}"))) == approximately(
        json.loads(json.dumps(answered(panel, {})))
    )


def test_there_are_no_other_endpoints(lab, client):
    found = set(client.view_api(return_format="dict")["named_endpoints"])
    assert found == {f"/{panel.name}" for panel in make_panels(lab)}


def test_the_page_for_programs_names_every_parameter(lab, address):
    text = requests.get(f"{address}/api").text
    for panel in make_panels(lab):
        assert f"/{panel.name}" in text
        assert all(f"<td>{field.name}</td>" in text for field in panel.fields)


def test_errors_of_endpoints_are_sentences(client):
    with pytest.raises(AppError, match=r"gene 'nowhere': is not in genes\.gff3"):
        client.predict(place="nowhere", api_name="/read")
    with pytest.raises(AppError, match="greater than maximum value 1200"):
        client.predict(length_bp=10**9, api_name="/generate")
    with pytest.raises(AppError, match="letters; give 6,000 at most"):
        client.predict(prompt="A" * 7000, api_name="/generate")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("generate", []),
        ("primer", ["ABC", "ATGGCCAAG", None]),
        ("read", ["c1:1-60", 0, 0, 5, "forward", False, None, ""]),
        ("read", ["c1:1-60", 0, 0, ["0"], "forward", False, "x.fa", ""]),
        ("tokenizer", ["ACGT", "9"]),
    ],
)
def test_values_that_fit_no_field_are_said_to(address, caplog, capfd, name, data):
    event = requests.post(f"{address}/gradio_api/call/{name}", json={"data": data}).json()
    told = requests.get(f"{address}/gradio_api/call/{name}/{event['event_id']}").text
    error = json.loads(told.partition("data: ")[2].splitlines()[0])["error"]
    assert "field" in error or "list of choices" in error
    assert "Traceback" not in told + caplog.text + "".join(capfd.readouterr())


def test_an_uploaded_genome(client, tmp_path):
    fasta = write_fasta(tmp_path / "mine.fa", {"z": "ACGT" * 50})
    read = client.predict(place="z:1-12", genome=[handle_file(str(fasta))], api_name="/read")
    assert (read["region"], read["bases"]) == ("z:1-12", "ACGT" * 3)


def test_no_file_outside_the_uploads_is_read(lab, address, tmp_path):
    secret = write_fasta(tmp_path / "secret.fa", {"z": "ACGT" * 50})
    for route in ("file=", "file/"):
        for path in (secret, "/etc/passwd", "../../../../etc/passwd"):
            answer = requests.get(f"{address}/gradio_api/{route}{path}")
            assert answer.status_code in (403, 404) and "root:" not in answer.text
    (panel,) = [panel for panel in make_panels(lab) if panel.name == "read"]
    for asked in (None, [{"path": str(secret), "meta": {"_type": "gradio.FileData"}}]):
        given = {"place": "z:1-12" if asked else lab.example.name, "genome": asked}
        data = [given.get(field.name, field.default) for field in panel.fields]
        event = requests.post(f"{address}/gradio_api/call/read", json={"data": data}).json()
        told = requests.get(f"{address}/gradio_api/call/read/{event['event_id']}").text
        assert ("event: error" in told) == bool(asked) and "ACGTACGTACGT" not in told


def test_uploads_are_bounded_in_size_and_kind(lab, client, tmp_path):
    with served(lab, Limits(upload_bytes=1000)) as small:
        large = write_fasta(tmp_path / "large.fa", {"z": "ACGT" * 5000})
        with open(large, "rb") as source:
            answer = requests.post(f"{small}/gradio_api/upload", files={"files": source})
        assert answer.status_code == 413
    script = tmp_path / "run.py"
    script.write_text("raise SystemExit('this was run')\n")
    with pytest.raises(AppError):
        client.predict(genome=[handle_file(str(script))], api_name="/read")


def test_bodies_are_bounded(lab):
    with served(lab, Limits(uploads_per_minute=2, upload_bytes=1000)) as small:
        long = {"data": ["A" * 2**20, "2"]}
        answer = requests.post(f"{small}/gradio_api/call/tokenizer", json=long)
        assert (answer.status_code, answer.json()["detail"][-13:]) == (413, "bytes at most")
        unknown = requests.post(f"{small}/gradio_api/call/tokenizer", data=iter([b'{"data":[]}']))
        assert unknown.status_code == 413
        many = [("files", (f"{n}.fa", b"A" * 1000)) for n in range(100)]
        assert requests.post(f"{small}/gradio_api/upload", files=many).status_code == 413
        upload = [requests.post(f"{small}/gradio_api/upload", files=many[:4]) for _ in range(3)]
        assert [answer.status_code for answer in upload] == [200, 200, 429]
        assert "2 uploads a minute" in upload[-1].json()["detail"]


def asked(address, name, data):
    """Return the events that answer a question, as a program without Gradio's client gets them."""
    event = requests.post(f"{address}/gradio_api/call/{name}", json={"data": data}).json()
    return requests.get(f"{address}/gradio_api/call/{name}/{event['event_id']}").text


def test_few_sessions_are_kept(lab):
    """Each holds what was asked and answered, whether its visitor is still there or not."""

    def kept():
        return sum(type(item) is SessionState for item in gc.get_objects())

    with served(lab) as own:
        before = kept()
        for _ in range(110):
            asked(own, "tokenizer", ["ACGT", "2"])
        assert kept() - before <= 101


def test_what_the_browser_is_told(address):
    headers = requests.get(address).headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_one_address_asks_so_often_a_minute(lab):
    with served(lab, Limits(calls_per_minute=2)) as limited:
        client = Client(limited, verbose=False)
        for _ in range(2):
            client.predict(api_name="/tokenizer")
        with pytest.raises(AppError, match="2 questions a minute"):
            client.predict(api_name="/tokenizer")


def test_the_minute_goes_by():
    now = [0.0]
    limits = Limits(calls_per_minute=2, clock=lambda: now[0])
    for moment in (0, 10):
        now[0] = moment
        limits.admit("a")
    now[0] = 59.0
    limits.admit("b")
    with pytest.raises(UserError, match="again in 1 s"):
        limits.admit("a")
    now[0] = 60.0
    limits.admit("a")
    with pytest.raises(UserError, match="again in 10 s"):
        limits.admit("a")


def test_a_class_asks_forty_times_a_minute_each():
    limits = Limits(clock=lambda: 0.0)
    for _ in range(30 * 40):
        limits.admit("school")
    with pytest.raises(UserError, match="1,200 questions a minute"):
        limits.admit("school")
    limits.admit("school", "uploads")
    limits.admit("elsewhere")


def test_an_answer_that_takes_too_long_is_broken_off():
    now = [0.0]
    limits = Limits(seconds_per_call=5, clock=lambda: now[0])

    def slow():
        for n in range(100):
            now[0] += 2
            yield n

    found = []
    with pytest.raises(UserError, match="more than 5 s"):
        found.extend(limits.timed(slow()))
    found = []
    now[0] = 0.0
    with pytest.raises(UserError):
        for item in limits.timed(slow()):
            found.append(item)
    assert found == [0, 1, 2]


def test_a_class_behind_one_address_at_once(lab):
    """All are answered under the limits as they are, and memory comes back."""

    def visit(seed):
        given = {"seed": seed, "length_bp": 60}
        data = [given.get(field.name, field.default) for field in panel.fields]
        *_, last = asked(room, "generate", data).strip().split("\n\n")
        event, answer = last.splitlines()
        assert event == "event: complete", answer
        return json.loads(answer.removeprefix("data: "))[0]["bases"]

    def peak_mib():
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    (panel,) = [panel for panel in make_panels(lab) if panel.name == "generate"]
    with served(lab, Limits()) as room, ThreadPoolExecutor(VISITORS) as pool:
        found = list(pool.map(visit, range(VISITORS)))
        first_mib = peak_mib()
        for _ in range(2):
            assert list(pool.map(visit, range(VISITORS))) == found
    assert found == [
        answered(panel, {"seed": n, "length_bp": 60})["bases"] for n in range(VISITORS)
    ]
    assert len(set(found)) == VISITORS
    assert peak_mib() - first_mib < 100  # two rounds more keep nothing of a round's size


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("integer", "x", "is not a number"),
        ("integer", "nan", "out of range"),
        ("integer", 1.5, "whole number"),
        ("number", 1e9, "out of range"),
        ("integer", 201, "give 0 to 200$"),
        ("choice", "c", "give one of a, b"),
        ("choice", "no such run of all", "there is no 'no such run of all'; give"),
        ("choices", ["a", "c"], "give one of a, b"),
        ("text", "A" * 201, "200 at most"),
        ("bases", "ACX", "letter 3: 'X' is not a DNA letter"),
        ("bases", "A" * 201, "200 at most"),
        ("files", ["x.exe"], "end in"),
        ("files", ["x.a"] * 5, "4 at most"),
    ],
)
def test_values_that_are_not_possible(kind, value, message):
    endings = (".a", ".b") if kind == "files" else ("a", "b")
    field = Field("f", "F", "a", kind, endings, most=200)
    with pytest.raises(UserError, match=message):
        field.checked(value)


def test_bases_are_taken_as_they_are_typed():
    field = Field("f", "F", "", "bases")
    assert field.checked(" >mine\nacgu\nAC ") == "ACGTAC"


def test_the_bounds_of_a_number_are_digits():
    assert Field("f", "F", 0, "integer", most=1_000_000).span == "0 to 1,000,000"
    assert Field("f", "F", 1.0, "number", least=0.05, most=1.0).span == "0.05 to 1"


def test_links_restore_values(lab):
    for panel in make_panels(lab):
        for example in panel.examples():
            path, _, query = panel.link(example.values).partition("?")
            assert path == panel.path
            given = dict(requests.compat.unquote(pair).split("=", 1) for pair in query.split("&"))
            given = {key: value.replace("+", " ") for key, value in given.items()}
            assert checked_values(panel.fields, given) == checked_values(
                panel.fields, example.values
            )


def test_a_link_leaves_out_what_is_as_it_was():
    fields = (Field("a", "A", "x"), Field("b", "B", ["0"], "choices", ("0", "1")))
    assert link_to("/p", fields, {"a": "x", "b": ["0"]}) == "/p"
    assert link_to("/p", fields, {"a": "ü&", "b": []}) == "/p?a=%C3%BC%26&b="


def test_an_upload_is_named_by_its_name_alone(lab, tmp_path):
    fasta = write_fasta(tmp_path / "mine.fa", {"z": "ACGT" * 50})
    assert lab.genome_of([str(fasta)]).shown_files == ("mine.fa",)
    broken = tmp_path / "broken.fa"
    broken.write_text(">z\nMKV*\n")
    with pytest.raises(UserError) as raised:
        lab.genome_of([str(broken)])
    assert "broken.fa" in str(raised.value) and str(tmp_path) not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--annotation", "x.gff"], "give the --genome"),
        (["--model", "tests", "--genome", "none.fa"], "tests: has no config.json"),
    ],
)
def test_arguments_that_do_not_fit(words, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["demo", *words])
    assert main() == 2
    assert message in capsys.readouterr().err


def test_a_genome_without_genes_has_an_example(model, tmp_path):
    fasta = write_fasta(tmp_path / "g.fa", {"c": "ACGTTGCAAC" * 40})
    assert Lab(model, "m", Genome.open(fasta, None), tmp_path).example.name == "c:1-400"


def test_an_answer_as_fast_as_the_last_is_told_again():
    """The page redraws what has changed."""
    assert _status("0.12 s") != _status("0.12 s")

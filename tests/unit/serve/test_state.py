"""Who may ask, and what a server says of itself: token, health, counters, reference page."""

import asyncio
import re
from html import unescape

import httpx
import openai
import pytest

from carbon.errors import UserError
from carbon.serve import ServeOptions
from carbon.serve.metrics import Measured, Metrics
from carbon.serve.options import read_token
from carbon.serve.worker import ModelThread
from tests.helpers.coroutines import run_coroutine
from tests.helpers.serve import BASES, serving

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def locked(model):
    with serving(model, name="tiny", token=TOKEN) as address:
        yield address


class TestToken:
    def test_openai_s_client_sends_it_as_its_key(self, locked):
        client = openai.OpenAI(base_url=f"{locked}/v1", api_key=TOKEN, max_retries=0)
        assert client.models.list().data[0].id == "tiny"

    @pytest.mark.parametrize(
        ("value", "status"),
        [
            (f"Bearer {TOKEN}", 200), (f"bearer  {TOKEN}", 200), (TOKEN, 401), ("Bearer", 401),
            (f"Basic {TOKEN}", 401), ("Bearer \xe9", 401), (None, 401),
            (f"Bearer {TOKEN[:-1]}", 401), (f"Bearer {TOKEN}0", 401),
        ],
    )  # fmt: skip
    def test_forms_of_the_header(self, locked, value, status):
        headers = {} if value is None else {"Authorization": value.encode("latin-1")}
        answer = httpx.get(f"{locked}/v1/models", headers=headers)
        assert answer.status_code == status
        if status == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["code"] == "invalid_api_key"
            assert TOKEN not in answer.text

    def test_only_the_state_is_open(self, locked):
        paths = ("/health", "/ready", "/metrics", "/docs", "/openapi.json", "/nothing")
        statuses = [httpx.get(locked + path).status_code for path in paths]
        assert statuses == [200, 200, 401, 401, 401, 401]
        # The body of a stranger is not read.
        assert httpx.post(f"{locked}/score", content=b" " * 70_000).status_code == 401

    @pytest.mark.parametrize("text", ["", "short", "two words of a token", "\x00" * 20, "é" * 20])
    def test_a_file_without_a_token_is_refused(self, tmp_path, text):
        path = tmp_path / "token"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="token: a token has at least 16"):
            read_token(path)

    def test_options_do_not_show_it(self):
        assert TOKEN not in repr(ServeOptions(name="tiny", token=TOKEN))

    def test_a_file_has_a_token_and_blanks_around_it(self, tmp_path):
        path = tmp_path / "token"
        path.write_text(f"{TOKEN}\n")
        assert read_token(path) == TOKEN
        for text in ("", "two words of a token", "\x00" * 20, "é" * 20):
            path.write_text(text, encoding="utf-8")
            with pytest.raises(UserError, match="token: a token has at least 16"):
                read_token(path)


class TestState:
    def test_health_and_readiness(self, model, monkeypatch):
        with serving(model, name="tiny") as address:
            assert httpx.get(f"{address}/health").json() == {"status": "ok"}
            assert httpx.get(f"{address}/ready").json() == {"status": "ready"}
            monkeypatch.setattr(ModelThread, "num_waiting", 256)
            answer = httpx.get(f"{address}/ready")
            assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
            full = httpx.post(f"{address}/score", json={"sequences": ["ACGT"]})
            assert full.status_code == 503 and "--most-waiting" in full.json()["error"]["message"]
            assert httpx.get(f"{address}/health").status_code == 200

    def test_metrics_count_what_was_asked(self, model):
        with serving(model, name="tiny") as address:
            for sequences in (["ACGTAC"], [BASES[:600]]):
                httpx.post(f"{address}/score", json={"sequences": sequences})
            httpx.post(f"{address}/score", json={"sequences": ["X"]})
            httpx.get(f"{address}/../../etc/passwd")
            answer = httpx.get(f"{address}/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        values = parsed(answer.text)
        assert values['carbon_requests_total{path="/score",status="200"}'] == 2
        assert values['carbon_requests_total{path="/score",status="400"}'] == 1
        assert values['carbon_requests_total{path="other",status="404"}'] == 1
        assert values['carbon_request_seconds_count{path="/score"}'] == 3
        buckets = [
            value for name, value in values.items()
            if name.startswith('carbon_request_seconds_bucket{path="/score"')
        ]  # fmt: skip
        assert buckets == sorted(buckets) and buckets[-1] == 3
        assert 0 < values['carbon_request_seconds_sum{path="/score"}'] < 600
        assert values['carbon_tokens_total{path="/score"}'] >= 2 + 101  # `<dna>` and 6-mers
        assert values["carbon_waiting_requests"] == 0


@pytest.mark.parametrize(("raised", "status"), [(asyncio.CancelledError, 499), (RuntimeError, 500)])
def test_a_request_without_an_answer_is_counted(raised, status):
    async def app(scope, receive, send):
        raise raised

    metrics = Metrics(lambda: 0)
    measured = Measured(app, metrics, ["/score"])
    with pytest.raises(raised):
        run_coroutine(measured({"type": "http", "path": "/score"}, None, None))
    assert f'carbon_requests_total{{path="/score",status="{status}"}} 1' in metrics.to_text()


def parsed(text):
    """Return the samples of the text format of Prometheus; each has its help and its type."""
    values, described = {}, set()
    for line in text.splitlines():
        if line.startswith("# "):
            kind, name, _ = line.removeprefix("# ").split(" ", 2)
            described.add((kind, name))
            continue
        name, value = line.rsplit(" ", 1)
        assert re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"\\\n]*"(,[a-z]+="[^"\\\n]*")*\})?', name)
        family = re.sub("_(bucket|sum|count)$", "", name.partition("{")[0])
        assert {("HELP", family), ("TYPE", family)} <= described
        values[name] = float(value)
    return values


class TestReferencePage:
    def test_it_loads_nothing_and_names_every_address(self, address):
        text = httpx.get(f"{address}/docs").text
        assert "<script" not in text and "src=" not in text
        for path, methods in httpx.get(f"{address}/openapi.json").json()["paths"].items():
            for method in methods:
                assert f"{method.upper()} {path}" in text

    def test_its_commands_have_the_address_and_the_token_of_the_server(self, address, locked):
        local = f"http://localhost:{address.rpartition(':')[2]}"
        assert f"curl {local}/v1/completions --json " in httpx.get(f"{local}/docs").text
        headers = {"Authorization": f"Bearer {TOKEN}"}
        text = unescape(httpx.get(f"{locked}/docs", headers=headers).text)
        command = f"curl {locked}/v1/completions -H 'Authorization: Bearer TOKEN' --json "
        assert command in text and TOKEN not in text

    def test_its_fields_have_a_meaning_and_its_examples_are_accepted(self, address):
        document = httpx.get(f"{address}/openapi.json").json()
        for path, methods in document["paths"].items():
            if "post" not in methods:
                continue
            content = methods["post"]["requestBody"]["content"]["application/json"]
            fields = content["schema"]["properties"]
            undescribed = {name for name, field in fields.items() if "description" not in field}
            assert undescribed <= WITHOUT_EFFECT, path
            answer = httpx.post(address + path, json=content["example"], timeout=60)
            assert answer.status_code == 200, answer.text


WITHOUT_EFFECT = {
    "best_of", "frequency_penalty", "presence_penalty", "logit_bias", "stop", "suffix", "user",
    "dimensions",
}  # fmt: skip
"""Fields of OpenAI that accept only the value without an effect."""

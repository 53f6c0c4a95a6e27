"""Limits of the server: the cost of requests, their form, stalled clients, and batches."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from carbon.serve import ConnectionLimits, ServeOptions
from carbon.serve.gate import RequestGate
from carbon.serve.streams import DONE
from carbon.serve.worker import ModelThread
from tests.helpers.coroutines import run_coroutine
from tests.helpers.processes import waits_for
from tests.helpers.serve import BASES, serving

LIMITS = ConnectionLimits(most_connections=4, timeout_seconds=1, grace_seconds=0.5)


@pytest.mark.parametrize(
    ("path", "question", "message"),
    [
        ("/v1/completions", {"prompt": [""], "max_tokens": 0, "n": 10**9}, "1,000,000,000 results"),
        ("/v1/completions", {"prompt": "A", "max_tokens": 10**12}, "tokens to compute exceed"),
        ("/score", {"sequences": [""] * 41}, "41 results exceed the 40"),
        ("/score", {"sequences": ["A" * 40_000]}, "tokens to compute exceed the 5,000"),
        ("/variants", {"variants": ["c:1 A>C"] * 40}, "tokens to compute exceed the 5,000"),
    ],
)
def test_work_is_bounded_by_its_cost(ask, path, question, message):
    assert message in ask(path, 400, **question)["error"]["message"]


DIGITS = b"1" * 5000
BODIES = [
    (b'{"prompt": "\\ud800"}', "hex escape"),
    (b'{"prompt": "A\xc3\x9fC"}', "letter 2: 'ß' is not a DNA letter"),
    (b'{"prompt": "A\xff"}', "body"),
    (b'{"prompt": ' + b"[" * 9000 + b"]" * 9000 + b"}", "body"),
    (b'{"prompt": "A", "n": ' + DIGITS + b"}", "body"),
    (b'{"prompt": "A", "top_p": NaN}', "NaN and Infinity are not JSON"),
    (b'{"prompt": "A", "temperature": 1e999}', "temperature"),
    (b"[]", "body"),
    (b"", "body"),
]


@pytest.mark.parametrize(("body", "message"), BODIES)
def test_hostile_bodies_get_a_reason_in_openai_s_form(address, body, message):
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{address}/v1/completions", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert message in error["message"] and len(error["message"]) < 400
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200), ("localhost", 200), ("[::1]:1", 200), ("LAB.example", 200),
        ("evil.example", 400), ("", 400),
    ],
)  # fmt: skip
def test_names_of_other_hosts_are_refused(host, status):
    async def app(scope, receive, send):
        await JSONResponse({})(scope, receive, send)

    async def ask():
        hosts = (*ServeOptions(name="tiny").allowed_hosts, "Lab.Example")
        gate = RequestGate(app, ServeOptions(name="tiny", allowed_hosts=hosts))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate)) as client:
            return await client.get("http://localhost/health", headers={"Host": host})

    assert run_coroutine(ask()).status_code == status


def test_web_pages_of_named_origins_alone_may_ask(model):
    lab = "https://lab.example"
    preflight = {
        "Origin": lab, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }  # fmt: skip
    with serving(model, name="tiny", allowed_origins=[lab], token="a" * 16) as address:
        for origin, allowed in ((lab, lab), ("null", None)):
            answer = httpx.get(f"{address}/health", headers={"Origin": origin})
            assert answer.headers.get("access-control-allow-origin") == allowed
        answer = httpx.options(f"{address}/score", headers=preflight)
    assert answer.status_code == 200, answer.text
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"]


REQUESTS = [
    {"prompt": BASES[:40], "max_tokens": 3, "seed": 1},
    {"prompt": [BASES[:40], BASES[9:50]], "max_tokens": 3, "seed": 1, "n": 2},
    {"prompt": BASES[:41], "max_tokens": 3, "seed": 1, "top_p": None},
    {"prompt": BASES[:41], "max_tokens": 3, "seed": 1, "top_p": float("nan")},
    {"prompt": BASES[:41], "max_tokens": 3, "seed": 1, "top_p": 2.0},
    {"prompt": BASES[:41], "max_tokens": 3, "seed": 1, "temperature": float("inf")},
    {"prompt": BASES[:41], "max_tokens": 3, "seed": 1, "min_p": 0.5},
    {"prompt": "", "max_tokens": 0, "seed": 1},
]


def _answer(address, request):
    answer = httpx.post(
        f"{address}/v1/completions", content=json.dumps(request),
        headers={"Content-Type": "application/json"}, timeout=60,
    )  # fmt: skip
    told = answer.json()
    return answer.status_code, told.get("choices") or told.get("error")


@pytest.fixture(scope="module")
def alone(address):
    return [_answer(address, request) for request in REQUESTS]


@settings(max_examples=4)
@given(numbers=st.lists(st.integers(0, len(REQUESTS) - 1), min_size=3, max_size=8))
def test_a_batch_accepts_what_is_accepted_alone(address, alone, numbers):
    assert {status for status, _ in alone} == {200, 400}
    with ThreadPoolExecutor(len(numbers)) as pool:
        found = list(pool.map(lambda number: _answer(address, REQUESTS[number]), numbers))
    assert found == [alone[number] for number in numbers]


@pytest.fixture(scope="module")
def short(model):
    with serving(model, LIMITS, name="tiny") as address:
        yield "127.0.0.1", int(address.rpartition(":")[2])


def _received(connection):
    connection.settimeout(60)
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


HEAD = b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"sequences": ["ACGTAC"]}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.mark.parametrize("sent", [b"", WHOLE[:-9]])
def test_a_client_that_stalls_is_cut_off(short, sent):
    with socket.create_connection(short) as connection:
        connection.sendall(sent)
        assert _received(connection).startswith(b"HTTP/1.1 408")


def test_a_client_that_only_stops_sending_gets_its_answer(short):
    with socket.create_connection(short) as connection:
        connection.sendall(WHOLE)
        connection.shutdown(socket.SHUT_WR)
        assert b'"known_bases":6' in _received(connection)


def test_one_connection_too_many_is_refused(short):
    open_ones = [socket.create_connection(short) for _ in range(4)]
    try:
        with socket.create_connection(short) as connection:
            assert _received(connection).startswith(b"HTTP/1.1 503")
    finally:
        for each in open_ones:
            each.close()


def test_the_server_ends_though_clients_stall(model):
    """One has sent half a body, one does not read its answer."""
    with serving(model, LIMITS, name="tiny") as address:
        place = "127.0.0.1", int(address.rpartition(":")[2])
        half, unread = socket.create_connection(place), socket.create_connection(place)
        half.sendall(WHOLE[:-9])
        unread.sendall(WHOLE)
        first = time.monotonic()
    assert time.monotonic() - first < 30  # without the grace it would be for ever
    half.close()
    unread.close()


def test_requests_that_run_are_answered_before_the_server_ends(model, monkeypatch):
    question, answers, submitted = {"sequences": [BASES] * 20}, [], []
    submit = ModelThread.submit

    def noted(self, job):
        submit(self, job)
        submitted.append(job)

    def ask(is_stream):
        body = {**question, "stream": is_stream}
        answers.append(httpx.post(f"{address}/score", json=body, timeout=600))

    monkeypatch.setattr(ModelThread, "submit", noted)
    with serving(model, name="tiny") as address:
        threads = [threading.Thread(target=ask, args=(each,)) for each in (False, True)]
        for thread in threads:
            thread.start()
        waits_for(lambda: len(submitted) == 2)
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.text.count('"log_likelihood"') for answer in answers] == [20, 20]
    assert sum(answer.text.endswith(DONE) for answer in answers) == 1


def test_a_stream_that_outlasts_the_grace_is_cut_off(model):
    question = {"prompt": "ACGT", "max_tokens": 10**6, "stream": True}
    with httpx.Client() as client:
        with serving(model, LIMITS, name="tiny", most_tokens=10**9) as address:
            request = client.build_request("POST", f"{address}/v1/completions", json=question)
            lines = client.send(request, stream=True).iter_lines()
            assert next(lines).startswith("data: ")
        # The server has ended, and the stream had no end.
        with pytest.raises(httpx.RemoteProtocolError):
            assert DONE.strip() not in list(lines)


def test_a_small_question_does_not_wait_for_a_large_one(model):
    large, small = {"sequences": [BASES * 6] * 16}, {"sequences": ["ACGT"]}
    with serving(model, name="tiny", most_tokens=10**7, most_items=10**6) as address:
        thread = threading.Thread(target=httpx.post, args=(f"{address}/score",),
                                  kwargs={"json": large, "timeout": 600})  # fmt: skip
        thread.start()
        for _ in range(2):
            assert httpx.post(f"{address}/score", json=small, timeout=600).status_code == 200
        assert thread.is_alive()
        thread.join()

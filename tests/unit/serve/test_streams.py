"""Server-sent events: OpenAI's client and plain HTTP get the same results as without a stream."""

import asyncio
import json

import httpx
import openai
import pytest

from carbon.errors import UserError
from carbon.serve import streams
from carbon.serve.worker import ModelThread
from tests.helpers.processes import waits_for
from tests.helpers.serve import BASES, serving

PROMPTS = [BASES[:60], BASES[60:125], ""]


def events_of(address, path, question):
    """Return the decoded events of a stream, which ends with `[DONE]`."""
    body = {**question, "stream": True}
    with httpx.stream("POST", address + path, json=body, timeout=60) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    *events, done = [line.removeprefix("data: ") for line in lines]
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


class TestGeneration:
    def test_openai_s_client_gets_each_6_mer_when_it_is_drawn(self, address, model):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        chunks = list(
            client.completions.create(
                model="tiny", prompt=PROMPTS, max_tokens=5, temperature=0, seed=1, stream=True
            )
        )
        texts = ["", "", ""]
        for chunk in chunks:
            (choice,) = chunk.choices
            assert len(choice.text) <= 6
            texts[choice.index] += choice.text
        assert texts == model.generate(PROMPTS, 30, seed=1, temperature=0)
        ends = [c.choices[0].index for c in chunks if c.choices[0].finish_reason == "length"]
        assert sorted(ends) == [0, 1, 2]
        assert len({chunk.id for chunk in chunks}) == 1
        # 65 bases end within a 6-mer, whose last base is a chunk of its own.
        of_second = [c.choices[0].text for c in chunks if c.choices[0].index == 1]
        assert of_second[:2] == [texts[1][:1], texts[1][1:7]]

    def test_log_probabilities_come_at_the_end_of_a_choice(self, address, ask):
        question = {"prompt": PROMPTS[:2], "n": 2, "length_bp": 13, "seed": 7, "logprobs": 1}
        whole = ask("/v1/completions", **question, echo=True)
        events = events_of(address, "/v1/completions", {**question, "echo": True})
        assert {event["seed"] for event in events} == {7}
        for expected in whole["choices"]:
            parts = [c for e in events for c in e["choices"] if c["index"] == expected["index"]]
            assert "".join(part["text"] for part in parts) == expected["text"]
            assert [part["logprobs"] for part in parts[:-1]] == [None] * (len(parts) - 1)
            assert parts[-1] == expected | {"text": ""}

    def test_an_echo_alone_is_streamed(self, address):
        question = {"prompt": "ACGT", "max_tokens": 0, "echo": True}
        events = events_of(address, "/v1/completions", question)
        assert [event["choices"][0]["text"] for event in events] == ["ACGT", ""]

    def test_openai_s_client_gets_the_number_of_tokens_at_the_end(self, address):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        question = {"model": "tiny", "prompt": PROMPTS, "max_tokens": 5, "seed": 1}
        usage = client.completions.create(**question).usage
        options = {"include_usage": True}
        *chunks, last = client.completions.create(**question, stream=True, stream_options=options)
        assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
        assert all(chunk.choices for chunk in chunks)
        assert (last.choices, last.usage, last.id) == ([], usage, chunks[0].id)

    def test_options_of_a_stream_need_a_stream(self, ask):
        wrong = ask("/v1/completions", 400, prompt="A", stream_options={"include_usage": True})
        assert wrong["error"]["param"] == "stream_options"


@pytest.mark.parametrize(
    ("path", "question", "entries"),
    [
        ("/score", {"sequences": [BASES[:300 + n] for n in range(9)], "bases": True}, "scores"),
        ("/variants", {"variants": ["c:100 A>C", "c:101 A>C"], "window_bp": 60}, "variants"),
        ("/v1/embeddings", {"input": PROMPTS[:2]}, "data"),
    ],
)  # fmt: skip
def test_streamed_results_are_those_of_one_reply(address, ask, path, question, entries):
    whole = ask(path, **question)[entries]
    events = events_of(address, path, question)
    assert [event["index"] for event in events] == list(range(len(whole)))
    assert [{**event, **entry} for event, entry in zip(events, whole, strict=True)] == events


def test_a_wrong_question_is_refused_before_the_stream(ask):
    told = ask("/v1/completions", 400, prompt="A", temperature=-1, stream=True)["error"]
    assert told["param"] == "temperature"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (RuntimeError("the disk is on fire"), 500, "internal error"),
        (UserError("sequences.0: is invalid"), 400, "is invalid"),
    ],
)
def test_an_error_within_a_stream_is_its_last_event(model, monkeypatch, error, status, message):
    def fail(*_):
        raise error

    monkeypatch.setattr("carbon.serve.endpoints.token_scores", fail)
    with serving(model, name="tiny") as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        chunks = client.completions.create(
            model="tiny", prompt="ACGT", max_tokens=1, logprobs=0, stream=True
        )
        with pytest.raises(openai.APIError, match=message):
            list(chunks)
        assert httpx.get(f"{address}/ready").status_code == 200
        counted = httpx.get(f"{address}/metrics").text
    assert f'carbon_requests_total{{path="/v1/completions",status="{status}"}} 1' in counted


def test_an_event_that_cannot_be_written_ends_a_stream_with_an_error(address, monkeypatch):
    monkeypatch.setattr("carbon.serve.endpoints._finite", lambda value: float("inf"))
    question = {"sequences": ["ACGT"], "stream": True}
    with httpx.stream("POST", f"{address}/score", json=question, timeout=60) as answer:
        assert "internal error" in next(answer.iter_lines())


@pytest.fixture
def dropped(monkeypatch):
    """The jobs that are dropped."""
    jobs, drop = [], ModelThread.drop

    def noted(self, job):
        jobs.append(job)
        drop(self, job)

    monkeypatch.setattr(ModelThread, "drop", noted)
    return jobs


def test_a_stream_whose_client_has_gone_is_dropped(model, dropped):
    question = {"prompt": "ACGT", "max_tokens": 5000, "stream": True}
    with serving(model, name="tiny") as address:
        with httpx.stream("POST", f"{address}/v1/completions", json=question) as answer:
            next(answer.iter_lines())
        (job,) = waits_for(lambda: dropped)
        waits_for(lambda: job.future.done())
    assert job.future.exception() is not None


def test_a_reply_whose_client_has_gone_is_dropped_without_a_traceback(model, dropped, monkeypatch):
    """asyncio prints the exception of a future that nobody awaits, unless it is cancelled."""
    awaited, wrap = [], asyncio.wrap_future

    def noted(future):
        awaited.append(wrap(future))
        return awaited[-1]

    monkeypatch.setattr(asyncio, "wrap_future", noted)
    question = {"prompt": "ACGT", "max_tokens": 5000}
    with serving(model, name="tiny") as address:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{address}/v1/completions", json=question, timeout=1)
        waits_for(lambda: dropped and dropped[0].future.done())
    assert awaited[0].cancelled()


def test_a_client_that_leaves_a_quiet_stream_is_noticed_within_seconds(address, monkeypatch):
    dropped = []
    monkeypatch.setattr(ModelThread, "submit", lambda self, job: None)  # no result ever comes
    monkeypatch.setattr(ModelThread, "drop", lambda self, job: dropped.append(job))
    question = {"sequences": [BASES], "stream": True}
    with httpx.stream("POST", f"{address}/score", json=question) as answer:
        assert answer.status_code == 200
    waits_for(lambda: dropped, seconds=8)


def test_a_quiet_stream_stays_open(address, monkeypatch):
    monkeypatch.setattr(streams, "WAITING_SECONDS", 0.001)
    question = {"sequences": [BASES], "stream": True}
    text = httpx.post(f"{address}/score", json=question, timeout=60).text
    assert ": waiting\n\n" in text and text.endswith(streams.DONE)

"""What is served against what the model says by itself, by OpenAI's client, curl and plain HTTP."""

import json
import subprocess
from itertools import product
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest

from carbon.errors import UserError
from carbon.genome import Annotation, Consequences, Interval, Variant
from carbon.genome.genes import Gene, Transcript
from carbon.inference.identity import settings_of
from carbon.inference.variants.background import Background
from carbon.inference.variants.calibration import Calibration
from carbon.serve import ServeOptions, make_app
from tests.helpers.serve import BASES, serving

PROMPTS = [BASES[:60], BASES[60:125], "acgtn" + BASES[200:210], ""]
REF = BASES[99]
ALT = "ACGT".replace(REF, "")[0]


@pytest.fixture(scope="module")
def client(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


class TestCompletions:
    def test_openai_s_client_gets_what_generate_draws(self, client, model):
        found = client.completions.create(
            model="tiny", prompt=PROMPTS, max_tokens=5, temperature=0, seed=1
        )
        texts = model.generate(PROMPTS, 30, seed=1, temperature=0)
        assert [choice.text for choice in found.choices] == texts
        assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
        # 60, 65, 15 and 0 bases are 10, 11, 3 and 0 6-mers; four times five were added.
        assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (24, 20)
        assert found.usage.total_tokens == 44

    def test_samples_of_a_seed_are_those_of_generate(self, ask, model):
        question = {"prompt": PROMPTS[:2], "n": 3, "length_bp": 13, "seed": 7}
        how = {"temperature": 0.8, "top_k": 50, "mode": "chain"}
        found = ask("/v1/completions", **question, **how)
        repeated = [prompt for prompt in PROMPTS[:2] for _ in range(3)]
        assert [c["text"] for c in found["choices"]] == model.generate(repeated, 13, seed=7, **how)
        assert found["seed"] == 7

    def test_a_seed_that_was_drawn_is_told(self, ask):
        question = {"prompt": PROMPTS[1], "max_tokens": 4}
        first = ask("/v1/completions", **question)
        again = ask("/v1/completions", **question, seed=first["seed"])
        assert again["choices"] == first["choices"]
        assert ask("/v1/completions", **question)["choices"] != first["choices"]

    def test_an_echoed_prompt_has_the_score_of_every_6_mer(self, client, model):
        found = client.completions.create(
            model="tiny", prompt=PROMPTS, max_tokens=0, echo=True, logprobs=2
        )
        for prompt, choice, score in zip(PROMPTS, found.choices, model.score(PROMPTS), strict=True):
            told = choice.logprobs
            assert choice.text == prompt == "".join(told.tokens)
            assert told.text_offset == list(range(0, len(prompt), 6))
            expected = [score.bases[at : at + 6].sum() for at in told.text_offset]
            np.testing.assert_allclose(told.token_logprobs, expected, atol=2e-5)
            assert len(told.top_logprobs) == len(told.tokens)
            for at, token, top in zip(
                told.text_offset, told.tokens, told.top_logprobs, strict=True
            ):
                if len(token) < 6:
                    assert top is None
                    continue
                best = np.sort(model.next_token(prompt[:at]).log_probabilities)[:-3:-1]
                np.testing.assert_allclose(list(top.values()), best, atol=2e-5)

    def test_of_a_token_that_the_prompt_began_the_rest_is_told(self, ask, model):
        prompt = PROMPTS[1]  # 65 bases: a tail of five
        question = {"prompt": prompt, "length_bp": 11, "seed": 3, "logprobs": 1}
        (choice,) = ask("/v1/completions", **question)["choices"]
        told = choice["logprobs"]
        assert [len(token) for token in told["tokens"]] == [1, 6, 4]
        assert told["text_offset"] == [65, 66, 72]
        (score,) = model.score([prompt + choice["text"]])
        expected = [score.bases[65:66].sum(), score.bases[66:72].sum(), score.bases[72:].sum()]
        np.testing.assert_allclose(told["token_logprobs"], expected, atol=2e-5)
        assert [top is None for top in told["top_logprobs"]] == [True, False, True]


class TestOthers:
    @pytest.mark.parametrize("layer", [None, 1])
    def test_embeddings(self, client, model, layer):
        sequences = [BASES[:50], BASES[50:333].lower()]
        expected = list(model.embed(sequences, layer=layer, pool="last"))
        how = {"extra_body": {"layer": layer, "pool": "last"}}
        for form in (openai.omit, "float"):  # by itself the client asks for base64
            found = client.embeddings.create(
                model="tiny", input=sequences, encoding_format=form, **how
            )
            for each, vector in zip(found.data, expected, strict=True):
                np.testing.assert_allclose(each.embedding, vector, rtol=1e-5, atol=1e-6)

    def test_curl_gets_scores(self, address, model):
        sequences = [BASES[:70].replace("T", "U"), "ACGTNN", "N"]  # RNA is read as DNA
        question = json.dumps({"sequences": sequences, "strands": "both", "bases": True})
        command = ["curl", "-sS", f"{address}/score", "--json", question]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        for told, score in zip(
            found["scores"], model.score(sequences, strands="both"), strict=True
        ):
            assert told["log_likelihood"] == pytest.approx(score.log_likelihood, abs=1e-4)
            assert (told["length_bp"], told["known_bases"]) == score[:2]
            known = [value for value in told["bases"] if value is not None]
            np.testing.assert_allclose(known, score.bases[: len(known)], atol=2e-5)
        assert [each["bases"].count(None) for each in found["scores"]] == [0, 2, 1]
        assert found["scores"][2]["nats_per_base"] is None

    def test_variants(self, ask, model, reference):
        fitting = [f"c:100 {REF}>{ALT}", f"c:100 {REF}>{REF}TT"]
        others = {
            f"c:100 {ALT}>{REF}": "ref_mismatch", "d:1 A>C": "contig_unknown",
            "c:899 ACGT>A": "ref_past_end", "c:501 A>C": "reference_unknown",
        }  # fmt: skip
        how = {"window_bp": 120, "offsets": [0, 2], "strands": "both"}
        found = ask("/variants", variants=[*others, *fitting], **how)["variants"]
        assert {each["variant"]: each["reason"] for each in found[:4]} == others
        assert all(each["delta"] is None for each in found[:4])
        expected = model.score_variants(reference, map(Variant.parse, fitting), **how)
        for each, score in zip(found[4:], expected, strict=True):
            assert each["variant"] == score.variant.to_text() and each["reason"] is None
            for name in ("delta", "forward", "reverse", "spread"):
                assert each[name] == pytest.approx(getattr(score, name), abs=1e-4)
            assert each["unsure"] == score.unsure
            # One name for one value: that of a table's column and of Python's attribute.
            assert set(each) == {
                "variant", "delta", "forward", "reverse", "spread", "unsure", "scored_as",
                "strand_left_out", "strand_masked", "reason",
            }  # fmt: skip

    def test_scores_besides_the_delta(self, ask, model, reference):
        snv, how = f"c:100 {REF}>{ALT}", {"window_bp": 120}
        names = ["jsd", "allele_entropy"]
        (found,) = ask("/variants", variants=snv, scores=names, **how)["variants"]
        (score,) = model.score_variants(reference, [Variant.parse(snv)], scores=names, **how)
        for name in names:
            assert found[name] == pytest.approx(getattr(score, name), abs=1e-5)
        assert "abs_delta" not in found
        wrong = ask("/variants", expected=400, variants=snv, scores=["calibrated_delta"])
        assert "start carbon serve with --calibration" in json.dumps(wrong)

    def test_calibrated_deltas(self, model, reference):
        how = {"window_bp": 120}
        cells = {
            f"{left}[{ref}>{alt}]{right}": {"sites": 20, "context_bp": 3, "delta": 0.25}
            for left, ref, alt, right in product("ACGT", "CT", "ACGT", "ACGT")
        }
        about = {"neighbour_bp": 3, "is_folded": True, "drawn": {}, "cells": cells}
        settings = settings_of(model.runner, model.variant_method(**how))
        made = Calibration(json.loads(json.dumps({**about, "settings": settings})))
        question = {"variants": f"c:100 {REF}>{ALT}", "scores": ["calibrated_delta"], **how}
        with serving(model, name="tiny", reference=reference, calibration=made) as address:
            answer = httpx.post(f"{address}/variants", json=question, timeout=60).json()
            other = question | {"window_bp": 90}
            refused = httpx.post(f"{address}/variants", json=other, timeout=60)
        (found,) = answer["variants"]
        assert found["calibrated_delta"] == pytest.approx(found["delta"] - 0.25, abs=1e-6)
        assert refused.status_code == 400 and "window_bp 120, not window_bp 90" in refused.text
        assert "calibration_genome" not in answer
        foreign = Calibration({**about, "settings": made.settings | {"weights_sha256": "0"}})
        options = ServeOptions(name="tiny", reference=reference, calibration=foreign)
        with pytest.raises(UserError, match="computed with other model weights"):
            make_app(model, options)

    def test_consequences_and_percentiles_are_those_of_variants(
        self, model, reference, monkeypatch
    ):
        indexed, index = [], Consequences.__init__

        def noted(self, *arguments):
            indexed.append(arguments)
            index(self, *arguments)

        monkeypatch.setattr(Consequences, "__init__", noted)
        span, how = ((60, 360),), {"window_bp": 120}
        transcript = Transcript("t", "c", "+", span, span, False, "here")
        gene = Gene("g", "g", "", Interval("c", 60, 360), "+", (transcript,))
        annotation = Annotation(Path("here"), (gene,), ())
        snvs = [f"c:100 {REF}>{ALT}", "c:501 A>C", f"c:100 {ALT}>{REF}"]
        settings = settings_of(model.runner, model.variant_method(**how))
        kinds = {"snv": {"variants": 100, "quantiles": [-8.0, 0.0, 8.0]}}
        about = {"kinds_by": "change", "kinds": kinds, "percents": [0, 50, 100], "drawn": {}}
        background = Background(json.loads(json.dumps({**about, "settings": settings})))
        options = {"annotation": annotation, "background": background}
        with serving(model, name="tiny", reference=reference, **options) as address:

            def ask(**question):
                return httpx.post(f"{address}/variants", json=question, timeout=60).json()

            found, other = ask(variants=snvs, **how), ask(variants=snvs, window_bp=90)
        assert len(indexed) == 1  # for all requests
        scored, *unscored = found["variants"]
        variant = Variant.parse(snvs[0])
        effect = Consequences(reference, annotation).of(variant)._asdict()
        assert effect["consequence"] and effect.items() <= scored.items()
        # The quantiles make a line: 0 % at -8 nats, 50 % at 0, 100 % at 8.
        assert scored["percentile"] == pytest.approx(50 + 6.25 * scored["delta"])
        assert scored["percentile_of"] == "snv"
        assert found["percentile"].startswith("percent of the random variants")
        for each in unscored:  # REF is unknown, or is not the reference's
            assert each["delta"] is each["consequence"] is each["percentile"] is None
        assert other["percentile"].startswith("none: was made with window_bp 120, not window_bp 90")
        assert "percentile" not in other["variants"][0]
        assert "background_genome" not in found
        with serving(model, name="tiny", reference=reference) as address:
            plain = ask(variants=snvs, **how)
        assert plain["percentile"].startswith("none: the server has no background")

    def test_a_background_of_another_genome_is_reported(self, model, reference, capsys):
        """By the rule of `carbon variants`: a contig of another length, another genetic code."""
        settings = settings_of(model.runner, model.variant_method())
        about = {"kinds_by": "change", "kinds": {}, "percents": [], "settings": settings}
        drawn = {"contig_lengths_bp": {"c": len(BASES)}, "genetic_code": "4", "annotation": "g"}
        made = Background(json.loads(json.dumps({**about, "drawn": drawn})))
        options = {"background": made, "reference": reference}
        for code, why in (("4", None), ("11", "its genetic code is 4, that of this run 11")):
            with serving(model, name="tiny", genetic_code=code, **options) as address:
                question = {"variants": [f"c:100 {REF}>{ALT}"], "window_bp": 90}
                answer = httpx.post(f"{address}/variants", json=question, timeout=60).json()
            warned = capsys.readouterr().err
            assert (f"warning: the background is of another genome ({why})" in warned) == bool(why)
            assert answer.get("background_genome") == (why and f"another: {why}")


@pytest.mark.parametrize(
    ("path", "question", "param", "message"),
    [
        ("/v1/completions", {}, "prompt", "prompt"),
        ("/v1/completions", {"prompt": "ACGX"}, "prompt.0", "'X'"),
        ("/v1/completions", {"prompt": "A", "stream": 1}, "stream", "boolean"),
        ("/v1/completions", {"prompt": "A", "stop": "T"}, "stop", "leave it out"),
        ("/v1/completions", {"prompt": "A", "logits_processors": []}, "logits_processors", "Extra"),
        ("/v1/completions", {"prompt": "A", "model": "gpt"}, "model", "'gpt'"),
        ("/v1/completions", {"prompt": "A", "temperature": -1}, "temperature", "-1.0"),
        ("/v1/completions", {"prompt": "A", "tags": ["<no>"]}, "tags", "<no>"),
        (
            "/v1/completions", {"prompt": "A" * 4000, "max_tokens": 0, "logprobs": 1},
            "logprobs", "4000",
        ),
        ("/v1/embeddings", {"input": "NN"}, "input.0", "no known base"),
        ("/score", {"sequences": ["AC", "MAVSKVYARSVYDSRGN"]}, "sequences.1", "is this a protein?"),
        ("/v1/embeddings", {"input": "ACGT", "layer": 99}, "layer", "layer"),
        ("/score", {"sequences": "ACGT", "by": "luck"}, "by", "'chain'"),
        ("/variants", {"variants": ["c:1"]}, "variants", "'c:1'"),
        ("/variants", {"variants": ["c:1 A>C"], "window_bp": 10**6}, "window_bp", "window"),
        ("/variants", {"variants": ["c:1 A>C"], "offsets": [7]}, "offsets", "7"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_told_in_a_line_with_its_field(ask, path, question, param, message):
    told = ask(path, 400, **question)["error"]
    assert message in told["message"] and "\n" not in told["message"]
    assert (told["type"], told["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/v1/chat/completions", 404, "/v1/completions"),
        ("GET", "/score", 405, "use POST"),
        ("POST", "/v1/models", 405, "use GET"),
    ],
)
def test_what_is_not_there_has_openai_s_form(address, method, path, status, message):
    body = {"content": b"{}"} if method == "POST" else {}
    answer = httpx.request(method, address + path, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (status, "invalid_request_error")
    assert set(error) == {"message", "type", "param", "code"} and message in error["message"]
    assert ("allow" in answer.headers) == (status == 405)


def test_openai_s_client_reads_the_errors(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="tiny", prompt="A", temperature=-1)
    assert error.value.param == "temperature"


@pytest.mark.parametrize(
    ("kind", "message"),
    [("application/json", "body: Invalid JSON"), ("text/plain", "body: send JSON with")],
)
def test_a_body_that_is_not_json(address, kind, message):
    body, headers = b'{"sequences": ["A"', {"Content-Type": kind}
    answer = httpx.post(f"{address}/score", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(message)


def test_no_reference_and_too_much(model):
    with serving(model, name="tiny", most_tokens=100) as address:
        answer = httpx.post(f"{address}/variants", json={"variants": ["c:1 A>C"]})
        assert answer.status_code == 400 and "--reference" in answer.text
        answer = httpx.post(f"{address}/score", content=b" " * 70_000)
        assert answer.status_code == 413 and "66,736 bytes" in answer.text
        chunks = (b"{}" for _ in range(2))
        assert httpx.post(f"{address}/score", content=chunks).status_code == 411

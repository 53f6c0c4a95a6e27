"""Fine-tuned models under a second name."""

from copy import copy
from dataclasses import replace
from itertools import product

import httpx
import numpy as np
import pytest

import carbon
from carbon.errors import UserError
from carbon.finetune.config import MethodConfig
from carbon.finetune.predict import EnsembleNetwork, FinetunedModel
from carbon.inference.checks import NotFinite
from carbon.inference.score import overlapping_windows
from carbon.serve import ServeOptions, make_app
from carbon.serve.endpoints import num_windows
from carbon.serve.predictions import Predictions
from carbon.serve.schemas import Prediction
from tests.helpers.finetune import BASES as PER_BASE
from tests.helpers.finetune import BINARY, NUMBERS, base_folder, finetuned_of, finetuned_on_stock
from tests.helpers.serve import BASES, serving
from tests.helpers.stock_models import save_stock_model

SEQUENCES = [BASES[:40], BASES[40:200].lower(), "NNNN"]


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory, network):
    folder = base_folder(tmp_path_factory.mktemp("finetuned"), network)
    tasks = {"promoter": BINARY, "levels": NUMBERS, "splice": PER_BASE}
    return {
        name: finetuned_of(folder, task, MethodConfig(name="full"), seed)[0]
        for seed, (name, task) in enumerate(tasks.items())
    }


@pytest.fixture(scope="module")
def predict(model, finetuned):
    with serving(model, name="tiny", finetuned=finetuned, most_tokens=5_000) as address:

        def post(expected=200, path="/predict", **question):
            answer = httpx.post(address + path, json=question, timeout=60)
            assert answer.status_code == expected, answer.text
            return answer.json()

        post.address = address
        yield post


@pytest.mark.parametrize("name", ["promoter", "levels", "splice"])
def test_predictions_are_those_of_the_model(predict, finetuned, name):
    model = finetuned[name]
    found = predict(model=name, sequences=SEQUENCES, strands="forward")
    assert (found["model"], found["task"]) == (name, model.task.type)
    expected = model.predict(SEQUENCES, strands="forward")
    for each, values in zip(found["predictions"], expected, strict=True):
        assert tuple(each["predicted"]) == model.output_names
        shown = np.array(list(each["predicted"].values()), dtype=np.float32)  # None is NaN
        np.testing.assert_array_equal(shown, values.T)
        assert each.get("class", "none") == class_by_hand(model.task, values)


def class_by_hand(task, values):
    """Return the most likely class of a sequence or of each base, "none" without classes."""
    if task.type == "numbers":
        return "none"
    if task.type == "binary":
        return None if np.isnan(values[0]) else task.names[int(values[0] > 0.5)]
    return [None if np.isnan(row[0]) else task.names[int(row.argmax())] for row in values]


def test_both_models_are_listed_and_each_has_its_addresses(predict):
    listed = httpx.get(f"{predict.address}/v1/models").json()["data"]
    assert [each["id"] for each in listed] == ["tiny", "promoter", "levels", "splice"]
    told = predict(400, sequences=["A"], model="tiny")["error"]
    assert "/predict has no 'tiny'; it has promoter, levels, splice" in told["message"]
    assert told["param"] == "model"
    told = predict(400, path="/score", sequences=["A"], model="promoter")["error"]
    assert "/score has no 'promoter'; it has tiny" in told["message"]


def test_lengths_are_checked_before_anything_is_computed(predict, finetuned):
    long = "A" * (finetuned["promoter"].room_bp + 1)
    told = predict(400, model="promoter", sequences=["A", long])["error"]["message"]
    assert told.startswith("sequences.1: has ")
    for rule in ("truncate", "tile"):
        assert predict(model="promoter", sequences=[long], too_long=rule)["predictions"]
    told = predict(400, model="promoter", sequences=[long * 99], too_long="tile")["error"]
    assert "exceed the 5,000 of one request (--most-tokens)" in told["message"]


def test_each_network_of_an_ensemble_counts(model, finetuned):
    single, ensemble = finetuned["levels"], copy(finetuned["levels"])
    ensemble.manifest = replace(single.manifest, members=("seed-0", "seed-1", "seed-2"))
    tokens = []
    for each in (single, ensemble):
        endpoint = Predictions(model, ServeOptions(name="tiny", finetuned={"levels": each}))
        tokens.append(endpoint.job(Prediction(sequences=SEQUENCES)).num_tokens)
    assert tokens[1] == 3 * tokens[0] > 0


def test_an_ensemble_has_its_sd(model, finetuned, tmp_path, network):
    single = finetuned["promoter"]
    folder = base_folder(tmp_path, network)
    other = finetuned_of(folder, BINARY, MethodConfig(name="full"), 9)[0]
    ensemble = FinetunedModel(
        EnsembleNetwork([single.network, other.network]).eval(),
        single.vocabulary,
        replace(single.manifest, members=("seed-0", "seed-1")),
    )
    with serving(model, name="tiny", finetuned={"both": ensemble}) as address:
        answer = httpx.post(f"{address}/predict", json={"sequences": SEQUENCES}, timeout=60).json()
    (of_yes,) = single.output_names
    alone = zip(single.predict(SEQUENCES[:2]), other.predict(SEQUENCES[:2]), strict=True)
    *known, unknown = answer["predictions"]
    for each, (p, q) in zip(known, alone, strict=True):
        # Of two values the SD with Bessel's correction is |p - q| / sqrt(2).
        assert each["sd"] == {of_yes: pytest.approx(abs(p[0] - q[0]) / 2**0.5, abs=1e-6)}
        assert each["sd"][of_yes] > 1e-4
    assert unknown["sd"] == unknown["predicted"] == {of_yes: None}
    with pytest.raises(UserError, match="single network"):
        single.predict(SEQUENCES, with_sd=True)


def test_windows_of_other_kmers_are_counted(model, tmp_path):
    for k in (1, 4, 6):
        for room_bp, length_bp in product((2 * k, 3 * k, 10 * k), (1, 16, 17, 80, 81, 200)):
            windows = list(overlapping_windows(length_bp, room_bp, k))
            assert num_windows(length_bp, room_bp, k) == len(windows)
    folder = save_stock_model(tmp_path / "m", "llama", 4, begin=True, context_tokens=3)
    of_4mers = finetuned_on_stock(folder, NUMBERS, 4)
    endpoint = Predictions(model, ServeOptions(name="tiny", finetuned={"levels": of_4mers}))
    request = Prediction(sequences=[BASES[:30]], too_long="tile")
    # Windows of 8 bases at 0, 4 .. 24, of 3 tokens, on both strands.
    assert endpoint.job(request).num_tokens == 7 * 3 * 2


def test_an_infinite_value_is_an_error_of_the_model(model, finetuned):
    endpoint = Predictions(model, ServeOptions(name="tiny", finetuned=finetuned))
    request = Prediction(model="levels", sequences=["ACGT"])
    values = np.full(finetuned["levels"].task.num_outputs, np.inf, dtype=np.float32)
    with pytest.raises(NotFinite, match=r"sequences\.0: the model's output is not finite"):
        endpoint.entry(request, 0, values)


def test_models_that_cannot_be_served_are_refused_at_the_start(model, finetuned, tmp_path):
    with pytest.raises(UserError, match="'tiny' has the model's name"):
        make_app(model, ServeOptions(name="tiny", finetuned={"tiny": finetuned["levels"]}))
    pairs = copy(finetuned["levels"])
    pairs.manifest = replace(pairs.manifest, variant_input="sum_and_distance")
    with pytest.raises(UserError, match="reads both alleles"):
        make_app(model, ServeOptions(name="tiny", finetuned={"x": pairs}))
    stock = carbon.load(save_stock_model(tmp_path / "m", "llama", 1, begin=True), device="cpu")
    with pytest.raises(UserError, match=r"one: is a model of 1-mers .* need a Carbon model"):
        make_app(stock, ServeOptions(name="one"))

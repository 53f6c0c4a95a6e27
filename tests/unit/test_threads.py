"""One loaded model and one open reference, used from four threads: the results of one thread."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from carbon.adapt.config import WayConfig
from carbon.genome import Interval, Reference, Variant
from carbon.inference import join_chunks
from tests.helpers.adapt import BINARY, adapted_of, base_folder
from tests.helpers.files import random_bases

SEQUENCES = [random_bases(60 + 17 * n, seed=n) for n in range(6)]
THREADS, ROUNDS = 4, 3


@pytest.fixture(autouse=True)
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    path = tmp_path_factory.mktemp("threads") / "genome.fa"
    path.write_text("".join(f">c{n}\n{random_bases(400, seed=90 + n)}\n" for n in range(6)))
    with Reference(path) as opened:
        yield opened


def same(one, other):
    return all(map(np.array_equal, one, other)) and len(one) == len(other)


def check_four_threads(call, items=range(6)):
    """Call once for each item serially, then often from four threads, and compare exactly."""
    serial = {item: call(item) for item in items}
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [(item, pool.submit(call, item)) for _ in range(ROUNDS) for item in items]
        wrong = [item for item, job in jobs if not same(job.result(), serial[item])]
    assert not wrong, f"{len(wrong)} of {len(jobs)} differ"


def test_embed_at_different_layers_at_once(model):
    layers = [(n, layer) for n in range(3) for layer in (0, 1, 2, None)]
    check_four_threads(lambda at: list(model.embed([SEQUENCES[at[0]]], layer=at[1])), layers)


def test_score(model):
    check_four_threads(lambda n: [next(model.score([SEQUENCES[n]], strands="both")).bases])


def test_generate(model):
    check_four_threads(lambda n: model.generate([SEQUENCES[n]] * 2, 30, seed=n))


def test_next_token(model):
    check_four_threads(lambda n: [model.next_token(SEQUENCES[n]).probabilities])


def test_score_variants(model, reference):
    def deltas(n):
        bases = reference.fetch(Interval(f"c{n}", 200, 203))
        variants = [Variant(f"c{n}", 200, bases[:1], alt) for alt in "ACGT" if alt != bases[0]]
        return [s.delta for s in model.score_variants(reference, variants, window_bp=120)]

    check_four_threads(deltas)


def test_scan(model, reference):
    def values(n):
        chunks = model.scan(reference, Interval(f"c{n}", 0, 400), window_bp=120)
        return [join_chunks(chunks).log_probabilities]

    check_four_threads(values, range(4))


WAYS = [{"name": "lora"}, {"name": "full"}, {"name": "probe", "layer": 1}]


@pytest.mark.parametrize("options", WAYS, ids=lambda options: options["name"])
def test_predict(tmp_path, network, options):
    way = WayConfig(dropout=0.0, **options)
    torch.manual_seed(3)
    adapted, _ = adapted_of(base_folder(tmp_path, network), BINARY, way)
    check_four_threads(lambda n: list(adapted.predict([SEQUENCES[n]])))


def test_fetch_of_one_reference(reference):
    check_four_threads(lambda n: [reference.fetch(Interval(f"c{n}", 3 * n, 390 - n))])

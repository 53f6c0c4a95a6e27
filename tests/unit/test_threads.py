"""One loaded model and one open reference, used from four threads: the results of one thread."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from carbon.finetune.config import MethodConfig
from carbon.genome import Interval, Reference, Variant
from carbon.inference import join_chunks
from tests.helpers.files import random_bases
from tests.helpers.finetune import BINARY, base_folder, finetuned_of

SEQUENCES = [random_bases(60 + 17 * n, seed=n) for n in range(6)]
THREADS, ROUNDS = 4, 2


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


def scored_variants(model, reference, n):
    bases = reference.fetch(Interval(f"c{n}", 200, 203))
    variants = [Variant(f"c{n}", 200, bases[:1], alt) for alt in "ACGT" if alt != bases[0]]
    return [s.delta for s in model.score_variants(reference, variants, window_bp=120)]


def scanned(model, reference, n):
    chunks = model.scan(reference, Interval(f"c{n}", 0, 400), window_bp=120)
    return [join_chunks(chunks).log_probabilities]


CALLS = {
    "score": lambda model, _, n: [next(model.score([SEQUENCES[n]], strands="both")).bases],
    "generate": lambda model, _, n: model.generate([SEQUENCES[n]] * 2, 30, seed=n),
    "next token": lambda model, _, n: [model.next_token(SEQUENCES[n]).probabilities],
    "embed": lambda model, _, n: [*model.embed([SEQUENCES[n]], layer=(0, 1, 2, None)[n % 4])],
    "score variants": scored_variants,
    "scan": scanned,
    "fetch": lambda _, reference, n: [reference.fetch(Interval(f"c{n}", 3 * n, 390 - n))],
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call(model, reference, name):
    check_four_threads(lambda n: CALLS[name](model, reference, n))


def test_predict(tmp_path, network):
    method = MethodConfig(name="lora", dropout=0.0)
    torch.manual_seed(3)
    finetuned, _ = finetuned_of(base_folder(tmp_path, network), BINARY, method)
    check_four_threads(lambda n: list(finetuned.predict([SEQUENCES[n]])))

"""Tokens and time of each task of `eval`, compared with a literal implementation of its protocol.

Literally: every sequence of an example goes through a stock network separately and in full, with
logits over the whole vocabulary at every token. The network is `tiny` with random weights; tokens
are counted where the network reads them, including padding.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.inference import Model
from carbon.inference.options import Strands
from carbon.model import PRESETS, LoadedModel
from carbon.model.load import cache_arguments, cache_of
from carbon.tokenizer import NATIVE, encode
from eval import cost
from eval.contract import Options, Reading
from eval.cost import TokenCount, tokens_counted
from eval.entrants import Baselines, Entrant
from eval.models import CarbonModel
from eval.runner import run_suite
from eval.suite import Suite
from eval.tasks import TASKS
from train.models.network import stock_network


class Trial(NamedTuple):
    """Cost of `examples` of a task, for this project and for the literal implementation."""

    task: str
    examples: int
    tokens: int
    seconds: float
    literal_tokens: int
    literal_seconds: float


def tiny_model() -> CarbonModel:
    """Return a random network of the preset `tiny`, 8,192 tokens of context."""
    torch.manual_seed(0)
    network = stock_network(PRESETS["tiny"]())
    return CarbonModel(Model(LoadedModel(network.train(False), NATIVE)), "tiny")


def random_bases(length_bp: int, seed: int) -> str:
    """Return random DNA."""
    letters = np.random.default_rng(seed).choice(np.frombuffer(b"ACGT", np.uint8), length_bp)
    return str(letters.tobytes(), "ascii")


def trials(folder: Path, quick: bool) -> Iterator[Trial]:
    """Yield one trial per task, on small random data."""
    model = tiny_model()
    few = 4 if quick else 16
    path = folder / "genome.fa"
    path.write_text(f">c\n{random_bases(200_000, 1)}\n", encoding="utf-8")
    with Reference(path) as reference:
        # Saturation mutagenesis has three changes at a position, TraitGym has one.
        yield _centered(model, reference, "brca2", "forward", few, alts=3)
        yield _centered(model, reference, "traitgym_mendelian", "both", few, alts=1)
        yield _right_end(model, reference, "clinvar_coding", few, alts=1)
        yield _right_end(model, reference, "clinvar_coding, three at a place", few, alts=3)
    yield _pairs(model, "triplet_expansion", few, changed_from=8060, length_bp=8192)
    yield _pairs(model, "synonymous_codons", few, changed_from=8000, length_bp=9000)
    yield _recovery(model, few)
    for tokens in (1024, 4096) if quick else (4096, 8000):
        yield _needle(model, few // 4, tokens)


def _places(count: int, alts: int, reference: Reference, from_bp: int) -> list[Variant]:
    found = []
    for number in range(count):
        at = from_bp + 731 * number
        ref = reference.fetch(Interval("c", at, at + 1))
        found += [Variant("c", at, ref, alt) for alt in "ACGT" if alt != ref][:alts]
    return found


def _centered(
    model: CarbonModel, reference: Reference, task: str, strands: Strands, places: int, *, alts: int
) -> Trial:
    variants = _places(places, alts, reference, 10_000)

    def ours() -> object:
        return model.deltas(reference, variants, Reading("centered", 8192, strands))

    sequences = []
    for variant in variants:
        start = variant.position - 4096
        ref = reference.fetch(Interval("c", start, start + 8192))
        alt = ref[:4096] + variant.alt + ref[4097:]
        sequences += [ref, alt]
        if strands == "both":
            sequences += [reverse_complement(ref), reverse_complement(alt)]
    return _trial(task, len(variants), model, ours, sequences)


def _right_end(
    model: CarbonModel, reference: Reference, task: str, places: int, *, alts: int
) -> Trial:
    variants = _places(places, alts, reference, 40_000)

    def ours() -> object:
        return model.deltas(reference, variants, Reading("right_end", 24_000, "forward"))

    sequences = [reference.fetch(Interval("c", v.position - 24_000, v.position)) for v in variants]
    return _trial(task, len(variants), model, ours, sequences)


def _pairs(
    model: CarbonModel, task: str, count: int, *, changed_from: int, length_bp: int
) -> Trial:
    pairs = []
    for number in range(count):
        first = random_bases(length_bp, number)
        second = first[:changed_from] + random_bases(length_bp - changed_from, 1000 + number)
        pairs.append((first, second))
    sequences = [sequence for pair in pairs for sequence in pair]
    return _trial(task, count, model, lambda: model.differences(pairs), sequences)


def _recovery(model: CarbonModel, count: int) -> Trial:
    """Compare with a stock loop that uses a KV cache; there is nothing to share."""
    prompts = [random_bases(6144, number) for number in range(count)]

    def literally() -> None:
        for prompt in prompts:
            cache, ids = None, _ids(prompt)
            for _ in range(5):
                with torch.inference_mode():
                    network = model.carbon.model.network
                    output = network(input_ids=ids, **cache_arguments(network, cache))
                cache, ids = cache_of(output), output.logits[:, -1:].argmax(-1)

    return _compared(
        "sequence_recovery", count, model, lambda: model.generate(prompts, 30), literally
    )


def _needle(model: CarbonModel, count: int, tokens: int) -> Trial:
    """Compare with three passes over a haystack: for the answer and for two likelihoods."""
    prompts = [random_bases(6 * tokens, number) for number in range(max(count, 1))]
    endings = [random_bases(24, 1), random_bases(24, 2)]

    def ours() -> object:
        return [model.recall(prompt, 24, endings) for prompt in prompts]

    sequences = [prompt + end for prompt in prompts for end in (random_bases(24, 3), *endings)]
    return _trial(f"genomic_niah, {tokens} tokens", len(prompts), model, ours, sequences)


def _trial(
    task: str, count: int, model: CarbonModel, ours: Callable[[], object], sequences: Sequence[str]
) -> Trial:
    """Compare with a pass over every sequence, separately and in full."""

    def literally() -> None:
        for sequence in sequences:
            with torch.inference_mode():
                logits = model.carbon.model.network(
                    input_ids=_ids(sequence), use_cache=False
                ).logits
                logits.float().log_softmax(dim=-1)

    return _compared(task, count, model, ours, literally)


def _compared(
    task: str,
    count: int,
    model: CarbonModel,
    ours: Callable[[], object],
    literally: Callable[[], object],
) -> Trial:
    took = [_timed(model, work) for work in (ours, literally)]
    (first, seconds), (second, literal_seconds) = took
    return Trial(task, count, first.tokens, seconds, second.tokens, literal_seconds)


def _timed(model: CarbonModel, work: Callable[[], object]) -> tuple[TokenCount, float]:
    """Return the tokens of one run and the shorter time of two."""
    with tokens_counted(model) as count:
        start = time.perf_counter()
        work()
        first = time.perf_counter() - start
    start = time.perf_counter()
    work()
    return count, min(first, time.perf_counter() - start)


def _ids(sequence: str) -> torch.Tensor:
    return torch.from_numpy(encode(sequence, NATIVE).ids)[None]


def peak_of_many_variants(folder: str, count: int) -> None:
    """Run `clinvar_coding` on `count` variants; the parent process reads the peak memory.

    Windows are short to save time: the memory per variant does not depend on their length. At the
    end, a hundred windows of 24 kbp are read, for the memory of one batch of such windows.
    """
    root, length_bp = Path(folder), 2_000_000
    genome = random_bases(length_bp, 1)
    (root / "genome.fa").write_text(f">c\n{genome}\n", encoding="utf-8")
    places = np.linspace(30_000, length_bp - 1000, count).astype(int)
    table = {
        "chrom": ["c"] * count,
        "pos": places + 1,
        "ref": [genome[at] for at in places],
        "alt": ["ACGT"[("ACGT".index(genome[at]) + 1) % 4] for at in places],
        "label": np.arange(count) % 2,
    }
    pq.write_table(pa.table(table), root / "clinvar_coding.parquet")
    model = tiny_model()
    suite = Suite(
        tasks=[TASKS["clinvar_coding"]],
        models=[Entrant("tiny", "model", "", "", "float32")],
        baselines=Baselines([root / "genome.fa"], [1], []),
        load=lambda entrant: model,
        output=root / "out",
        datasets={"": folder},
        references={"": str(root / "genome.fa")},
        options=Options(),
        sizes={"clinvar_coding": {"window_bp": 96}},
    )
    cost.forget_peak = lambda: None  # keep the peak of the whole process
    run_suite(suite)
    with Reference(root / "genome.fa") as reference:
        variants = _places(100, 1, reference, 40_000)
        model.deltas(reference, variants, Reading("right_end", 24_000, "forward"))

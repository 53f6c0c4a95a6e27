"""Tokens and time of tasks of `eval`, compared with a literal implementation of their protocols.

Literally: every sequence of an example goes through a stock network separately and in full, with
logits over the whole vocabulary at every token. The network is `tiny` with random weights; tokens
are counted where the network reads them, including padding.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from inputs import random_bases, random_model, random_reference, snvs_at
from measure import Measure, at_least, at_most, in_own_process, timed

from carbon.genome import Interval, Reference, reverse_complement
from carbon.inference.options import Strands
from carbon.tokenizer import NATIVE, encode
from eval import cost
from eval.contract import Options, Reading
from eval.cost import tokens_counted
from eval.entrants import Baselines, Entrant
from eval.models import CarbonModel
from eval.runner import run_suite
from eval.suite import Suite
from eval.tasks import TASKS


def measures(quick: bool) -> list[Measure]:
    model, few = CarbonModel(random_model("tiny"), "tiny"), 4 if quick else 16
    found: list[Measure] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        random_reference(Path(folder), 200_000) as reference,
    ):
        # With one change a place, as TraitGym has them, sharing gives 4 / 3 at most: the left half
        # once and the right halves of both, against two windows. The target is that of all.
        found += of_centered(model, reference, "brca2", "forward", few, alts=3)
        found += of_centered(model, reference, "traitgym_mendelian", "both", few, alts=1)
    for tokens in (1024, 4096) if quick else (4096, 8000):
        found += of_needle(model, few // 4, tokens)
    count = 5_000 if quick else 50_000
    with tempfile.TemporaryDirectory() as folder:
        of_many = in_own_process("packages.eval", f"right_end({folder!r}, {count})")
    name = f"right_end_peak_of_{count}_variants"
    return [*found, at_most(name, of_many.peak_bytes / 2**20, "MiB", 1024)]


def of_centered(
    model: CarbonModel, reference: Reference, task: str, strands: Strands, places: int, *, alts: int
) -> Iterator[Measure]:
    """Measure variants in the middle of windows of 8,192 bp."""
    variants = snvs_at(reference, range(10_000, 10_000 + 731 * places, 731), alts)
    sequences = []
    for variant in variants:
        start = variant.position - 4096
        ref = reference.fetch(Interval("c", start, start + 8192))
        both = [ref, ref[:4096] + variant.alt + ref[4097:]]
        sequences += both + [reverse_complement(each) for each in both if strands == "both"]
    ours = partial(model.deltas, reference, variants, Reading("centered", 8192, strands))
    return compared(task, len(variants), 2.0, model, ours, sequences)


def of_needle(model: CarbonModel, count: int, tokens: int) -> Iterator[Measure]:
    """Compare with three passes over a haystack: for the answer and for two likelihoods."""
    prompts = [random_bases(6 * tokens, number) for number in range(max(count, 1))]
    endings = [random_bases(24, 1), random_bases(24, 2)]

    def ours() -> object:
        return [model.recall(prompt, 24, endings) for prompt in prompts]

    sequences = [prompt + end for prompt in prompts for end in (random_bases(24, 3), *endings)]
    return compared(f"genomic_niah, {tokens} tokens", len(prompts), 3.0, model, ours, sequences)


def compared(
    task: str,
    examples: int,
    target: float,
    model: CarbonModel,
    ours: Callable[[], object],
    sequences: Sequence[str],
) -> Iterator[Measure]:
    """Yield tokens and the shorter time of two, next to a pass over every sequence in full."""

    @torch.inference_mode()
    def literally() -> None:
        for sequence in sequences:
            ids = torch.from_numpy(encode(sequence, NATIVE).ids)[None]
            logits = model.carbon.model.network(input_ids=ids, use_cache=False).logits
            logits.float().log_softmax(dim=-1)

    tokens, seconds = [], []
    for work in (ours, literally):
        with tokens_counted(model) as count:
            first = timed(work)()
        tokens.append(count.tokens)
        seconds.append(min(first, timed(work)()))
    yield Measure(f"{task}:tokens", tokens[0] / examples, "tok/ex")
    yield at_least(f"{task}:fewer_tokens", tokens[1] / tokens[0], "times", target)
    yield Measure(f"{task}:time", 1000 * seconds[0] / examples, "ms/ex")
    yield Measure(f"{task}:faster", seconds[1] / seconds[0], "times")


def right_end(folder: str, count: int) -> None:
    """Run `clinvar_coding` on `count` variants, for the memory.

    Windows are short to save time: the memory per variant does not depend on their length. At the
    end, a hundred windows of 24 kbp are read, for the memory of one batch of such windows.
    """
    root, length_bp = Path(folder), 2_000_000
    model = CarbonModel(random_model("tiny"), "tiny")
    with random_reference(root, length_bp) as reference:
        places = np.linspace(30_000, length_bp - 1000, count).astype(int).tolist()
        variants = snvs_at(reference, places, alts=1)
        table = {
            "chrom": [variant.contig for variant in variants],
            "pos": [variant.position + 1 for variant in variants],
            "ref": [variant.ref for variant in variants],
            "alt": [variant.alt for variant in variants],
            "label": np.arange(count) % 2,
        }
        pq.write_table(pa.table(table), root / "clinvar_coding.parquet")
        genome = root / f"{length_bp}.fa"
        cost.forget_peak = lambda: None  # keep the peak of the whole process
        run_suite(
            Suite(
                tasks=[TASKS["clinvar_coding"]],
                models=[Entrant("tiny", "model", "", "", "float32")],
                baselines=Baselines([genome], [1], []),
                load=lambda entrant: model,
                output=root / "out",
                datasets={"": folder},
                references={"": str(genome)},
                options=Options(),
                sizes={"clinvar_coding": {"window_bp": 96}},
            )
        )
        some = snvs_at(reference, range(40_000, 40_000 + 73_100, 731), alts=1)
        model.deltas(reference, some, Reading("right_end", 24_000, "forward"))

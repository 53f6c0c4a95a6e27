"""Variants, scans and generation compared with plain transformers loops.

The loops implement the published protocols literally: both windows of every variant in full, with a
log-softmax over the whole vocabulary; `right_end` one variant at a time.
"""

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inputs import random_bases, random_model, random_reference, snvs_at
from measure import Measure, at_least, at_most, in_own_process, in_turns, timed

from carbon.batching import in_blocks
from carbon.genome import Interval, Reference, Variant, VcfReader
from carbon.inference import Model, load
from carbon.inference.options import VariantOptions
from carbon.inference.variants import method_for, score_variants
from carbon.inference.variants.score import num_tokens
from carbon.pretrained import entry
from carbon.tokenizer import NATIVE, encode

WINDOW_BP = 8192
RIGHT_END_BP = 24_000
_BATCH_WINDOWS = 2  # batch size of the published script
_VCF = "variants_chr20/1000G_phase3.chr20_1M_2M.vcf.gz"
_FASTA = "variants_chr20/GRCh37.chr20_1M_2M.fa.gz"


def measures(quick: bool) -> list[Measure]:
    mini, repeats = random_model("mini"), 1 if quick else 3
    with tempfile.TemporaryDirectory() as folder:
        reference = random_reference(Path(folder), 120_000)
        long = random_reference(Path(folder), 2_000_000)
        found = [
            *of_centered(mini, reference, 2 if quick else 4, repeats),
            *of_scans(mini, reference, long, repeats),
            *of_scores(4 if quick else 24, 1 if quick else 5),
            *of_tiles(30 if quick else 300),
            *of_generation(mini, 4 if quick else 16, 60 if quick else 300, repeats),
        ]
    most_bp = 300_000 if quick else 1_000_000
    some, most = (
        in_own_process("packages.inference", f"scan_random({n})") for n in (100_000, most_bp)
    )
    growth = most.peak_bytes / some.peak_bytes
    return [*found, Measure(f"scan:{most_bp}_bp:memory_against_100000", growth, "times")]


def of_centered(
    model: Model, reference: Reference, positions: int, repeats: int
) -> Iterator[Measure]:
    """Measure three ALTs a position in 8,192 bp, compared with both windows of each in full."""
    variants = snvs_at(reference, range(30_000, 30_000 + 997 * positions, 997))
    # 8,192 bases are 1,365 6-mers and two bases that the literal loop omits.
    found = _deltas(model, reference, variants, window_bp=WINDOW_BP - 2)
    expected = deltas_in_full(model, reference, variants, WINDOW_BP - 2, of_kmers=True)
    ours, in_full = in_turns(
        repeats,
        timed(partial(_deltas, model, reference, variants, window_bp=WINDOW_BP)),
        timed(partial(deltas_in_full, model, reference, variants, WINDOW_BP)),
    )
    yield at_least("centered:against_both_in_full", in_full / ours, "times", 1.9)
    yield at_most("centered:difference", _largest(found, expected), "nats", 1e-4)


def _largest(one: list[float], other: list[float]) -> float:
    """Return the largest difference."""
    return float(np.abs(np.subtract(one, other)).max())


def _deltas(
    model: Model, reference: Reference, variants: list[Variant], **options: Any
) -> list[float]:
    options = {"protocol": "centered", "strands": "forward"} | options
    scores: Any = model.score_variants(reference, variants, **options)
    return [score.delta for score in scores]


@torch.inference_mode()
def deltas_in_full(
    model: Model,
    reference: Reference,
    variants: list[Variant],
    window_bp: int,
    *,
    of_kmers: bool = False,
) -> list[float]:
    """Score both windows of every variant in full, with a log-softmax over the whole vocabulary.

    This project normalises over the 6-mers; `of_kmers` does the same, to compare the numbers.
    """
    network = model.model.network
    rows = NATIVE.kmer_rows if of_kmers else slice(None)
    windows = []
    for variant in variants:
        start = variant.position - window_bp // 2
        bases = reference.fetch(Interval("c", start, start + window_bp)).upper()
        at = variant.position - start
        windows += [bases, bases[:at] + variant.alt + bases[at + 1 :]]
    sums: list[float] = []
    for batch in in_blocks(windows, _BATCH_WINDOWS):
        ids = torch.from_numpy(np.stack([encode(window).ids for window in batch]))
        log_p = network(ids).logits[:, :-1, rows].log_softmax(dim=-1)
        targets = ids[:, 1:, None] - (rows.start or 0)
        chosen = log_p.gather(2, targets)[..., 0].double()
        # The published script omits the bases downstream of the last whole 6-mer.
        sums += chosen[:, : window_bp // 6].sum(dim=1).tolist()
    return [alt - ref for ref, alt in zip(sums[::2], sums[1::2], strict=True)]


@torch.inference_mode()
def right_end_in_full(model: Model, reference: Reference, variants: list[Variant]) -> list[float]:
    """Read 24 kbp for one variant at a time, with logits at all positions."""
    first_base = torch.arange(4096) // 1024
    deltas = []
    for variant in variants:
        left = Interval("c", variant.position - RIGHT_END_BP, variant.position)
        ids = torch.from_numpy(encode(reference.fetch(left)).ids)[None]
        p = model.model.network(ids).logits[0, -1].softmax(dim=0)[NATIVE.kmer_rows]
        mass = [p[first_base == "ATCG".index(b)].sum().log() for b in (variant.ref, variant.alt)]
        deltas.append(float(mass[1] - mass[0]))
    return deltas


def of_scans(
    model: Model, reference: Reference, long: Reference, repeats: int
) -> Iterator[Measure]:
    """Measure all SNVs with 24 kbp to the left, compared with `right_end` one by one.

    Token counts are for a scan of all of `long`; the time per token is measured on one window.
    """
    some = snvs_at(reference, [40_000])
    expected = right_end_in_full(model, reference, some)
    alone = timed(partial(right_end_in_full, model, reference, some))() / len(some)
    found = _deltas(model, reference, some, protocol="right_end")
    yield at_most("right_end:difference", _largest(found, expected), "nats", 1e-4)
    window_bp = (model.runner.context_tokens - 1) * 6
    stretch = window_bp - RIGHT_END_BP
    # A whole window of offset 0 starts and ends here, so no window is read only in part.
    region = Interval("c", window_bp, window_bp + stretch)
    options: dict[str, Any] = {"window_bp": window_bp, "least_context_bp": RIGHT_END_BP}

    def scan() -> int:
        return sum(chunk.tokens_read for chunk in model.scan(reference, region, **options))

    (seconds,) = in_turns(repeats, timed(scan))
    seconds_a_token = seconds / scan()
    for offsets, target in (((0,), 30_000), ((0, 1, 2, 3, 4, 5), 5_000)):
        tokens = tokens_of_scan(model, long, offsets, options) / 3
        name = f"scan:{len(offsets)}_offsets"
        fewer = (RIGHT_END_BP // 6 + 1) / tokens
        yield at_least(f"{name}:fewer_tokens", fewer, "times", target)
        yield at_least(f"{name}:faster", alone / (tokens * seconds_a_token), "times", target)


def tokens_of_scan(
    model: Model, reference: Reference, offsets: tuple[int, ...], options: dict[str, Any]
) -> float:
    """Return the tokens per base that a scan of a whole contig reads; computes nothing."""
    reader = model.runner
    measure = reader.measure

    def uncomputed(passages: Any, _: Any) -> Any:
        return [
            [np.zeros((len(b.ids), 6, 4), np.float32) for b in p.continuations] for p in passages
        ]

    reader.measure = uncomputed  # type: ignore[method-assign, assignment]
    try:
        whole = Interval("c", 0, reference.contig_lengths_bp["c"])
        chunks = model.scan(reference, whole, offsets=offsets, **options)
        return sum(chunk.tokens_read for chunk in chunks) / whole.length_bp
    finally:
        reader.measure = measure  # type: ignore[method-assign]


def scan_random(length_bp: int) -> None:
    """Scan a whole contig with `tiny`, for the memory."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        reference = random_reference(Path(folder), length_bp)
        chunks = random_model("tiny").scan(reference, Interval("c", 0, length_bp))
        assert sum(chunk.interval.length_bp for chunk in chunks) == length_bp


def of_scores(number: int, repeats: int) -> Iterator[Measure]:
    """Measure all scores of one pass, compared with the delta alone, of the bundled model.

    `centered` with one SNV in 1,009 bp, `tiled` with one in 35, both strands, one ALT a position.
    Calibrated deltas are a look-up after the pass.
    """
    model = load("yeast", device="cpu")
    with Reference(entry("yeast").genome) as reference:
        (contig,) = reference.contig_lengths_bp
        for protocol, step in (("centered", 1009), ("tiled", 35)):
            positions = range(100_000, 100_000 + number * step, step)
            variants = snvs_at(reference, positions, 1, contig)
            score = partial(_deltas, model, reference, variants, protocol=protocol, strands="both")
            delta, bundle, entropy = in_turns(
                repeats,
                timed(score),
                timed(partial(score, scores=("abs_delta", "jsd", "embedding_distance"))),
                timed(partial(score, scores=("allele_entropy",))),
            )
            name = f"scores:{protocol}"
            yield Measure(f"{name}:delta", delta / number, "s/variant")
            yield at_most(f"{name}:all_but_entropy", bundle / delta, "times", 1.15)
            yield Measure(f"{name}:entropy", entropy / delta, "times")


def of_tiles(number: int) -> Iterator[Measure]:
    """Measure real SNVs by `tiled`, compared with `centered`, with `mini` and tiles of 8,192 bp.

    `centered` scores four in the middle, where windows are whole. Dense: all SNVs of 2,504 people,
    one in 36 bp; sparse: one in 700 bp, as in one genome. Token counts are for the whole Mbp,
    seconds for the first `number` SNVs.
    """
    data = Path(os.environ.get("CARBON_DATA", ""))
    if not (data / _VCF).is_file():
        print("CARBON_DATA names no folder: real variants are left out")
        return
    runner = random_model("mini").runner
    with Reference(data / _FASTA) as reference:
        rows = VcfReader(data / _VCF, reference)
        snvs = [v for row in rows for v in row.variants if len(v.ref) == len(v.alt) == 1]
        every = max(1, round(700 * len(snvs) / reference.contig_lengths_bp[snvs[0].contig]))
        sets = {"centered": snvs[len(snvs) // 2 :][:4], "dense": snvs, "sparse": snvs[::every]}
        tokens, seconds = {}, {}
        for name, some in sets.items():
            protocol: Any = "centered" if name == "centered" else "tiled"
            method = method_for(runner, VariantOptions(protocol=protocol, window_bp=WINDOW_BP))
            scores = score_variants(runner, reference, some[:number], method)
            seconds[name] = timed(partial(list, scores))() / len(some[:number])
            blocks = in_blocks(some, 512)
            read = sum(num_tokens(runner, reference, block, method) for block in blocks)
            tokens[name] = read / len(some)
    # The aims: at a genome's density a fifth of the tokens, for dense SNVs a tenth.
    for (name, fewer), (unit, of, part) in product(
        (("dense", 10), ("sparse", 5)), (("fewer_tokens", tokens, 1), ("faster", seconds, 2))
    ):
        ratio = of["centered"] / of[name]
        yield at_least(f"tiled:{name}:{unit}", ratio, "times", fewer / part)


def of_generation(model: Model, prompts: int, length_bp: int, repeats: int) -> Iterator[Measure]:
    """Measure token mode and base mode, in bases per second."""
    texts = [random_bases(300 + n, n) for n in range(prompts)]
    by_token, by_base = in_turns(
        repeats,
        *(timed(partial(model.generate, texts, length_bp, mode=m)) for m in ("token", "base")),
    )
    yield Measure("generate:token", prompts * length_bp / by_token, "bp/s")
    yield at_least("generate:base_against_token", by_token / by_base, "times", 0.95)

"""Variants, scans and generation compared with plain transformers loops.

Used by `bench/run.py inference`. The loops implement the published protocols literally: both
windows of every variant in full, with a log-softmax over the whole vocabulary; `right_end` one
variant at a time.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carbon.batching import in_blocks
from carbon.genome import Interval, Reference, Variant, VcfReader
from carbon.inference import Model, VariantScore, load
from carbon.inference.jobs import LoadingOptions, VariantJob
from carbon.inference.options import ProtocolName, VariantOptions
from carbon.inference.variants import method_for, score_variants
from carbon.inference.variants.files import VariantScorer, score_vcf
from carbon.inference.variants.score import num_tokens
from carbon.model import PRESETS, LoadedModel, save_model
from carbon.parallel.driver import Workers
from carbon.parallel.engines import InProcess
from carbon.pretrained import entry
from carbon.tokenizer import NATIVE, encode
from train.models.network import stock_network

WINDOW_BP = 8192
RIGHT_END_BP = 24_000
_BATCH_WINDOWS = 2  # batch size of the published script
_VCF = "variants_chr20/1000G_phase3.chr20_1M_2M.vcf.gz"
_FASTA = "variants_chr20/GRCh37.chr20_1M_2M.fa.gz"


def random_model(preset: str) -> Model:
    """Return a network of a preset size with random weights."""
    torch.manual_seed(0)
    network = stock_network(PRESETS[preset]())
    return Model(LoadedModel(network.train(False), NATIVE))


def random_reference(folder: Path, length_bp: int) -> Reference:
    """Write a FASTA with one contig of random bases, and open it."""
    bases = np.random.default_rng(0).choice(np.frombuffer(b"ACGT", np.uint8), length_bp)
    path = folder / f"{length_bp}.fa"
    path.write_text(f">c\n{bases.tobytes().decode()}\n", encoding="utf-8")
    return Reference(path)


def all_snvs(reference: Reference, first: int, number: int, step: int = 1) -> list[Variant]:
    """Return the three SNVs at each of `number` positions."""
    found = []
    for position in range(first, first + number * step, step):
        found += _snvs_at(reference, "c", position)
    return found


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
    for i in range(0, len(windows), _BATCH_WINDOWS):
        encoded = [encode(window) for window in windows[i : i + _BATCH_WINDOWS]]
        ids = torch.from_numpy(np.stack([e.ids for e in encoded])).to(network.device)
        log_p = network(ids).logits[:, :-1, rows].log_softmax(dim=-1)
        targets = ids[:, 1:, None] - (rows.start or 0)
        chosen = log_p.gather(2, targets)[..., 0].double()
        # The published script omits the bases downstream of the last whole 6-mer.
        sums += chosen[:, : window_bp // 6].sum(dim=1).tolist()
    return [alt - ref for ref, alt in zip(sums[::2], sums[1::2], strict=True)]


@torch.inference_mode()
def right_end_in_full(model: Model, reference: Reference, variants: list[Variant]) -> list[float]:
    """Read 24 kbp for one variant at a time, with logits at all positions."""
    first_base = torch.arange(4096, device=model.model.network.device) // 1024
    deltas = []
    for variant in variants:
        left = Interval("c", variant.position - RIGHT_END_BP, variant.position)
        ids = torch.from_numpy(encode(reference.fetch(left)).ids)[None].to(first_base.device)
        p = model.model.network(ids).logits[0, -1].softmax(dim=0)[NATIVE.kmer_rows]
        mass = [p[first_base == "ATCG".index(b)].sum().log() for b in (variant.ref, variant.alt)]
        deltas.append(float(mass[1] - mass[0]))
    return deltas


def taken(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the duration of a call in seconds, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def compared(
    ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int
) -> tuple[float, float]:
    """Return the shortest seconds of each; the two alternate, because a machine's speed varies."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for work, found in zip((ours, theirs), times, strict=True):
            found.append(taken(work)[0])
    return min(times[0]), min(times[1])


def centered(model: Model, reference: Reference, positions: int, repeats: int) -> dict[str, float]:
    """Three ALTs a position in 8,192 bp, compared with both windows of each variant in full."""
    variants = all_snvs(reference, 30_000, positions, 997)
    ours = partial(_scores, model, reference, variants, window_bp=WINDOW_BP)
    theirs = partial(deltas_in_full, model, reference, variants, WINDOW_BP)
    # 8,192 bases are 1,365 6-mers and two bases that the literal loop omits.
    found = _scores(model, reference, variants, window_bp=WINDOW_BP - 2)
    expected = deltas_in_full(model, reference, variants, WINDOW_BP - 2, of_kmers=True)
    difference = float(np.abs(np.subtract(found, expected)).max())
    fast, slow = compared(ours, theirs, repeats)
    return {"seconds": fast, "in_full": slow, "difference_nats": difference}


def dense_panel(model: Model, reference: Reference, bases: int) -> dict[str, float]:
    """All SNVs of a region in windows of 2,048 bp; the literal loop takes only every sixth base."""
    variants, some = (all_snvs(reference, 30_000, bases // n, n) for n in (1, 6))
    fast, _ = taken(lambda: _scores(model, reference, variants, window_bp=2048))
    slow, _ = taken(lambda: deltas_in_full(model, reference, some, 2048))
    return {"seconds": fast / len(variants), "in_full": slow / len(some)}


def scans(model: Model, reference: Reference, long: Reference, repeats: int) -> dict[str, float]:
    """All SNVs with at least 24 kbp to the left, compared with `right_end` one by one.

    Token counts are for a scan of all of `long`; the time per token is measured on one window.
    """
    some = all_snvs(reference, 40_000, 1)
    slow, expected = taken(lambda: right_end_in_full(model, reference, some))
    found = _scores(model, reference, some, protocol="right_end")
    result = {
        "right_end_seconds": slow / len(some),
        "difference_nats": float(np.abs(np.subtract(found, expected)).max()),
    }
    window_bp = (model.runner.context_tokens - 1) * 6
    stretch = window_bp - RIGHT_END_BP
    # A whole window of offset 0 starts and ends here, so no window is read only in part.
    start = RIGHT_END_BP + stretch
    region = Interval("c", start, start + stretch)
    options: dict[str, Any] = {"window_bp": window_bp, "least_context_bp": RIGHT_END_BP}
    seconds = []
    for _ in range(repeats):
        took, chunks = taken(lambda: list(model.scan(reference, region, **options)))
        seconds.append(took / sum(chunk.tokens_read for chunk in chunks))
    for offsets in ((0,), (0, 1, 2, 3, 4, 5)):
        tokens = tokens_of_scan(model, long, offsets, options) / 3
        result[f"tokens_a_variant:{len(offsets)}"] = tokens
        result[f"seconds_a_variant:{len(offsets)}"] = tokens * min(seconds)
    return result


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


def tiled(number: int) -> dict[str, float] | None:
    """Real SNVs by `tiled` compared with `centered`, with `mini` and tiles of 8,192 bp.

    `centered` scores four in the middle, where windows are whole.

    Dense: all SNVs of 2,504 people, one in 36 bp; sparse: one in 700 bp, as in one genome. Token
    counts are for the whole Mbp, seconds for the first `number` SNVs. None without real data.
    """
    if (data := _real_data()) is None:
        return None
    model = random_model("mini")
    with Reference(data / _FASTA) as reference:
        rows = VcfReader(data / _VCF, reference)
        snvs = [v for row in rows for v in row.variants if len(v.ref) == len(v.alt) == 1]
        every = max(1, round(700 * len(snvs) / reference.contig_lengths_bp[snvs[0].contig]))
        sets = {"centered": snvs[len(snvs) // 2 :][:4], "dense": snvs, "sparse": snvs[::every]}
        found = {}
        for name, some in sets.items():
            protocol: Any = "centered" if name == "centered" else "tiled"
            options = VariantOptions(protocol=protocol, window_bp=WINDOW_BP)
            method = method_for(model.runner, options)
            scores = score_variants(model.runner, reference, some[:number], method)
            found[f"{name}:seconds"] = taken(partial(list, scores))[0] / len(some[:number])
            found[f"{name}:tokens"] = sum(
                num_tokens(model.runner, reference, block, method) for block in in_blocks(some, 512)
            ) / len(some)
    return found


def of_both_sides(track_bp: int, map_bp: int) -> dict[str, float]:
    """Scan both sides of bases of yeast VIII and map dependencies, with the bundled model."""
    model = load("yeast", device="cpu")
    with Reference(entry("yeast").genome) as reference:
        # The middle of a tile, so that the track reads two tiles, one on each strand.
        track = Interval("VIII", 452_000, 452_000 + track_bp)
        scan = partial(model.scan, reference, track, sides="both")
        square = Interval("VIII", 452_000, 452_000 + map_bp)
        track_seconds, _ = taken(lambda: list(scan()))
        map_seconds, found = taken(lambda: model.dependency(reference, square))
    return {
        "track_bp_per_second": track_bp / track_seconds,
        "map_seconds": map_seconds,
        "map_tokens_per_second": found.tokens_read / map_seconds,
    }


def bundled_scores(number: int, repeats: int) -> dict[str, float]:
    """All scores of one pass compared with the delta alone, for the bundled model's held-out SNVs.

    `centered` with one SNV in 1,009 bp, `tiled` with one in 35, both strands, one ALT a position.
    Calibrated deltas are a look-up after the pass.
    """
    model = load("yeast", device="cpu")
    found: dict[str, float] = {}
    with Reference(entry("yeast").genome) as reference:
        (contig,) = reference.contig_lengths_bp
        for protocol, step in (("centered", 1009), ("tiled", 35)):
            variants = [
                snv
                for position in range(100_000, 100_000 + number * step, step)
                for snv in _snvs_at(reference, contig, position)[:1]
            ]

            def score(*names: Any) -> list[VariantScore]:
                how: Any = {"protocol": protocol, "scores": names}  # noqa: B023
                return list(model.score_variants(reference, variants, **how))  # noqa: B023

            bundle, delta = compared(
                partial(score, "abs_delta", "jsd", "embedding_distance"), score, repeats
            )
            entropy, alone = compared(partial(score, "allele_entropy"), score, repeats)
            found |= {f"{protocol}:bundle": bundle / delta, f"{protocol}:entropy": entropy / alone}
            found[f"{protocol}:delta"] = delta / number
    return found


def _snvs_at(reference: Reference, contig: str, position: int) -> list[Variant]:
    ref = reference.fetch(Interval(contig, position, position + 1)).upper()
    return [Variant(contig, position, ref, alt) for alt in "ACGT" if alt != ref]


def _real_data() -> Path | None:
    data = os.environ.get("CARBON_DATA")
    return Path(data) if data and (Path(data) / _VCF).is_file() else None


def real_panel(folder: Path, number: int) -> dict[str, float] | None:
    """Real variants from VCF to VCF with `tiny` in windows of 1,024 bp; None without real data."""
    if (data := _real_data()) is None:
        return None
    model = random_model("tiny")
    save_model(model.model.network, folder / "tiny")
    with Reference(data / _FASTA) as reference:
        reader = VcfReader(data / _VCF, reference)
        lines = ["\t".join(row.columns) for row in islice(reader, number)]
    vcf = folder / "panel.vcf"
    vcf.write_text("\n".join([*reader.header, *lines]) + "\n", encoding="utf-8")
    job = VariantJob(
        loading=LoadingOptions(model=str(folder / "tiny")),
        reference=data / _FASTA,
        vcf=vcf,
        output=folder / "panel.scored.vcf.gz",
        method=VariantOptions(protocol="centered", window_bp=1024),
    )
    alone = InProcess(lambda: VariantScorer(model, job))
    with _clocked(model) as inside, Workers(alone) as workers:
        whole, done = taken(lambda: score_vcf(job, vcf, workers))
    return {
        "variants": done["alleles"],
        "seconds": whole,
        "network_share": inside["network"] / whole,
        "head_share": inside["head"] / whole,
    }


@contextmanager
def _clocked(model: Model) -> Iterator[dict[str, float]]:
    """Measure the seconds inside the network and in the code that follows it."""
    inside = {"network": 0.0, "head": 0.0}
    body, reader = model.model.network.model, model.runner
    forward, measure = body.forward, reader._measure_states

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            took, result = taken(lambda: call(*arguments, **more))
            inside[name] += took
            return result

        return counted

    body.forward = counting("network", forward)
    reader._measure_states = counting("head", measure)  # type: ignore[method-assign]
    try:
        yield inside
    finally:
        body.forward = forward
        reader._measure_states = measure  # type: ignore[method-assign]


def generation(model: Model, prompts: int, length_bp: int, repeats: int) -> dict[str, float]:
    """Token mode, base mode, and prompts one at a time, in bases per second."""
    random = np.random.default_rng(1)
    texts = ["".join(random.choice(list("ACGT"), 300 + n)) for n in range(prompts)]
    token = partial(model.generate, texts, length_bp, mode="token")
    base = partial(model.generate, texts, length_bp, mode="base")
    by_token, by_base = compared(token, base, repeats)
    alone, _ = taken(lambda: [model.generate([text], length_bp) for text in texts])
    bases = prompts * length_bp
    return {"token": bases / by_token, "base": bases / by_base, "alone": bases / alone}


def scan_random(length_bp: int) -> None:
    """Scan a whole contig with `tiny`; runs in its own process."""
    torch.set_num_threads(1)
    model = random_model("tiny")
    with tempfile.TemporaryDirectory() as folder:
        reference = random_reference(Path(folder), length_bp)
        chunks = model.scan(reference, Interval("c", 0, length_bp))
        assert sum(chunk.interval.length_bp for chunk in chunks) == length_bp


def _scores(
    model: Model,
    reference: Reference,
    variants: list[Variant],
    protocol: ProtocolName = "centered",
    **options: Any,
) -> list[float]:
    scores: Any = model.score_variants(
        reference, variants, protocol=protocol, strands="forward", **options
    )
    return [score.delta for score in scores]

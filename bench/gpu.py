"""Measure a GPU in eight minutes, as one table: `python bench/gpu.py [variants]`.

The kernel of the head against a copy of as many bytes; training, scoring and decoding of `500m` and
`3b` with random weights next to plain `transformers`; with `variants` instead the variants a second
of `tiled` and `centered`. A row is a separate process with a limit of seconds: one that fails is
printed as failed, and the rest continues. `--toy` computes rows at a
toy's sizes, on a CPU as well; its figures mean nothing.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

BUDGET_SECONDS = 480
PEAK_FLOPS = 989e12  # dense bf16 of H100 SXM and H200 (NVIDIA data sheets)
COLUMNS = (
    "tokens_per_second", "share_of_peak", "GB_per_s", "share_of_copy", "peak_gib",
    "variants_per_second", "tokens_per_variant",
)  # fmt: skip

Row = dict[str, float]


class Sizes(NamedTuple):
    """How large the rows of the table are."""

    kernel_tokens: int
    row_tokens: int
    prompts: int
    prompt_tokens: int
    new_tokens: int
    repeats: int
    variants: dict[str, int]  # by protocol
    cache: dict[str, Any]  # of continuous batching, which else takes what memory is free


WHOLE = Sizes(32_768, 8_192, 64, 512, 128, 5, {"tiled": 20_000, "centered": 1_000}, {})
TOY = Sizes(
    256, 64, 4, 16, 8, 2, {"tiled": 8, "centered": 4}, {"num_blocks": 64, "max_batch_tokens": 256}
)
_BP_A_VARIANT = 700  # of one human genome


def kernel(preset: str, sizes: Sizes) -> Row:
    """Return bytes a second of the middle of the head, once read and once written."""
    import torch

    from carbon.losses import fused
    from carbon.losses.objectives import FNS

    device = _device()
    logits = torch.randn(sizes.kernel_tokens, 4096, device=device).bfloat16()
    kmers = torch.randint(4096, (sizes.kernel_tokens,), device=device)
    known = torch.ones(sizes.kernel_tokens, 6, dtype=torch.bool, device=device)
    target = torch.empty_like(logits)
    on_gpu = fused.kernel_chunk_loss(logits)

    def run() -> None:
        if on_gpu:
            on_gpu(target, kmers, known, FNS, None, True)
        else:
            fused.chunk_loss(target, kmers, known, FNS, None, 0, False, True)

    def restored() -> None:
        target.copy_(logits)
        run()

    copied = _seconds(lambda: target.copy_(logits), sizes.repeats)
    took = max(_seconds(restored, sizes.repeats) - copied, 1e-9)
    return {"GB_per_s": 2 * logits.nbytes / took / 1e9, "share_of_copy": copied / took}


def train(preset: str, sizes: Sizes, kind: str) -> Row:
    """Return a step of ours, or of a loop over stock `transformers`: one row of `3b`, else four.

    On one row of `500m` an H200 waits for the host.
    """
    import gpu_training as trials

    from train.config import ParallelConfig
    from train.distributed.mesh import joined_ranks
    from train.models.network import flops_a_token, network_config

    device = _device()
    config = trials.config_of(preset, "full" if preset == "3b" else "none", sizes.row_tokens)
    make = trials.our_step if kind == "ours" else trials.usual_step
    rows = 1 if preset == "3b" else 4
    with joined_ranks(ParallelConfig(), device) as ranks:
        batch = trials.batch_of(rows, ranks.device, sizes.row_tokens)
        step = make(config, ranks, batch)
        speed = rows * sizes.row_tokens / _seconds(step, sizes.repeats)
    return _speed(speed, flops_a_token(network_config(config), sizes.row_tokens))


def score(preset: str, sizes: Sizes, kind: str) -> Row:
    """Return tokens a second of scoring rows of the context, four at a time."""
    import torch

    from carbon.tokenizer import NATIVE, decode_kmers, encode_kmers
    from train.models.network import flops_a_token

    model = _model(preset, sizes)
    kmers = torch.randint(4096, (4, sizes.row_tokens - 1))
    encoded = encode_kmers("A" * 6)
    texts = [
        decode_kmers(type(encoded)(row.numpy(), encoded.known.repeat(len(row)))) for row in kmers
    ]
    ids = torch.nn.functional.pad(kmers + NATIVE.first_kmer, (1, 0), value=NATIVE.pad)
    ids = ids.to(model.runner.device)

    @torch.inference_mode()
    def usual() -> None:
        for row in ids:
            logits = model.model.network(input_ids=row[None], use_cache=False).logits[0, :-1]
            torch.nn.functional.cross_entropy(logits.float(), row[1:]).item()

    work = usual if kind == "usual" else (lambda: list(model.score(texts)))
    flops = flops_a_token(model.model.network.config, sizes.row_tokens) / 3  # no backward
    return _speed(kmers.numel() / _seconds(work, sizes.repeats), flops)


def decode(preset: str, sizes: Sizes, kind: str) -> Row:
    """Return new tokens a second over all prompts, greedy.

    Of ours, of ours with every kernel launched by itself, or of continuous batching.
    """
    import torch
    from transformers import ContinuousBatchingConfig, GenerationConfig

    from carbon.inference.generate import decode

    model = _model(preset, sizes)
    network: Any = model.model.network
    if kind == "without_graphs":
        decode._GRAPH_DEVICES.clear()
    if kind != "continuous_batching":
        prompts = ["ACGTTG" * sizes.prompt_tokens] * sizes.prompts
        work = partial(model.generate, prompts, 6 * sizes.new_tokens, temperature=0.0)
    else:
        ids = torch.randint(130, 4000, (sizes.prompts, sizes.prompt_tokens)).tolist()
        settings: Any = GenerationConfig
        config = settings(
            max_new_tokens=sizes.new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        work = partial(
            network.generate_batch,
            ids,
            generation_config=config,
            continuous_batching_config=ContinuousBatchingConfig(**sizes.cache),
            warmup=False,
        )

    speed = sizes.prompts * sizes.new_tokens / _seconds(work, 2)
    weights = sum(weight.nbytes for weight in network.parameters())
    return _speed(speed) | {"GB_per_s": speed / sizes.prompts * weights / 1e9}


def variants(preset: str, sizes: Sizes, protocol: str) -> Row:
    """Return the variants a second of SNVs at a genome's density on random bases."""
    from carbon.inference import VariantOptions
    from carbon.inference.variants import method_for, score_variants
    from carbon.inference.variants.score import num_tokens

    model, number = _model(preset, sizes), sizes.variants[protocol]
    # The first ones are not timed: kernels are chosen and memory is taken with them.
    num_warm = min(number // 2, 64)
    method = method_for(model.runner, VariantOptions(protocol=protocol))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        reference, snvs = _random_snvs(Path(folder) / "r.fa", num_warm + number)
        list(score_variants(model.runner, reference, snvs[:num_warm], method))
        start = time.perf_counter()
        list(score_variants(model.runner, reference, snvs[num_warm:], method))
        seconds = time.perf_counter() - start
        tokens = num_tokens(model.runner, reference, snvs[num_warm:], method)
    speeds = {"variants_per_second": number / seconds, "tokens_per_variant": tokens / number}
    return _speed(tokens / seconds) | speeds


def _random_snvs(path: Path, number: int) -> tuple[Any, list[Any]]:
    """Write random bases; return them as a reference, and SNVs at a genome's density."""
    import numpy as np

    from carbon.genome import Interval, Reference, Variant

    bases = np.frombuffer(b"ACGT", np.uint8)
    drawn = np.random.default_rng(0).choice(bases, _BP_A_VARIANT * (number + 2))
    path.write_text(f">c\n{drawn.tobytes().decode()}\n", encoding="utf-8")
    reference = Reference(path)
    snvs = []
    for position in range(_BP_A_VARIANT, _BP_A_VARIANT * (number + 1), _BP_A_VARIANT):
        ref = reference.fetch(Interval("c", position, position + 1))
        snvs.append(Variant("c", position, ref, "CGTA"["ACGT".index(ref)]))
    return reference, snvs


# In the order of the request: the time may not be enough for all.
ROWS: dict[str, tuple[Callable[[str, Sizes], Row], str, int]] = {
    "kernel": (kernel, "", 60),
    **{
        f"train_{preset}_{kind}": (partial(train, kind=kind), preset, 75)
        for preset in ("500m", "3b")
        for kind in ("ours", "usual")
    },
    **{
        f"{name}_{preset}_{kind}": (partial(work, kind=kind), preset, 60)
        for preset in ("3b", "500m")
        for name, work, kinds in (
            ("score", score, ("ours", "usual")),
            ("decode", decode, ("ours", "without_graphs", "continuous_batching")),
        )
        for kind in kinds
    },
}
VARIANT_ROWS: dict[str, tuple[Callable[[str, Sizes], Row], str, int]] = {
    f"variants_{preset}_{protocol}": (partial(variants, protocol=protocol), preset, seconds)
    for preset, protocol, seconds in (
        ("3b", "tiled", 300),
        ("3b", "centered", 120),
        ("500m", "tiled", 120),
        ("500m", "centered", 60),
    )
}
GROUPS = {"sequences": ROWS, "variants": VARIANT_ROWS}


def main() -> int:
    """Print each row when it is measured and write `gpu_GROUP.json`; or compute one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", nargs="?", choices=GROUPS, default="sequences")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--row", choices=ROWS | VARIANT_ROWS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        work, preset, _ = (ROWS | VARIANT_ROWS)[arguments.row]
        sizes = TOY if arguments.toy else WHOLE
        print(json.dumps(work("tiny" if arguments.toy else preset, sizes)))
        return 0
    if not arguments.toy and _device() != "cuda":
        parser.error("this bench needs a CUDA device; --toy computes every row on a CPU")
    ends = time.monotonic() + BUDGET_SECONDS
    print(f"{'row':36}" + "".join(f"{column:>19}" for column in COLUMNS), flush=True)
    found: dict[str, Any] = {}
    for name, (_, _, limit) in GROUPS[arguments.group].items():
        found[name] = guarded(name, arguments.toy, min(limit, ends - time.monotonic()))
        print(f"{name:36}{found[name]}" if "failed" in found[name] else _line(name, found[name]),
              flush=True)  # fmt: skip
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": _machine(), "toy": arguments.toy} | found, indent=1)
    (arguments.output / f"gpu_{arguments.group}.json").write_text(text + "\n", encoding="utf-8")
    return int(any("failed" in row for row in found.values()))


def guarded(name: str, toy: bool, limit_seconds: float) -> dict[str, Any]:
    """Return a row that a separate process computed, or the reason that it failed."""
    if limit_seconds < 1:
        return {"failed": "no time was left"}
    words = [sys.executable, __file__, "--row", name, *(["--toy"] if toy else [])]
    root = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            words, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
            check=False, timeout=limit_seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {limit_seconds:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _line(name: str, row: Row) -> str:
    cells = (f"{row[column]:19.4g}" if column in row else " " * 19 for column in COLUMNS)
    return f"{name:36}" + "".join(cells)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _machine() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def _model(preset: str, sizes: Sizes) -> Any:
    import torch

    from carbon.inference import Model
    from carbon.model import PRESETS, LoadedModel
    from carbon.tokenizer import NATIVE
    from train.models.network import stock_network

    torch.manual_seed(0)
    config = PRESETS[preset]()
    config.max_position_embeddings = max(sizes.row_tokens, sizes.prompt_tokens + sizes.new_tokens)
    with torch.device(_device()):
        network = stock_network(config)
    dtype = torch.bfloat16 if _device() == "cuda" else torch.float32
    return Model(LoadedModel(network.to(dtype).train(False), NATIVE))


def _seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of one call, after two that are not counted."""
    import torch

    def timed() -> float:
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return statistics.median([timed() for _ in range(repeats + 2)][2:])


def _speed(tokens_per_second: float, flops_a_token: float = math.nan) -> Row:
    """Return columns of a speed, and the peak of memory where it is counted."""
    import torch

    row = {"tokens_per_second": tokens_per_second}
    if not math.isnan(flops_a_token):
        row["share_of_peak"] = tokens_per_second * flops_a_token / PEAK_FLOPS
    if torch.cuda.is_available():
        row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


if __name__ == "__main__":
    sys.exit(main())

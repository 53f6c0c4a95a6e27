"""Measure a GPU in eight minutes, as one table: `python bench/gpu.py [variants]`.

The kernel of the head against a copy of as many bytes; training, scoring and decoding of `500m` and
`3b` with random weights next to plain `transformers`; with `variants` instead the variants a second
of `tiled` and `centered`. A row is a separate process with a limit of seconds: one that fails is
printed as failed, and the rest continues. `--toy` computes rows at a toy's sizes, on a CPU as well;
its figures mean nothing.
"""

import argparse
import json
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

import torch
from inputs import random_reference, snvs_at
from masked_sums import MaskedSums
from measure import timed
from transformers import ContinuousBatchingConfig, GenerationConfig

from carbon.inference import Model, VariantOptions
from carbon.inference.generate import decode as decoding
from carbon.inference.variants import method_for, score_variants
from carbon.inference.variants.score import num_tokens
from carbon.losses import fused
from carbon.losses.objectives import FNS
from carbon.model import PRESETS, LoadedModel
from carbon.tokenizer import NATIVE, decode_kmers, encode_kmers
from train.config import ParallelConfig, TrainConfig
from train.distributed.context import Batch, packed_batch
from train.distributed.mesh import Ranks, joined_ranks, trained_parameters
from train.distributed.parallelize import build_stages
from train.distributed.pipeline import Pipeline, finish_gradients
from train.models.network import build_network, flops_a_token, network_config, stock_network
from train.optim import make_optimizers

BUDGET_SECONDS = 480
PEAK_FLOPS = 989e12  # dense bf16 of H100 SXM and H200 (NVIDIA data sheets)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
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
    logits = torch.randn(sizes.kernel_tokens, 4096, device=DEVICE).bfloat16()
    kmers = torch.randint(4096, (sizes.kernel_tokens,), device=DEVICE)
    known = torch.ones(sizes.kernel_tokens, 6, dtype=torch.bool, device=DEVICE)
    target = torch.empty_like(logits)
    on_gpu = fused.kernel_chunk_loss(logits)

    def restored() -> None:
        target.copy_(logits)
        if on_gpu:
            on_gpu(target, kmers, known, FNS, None, True)
        else:
            fused.chunk_loss(target, kmers, known, FNS, None, 0, False, True)

    copied = _seconds(lambda: target.copy_(logits), sizes.repeats)
    took = max(_seconds(restored, sizes.repeats) - copied, 1e-9)
    return {"GB_per_s": 2 * logits.nbytes / took / 1e9, "share_of_copy": copied / took}


def train(preset: str, sizes: Sizes, kind: str) -> Row:
    """Return a step of ours, or of a loop over stock `transformers`: one row of `3b`, else four.

    On one row of `500m` an H200 waits for the host.
    """
    rows, tokens = 1 if preset == "3b" else 4, sizes.row_tokens
    phase = {
        "name": "fns", "objective": "fns", "tokens": tokens, "mixture": {"none": 1.0},
        "context_tokens": tokens, "batch_rows": 1, "learning_rate": 1e-4, "schedule": "constant",
    }  # fmt: skip
    checkpointing = "full" if preset == "3b" else "none"
    table = {
        "output": "none",
        "seed": 0,
        "model": {"preset": preset},
        "data": {"corpus": "none", "microbatch_tokens": tokens},
        "compute": {"compile": True, "activation_checkpointing": checkpointing},
        "phases": [phase],
    }
    config = TrainConfig.from_table(table, "bench/gpu.py")
    kmers = torch.randint(4096, (rows, tokens), device=DEVICE)
    positions = torch.arange(tokens, device=DEVICE) % (tokens // 4)  # four segments a row
    known = torch.full((rows, tokens), 63, dtype=torch.uint8, device=DEVICE)
    batch = packed_batch(
        kmers + NATIVE.first_kmer, positions.expand(rows, -1), kmers.roll(-1, 1), known
    )
    with joined_ranks(ParallelConfig(), DEVICE.type) as ranks:
        step = (our_step if kind == "ours" else usual_step)(config, ranks, batch)
        speed = rows * tokens / _seconds(step, sizes.repeats)
    return _speed(speed, flops_a_token(network_config(config), tokens))


def our_step(config: TrainConfig, ranks: Ranks, batch: Batch) -> Callable[[], None]:
    """Return a step of the trainer."""
    parts = build_stages(config, ranks)
    pipeline = Pipeline(config, ranks, parts)
    (optimizer,) = make_optimizers(config.optimizer, trained_parameters(parts))

    def step() -> None:
        sums = pipeline.forward_backward([batch], FNS)
        finish_gradients(parts, ranks, sums.num_tokens, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def usual_step(config: TrainConfig, ranks: Ranks, batch: Batch) -> Callable[[], None]:
    """Return a step as one would write it: stock network in bf16, logits whole, 24 masked sums."""
    network: Any = build_network(config)
    network.to(ranks.device)
    if config.compute.activation_checkpointing != "none":
        network.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    loss_of = MaskedSums(ranks.device)

    def step() -> None:
        with torch.autocast(ranks.device.type, torch.bfloat16):
            logits = network(
                input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False
            ).logits
        loss_of(logits, batch.targets, batch.known).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def score(preset: str, sizes: Sizes, kind: str) -> Row:
    """Return tokens a second of scoring rows of the context, four at a time."""
    model = _model(preset, sizes)
    kmers = torch.randint(4096, (4, sizes.row_tokens - 1))
    encoded = encode_kmers("A" * 6)
    texts = [
        decode_kmers(type(encoded)(row.numpy(), encoded.known.repeat(len(row)))) for row in kmers
    ]
    ids = torch.nn.functional.pad(kmers + NATIVE.first_kmer, (1, 0), value=NATIVE.pad).to(DEVICE)

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
    model = _model(preset, sizes)
    network: Any = model.model.network
    if kind == "without_graphs":
        decoding._GRAPH_DEVICES.clear()
    if kind != "continuous_batching":
        prompts = ["ACGTTG" * sizes.prompt_tokens] * sizes.prompts
        work = partial(model.generate, prompts, 6 * sizes.new_tokens, temperature=0.0)
    else:
        settings: Any = GenerationConfig
        work = partial(
            network.generate_batch,
            torch.randint(130, 4000, (sizes.prompts, sizes.prompt_tokens)).tolist(),
            generation_config=settings(
                max_new_tokens=sizes.new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
            ),
            continuous_batching_config=ContinuousBatchingConfig(**sizes.cache),
            warmup=False,
        )
    speed = sizes.prompts * sizes.new_tokens / _seconds(work, 2)
    weights = sum(weight.nbytes for weight in network.parameters())
    return _speed(speed) | {"GB_per_s": speed / sizes.prompts * weights / 1e9}


def variants(preset: str, sizes: Sizes, protocol: str) -> Row:
    """Return the variants a second of SNVs at a genome's density on random bases."""
    model, number = _model(preset, sizes), sizes.variants[protocol]
    # The first ones are not timed: kernels are chosen and memory is taken with them.
    num_warm = min(number // 2, 64)
    method = method_for(model.runner, VariantOptions(protocol=protocol))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        length_bp = _BP_A_VARIANT * (num_warm + number + 2)
        reference = random_reference(Path(folder), length_bp)
        places = range(_BP_A_VARIANT, length_bp - _BP_A_VARIANT, _BP_A_VARIANT)
        snvs = snvs_at(reference, places, alts=1)
        warm, rest = snvs[:num_warm], snvs[num_warm:]
        list(score_variants(model.runner, reference, warm, method))
        seconds = timed(lambda: list(score_variants(model.runner, reference, rest, method)))()
        tokens = num_tokens(model.runner, reference, rest, method)
    speeds = {"variants_per_second": number / seconds, "tokens_per_variant": tokens / number}
    return _speed(tokens / seconds) | speeds


class Work(NamedTuple):
    """The function of a row, its preset, and its limit."""

    row: Callable[[str, Sizes], Row]
    preset: str
    limit_seconds: int


def _works(
    row: Callable[..., Row], presets: dict[str, int], kinds: tuple[str, ...]
) -> dict[str, Work]:
    return {
        f"{row.__name__}_{preset}_{kind}": Work(partial(row, kind=kind), preset, limit_seconds)
        for preset, limit_seconds in presets.items()
        for kind in kinds
    }


# In the order of the request: the time may not be enough for all.
_OF_DECODING = ("ours", "without_graphs", "continuous_batching")
GROUPS: dict[str, dict[str, Work]] = {
    "sequences": {
        "kernel": Work(kernel, "", 60),
        **_works(train, {"500m": 75, "3b": 75}, ("ours", "usual")),
        **_works(score, {"3b": 60}, ("ours", "usual")),
        **_works(decode, {"3b": 60}, _OF_DECODING),
        **_works(score, {"500m": 60}, ("ours", "usual")),
        **_works(decode, {"500m": 60}, _OF_DECODING),
    },
    "variants": {
        f"variants_{preset}_{protocol}": Work(partial(variants, protocol=protocol), preset, limit)
        for preset, protocol, limit in (
            ("3b", "tiled", 300),
            ("3b", "centered", 120),
            ("500m", "tiled", 120),
            ("500m", "centered", 60),
        )
    },
}
ROWS = {name: work for group in GROUPS.values() for name, work in group.items()}


def main() -> int:
    """Print each row when it is measured and write `gpu_GROUP.json`; or compute one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", nargs="?", choices=GROUPS, default="sequences")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        work = ROWS[arguments.row]
        if arguments.toy:
            print(json.dumps(work.row("tiny", TOY)))
        else:
            print(json.dumps(work.row(work.preset, WHOLE)))
        return 0
    if not arguments.toy and DEVICE.type != "cuda":
        parser.error("this bench needs a CUDA device; --toy computes every row on a CPU")
    ends = time.monotonic() + BUDGET_SECONDS
    print(f"{'row':36}" + "".join(f"{column:>19}" for column in COLUMNS), flush=True)
    found: dict[str, Any] = {}
    for name, work in GROUPS[arguments.group].items():
        left = min(work.limit_seconds, ends - time.monotonic())
        row = found[name] = guarded(name, arguments.toy, left)
        cells = (f"{row[column]:19.4g}" if column in row else " " * 19 for column in COLUMNS)
        print(f"{name:36}{row if 'failed' in row else ''.join(cells)}", flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    machine = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    text = json.dumps({"machine": machine, "toy": arguments.toy} | found, indent=1)
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


def _model(preset: str, sizes: Sizes) -> Model:
    torch.manual_seed(0)
    config = PRESETS[preset]()
    config.max_position_embeddings = max(sizes.row_tokens, sizes.prompt_tokens + sizes.new_tokens)
    with DEVICE:
        network = stock_network(config)
    dtype = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    return Model(LoadedModel(network.to(dtype).train(False), NATIVE))


def _seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of one call, after two that are not counted."""

    def finished() -> None:
        work()
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()

    return statistics.median([timed(finished)() for _ in range(repeats + 2)][2:])


def _speed(tokens_per_second: float, flops_a_token: float | None = None) -> Row:
    """Return columns of a speed, and the peak of memory where it is counted."""
    row = {"tokens_per_second": tokens_per_second}
    if flops_a_token:
        row["share_of_peak"] = tokens_per_second * flops_a_token / PEAK_FLOPS
    if DEVICE.type == "cuda":
        row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


if __name__ == "__main__":
    sys.exit(main())

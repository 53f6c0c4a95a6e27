"""Speed and memory as ratios, side by side in one run: `python bench/run.py NAME|all [--quick]`.

Prints a table and writes `bench/results/NAME.json`, a list of `{name, value, unit, target, holds}`
with the machine and the versions. One thread, so that a ratio means one core.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from carbon.losses import log_likelihoods, nucleotide_loss
from carbon.tokenizer import decode_kmers, encode_kmers

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number; `target` None where there is none to reach."""

    name: str
    value: float
    unit: str
    target: float | None = None
    holds: bool | None = None


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest of several times, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def tokenizer(quick: bool) -> list[Measure]:
    """Encoding and decoding in bases a second, beside a dictionary in a Python loop and memcpy."""
    size = 5_000_000 if quick else 50_000_000
    letters = np.random.default_rng(0).choice(np.frombuffer(b"ACGT", dtype=np.uint8), size)
    kmers = encode_kmers(letters)
    text = letters[: size // 50].tobytes().decode()
    alphabet = ("A", "T", "C", "G")
    table = {"": 0}
    for _ in range(6):
        table = {w + b: 4 * n + d for w, n in table.items() for d, b in enumerate(alphabet)}

    def loop() -> list[int]:
        return [table[text[i : i + 6]] for i in range(0, len(text) - 5, 6)]

    encode = size / seconds(lambda: encode_kmers(letters), 3) / 1e6
    decode = size / seconds(lambda: decode_kmers(kmers), 3) / 1e6
    by_loop = len(text) / seconds(loop, 3) / 1e6
    copy = size / seconds(letters.copy, 3) / 1e6
    return [
        Measure("encode", encode, "MB/s", 300, encode >= 300),
        Measure("encode_against_loop", encode / by_loop, "times", 50, encode >= 50 * by_loop),
        Measure("decode", decode, "MB/s"),
        Measure("python_loop", by_loop, "MB/s"),
        Measure("memcpy", copy, "MB/s"),
    ]


def _loss_step(kind: str, num_tokens: int) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_tokens, 4096, generator=generator, requires_grad=True)
    kmers = torch.randint(4096, (num_tokens,), generator=generator)
    known = torch.ones(num_tokens, 6, dtype=torch.bool)
    digits = torch.arange(4096)[:, None] // 4 ** torch.arange(5, -1, -1) % 4

    def masked_sums() -> torch.Tensor:
        p = logits.softmax(dim=1)
        total = torch.zeros(())
        for j in range(6):
            sums = torch.stack([p[:, digits[:, j] == b].sum(dim=1) for b in range(4)], dim=1)
            total = total - sums.gather(1, digits[kmers, j][:, None]).log().sum() / 6
        return total

    losses: dict[str, Callable[[], torch.Tensor]] = {
        "fns": lambda: nucleotide_loss(log_likelihoods(logits, kmers), known, 1.0).loss,
        "ce": lambda: torch.nn.functional.cross_entropy(logits, kmers, reduction="sum"),
        "masked_sums": masked_sums,
    }

    def step() -> None:
        logits.grad = None
        losses[kind]().backward()  # type: ignore[no-untyped-call]

    return step


def _peak_bytes(kind: str, num_tokens: int) -> int:
    """Return the peak of resident memory of one step in a process of its own."""
    code = (
        "import resource, sys, torch; torch.set_num_threads(1); sys.path.insert(0, 'bench')\n"
        f"from run import _loss_step; step = _loss_step({kind!r}, {num_tokens})\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; step()\n"
        "print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=RESULTS.parents[1], capture_output=True, text=True
    )
    return int(done.stdout)


def losses(quick: bool) -> list[Measure]:
    """Forward and backward of FNS against torch's cross-entropy and against 24 masked sums."""
    num_tokens = 1024 if quick else 8192
    kinds = ("fns", "ce", "masked_sums")
    took = {kind: seconds(_loss_step(kind, num_tokens), 5) for kind in kinds}
    peak = {kind: _peak_bytes(kind, 32_768) for kind in kinds}
    time_ratio, peak_ratio = took["fns"] / took["ce"], peak["fns"] / peak["ce"]
    return [
        Measure("fns_time_against_ce", time_ratio, "times", 1.1, time_ratio <= 1.1),
        Measure("fns_peak_memory_against_ce", peak_ratio, "times", 1.1, peak_ratio <= 1.1),
        Measure("masked_sums_time_against_fns", took["masked_sums"] / took["fns"], "times"),
        Measure("masked_sums_peak_against_fns", peak["masked_sums"] / peak["fns"], "times"),
        Measure("fns_tokens_per_second", num_tokens / took["fns"], "1/s"),
    ]


BENCHES = {"tokenizer": tokenizer, "losses": losses}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*BENCHES, "all"])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    machine = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("torch", "numpy")},
    }
    RESULTS.mkdir(exist_ok=True)
    for name in BENCHES if arguments.name == "all" else [arguments.name]:
        measures = BENCHES[name](arguments.quick)
        for m in measures:
            target = (
                "" if m.target is None else f"target {m.target:g}: {'yes' if m.holds else 'NO'}"
            )
            print(f"{name:<10} {m.name:<32} {m.value:>12.4g} {m.unit:<6} {target}")
        rows = [asdict(m) | machine for m in measures]
        (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The head's kernel on a GPU, checked and timed: `python bench/gpu_kernel.py [--output FOLDER]`.

At 32,768 tokens of width 3,072 in bf16, the middle of the head reads and writes 0.54 GB of logits.
It is timed against a device-to-device copy of as many bytes, with several launch settings, and the
whole head forward and backward against materialised logits, against CE and against three bare
matrix products. Medians of `triton.testing.do_bench`; the logits that a launch overwrites are
restored before the next, and the copy's time is taken off; outputs are checked in fp64.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from carbon.losses import fused, head_loss, log_likelihoods, nucleotide_loss
from carbon.losses.objectives import CE, FNS, Objective

TOKENS, WIDTH, KMERS = 32_768, 3_072, 4_096
CHECKED = {
    "ce": CE,
    "blend": Objective(token=0.7, bases=0.3),
    "fns": FNS,
    "uniform": Objective(token=0.6, bases=0.3, uniform=0.1),
}
LAUNCHES = [(2, 168), (2, 255), (4, 80), (4, 96), (4, 128), (4, 168), (8, 64), (8, 80), (16, 64)]


def main() -> None:
    """Check, time, print and write `kernel.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this bench needs a CUDA device")
    torch.manual_seed(0)
    rows = [{"name": "machine", "value": torch.cuda.get_device_name(), "torch": torch.__version__}]
    rows += check() + time_kernel() + time_head()
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "kernel.json").write_text(
        json.dumps(rows, indent=1) + "\n", encoding="utf-8"
    )
    for row in rows:
        print(*(f"{key}={value}" for key, value in row.items()))


def inputs(dtype: torch.dtype, tokens: int = TOKENS) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits with some that make marginals underflow, true 6-mers and known bases."""
    logits = 3 * torch.randn(tokens, KMERS, device="cuda")
    logits[: tokens // 64] *= 30
    known = torch.rand(tokens, 6, device="cuda") < 0.97
    return logits.to(dtype), torch.randint(KMERS, (tokens,), device="cuda"), known


def check() -> list[dict[str, Any]]:
    """Compare the kernel with the plain form in fp64 on the same logits."""
    from carbon.losses import kernel

    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for objective_name, objective in CHECKED.items():
            logits, kmers, known = inputs(dtype, 2_048)
            sums, grad = fused.chunk_loss(logits.double(), kmers, known, objective, 0, False, True)
            found, in_place = kernel.chunk_loss(logits, kmers, known, objective, True)
            assert grad is not None and in_place is not None
            of_loss = float((found.loss - sums.loss).abs() / sums.loss.abs())
            of_grad = float((in_place.double() - grad).norm() / grad.norm())
            assert of_loss < 1e-5 and of_grad < (1e-5 if dtype == torch.float32 else 1e-2)
            name = f"error_{str(dtype)[6:]}_{objective_name}"
            rows.append({"name": name, "loss": of_loss, "gradient": of_grad})
    return rows


def median_ms(work: Callable[[], object]) -> float:
    """Return the median time of one call."""
    from triton.testing import do_bench

    return float(do_bench(work, warmup=50, rep=300, return_mode="median"))


def restored(target: Tensor, logits: Tensor, work: Callable[[], object]) -> None:
    """Copy the logits and let `work` overwrite the copy; the copy's own time is known."""
    target.copy_(logits)
    work()


def time_kernel() -> list[dict[str, Any]]:
    """Time one pass over all logits with each launch setting, beside a copy of as many bytes."""
    from carbon.losses import kernel

    rows = []
    for dtype in (torch.bfloat16, torch.float32):
        logits, kmers, known = inputs(dtype)
        target, known_bytes = torch.empty_like(logits), known.view(torch.uint8)
        gigabytes = 2 * logits.nbytes / 1e9
        copied = median_ms(partial(target.copy_, logits))
        nats = torch.empty(3, TOKENS, device="cuda")
        name = str(dtype)[6:]
        rows.append({"name": f"copy_{name}", "ms": copied, "GB_per_s": 1e3 * gigabytes / copied})
        for warps, registers in LAUNCHES:
            launch = partial(
                kernel._token_loss[(TOKENS,)],
                *(target, kmers, known_bytes, nats, TOKENS, FNS.token, FNS.bases, FNS.uniform),
                WITH_GRADIENT=True,
                WITH_UNIFORM=False,
                num_warps=warps,
                maxnreg=registers,
            )
            took = median_ms(partial(restored, target, logits, launch)) - copied
            setting = f"kernel_{name}_warps_{warps}_registers_{registers}"
            speed = 1e3 * gigabytes / took
            rows.append({"name": setting, "ms": took, "GB_per_s": speed, "of_copy": copied / took})
        whole = partial(kernel.chunk_loss, target, kmers, known, FNS, True)
        shipped = median_ms(partial(restored, target, logits, whole)) - copied
        rows.append({"name": f"kernel_{name}_as_shipped_with_sums", "ms": shipped})
        quarter = slice(TOKENS // 4)
        of_quarter = partial(fused.chunk_loss, logits[quarter], kmers[quarter], known[quarter])
        plain = median_ms(partial(of_quarter, FNS, 0, False, True))
        rows.append({"name": f"plain_{name}_four_times_a_quarter", "ms": 4 * plain})
    return rows


def time_head() -> list[dict[str, Any]]:
    """Time forward and backward of the head in bf16, and the peak of memory above its inputs."""
    hidden = torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(KMERS, WIDTH, device="cuda", dtype=torch.bfloat16) / WIDTH**0.5
    weight.requires_grad_()
    _, kmers, known = inputs(torch.bfloat16)
    out = torch.randn(TOKENS, KMERS, device="cuda", dtype=torch.bfloat16)

    def products() -> None:
        with torch.no_grad():
            _ = hidden @ weight.T, out @ weight, out.T @ hidden

    def of(loss: Callable[[], Tensor]) -> Callable[[], None]:
        def step() -> None:
            hidden.grad = weight.grad = None
            loss().backward()  # type: ignore[no-untyped-call]

        return step

    def fused_of(chunk_tokens: int | None) -> Callable[[], Tensor]:
        return lambda: head_loss(hidden, weight, kmers, known, FNS, chunk_tokens=chunk_tokens).loss

    works: dict[str, Callable[[], object]] = {
        "three_products": products,
        "fused": of(fused_of(None)),
        **{f"fused_chunks_of_{n}": of(fused_of(n)) for n in (2_048, 8_192, 32_768)},
        "materialised": of(
            lambda: nucleotide_loss(log_likelihoods(hidden @ weight.T, kmers), known, FNS).loss
        ),
        "cross_entropy": of(
            lambda: torch.nn.functional.cross_entropy(hidden @ weight.T, kmers, reduction="sum")
        ),
    }
    rows = []
    for name, work in works.items():
        took = median_ms(work)
        hidden.grad = weight.grad = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        peak = (torch.cuda.max_memory_allocated() - before) / 2**20
        tflops = 6 * TOKENS * WIDTH * KMERS / took / 1e9
        rows.append({"name": f"head_{name}", "ms": took, "TFLOP_per_s": tflops, "peak_MiB": peak})
    return rows


if __name__ == "__main__":
    main()

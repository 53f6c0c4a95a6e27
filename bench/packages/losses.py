"""Forward and backward of head and loss: CE, FNS, FNS fused, FNS as 24 masked sums."""

import subprocess
import sys
from collections.abc import Callable

import torch
from measure import PEAK, ROOT, Measure, ratio
from timing import seconds

from carbon.losses import head_loss, log_likelihoods, nucleotide_loss
from carbon.losses.objectives import FNS


def measures(quick: bool) -> list[Measure]:
    widths, lengths = ((512,), (2048,)) if quick else ((512, 1536, 3072), (2048, 8192, 32_768))
    sizes = [(num_tokens, width) for width in widths for num_tokens in lengths]
    found = []
    for num_tokens, width in sizes:
        at = f"{num_tokens}x{width}"
        kinds = ["fused", "fns", "ce"] + (["masked_sums"] if num_tokens == 2048 else [])
        took = {k: seconds(loss_step(k, num_tokens, width), 3) for k in kinds}
        peak = {k: _peak_bytes(k, num_tokens, width) for k in kinds}
        found += [
            ratio(f"fns_time_against_ce_{at}", took["fns"] / took["ce"], 1.1),
            ratio(f"fns_peak_against_ce_{at}", peak["fns"] / peak["ce"], 1.1),
            ratio(f"fused_time_against_fns_{at}", took["fused"] / took["fns"], 1.05),
            ratio(
                f"fused_peak_against_fns_{at}",
                peak["fused"] / peak["fns"],
                0.25 if num_tokens == 32_768 else None,
            ),
            Measure(f"fused_tokens_per_second_{at}", num_tokens / took["fused"], "1/s"),
        ]
        if "masked_sums" in kinds:
            times = took["masked_sums"] / took["fused"]
            found.append(ratio(f"masked_sums_time_against_fused_{at}", times, None))
    kind, num_tokens, width = "masked_sums_of_vocabulary", 512, 512
    step, fused = (loss_step(k, num_tokens, width) for k in (kind, "fused"))
    times = seconds(step, 1) / seconds(fused, 3)
    peaks = _peak_bytes(kind, num_tokens, width) / _peak_bytes("fused", num_tokens, width)
    return [
        *found,
        ratio("vocabulary_masked_sums_time_against_fused_512x512", times, None),
        ratio("vocabulary_masked_sums_peak_against_fused_512x512", peaks, None),
    ]


def loss_step(kind: str, num_tokens: int, width: int) -> Callable[[], object]:
    """Return forward and backward of head and loss, from hidden states of `width`."""
    generator = torch.Generator().manual_seed(0)
    rows = 155_776 if kind == "masked_sums_of_vocabulary" else 4096
    first = 151_672 if rows > 4096 else 0
    hidden = torch.randn(num_tokens, width, generator=generator, requires_grad=True)
    weight = (torch.randn(rows, width, generator=generator) / width**0.5).requires_grad_()
    kmers = torch.randint(4096, (num_tokens,), generator=generator)
    known = torch.ones(num_tokens, 6, dtype=torch.bool)
    digits = torch.arange(4096)[:, None] // 4 ** torch.arange(5, -1, -1) % 4

    def masked_sums() -> torch.Tensor:
        p = (hidden @ weight.T).softmax(dim=1)[:, first : first + 4096]
        total = torch.zeros(())
        for j in range(6):
            sums = torch.stack([p[:, digits[:, j] == b].sum(dim=1) for b in range(4)], dim=1)
            total = total - sums.gather(1, digits[kmers, j][:, None]).log().sum() / 6
        return total

    def of_logits() -> torch.Tensor:
        return nucleotide_loss(log_likelihoods(hidden @ weight.T, kmers), known, FNS).loss

    losses: dict[str, Callable[[], torch.Tensor]] = {
        "fused": lambda: head_loss(hidden, weight, kmers, known, FNS).loss,
        "fns": of_logits,
        "ce": lambda: torch.nn.functional.cross_entropy(hidden @ weight.T, kmers, reduction="sum"),
        "masked_sums": masked_sums,
        "masked_sums_of_vocabulary": masked_sums,
    }

    def step() -> None:
        hidden.grad = weight.grad = None
        losses[kind]().backward()  # type: ignore[no-untyped-call]

    return step


def _peak_bytes(kind: str, num_tokens: int, width: int) -> int:
    """Return the peak resident memory of one step in a separate process.

    A step of 128 tokens goes before, so that what torch loads at first use (75 MiB for a custom
    operator) is not counted as the loss's.
    """
    code = (
        f"{PEAK}import sys, torch; torch.set_num_threads(1); sys.path.insert(0, 'bench')\n"
        f"from packages.losses import loss_step; loss_step({kind!r}, 128, {width})()\n"
        f"step = loss_step({kind!r}, {num_tokens}, {width})\n"
        "before = peak(); step()\n"
        "print(peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)

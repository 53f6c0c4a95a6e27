"""Forward and backward of head and loss, in time and memory: CE, FNS, and FNS fused."""

from collections.abc import Callable

import torch
from measure import Measure, at_most, in_own_process, peak_bytes, seconds

from carbon.losses import head_loss, log_likelihoods, nucleotide_loss
from carbon.losses.objectives import FNS

KINDS = ("fused", "fns", "ce")


def measures(quick: bool) -> list[Measure]:
    widths, lengths = ((512,), (2048,)) if quick else ((512, 1536, 3072), (2048, 8192, 32_768))
    found = []
    for num_tokens, width in ((n, width) for width in widths for n in lengths):
        at = f"{num_tokens}x{width}"
        took = {kind: seconds(loss_step(kind, num_tokens, width), 3) for kind in KINDS}
        peak = {
            kind: in_own_process(
                "packages.losses", f"added_bytes({kind!r}, {num_tokens}, {width})"
            ).result
            for kind in KINDS
        }
        of_whole = peak["fused"] / peak["fns"]
        name = f"fused_peak_against_fns_{at}"
        found += [
            at_most(f"fns_time_against_ce_{at}", took["fns"] / took["ce"], "times", 1.1),
            at_most(f"fns_peak_against_ce_{at}", peak["fns"] / peak["ce"], "times", 1.1),
            at_most(f"fused_time_against_fns_{at}", took["fused"] / took["fns"], "times", 1.05),
            at_most(name, of_whole, "times", 0.25)
            if num_tokens == 32_768
            else Measure(name, of_whole, "times"),
            Measure(f"fused_tokens_per_second_{at}", num_tokens / took["fused"], "1/s"),
        ]
    return found


def loss_step(kind: str, num_tokens: int, width: int) -> Callable[[], object]:
    """Return forward and backward of head and loss, from hidden states of `width`."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, width, generator=generator, requires_grad=True)
    weight = (torch.randn(4096, width, generator=generator) / width**0.5).requires_grad_()
    kmers = torch.randint(4096, (num_tokens,), generator=generator)
    known = torch.ones(num_tokens, 6, dtype=torch.bool)

    def of_logits() -> torch.Tensor:
        return nucleotide_loss(log_likelihoods(hidden @ weight.T, kmers), known, FNS).loss

    losses: dict[str, Callable[[], torch.Tensor]] = {
        "fused": lambda: head_loss(hidden, weight, kmers, known, FNS).loss,
        "fns": of_logits,
        "ce": lambda: torch.nn.functional.cross_entropy(hidden @ weight.T, kmers, reduction="sum"),
    }

    def step() -> None:
        hidden.grad = weight.grad = None
        losses[kind]().backward()  # type: ignore[no-untyped-call]

    return step


def added_bytes(kind: str, num_tokens: int, width: int) -> int:
    """Return how much a step adds to the peak of this process's memory.

    A step of 128 tokens goes before, so that what torch loads at first use (75 MiB for a custom
    operator) is not counted as the loss's.
    """
    torch.set_num_threads(1)
    loss_step(kind, 128, width)()
    step = loss_step(kind, num_tokens, width)
    before = peak_bytes()
    step()
    return peak_bytes() - before

"""The least time of a training step on a GPU, by arithmetic: `python bench/roofline.py`.

One row of 8,192 tokens a GPU, eight GPUs that divide weights and moments among them, bf16 with
no activation recomputed. A kind of work takes at least its operations over the card's peak and its
bytes over the bandwidth, whichever is longer; collectives may overlap with the rest. The script
runs nothing, so its figures are not measurements.
"""

from typing import NamedTuple

from carbon.model import PRESETS
from carbon.tokenizer import NUM_KMERS
from train.models.network import Sizes

ROW_TOKENS, GPUS = 8_192, 8


class Card(NamedTuple):
    """Peak rates of a card."""

    flops: float
    bytes_a_second: float
    link_bytes_a_second: float


# NVIDIA's data sheets of H100 SXM and H200 SXM: dense bf16, memory, and NVLink in one direction.
CARDS = {"H100": Card(989e12, 3.35e12, 450e9), "H200": Card(989e12, 4.8e12, 450e9)}


class Work(NamedTuple):
    """Operations and bytes of a kind of work in a step, of one GPU."""

    flops: float
    bytes: float

    def seconds(self, card: Card) -> float:
        """Return the least time that it takes."""
        return max(self.flops / card.flops, self.bytes / card.bytes_a_second)


def works(preset: str) -> dict[str, Work]:
    """Return the work of a step without collectives: activations, weights in bf16, moments fp32."""
    sizes = Sizes.of(PRESETS[preset]())
    tokens, layers = ROW_TOKENS, sizes.num_layers
    matrices = sum(inputs * outputs for inputs, outputs in sizes.linears.values())
    widths = sum(inputs + outputs for inputs, outputs in sizes.linears.values())
    head = NUM_KMERS * sizes.hidden
    logits = 2 * tokens * NUM_KMERS
    return {
        # Three products a matrix: each reads two and writes one of weight, input and output.
        "matrices": Work(
            6 * layers * matrices * tokens, 3 * 2 * layers * (matrices + widths * tokens)
        ),
        # Two products forward, four backward (and the scores again), half of them causal.
        "attention": Work(
            layers * (4 + 10) * sizes.query * tokens**2 / 2,
            2 * layers * tokens * (3 * 2 * sizes.query + 3 * 2 * sizes.key),
        ),
        # Logits are written, made gradients in place, and read by two products.
        "head_and_loss": Work(
            6 * head * tokens, 5 * logits + 3 * 2 * (head + tokens * sizes.hidden)
        ),
        # Fused: two norms, two sums, rotations, SwiGLU; forward once, backward twice as much.
        "norms_and_gates": Work(
            0,
            3 * 2 * layers * tokens
            * (7 * sizes.hidden + 2 * (sizes.query + sizes.key) + 3 * sizes.mlp),
        ),
        # fp32: weight, gradient and two moments are read, three of them written.
        "optimizer": Work(0, 28 * parameters(sizes) / GPUS),
    }  # fmt: skip


def parameters(sizes: Sizes) -> int:
    """Return the weights of a network."""
    return sizes.num_layers * sizes.layer_parameters + sizes.end_parameters(True, True)


def collective_seconds(preset: str, card: Card) -> float:
    """Return the time of two gathers in bf16 and one sum of gradients in fp32 over the links."""
    count = parameters(Sizes.of(PRESETS[preset]()))
    return (2 + 2 + 4) * count * (GPUS - 1) / GPUS / card.link_bytes_a_second


def main() -> None:
    """Print the table as Markdown."""
    names = list(works("tiny"))
    heads = [*(name.replace("_", " ") for name in names), "all", "collectives", "highest MFU %"]
    print(f"| ms | {' | '.join(heads)} |\n" + "|---" * (len(heads) + 1) + "|")
    for preset in ("500m", "3b", "8b"):
        for card_name, card in CARDS.items():
            print(f"| {preset}, {card_name} | {' | '.join(cells(preset, card))} |")


def cells(preset: str, card: Card) -> list[str]:
    """Return a line of the table: milliseconds, and the MFU that no way of computing exceeds."""
    found = works(preset)
    times = [work.seconds(card) for work in found.values()]
    recomputed = found["attention"].flops * 2 / 14  # the scores, in backward
    useful = (sum(work.flops for work in found.values()) - recomputed) / card.flops
    numbers = [*times, sum(times), collective_seconds(preset, card)]
    return [*(f"{1e3 * number:.1f}" for number in numbers), f"{100 * useful / sum(times):.0f}"]


if __name__ == "__main__":
    main()

"""The table of docs/developers/planner.md: `python -m bench.plan`.

The layouts that the recipes ship, on GPUs of 80 GB and 989e12 operations a second, at 40 % of them
while a GPU does not wait. Nothing is run: it prints what `train.planning.plan` counts.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from carbon.io.config import read_table
from train.config import TrainConfig, read_recipe
from train.planning.plan import PhasePlan, Plan, plan_of
from train.schedule import Schedule

RECIPES = Path(__file__).parents[1] / "train" / "recipes"
PEAK_FLOPS = 989e12  # dense bf16 of an H100 SXM, NVIDIA's data sheet
MFU = 0.4
HEAD = (
    "recipe | GPUs | pipeline x replicate x shard | schedule | GPUs a row | context | batch rows"
    " | computed anew | microbatches of rows | weights, moments GB | activations GB | most GB"
    " | idle % | days"
)


def shipped_layouts() -> Iterator[tuple[Path, int]]:
    """Yield recipes and the numbers of GPUs that they have layouts for."""
    for name in ("carbon_500m", "carbon_3b", "carbon_8b"):
        path = RECIPES / f"{name}.toml"
        layouts = {*map(int, read_table(path)["layouts"]), 8}
        yield from ((path, gpus) for gpus in sorted(layouts))


def config_of(path: Path, gpus: int) -> TrainConfig:
    """Return a recipe as a run on so many GPUs has it."""
    return TrainConfig.from_table(read_recipe(path, (), gpus), str(path))


def lines(path: Path, gpus: int) -> Iterator[str]:
    """Return lines of the table: stages of one context together."""
    config = config_of(path, gpus)
    plan = plan_of(config, Schedule(config), gpus, peak_flops=PEAK_FLOPS, mfu=MFU)
    for _, spans in itertools.groupby(plan.spans, key=lambda span: span.context_tokens):
        yield " | ".join(cells(path.stem, config, plan, list(spans)))


def cells(recipe: str, config: TrainConfig, plan: Plan, spans: list[PhasePlan]) -> Iterator[str]:
    """Return a line of the table."""
    span, mesh = spans[0], plan.layout.mesh
    fullest = max(span.memory, key=lambda memory: memory.peak)
    yield recipe
    yield f"{plan.world_size}"
    yield f"{mesh.pipeline} x {mesh.replicate} x {mesh.fsdp}"
    yield config.parallel.schedule if mesh.pipeline > 1 else "-"
    yield f"{mesh.context}"
    yield f"{span.context_tokens:,}"
    yield f"{span.batch_rows:,}"
    yield config.compute.activation_checkpointing
    yield f"{span.num_microbatches} of {span.microbatch_rows}"
    yield f"{(fullest.weights + fullest.moments) / 1e9:.1f}"
    yield f"{fullest.activations / 1e9:.1f}"
    yield f"{fullest.peak / 1e9:.1f}"
    yield f"{100 * span.idle_share:.0f}"
    yield f"{sum(span.seconds or 0 for span in spans) / 86_400:,.1f}"


def main() -> None:
    """Print the table as Markdown."""
    print(f"| {HEAD} |")
    print("|---" * len(HEAD.split(" | ")) + "|")
    for path, gpus in shipped_layouts():
        for line in lines(path, gpus):
            print(f"| {line} |")


if __name__ == "__main__":
    main()

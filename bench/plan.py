"""The table of docs/developers/planner.md: `python -m bench.plan`.

The recipes' layouts on GPUs with 80 GB and 989e12 operations per second, 40 % of which are achieved
while a GPU does not wait. The script runs no training; it prints counts of `train.planning.plan`.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from carbon.io.config import read_table
from train.config import TrainConfig, read_recipe
from train.planning.plan import Plan, SpanPlan, plan_of
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
    """Yield each recipe with each number of GPUs for which it has a layout."""
    for name in ("carbon_500m", "carbon_3b", "carbon_8b"):
        path = RECIPES / f"{name}.toml"
        layouts = {*map(int, read_table(path)["layouts"]), 8}
        yield from ((path, gpus) for gpus in sorted(layouts))


def config_of(path: Path, gpus: int) -> TrainConfig:
    """Return a recipe's configuration for a run on `gpus` GPUs."""
    return TrainConfig.from_table(read_recipe(path, (), gpus), str(path))


def lines(path: Path, gpus: int) -> Iterator[str]:
    """Return lines of the table, one for consecutive phases with the same context length."""
    config = config_of(path, gpus)
    plan = plan_of(config, Schedule(config), gpus, peak_flops=PEAK_FLOPS, mfu=MFU)
    for _, spans in itertools.groupby(plan.spans, key=lambda span: span.context_tokens):
        yield " | ".join(cells(path.stem, config, plan, list(spans)))


def cells(recipe: str, config: TrainConfig, plan: Plan, spans: list[SpanPlan]) -> Iterator[str]:
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

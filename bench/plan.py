"""The table of docs/plan.md: `python bench/plan.py`.

Layouts of the 3B and 8B recipes on GPUs of 80 GB and 989e12 operations a second, at 40 % of them
while a GPU does not wait. Nothing is run: it prints what `train.planning.planner` counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from carbon.config import load_config
from train.config import ComputeConfig, ParallelConfig, TrainConfig
from train.planning.course import Course
from train.planning.planner import Plan, plan_of

RECIPES = Path(__file__).parents[1] / "train" / "recipes"
PEAK_FLOPS = 989e12  # dense bf16 of an H100 SXM, NVIDIA's data sheet
MFU = 0.4
NODE = 8  # weights are sharded inside a node, and whole between nodes

NO_PIPELINE = ParallelConfig()
FOUR = ParallelConfig(pipeline=4, schedule="interleaved_1f1b")
TWO = ParallelConfig(pipeline=2, schedule="interleaved_zero_bubble")
EIGHT = ParallelConfig(pipeline=8, schedule="interleaved_zero_bubble")


@dataclass(frozen=True)
class Case:
    """A layout; `context_tokens` chooses the stages, `times_rows` enlarges their batches."""

    context_tokens: int
    gpus: int
    parallel: ParallelConfig
    compute: ComputeConfig
    times_rows: int = 1


NONE = ComputeConfig(activation_checkpointing="none")
SELECTIVE = ComputeConfig(activation_checkpointing="selective")
FULL = ComputeConfig(activation_checkpointing="full")
CASES = [
    Case(8192, 8, NO_PIPELINE, SELECTIVE),
    Case(8192, 64, NO_PIPELINE, SELECTIVE),
    Case(8192, 64, FOUR, SELECTIVE),
    Case(8192, 512, TWO, NONE),
    Case(8192, 512, NO_PIPELINE, SELECTIVE, times_rows=4),
    Case(32_768, 8, NO_PIPELINE, FULL),
    Case(32_768, 64, NO_PIPELINE, FULL),
    Case(32_768, 512, EIGHT, NONE),
]
HEAD = (
    "recipe | context | GPUs | batch rows | pipeline x replicate x shard | schedule | computed anew"
    " | microbatches of a row | weights, moments | activations | most GiB | idle % | days"
)


def plan_of_case(recipe: str, case: Case) -> Plan:
    """Return the plan of those stages of a recipe that have the case's context."""
    config = load_config(TrainConfig, RECIPES / f"{recipe}.toml")
    stages = tuple(
        replace(stage, batch_rows=stage.batch_rows * case.times_rows)
        for stage in config.stages
        if stage.context_tokens == case.context_tokens
    )
    copies = case.gpus // (case.parallel.pipeline * NODE)
    config = replace(
        config,
        stages=stages,
        parallel=replace(case.parallel, replicate=copies),
        compute=case.compute,
        data=replace(config.data, microbatch_tokens=case.context_tokens),
    )
    return plan_of(config, Course(config), case.gpus, peak_flops=PEAK_FLOPS, mfu=MFU)


def cells(recipe: str, case: Case) -> Iterator[str]:
    """Return a line of the table."""
    plan = plan_of_case(recipe, case)
    span, layout = plan.spans[0], plan.layout
    fullest = max(span.memory, key=lambda memory: memory.peak)
    assert plan.seconds is not None
    yield recipe
    yield f"{case.context_tokens:,}"
    yield f"{case.gpus}"
    yield f"{span.batch_rows:,}"
    yield f"{layout.pipeline} x {layout.replicate} x {layout.shard}"
    yield case.parallel.schedule if layout.pipeline > 1 else "-"
    yield case.compute.activation_checkpointing
    yield f"{span.num_microbatches}"
    yield f"{(fullest.weights + fullest.moments) / 2**30:.1f}"
    yield f"{fullest.activations / 2**30:.1f}"
    yield f"{plan.peak_bytes / 2**30:.1f}"
    yield f"{100 * span.idle_share:.0f}"
    yield f"{plan.seconds / 86_400:.1f}"


def main() -> None:
    """Print the table as Markdown."""
    print(f"| {HEAD} |")
    print("|---" * len(HEAD.split(" | ")) + "|")
    for recipe in ("carbon_3b", "carbon_8b"):
        for case in CASES:
            print(f"| {' | '.join(cells(recipe, case))} |")


if __name__ == "__main__":
    main()

"""A plan as a person reads it."""

import sys
from dataclasses import fields

from carbon.progress import TableRow, text_table
from train.planning.memory import Memory
from train.planning.mesh import Mesh
from train.planning.plan import Plan
from train.planning.workers import WorkersPlan


def print_plan(plan: Plan, num_devices: int) -> None:
    """Print a plan as TOML comments; each process has a device, except that CPUs are shared."""
    layout = plan.layout
    mib = plan.peak_bytes < 2**30
    lines = [
        f"processes: {plan.world_size} ({_mesh(layout.mesh)}); {plan.dtype}",
        f"{plan.num_parameters:,} parameters{_trained(plan)}",
        "",
        *_rank_table(plan),
        "",
        *_span_table(plan, num_devices),
        *_total(plan),
        "",
        f"{'MiB' if mib else 'GiB'} of the fullest process:",
        *_memory_table(plan, 2**20 if mib else 2**30),
    ]
    _print_comments(lines)


def print_workers(plan: WorkersPlan, seconds: float | None, advice: str) -> None:
    """Print what workers exchange, as TOML comments.

    Args:
        plan: of a round.
        seconds: in which one of them would take all steps; None: not known.
        advice: a line below; empty: none.
    """
    lines = ["", *text_table(plan.rows()).splitlines()]
    if seconds is not None:
        shared = _duration(seconds / plan.workers)
        lines += ["", f"{plan.workers} workers share the steps: {shared} without exchanges"]
    if advice:
        lines += ["", advice]
    _print_comments(lines)


def _print_comments(lines: list[str]) -> None:
    sys.stdout.write("".join(f"# {line}".rstrip() + "\n" for line in lines))


def _mesh(mesh: Mesh) -> str:
    """Write the axes of a mesh; context and tensor only where they divide something."""
    axes = [f"pipeline {mesh.pipeline}", f"replicate {mesh.replicate}", f"shard {mesh.shard}"]
    axes += [f"{a} {getattr(mesh, a)}" for a in ("context", "tensor") if getattr(mesh, a) > 1]
    return " x ".join(axes)


def _trained(plan: Plan) -> str:
    return "" if plan.num_trained == plan.num_parameters else f", {plan.num_trained:,} trained"


def _rank_table(plan: Plan) -> list[str]:
    layout = plan.layout
    rows: list[TableRow] = [("rank", "parameters", "of a shard", "layers")]
    for rank, count in enumerate(plan.parameters_of_rank):
        layers = [layout.stages[i] for i in layout.of_rank[rank]]
        names = ", ".join(f"{piece.start} to {piece.stop - 1}" for piece in layers)
        rows.append((rank, count, -(-count // (layout.mesh.fsdp * layout.mesh.tensor)), names))
    return text_table(rows).splitlines()


def _span_table(plan: Plan, num_devices: int) -> list[str]:
    rows: list[TableRow] = [
        (
            *("phase", "context", "batch rows", "rows a rank", "microbatch", "microbatches"),
            *("steps", "tokens", "FLOP", "idle %", "hours", "device-hours"),
        )
    ]
    for span in plan.spans:
        hours: TableRow = ("", "")
        if span.seconds is not None:
            hours = (span.seconds / 3600, span.seconds * num_devices / 3600)
        rows.append(
            (
                *(span.phase, span.context_tokens, span.batch_rows, span.rank_rows),
                *(span.microbatch_rows, span.num_microbatches, span.num_steps, span.num_tokens),
                *(f"{span.flops:.3g}", 100 * span.idle_share, *hours),
            )
        )
    return text_table(rows).splitlines()


def _total(plan: Plan) -> list[str]:
    return [] if plan.seconds is None else [f"all phases: {_duration(plan.seconds)}"]


def _duration(seconds: float) -> str:
    """Write a time in the largest unit that it fills twice.

    >>> _duration(300), _duration(9e9)
    ('5 minutes', '285 years')
    """
    units = (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
    for name, unit in units:
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} seconds"


def _memory_table(plan: Plan, unit: int) -> list[str]:
    names = [field.name for field in fields(Memory)]
    rows: list[TableRow] = [("phase", "rank", *(name.replace("_", " ") for name in names), "peak")]
    for span in plan.spans:
        rank, memory = max(enumerate(span.memory), key=lambda found: found[1].peak)
        sizes = [getattr(memory, name) / unit for name in (*names, "peak")]
        rows.append((f"{span.phase} {span.context_tokens}", rank, *sizes))
    return text_table(rows).splitlines()

"""Learners against one process with equal tokens: held-out nats per base, bytes, seconds.

    python bench/learners.py OUTPUT --corpus CORPUS [--tokens 300000] [--seeds 3]

Each case trains the preset `tiny` on as many tokens, one row of 256 a step of a learner, so that
even four learners meet often; two thirds with CE and the rest with FNS. Its anchor is measured on
held-out records. What has been measured stands in OUTPUT/results.jsonl, and the same command goes
on from there. Seconds on a link are those of the steps, as they were measured for one process
alone, and of exchanges by arithmetic (docs/plan.md).
"""

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carbon.console import run_command
from carbon.progress import say, text_table
from carbon.run_folder import read_lines
from tests.helpers.runs import RECIPE

ROW_TOKENS = 256
PARAMETERS = 1_311_360  # of the preset
LINKS_GBIT_PER_S = (1.0, 0.1, 0.01)
OUTER_RATES = {1: 0.4, 2: 0.6, 4: 0.7}
"""Of the outer optimizer, by learners."""
PLAIN_MEAN = {"momentum": 0.0, "learning_rate": 1.0}
"""The outer optimizer that makes the mean of all learners the anchor."""


@dataclass(frozen=True, slots=True)
class Case:
    """A way to train on the same tokens.

    Attributes:
        learners: how many; 0: one run.
        rows: of a batch.
        settings: of `[learners]`.
        slowed: whether the last learner runs half of the time; each has a launch of its own then.
    """

    learners: int = 0
    rows: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    slowed: bool = False


def _learners(count: int, every_steps: int, **settings: Any) -> Case:
    given = {"learning_rate": OUTER_RATES[count], "codec": "fp32", "every_steps": every_steps}
    return Case(count, settings=given | settings)


CASES = {
    "one process": Case(),
    "data parallel, twice the batch": Case(rows=2),
    "data parallel, four times the batch": Case(rows=4),
    **{
        f"{count} learner{'s' * (count > 1)}, H {every}": _learners(count, every)
        for count in OUTER_RATES
        for every in (10, 50, 200)
    },
    **{
        f"{count} learners, H 50, {codec}": _learners(count, 50, codec=codec, **more)
        for count in (2, 4)
        for codec, more in (("int8", {}), ("top2", PLAIN_MEAN))
    },
    **{
        f"{count} learners, H {every}, plain mean": _learners(count, every, **PLAIN_MEAN)
        for count in (2, 4)
        for every in (10, 50, 200)
    },
    "2 learners, H 10, outer rate 0.1": _learners(2, 10, learning_rate=0.1),
    "2 learners, H 48, 4 fragments, delay 2": _learners(
        2, 48, fragments=4, delay_steps=2, alpha=0.5
    ),
    "2 learners, H 50, by mailbox": _learners(2, 50, mailbox="folder"),
    "2 learners, H 50, one half as fast": Case(
        2, settings=_learners(2, 50, mailbox="folder", by_speed=True).settings, slowed=True
    ),
}


def main() -> int:
    """Train what is not there yet; print a table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--cases", nargs="*", choices=CASES, default=list(CASES), help="beside one process"
    )
    return run_command(lambda: trial(parser.parse_args()))


def trial(arguments: argparse.Namespace) -> int:
    """Measure each case with each seed, the seeds one after another."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = arguments.output / "results.jsonl"
    done = _lines(results)
    for seed in range(arguments.seeds):
        for name in dict.fromkeys(("one process", *arguments.cases)):
            if not any((line["case"], line["seed"]) == (name, seed) for line in done):
                found = {"case": name, "seed": seed} | measured(CASES[name], seed, arguments)
                done.append(found)
                with results.open("a", encoding="utf-8") as sink:
                    print(json.dumps(found), file=sink)
                say(f"{name}, seed {seed}: {found['nats_per_base']:.4f} nats per base")
    print(text_table(table(done)))
    return 0


def _lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def measured(case: Case, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train once; return what the probe found at the end and what was sent."""
    run = arguments.output / "run"
    shutil.rmtree(run, ignore_errors=True)
    began = time.monotonic()
    _train(_words(case, seed, arguments, run), case, run)
    folder = run / "learner-0" if case.learners > 1 else run
    lines = read_lines(folder)
    return {
        "nats_per_base": lines.probes[-1]["heldout_nats_per_base"],
        "wall_seconds": time.monotonic() - began,
        "own_steps": len(lines.steps),
        "step_seconds": statistics.median(
            ROW_TOKENS * case.rows / line["tokens_per_second"] for line in lines.steps
        ),
        "rounds": len(lines.rounds),
        "sent_bytes": sum(line["sent"] for line in lines.rounds),
        "received_bytes": sum(line["received"] for line in lines.rounds),
        "wait_seconds": sum(line["wait_seconds"] for line in lines.rounds),
    }


def _words(case: Case, seed: int, arguments: argparse.Namespace, run: Path) -> list[str]:
    stages = [arguments.tokens * 2 // 3, arguments.tokens // 3]
    settings = {
        "output": run,
        "seed": seed,
        "data.corpus": arguments.corpus,
        "model.kmer_rows": "bases",
        "data.microbatch_tokens": ROW_TOKENS,
        "checkpoint.every_steps": 10**6,
        "checkpoint.every_minutes": 1000,
        "probe.every_steps": 10**6,
        "probe.sites": 1,
        **{f"stages.{i}.tokens": tokens for i, tokens in enumerate(stages)},
        **{f"stages.{i}.batch_rows": case.rows for i in (0, 1)},
        "stages.0.learning_rate": 1e-3,
        "stages.1.learning_rate": 5e-4,
    }
    if case.learners:
        settings |= {f"learners.{name}": value for name, value in case.settings.items()}
        settings["learners.count"] = case.learners
        if "mailbox" in case.settings:
            settings["learners.mailbox"] = run / "mailbox"
    return [word for n, v in settings.items() for word in ("--set", f"{n}={_toml(v)}")]


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _train(words: Sequence[str], case: Case, run: Path) -> None:
    """Start the launches of a case and wait for them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    apart = "mailbox" in case.settings
    command += ["--nproc-per-node", str(1 if apart else max(1, case.learners))]
    command += ["-m", "train", "--config", str(RECIPE), *words]
    run.mkdir(parents=True)
    started = []
    for number in range(case.learners if apart else 1):
        own = ["--set", f"learners.number={number}"] if apart else []
        with (run / f"said-{number}").open("wb") as said:
            started.append(
                subprocess.Popen(
                    [*command, *own],
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
            )
    if case.slowed:
        threading.Thread(target=_slow, args=(started[-1],), daemon=True).start()
    for process in started:
        if process.wait():
            raise RuntimeError(f"a run of {run} has failed; see its files said-*")


def _slow(process: subprocess.Popen[bytes]) -> None:
    """Let a process and its children run for half of the time, in turns of a fifth of a second."""
    while process.poll() is None:
        for told in (signal.SIGSTOP, signal.SIGCONT):
            children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True)
            for pid in map(int, children.stdout.split()):
                try:
                    os.kill(pid, told)
                except ProcessLookupError:
                    continue
            time.sleep(0.2)


def table(done: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return one row a case: means over seeds, with the least and the most."""
    by_case = {name: [line for line in done if line["case"] == name] for name in CASES}
    one = {line["seed"]: line for line in by_case["one process"]}
    step_seconds = statistics.mean(line["step_seconds"] for line in one.values())
    links = [f"{link:g} Gbit/s" for link in LINKS_GBIT_PER_S]
    header = ("case", "seeds", "nats per base", "share", "bytes a token", "steps alone", *links)
    rows = [header]
    for name, lines in by_case.items():
        if not lines:
            continue
        nats = [line["nats_per_base"] for line in lines]
        shares = [_share(line["nats_per_base"], one[line["seed"]]) for line in lines]
        times = [_seconds(CASES[name], lines[0], step_seconds, link) for link in LINKS_GBIT_PER_S]
        own_tokens = lines[0]["own_steps"] * ROW_TOKENS * CASES[name].rows
        rows.append((
            name, str(len(lines)),
            f"{statistics.mean(nats):.4f} ({min(nats):.4f} to {max(nats):.4f})",
            f"{statistics.mean(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})",
            f"{lines[0]['sent_bytes'] / own_tokens:,.0f}",
            f"{lines[0]['own_steps']}", *(f"{seconds:,.0f} s" for seconds in times),
        ))  # fmt: skip
    return rows


def _share(nats_per_base: float, one: dict[str, Any]) -> float:
    """Return what is learned of ln 4, as a share of what one process learns with the same seed."""
    return (math.log(4) - nats_per_base) / (math.log(4) - float(one["nats_per_base"]))


def _seconds(case: Case, line: dict[str, Any], step_seconds: float, gbit_per_s: float) -> float:
    """Return seconds of a run whose learners, or processes of a batch, have a core and a link."""
    steps, count = line["own_steps"], case.rows
    bytes_ = max(line["sent_bytes"], line["received_bytes"])
    if not case.learners:  # a gradient a step, by a ring
        bytes_ = steps * 4 * PARAMETERS * 2 * (count - 1) / count
    hidden = line["rounds"] * case.settings.get("delay_steps", 0) * step_seconds
    return float(steps * step_seconds + max(0.0, 8 * bytes_ / (gbit_per_s * 1e9) - hidden))


if __name__ == "__main__":
    sys.exit(main())

"""Four learners of one mailbox in trouble, beside four that are left alone.

    python bench/learner_faults.py OUTPUT [--corpus FOLDER] [--seed 0] [--steps 1500] [--runs RUN]

A learner is killed, stopped for some seconds, or slowed to half, at random, for as long as the run
goes; two at most at once, which leaves a quorum of two. One start finds its disk full, twice. One
file in the mailbox is cut in half behind its writer. A learner that was killed is started again
with `--resume auto`.

Prints one line of JSON: what happened, the longest time without a step of anybody and without a
meeting, whether all exports are equal, how much of what was computed has reached the anchor, and
held-out nats per base with and without trouble. The simulated corpus, 60 kbp, is learned by heart,
so its figure says nothing. Exit 1 if exports differ.
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from carbon.console import run_command
from carbon.progress import say
from tests.helpers.runs import BATCH_TOKENS, make_config, make_corpus
from train.config import CheckpointConfig, LearnersConfig, ProbeConfig, TrainConfig

LEARNERS = range(4)
MOST_AWAY = 2
EVERY_STEPS = 20
SECONDS_BETWEEN = (5.0, 20.0)
SECONDS_AWAY = (3.0, 20.0)
RUNS = ("peace", "trouble")
TURN_SECONDS = 0.1
"""Between two looks; a learner that is slowed runs and stands in turns of that."""


def main() -> int:
    """Run the trial."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--corpus", type=Path, help="with eukaryote and mrna; default: simulated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1500, help="of each learner, left alone")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS)
    return run_command(lambda: trial(parser.parse_args()))


def trial(arguments: argparse.Namespace) -> int:
    """Train in peace and in trouble; return 0 if each run ends with one model."""
    arguments.output.mkdir(parents=True)
    corpus = arguments.corpus or make_corpus(arguments.output)
    runs = {}
    for name in arguments.runs:
        draw = random.Random(arguments.seed) if name == "trouble" else None
        trouble = Trouble(corpus, arguments.output / name, arguments, draw)
        trouble.watch()
        runs[name] = trouble.found()
        say(f"{name}: {json.dumps(runs[name])}")
    print(json.dumps({"seed": arguments.seed, "steps": arguments.steps} | runs))
    return 0 if all(run["exports"] == 1 for run in runs.values()) else 1


class Trouble:
    """A run of four learners, and what happens to them."""

    def __init__(
        self, corpus: Path, folder: Path, arguments: argparse.Namespace, draw: random.Random | None
    ) -> None:
        """Start all four; `draw` says what befalls them, None: nothing."""
        self.folder, self.draw = folder, draw
        folder.mkdir()
        config = _config(corpus, folder, arguments)
        (folder / "recipe.toml").write_text(config.to_toml(), encoding="utf-8")
        self.happened: list[str] = []
        self.back_at: dict[int, float] = {}
        self.started: dict[int, float] = {}
        self.slowed: dict[int, float] = {}
        self.has_torn = False
        self.computed = dict.fromkeys(LEARNERS, 0)
        self.counted = dict.fromkeys(LEARNERS, 0)
        self.processes = {n: self._start(n) for n in LEARNERS}

    def _start(self, number: int, fault: str = "none") -> subprocess.Popen[bytes]:
        words = ["--config", f"{self.folder}/recipe.toml", "--resume", "auto"]
        words += ["--set", f"learners.number={number}"]
        self.started[number] = time.time()
        with (self.folder / f"said-{number}").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.learner_faults", fault, *words],
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()},
                stdout=said,
                stderr=said,
            )

    def watch(self) -> None:
        """Let things happen until all learners have ended."""
        self.began = last_step = time.monotonic()
        next_trouble = self.began + 20
        self.longest_without_step = 0.0
        # Who was killed comes back, even where all others have ended by then.
        while self.back_at or any(process.poll() is None for process in self.processes.values()):
            time.sleep(TURN_SECONDS)
            now = time.monotonic()
            if self._count():
                last_step = now
            if any(self._lines(n, "metrics") for n in LEARNERS):
                self.longest_without_step = max(self.longest_without_step, now - last_step)
            self._bring_back(now)
            if self.draw and now >= next_trouble:
                next_trouble = now + self.draw.uniform(*SECONDS_BETWEEN)
                self._befall(self.draw, now)
        failed = {n: p.returncode for n, p in self.processes.items() if p.returncode}
        if failed:
            raise RuntimeError(f"{self.folder}: learners have failed: {failed}; see said-*")
        self.seconds = time.monotonic() - self.began

    def _count(self) -> int:
        """Count steps that were taken since the last look; a resume takes lines back."""
        new = 0
        for number in LEARNERS:
            there = self._lines(number, "metrics")
            taken = max(0, there - self.counted[number])
            self.computed[number] += taken
            self.counted[number] = there
            new += taken
        return new

    def _lines(self, number: int, name: str) -> int:
        path = self._run(number) / f"{name}.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def _run(self, number: int) -> Path:
        return self.folder / "run" / f"learner-{number}"

    def _befall(self, draw: random.Random, now: float) -> None:
        well = [n for n in LEARNERS if self._is_well(n)]
        if len(LEARNERS) - len(well) >= MOST_AWAY:
            return
        number, what = draw.choice(well), draw.choice(["kill", "stop", "slow", "tear"])
        until = now + draw.uniform(*SECONDS_AWAY)
        if what == "kill":
            self.processes[number].kill()
            self.processes[number].wait()
            self.back_at[number] = until
        elif what == "stop":
            self.processes[number].send_signal(signal.SIGSTOP)
            self.back_at[number] = until
        elif what == "slow":
            self.slowed[number] = until
        elif self.has_torn or not self._tear():
            return
        self.happened.append(f"{what} {number} at {now - self.began:.0f} s")
        say(self.happened[-1])

    def _is_well(self, number: int) -> bool:
        """Tell whether a learner runs at its own pace, and has met the others in the last round.

        One that starts does from its first line.
        """
        path = self._run(number) / "metrics.jsonl"
        return (
            self.processes[number].poll() is None
            and number not in self.back_at | self.slowed
            and path.exists()
            and path.stat().st_mtime > self.started[number]
            and number in self._last_members()
        )

    def _last_members(self) -> set[int]:
        meetings = self._meetings()
        return {told["learner"] for told in meetings[-1]["members"]} if meetings else set()

    def _meetings(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("mailbox/meetings/*.json"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _tear(self) -> bool:
        """Put half of the newest change of the mailbox in its place."""
        for file in sorted(self.folder.glob("mailbox/rounds/*/*.safetensors"))[-1:]:
            whole = file.read_bytes()
            file.unlink()  # who reads it goes on with the whole one
            file.write_bytes(whole[: len(whole) // 2])
            self.has_torn = True
        return self.has_torn

    def _bring_back(self, now: float) -> None:
        for number in [n for n, until in self.back_at.items() if now >= until]:
            del self.back_at[number]
            if self.processes[number].poll() is None:
                self.processes[number].send_signal(signal.SIGCONT)
            else:
                is_first = not any("disk full" in what for what in self.happened)
                if is_first:
                    self.happened.append("disk full, twice")
                self.processes[number] = self._start(number, "disk full" if is_first else "none")
        for number, until in list(self.slowed.items()):
            process = self.processes[number]
            if now >= until or process.poll() is not None or number in self.back_at:
                del self.slowed[number]
                if number not in self.back_at:
                    process.send_signal(signal.SIGCONT)
                continue
            runs = int(now / TURN_SECONDS) % 2
            process.send_signal(signal.SIGCONT if runs else signal.SIGSTOP)

    def found(self) -> dict[str, Any]:
        """Say how it went."""
        files = sorted((self.folder / "mailbox/meetings").iterdir())
        meetings = self._meetings()
        times = sorted(file.stat().st_mtime for file in files)
        gaps = [after - before for before, after in itertools.pairwise(times)]
        arrived = sum(told["steps"] for meeting in meetings for told in meeting["members"])
        exports = {
            hashlib.sha256((self._run(n) / "export/model.safetensors").read_bytes()).hexdigest()
            for n in LEARNERS
        }
        # Who comes back when the run is over takes its anchor and measures nothing.
        told = [self._run(n) / "probes.jsonl" for n in LEARNERS]
        probes = [line for file in told for line in file.read_text(encoding="utf-8").splitlines()]
        return {
            "seconds": round(self.seconds),
            "happened": self.happened,
            "exports": len(exports),
            "meetings": len(meetings),
            "members_mean": round(sum(len(m["members"]) for m in meetings) / len(meetings), 2),
            "seconds_between_meetings_median": round(sorted(gaps)[len(gaps) // 2], 2),
            "seconds_between_meetings_most": round(max(gaps), 2),
            "seconds_without_a_step_most": round(self.longest_without_step, 2),
            "steps_computed": sum(self.computed.values()),
            "steps_in_the_anchor": arrived,
            "heldout_nats_per_base": json.loads(probes[-1])["heldout_nats_per_base"],
        }


def _config(corpus: Path, folder: Path, arguments: argparse.Namespace) -> TrainConfig:
    tokens = [f"phases.{i}.tokens={arguments.steps * 2 * BATCH_TOKENS}" for i in (0, 1)]
    config = make_config(corpus, folder / "run", f"seed={arguments.seed}", *tokens)
    learners = LearnersConfig(
        count=len(LEARNERS), mailbox=f"{folder}/mailbox", every_steps=EVERY_STEPS, quorum=2,
        grace_seconds=2.0,
    )  # fmt: skip
    return config.replace(
        learners=learners,
        checkpoint=CheckpointConfig(every_steps=100, every_minutes=0.1, keep=2),
        probe=ProbeConfig(every_steps=10**6, heldout_bp=20_000, sites=1),
    )


if __name__ == "__main__":
    sys.exit(main())

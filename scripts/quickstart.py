"""From an annotated genome to a scored VCF and a report, in one command.

Without arguments it simulates a small genome and takes about seven minutes on two cores. With
--genome and --annotation it does the same on yours. Every step is a command that can be run by
hand; it is printed before it runs. An interrupted quickstart goes on where it stopped when the same
command is given again.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from quickstart_steps import STEPS, TRAIN, Step, set_options, words

from carbon.config import load_config
from carbon.console import natural, run_command, say
from carbon.errors import UserError
from carbon.files import atomic_file
from data_pipeline.limits import STOPS_AT_INCOMPLETE_CDS
from eval.heldout.results import key_numbers
from train.config import TrainConfig
from train.planning.time_budget import settings_in_time

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "train" / "recipes" / "tiny.toml"
OWN_GENOME_MINUTES = 20.0
# Of the time asked for: what everything but training takes, at most so many seconds or such a
# share, and what is kept as slack.
AROUND_TRAINING_SECONDS = 120
AROUND_TRAINING_SHARE = 0.4
SLACK = 0.05


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__)
    parser.add_argument("--genome", help="FASTA, plain, bgzip or gzip; default: a simulated one")
    parser.add_argument("--annotation", help="GFF3 or GTF of that genome, plain or gzip")
    parser.add_argument("--minutes", type=float, help="for all of it; with --genome 20 by default")
    parser.add_argument("--output", default="quickstart", help="folder (default: quickstart)")
    parser.add_argument("--holdout", default="auto", help="contig or region to hold out")
    parser.add_argument("--incomplete-cds", choices=STOPS_AT_INCOMPLETE_CDS, default="error")
    parser.add_argument(
        "--genome-bp", type=int, default=2_400_000, help="size of the simulated one"
    )
    parser.add_argument("--variants", type=int, default=900, help="labelled variants to score")
    parser.add_argument("--sites", type=int, default=1000, help="sites of sequence recovery")
    parser.add_argument("--processes", type=int, default=2, help="of torchrun (default: 2)")
    parser.add_argument("--seed", type=natural, default=0)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="change the training recipe, as in `python -m train`",
    )  # fmt: skip
    arguments = parser.parse_args()
    return run_command(lambda: Quickstart(arguments).run())


def checked_recipe(asked: argparse.Namespace) -> TrainConfig:
    """Check what can be known before the first step; return the recipe of the training.

    Raises:
        UserError: the arguments do not fit.
    """
    if bool(asked.genome) != bool(asked.annotation):
        raise UserError("--genome and --annotation go together: give both or neither")
    if asked.minutes is not None and asked.minutes <= 0:
        raise UserError(f"--minutes {asked.minutes:g}: give more than 0")
    for key in ("output", "seed", "data.corpus"):
        if any(override.startswith(f"{key}=") for override in asked.overrides):
            raise UserError(f"--set {key}: the quickstart sets it itself; see --help")
    if asked.processes < 1:
        raise UserError(f"--processes {asked.processes}: give 1 or more")
    config = load_config(TrainConfig, RECIPE, asked.overrides)
    for stage in config.stages:
        if stage.batch_rows % asked.processes:
            raise UserError(
                f"--processes {asked.processes}: {stage.batch_rows} rows of a batch "
                "cannot be shared evenly; give a divisor"
            )
    return config


class Quickstart:
    """What was asked for, and the steps that make it."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Check the arguments and look at what an earlier start has left.

        Raises:
            UserError: the arguments do not fit, or the output folder holds something else.
        """
        self.asked, self.config = asked, checked_recipe(asked)
        self.own = bool(asked.genome)
        self.output = Path(asked.output).resolve()
        simulated = self.output / "genome"
        genome = Path(asked.genome or simulated / "genome.fa").resolve()
        annotation = Path(asked.annotation or simulated / "genes.gff3").resolve()
        # What is put into the commands of the steps.
        self.values: dict[str, Any] = vars(asked) | {
            "recipe": RECIPE,
            "output": self.output,
            "genome": genome,
            "annotation": annotation,
            "vcf": (self.output if self.own else simulated) / "variants.vcf",
            "title": f"Quickstart on {genome.name}" if self.own else "Quickstart",
            "changes": [word for each in asked.overrides for word in ("--set", each)],
        }
        # If the user's files change, it is another quickstart.
        found = [p.stat() for p in (genome, annotation) if self.own and p.exists()]
        files = {str(n): [file.st_size, file.st_mtime] for n, file in enumerate(found)}
        self.state_path = self.output / "quickstart.json"
        self.asked_for = vars(asked) | {"files": files}
        self.done = self._earlier_steps()

    def _earlier_steps(self) -> dict[str, float]:
        """Return the seconds of steps done before; none if they came to the end."""
        if not self.state_path.exists():
            if self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
                raise UserError(f"{self.output}: holds something else; name another --output")
            return {}
        state = json.loads(self.state_path.read_text())
        if state["arguments"] != self.asked_for:
            raise UserError(
                f"{self.output}: holds a quickstart with other arguments or files; remove it or "
                "name another --output"
            )
        done: dict[str, float] = state["done"]
        if "report" in done:
            say(f"{self.output}: was finished before; starting anew")
            shutil.rmtree(self.output / "run", ignore_errors=True)
            return {}
        if done:
            say(f"going on after: {', '.join(done)}")
        return done

    def run(self) -> int:
        """Run what is not done yet, and say where the report is."""
        self.output.mkdir(parents=True, exist_ok=True)
        self._write_state()
        steps = [step for step in STEPS if step.own in (None, self.own)]
        for number, step in enumerate(steps, start=1):
            if step.name in self.done:
                continue
            say(f"[{number}/{len(steps)}] {step.says}")
            start = time.monotonic()
            if code := self._run_step(step):
                self._forget_if_nothing_is_done()
                return code
            self.done[step.name] = time.monotonic() - start
            self._write_state()
        print(f"report: {self.output / 'report.html'}")
        print(f"results: {self.output / 'results.json'}")
        return 0

    def _write_state(self) -> None:
        write_json(self.state_path, {"arguments": self.asked_for, "done": self.done})

    def _forget_if_nothing_is_done(self) -> None:
        """Leave no folder behind when the very first step could not be done."""
        if not self.done:
            for name in ("quickstart.json", "steps.log"):
                (self.output / name).unlink(missing_ok=True)
            if not any(self.output.iterdir()):
                self.output.rmdir()

    def _run_step(self, step: Step) -> int:
        if step.needs and not self.values[step.needs].exists():
            return 0
        if step.replaces:
            shutil.rmtree(self.output / step.replaces, ignore_errors=True)
        if step.name == "train":
            self.values["training"] = set_options(self._training())
        scored = (self.output / "scored.vcf.gz").exists()
        command = step.command + (step.if_scored if scored else "")
        code = self._run_command(command, self.values, step.prints_to)
        if code == 2 and step.or_else:
            say(step.or_else)
            return 0
        if code == 0 and step.name == "report":
            self._write_results()
        return code

    def _run_command(self, command: str, values: dict[str, Any], prints_to: str = "") -> int:
        """Run a command of this Python from the checkout; what it prints is added to steps.log."""
        given = list(words(command, values))
        say("  $ " + shlex.join(["python", *given]))
        threads = max(1, (os.cpu_count() or 1) // self.asked.processes)
        is_train = "torch.distributed.run" in given
        environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if is_train else {})
        with (self.output / (prints_to or "steps.log")).open("w" if prints_to else "a") as sink:
            done = subprocess.run([sys.executable, *given], cwd=ROOT, env=environment, stdout=sink)
        return done.returncode

    def _training(self) -> dict[str, Any]:
        """Return the settings in train.json, made anew until the run has a checkpoint."""
        path, run = self.output / "train.json", self.output / "run"
        if not any((run / "checkpoints").glob("step-*")):
            corpus = str(self.output / "corpus")
            settings = {"seed": self.asked.seed, "data.corpus": corpus, "output": str(run)}
            write_json(path, settings | self._tokens_for_the_time(settings))
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def _tokens_for_the_time(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the stages' tokens that fit into the minutes, from a short timed run.

        Without minutes the recipe says how many, so that any machine computes the same.
        """
        tokens_set = any(".tokens=" in override for override in self.asked.overrides)
        default = OWN_GENOME_MINUTES if self.own and not tokens_set else None
        minutes = self.asked.minutes or default
        if minutes is None:
            return {}

        def train(timed: dict[str, Any]) -> None:
            words_of_it = {"training": set_options(settings | timed)}
            if code := self._run_command(TRAIN, self.values | words_of_it):
                raise UserError(f"the timed run ended with code {code}; see above")

        around = min(AROUND_TRAINING_SECONDS, AROUND_TRAINING_SHARE * minutes * 60)
        return settings_in_time(self.config, (minutes * 60 - around) * (1 - SLACK), train)

    def _write_results(self) -> None:
        numbers = key_numbers(self.output / "run", self.output / "eval" / "results.json")
        seconds = round(sum(self.done.values()), 1)
        write_json(self.output / "results.json", numbers | {"seconds": seconds})


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a file that is whole or absent."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())

"""From an annotated genome to a scored VCF and a report, in one command.

Without arguments it simulates a small genome and takes about seven minutes on two cores that do
nothing else. With --genome and --annotation it does the same on yours in about twenty; without the
annotation there are no variants of known effect to score. After the first steps of the training it
tells when it will be done. Every step is a command that can be run by hand; steps.log in the output
folder has them in full. An interrupted quickstart goes on where it stopped when the same command is
given again; a finished one is left as it is.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from quickstart_arguments import RECIPE, checked_recipe, parser
from quickstart_commands import Ended, Process, run_python
from quickstart_state import differences, remembered
from quickstart_steps import STEPS, TRAIN, Step, set_options, words
from quickstart_time import (
    OWN_GENOME_MINUTES,
    done_at,
    offer,
    planned,
    rest_tokens,
    speed_of,
    tokens_in_time,
    tokens_left,
    warning,
)

from carbon.console import run_command
from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.genome.contig_names import names_table
from carbon.io.files import atomic_file, behind_links
from carbon.progress import say
from carbon.run_folder import read_lines
from eval.heldout.results import key_numbers
from train.planning.time import shared_out, timed_speed

_INTERRUPTED = 130


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    return run_command(_run)


def _run() -> int:
    try:
        return Quickstart(parser(__doc__).parse_args()).run()
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
        return _INTERRUPTED


class Quickstart:
    """What was asked for, and the steps that make it."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Check the arguments and look at what an earlier start has left.

        Raises:
            UserError: the arguments do not fit, or the output folder holds something else.
        """
        self.asked, self.config = asked, checked_recipe(asked)
        self.own = bool(asked.genome)
        self.output = behind_links(asked.output)
        simulated = self.output / "genome"
        genome = behind_links(asked.genome or simulated / "genome.fa")
        annotation = asked.annotation and behind_links(asked.annotation)
        if not self.own:
            annotation = simulated / "genes.gff3"
        table = names_table(asked.contigs)
        contigs = str(behind_links(table)) if table else asked.contigs
        code = asked.genetic_code
        # What is put into the commands of the steps.
        self.values: dict[str, Any] = vars(asked) | {
            "recipe": RECIPE,
            "output": self.output,
            "genome": genome,
            "annotation": annotation or "",
            "contigs": contigs,
            "renamed": ["--contigs", contigs] if contigs else [],
            "code": ["--genetic-code", str(code)] if code else [],
            "coded": set_options({"assemblies.0.genetic_code": code}) if code else [],
            "vcf": (self.output if self.own else simulated) / "variants.vcf",
            "title": f"Quickstart on {genome.name}" if self.own else "Quickstart",
            "changes": [word for each in asked.overrides for word in ("--set", each)],
        }
        given = {"genome": genome, "annotation": annotation} if self.own else {}
        given |= {"contigs": Path(contigs)} if table else {}
        self.asked_for = remembered(asked, {k: Path(v) for k, v in given.items() if v})
        self.state_path = self.output / "quickstart.json"
        self.done, self.is_anew = self._earlier_steps()
        self.steps = [step for step in STEPS if step.own in (None, self.own)]
        self.began = time.monotonic()  # the step that is being done

    def _earlier_steps(self) -> tuple[dict[str, float], bool]:
        """Return the seconds of steps done before, and whether a training is to begin anew."""
        if not self.state_path.exists():
            if self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
                raise UserError(f"{self.output}: holds something else; name another --output")
            return {}, False
        state = json.loads(self.state_path.read_text(encoding="utf-8"))
        done: dict[str, float] = state["done"]
        before = state["arguments"]
        if "train" not in done:
            before = before | {"minutes": self.asked.minutes}
        if differ := differences(before, self.asked_for):
            raise UserError(
                f"{self.output}: holds another quickstart ({'; '.join(differ)}); name another "
                "--output"
            )
        return done, before != state["arguments"]

    def run(self) -> int:
        """Run what is not done yet, and say where the report is."""
        report, results = self.output / "report.html", self.output / "results.json"
        if "report" in self.done:
            say(
                f"finished already: report {report}, results {results}; for another, name another "
                "--output or remove this folder"
            )
            return 0
        self._begin()
        for number, step in enumerate(self.steps, start=1):
            if step.name in self.done:
                continue
            say(f"[{number}/{len(self.steps)}] {step.says}")
            self.began = time.monotonic()
            if code := self._run_step(step):
                self._forget_if_nothing_is_done()
                return code
            self.done[step.name] = time.monotonic() - self.began
            self._write_state()
        print(f"report: {report}")
        print(f"results: {results}")
        return 0

    def _begin(self) -> None:
        """Say how long it will take and what goes on, and remember what was asked for."""
        say(planned(self._minutes(), self._tokens_are_set()))
        if self.is_anew:
            say("other --minutes: the training begins anew")
            shutil.rmtree(self.output / "run", ignore_errors=True)
        if self.done:
            say(f"going on after: {', '.join(self.done)}")
        self.output.mkdir(parents=True, exist_ok=True)
        self._write_state()

    def _minutes(self) -> float | None:
        """Return the minutes for everything; without them the recipe says how many tokens."""
        default = OWN_GENOME_MINUTES if self.own and not self._tokens_are_set() else None
        return self.asked.minutes or default

    def _tokens_are_set(self) -> bool:
        return any(".tokens=" in override for override in self.asked.overrides)

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
        if not self._has_what_it_needs(step):
            say(step.or_else.format(reason=f"no {step.needs}") or "nothing to do")
            return 0
        if step.replaces:
            shutil.rmtree(self.output / step.replaces, ignore_errors=True)
        if step.name == "train":
            self.values["training"] = set_options(self._training())
        scored = (self.output / "scored.vcf.gz").exists()
        command = step.command + (step.if_scored if scored else "")
        ended = self._run_command(command, step.prints_to, on_the_side=bool(step.or_else))
        if ended.code == 2 and step.or_else:
            say(step.or_else.format(reason=ended.reason))
            return 0
        if ended.code and ended.said:
            say(ended.said)
        if ended.code == 0 and step.name == "train":
            self._tell_when_done(speed_of(self.output / "run"), tokens=0)
        if ended.code == 0 and step.name == "report":
            self._write_results()
        return ended.code

    def _has_what_it_needs(self, step: Step) -> bool:
        return not step.needs or Path(self.values[step.needs] or os.devnull).is_file()

    def _run_command(
        self, command: str, prints_to: str = "", *, on_the_side: bool = False
    ) -> Ended:
        """Run a command from the checkout; what it prints is added to steps.log."""
        given = list(words(command, self.values))
        is_train = command.startswith(TRAIN)
        return run_python(
            given,
            self.output / "steps.log",
            results=self.output / prints_to if prints_to else None,
            on_the_side=on_the_side,
            environment=threads_of(self.asked.processes) if is_train else {},
            meanwhile=self._time_training if is_train and not on_the_side else lambda _: None,
        )

    def _time_training(self, process: Process) -> None:
        """Wait for the first steps of the training, and say when all will be done."""
        run = self.output / "run"
        before = len(read_lines(run).steps)
        while process.poll() is None:
            if (speed := speed_of(run, before)) is not None:
                return self._tell_when_done(speed, tokens_left(run))
            time.sleep(1)

    def _tell_when_done(self, speed: float | None, tokens: int) -> None:
        """Say when all will be done, where so many tokens of the training are left."""
        if speed is None:
            return
        seconds, so_far = (tokens + self._rest_tokens()) / speed, self._seconds_so_far()
        less = offer((so_far + seconds) / 60) if tokens else ""
        say(done_at(seconds, so_far / 60) + less)

    def _seconds_so_far(self) -> float:
        return sum(self.done.values()) + time.monotonic() - self.began

    def _rest_tokens(self) -> float:
        """Return what the steps after the training take, counted in tokens."""
        names = [step.name for step in self.steps]
        after = self.steps[names.index("train") + 1 :]
        there = [step for step in after if self._has_what_it_needs(step)]
        return rest_tokens(there, self.values, self.config.phases[-1].context_tokens)

    def _training(self) -> dict[str, Any]:
        """Return the settings in train.json, made anew until the run has a checkpoint."""
        path, run = self.output / "train.json", self.output / "run"
        if not any((run / "checkpoints").glob("step-*")):
            corpus = str(self.output / "corpus")
            settings = {"seed": self.asked.seed, "data.corpus": corpus, "output": str(run)}
            settings |= self._mixtures(corpus)
            write_json(path, settings | self._tokens_for_the_time(settings))
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def _mixtures(self, corpus: str) -> dict[str, Any]:
        """Return the stages' mixtures where the corpus has not all sources of the recipe's."""
        sources = read_manifest(corpus)["sources"]
        there = [name for name, splits in sources.items() if splits["train"]["records"]]
        changed = {}
        for number, stage in enumerate(self.config.phases):
            if there and not set(stage.mixture) <= set(there):
                kept = next((name for name in stage.mixture if name in there), there[0])
                changed[f"phases.{number}.mixture"] = {kept: 1.0}
        return changed

    def _tokens_for_the_time(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the stages' tokens that fit into the minutes, from a short timed run.

        Without minutes the recipe says how many, so that any machine computes the same.
        """
        minutes = self._minutes()
        if minutes is None:
            return {}

        def train(timed: dict[str, Any]) -> None:
            self.values["training"] = set_options(settings | timed)
            if (ended := self._run_command(TRAIN, on_the_side=True)).code:
                raise UserError(f"timing a few steps ended with code {ended.code}: {ended.reason}")

        say("timing a few steps first")
        speed = timed_speed(self.config, train)
        tokens = tokens_in_time(speed, minutes, self._seconds_so_far(), self._rest_tokens())
        say(f"{speed:,.0f} tokens a second: {tokens:,} tokens in the time there is")
        if self.own and (few := warning(tokens, minutes)):
            say(few)
        return shared_out(self.config, tokens)

    def _write_results(self) -> None:
        numbers = key_numbers(self.output / "run", self.output / "eval" / "results.json")
        seconds = round(sum(self.done.values()), 1)
        write_json(self.output / "results.json", numbers | {"seconds": seconds})


def threads_of(processes: int) -> dict[str, str]:
    """Share the cores out among processes, where the user's environment has not said how."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a file that is whole or absent."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())

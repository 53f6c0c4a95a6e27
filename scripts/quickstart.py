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
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from carbon.config import load_config
from carbon.console import natural, run_command, say
from carbon.errors import UserError
from carbon.files import atomic_file
from train.config import TrainConfig

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "train" / "recipes" / "tiny.toml"
OWN_GENOME_MINUTES = 20.0
# Of the time asked for: what everything but training takes, at most so many seconds or such a
# share, and what is kept as slack.
AROUND_TRAINING_SECONDS = 120
AROUND_TRAINING_SHARE = 0.4
SLACK = 0.05
TIMED_STEPS = 16
LAST_STEPS = 20  # of which the loss at the end is the mean


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__)
    parser.add_argument("--genome", help="FASTA, plain, bgzip or gzip; default: a simulated one")
    parser.add_argument("--annotation", help="GFF3 or GTF of that genome, plain or gzip")
    parser.add_argument("--minutes", type=float, help="for all of it; with --genome 20 by default")
    parser.add_argument("--output", default="quickstart", help="folder (default: quickstart)")
    parser.add_argument("--holdout", default="auto", help="contig or region to hold out")
    parser.add_argument("--incomplete-cds", choices=["error", "drop"], default="error")
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


class Quickstart:
    """The steps, and a record of those that are done."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Check the arguments and look at what an earlier start has left.

        Raises:
            UserError: the arguments do not fit, or the output folder holds something else.
        """
        if bool(arguments.genome) != bool(arguments.annotation):
            raise UserError("--genome and --annotation go together: give both or neither")
        if arguments.minutes is not None and arguments.minutes <= 0:
            raise UserError(f"--minutes {arguments.minutes:g}: give more than 0")
        for key in ("output", "seed", "data.corpus"):
            if any(override.startswith(f"{key}=") for override in arguments.overrides):
                raise UserError(f"--set {key}: the quickstart sets it itself; see --help")
        if arguments.processes < 1:
            raise UserError(f"--processes {arguments.processes}: give 1 or more")
        self.arguments = arguments
        self.output = Path(arguments.output).resolve()
        self.own = bool(arguments.genome)
        simulated = self.output / "genome"
        self.genome = Path(arguments.genome or simulated / "genome.fa").resolve()
        self.annotation = Path(arguments.annotation or simulated / "genes.gff3").resolve()
        self.variants = self.output / "variants.vcf" if self.own else simulated / "variants.vcf"
        config = self._config({})  # so that a wrong --set is known at once
        for stage in config.stages:
            if stage.batch_rows % arguments.processes:
                raise UserError(
                    f"--processes {arguments.processes}: {stage.batch_rows} rows of a batch "
                    "cannot be shared evenly; give a divisor"
                )
        self._state_path = self.output / "quickstart.json"
        self._asked_for = vars(arguments) | {"files": self._files_given()}
        self._done = self._earlier_steps()

    def _files_given(self) -> dict[str, list[float]]:
        """Return size and time of the user's files: if these change, it is another quickstart."""
        if not self.own:
            return {}
        found = (path.stat() for path in (self.genome, self.annotation) if path.exists())
        return {str(n): [file.st_size, file.st_mtime] for n, file in enumerate(found)}

    def run(self) -> int:
        """Run what is not done yet, write results.json, and say where the report is."""
        self.output.mkdir(parents=True, exist_ok=True)
        self._write_state()
        steps = self._steps()
        for number, (name, what) in enumerate(steps, start=1):
            if name in self._done:
                continue
            say(f"[{number}/{len(steps)}] {what}")
            start = time.monotonic()
            code: int = getattr(self, f"_{name}")()
            if code:
                self._forget_if_nothing_is_done()
                return code
            self._done[name] = time.monotonic() - start
            self._write_state()
        print(f"report: {self.output / 'report.html'}")
        print(f"results: {self.output / 'results.json'}")
        return 0

    def _steps(self) -> list[tuple[str, str]]:
        first = [] if self.own else [("simulate", "simulating an annotated genome")]
        choose = [("choose_variants", "choosing variants of known effect")] if self.own else []
        return [
            *first,
            ("build", "building the corpus, one chromosome held out"),
            *choose,
            ("train", "training, from cross-entropy to FNS"),
            ("score", "scoring the held-out variants"),
            ("evaluate", "measuring on the held-out chromosome"),
            ("generate", "generating sequence"),
            ("report", "writing the report"),
        ]

    def _simulate(self) -> int:
        shutil.rmtree(self.output / "genome", ignore_errors=True)
        return self._command(
            "-m", "data_pipeline", "simulate", "--output", self.output / "genome",
            "--genome-bp", self.arguments.genome_bp, "--variants", self.arguments.variants,
            "--seed", self.arguments.seed,
        )  # fmt: skip

    def _build(self) -> int:
        shutil.rmtree(self.output / "corpus", ignore_errors=True)
        recipe = {
            "output": str(self.output / "corpus"),
            "assemblies.0.genome": str(self.genome),
            "assemblies.0.annotation": str(self.annotation),
            "assemblies.0.holdout": [self.arguments.holdout],
            "assemblies.0.incomplete_cds": self.arguments.incomplete_cds,
        }
        return self._command("-m", "data_pipeline", "build", *_settings(recipe))

    def _choose_variants(self) -> int:
        code = self._command(
            "-m", "data_pipeline", "variants", "--genome", self.genome,
            "--annotation", self.annotation, "--corpus", self.output / "corpus",
            "--variants", self.arguments.variants, "--seed", self.arguments.seed,
            "--output", self.variants,
        )  # fmt: skip
        if code == 2:
            say("no variants of known effect to be had: the report goes without their AUROC")
            return 0
        return code

    def _train(self) -> int:
        settings = self._training_settings()
        if not self._checkpoints_exist():
            settings |= self._tokens_for_the_time()
            (self.output / "train.json").write_text(json.dumps(settings, indent=1) + "\n")
        else:
            settings = json.loads((self.output / "train.json").read_text())
        return self._torchrun(settings, "--resume", "auto")

    def _training_settings(self) -> dict[str, Any]:
        return {
            "seed": self.arguments.seed,
            "data.corpus": str(self.output / "corpus"),
            "output": str(self.output / "run"),
        }

    def _checkpoints_exist(self) -> bool:
        return any((self.output / "run" / "checkpoints").glob("step-*"))

    def _tokens_for_the_time(self) -> dict[str, Any]:
        """Return the stages' tokens that fit into the minutes, from a short timed run.

        Without minutes the recipe says how many, so that any machine computes the same.
        """
        tokens_set = any(".tokens=" in override for override in self.arguments.overrides)
        minutes = self.arguments.minutes
        if minutes is None and self.own and not tokens_set:
            minutes = OWN_GENOME_MINUTES
        if minutes is None:
            return {}
        config = self._config(self._training_settings())
        speed = self._tokens_per_second(config)
        around = min(AROUND_TRAINING_SECONDS, AROUND_TRAINING_SHARE * minutes * 60)
        seconds = (minutes * 60 - around) * (1 - SLACK)
        total = sum(stage.tokens for stage in config.stages)
        tokens = [int(speed * seconds * stage.tokens / total) for stage in config.stages]
        say(f"{speed:,.0f} tokens a second: {sum(tokens):,} tokens in the time there is")
        return self._shortened(config, tokens)

    @staticmethod
    def _shortened(config: TrainConfig, tokens: list[int]) -> dict[str, Any]:
        """Return settings of stages of so many tokens; a warm-up takes a quarter of one at most."""
        settings = {}
        for number, (stage, count) in enumerate(zip(config.stages, tokens, strict=True)):
            steps = -(-count // stage.batch_tokens)
            settings[f"stages.{number}.tokens"] = count
            settings[f"stages.{number}.warmup_steps"] = min(stage.warmup_steps, steps // 4)
        return settings

    def _config(self, settings: dict[str, Any]) -> TrainConfig:
        ours = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        return load_config(TrainConfig, RECIPE, [*self.arguments.overrides, *ours])

    def _tokens_per_second(self, config: TrainConfig) -> float:
        with tempfile.TemporaryDirectory() as folder:
            settings = self._training_settings() | {"output": f"{folder}/run"}
            tokens = [TIMED_STEPS // 2 * stage.batch_tokens for stage in config.stages]
            settings |= self._shortened(config, tokens)
            if code := self._torchrun(settings):
                raise UserError(f"the timed run ended with code {code}; see above")
            metrics = _read_metrics(Path(folder) / "run")
        return float(statistics.median(m["tokens_per_second"] for m in metrics[2:]))

    def _score(self) -> int:
        if not self.variants.exists():
            return 0
        return self._command(
            "-m", "carbon.cli", "variants", "--model", self.output / "run" / "export",
            "--reference", self.genome, "--vcf", self.variants, "--strands", "both",
            "--output", self.output / "scored.vcf.gz",
        )  # fmt: skip

    def _evaluate(self) -> int:
        tasks = ["sequence_recovery", "heldout_likelihood"]
        scored = self.output / "scored.vcf.gz"
        with_variants = ["--vcf", scored, "--reference", self.genome] if scored.exists() else []
        if with_variants:
            tasks.append("variant_auroc")
        return self._command(
            "-m", "eval", "heldout", "--model", self.output / "run" / "export",
            "--corpus", self.output / "corpus", "--tasks", ",".join(tasks), *with_variants,
            "--sites", self.arguments.sites, "--seed", self.arguments.seed,
            "--output", self.output / "eval",
        )  # fmt: skip

    def _generate(self) -> int:
        with (self.output / "generated.fa").open("w") as sink:
            return self._command(
                "-m", "carbon.cli", "generate", "--model", self.output / "run" / "export",
                "--length", 1200, "--seed", self.arguments.seed, stdout=sink,
            )  # fmt: skip

    def _report(self) -> int:
        title = f"Quickstart on {self.genome.name}" if self.own else "Quickstart"
        code = self._command(
            "-m", "eval", "heldout-report", "--run", self.output / "run",
            "--results", self.output / "eval", "--generated", self.output / "generated.fa",
            "--title", title, "--output", self.output / "report.html",
        )  # fmt: skip
        if code == 0:
            with atomic_file(self.output / "results.json") as temporary:
                temporary.write_text(json.dumps(self._results(), indent=1) + "\n")
        return code

    def _results(self) -> dict[str, Any]:
        metrics = _read_metrics(self.output / "run")
        measured = json.loads((self.output / "eval" / "results.json").read_text())
        recovery, likelihood = measured["sequence_recovery"], measured["heldout_likelihood"]
        variants = measured.get("variant_auroc")
        nats = [m["nats_per_base"] for m in metrics]
        fns = [m["step"] for m in metrics if m["objective"] == "fns"]
        return {
            "sequence_recovery": recovery["value"],
            "sequence_recovery_interval": [recovery["low"], recovery["high"]],
            "markov_recovery": recovery["markov"][recovery["best_markov_order"]]["value"],
            "markov_order": recovery["best_markov_order"],
            "recovery_ahead_interval": [
                recovery["ahead_of_best_markov"][end] for end in ("low", "high")
            ],
            "variant_auroc": variants and variants["value"],
            "variant_auroc_interval": variants and [variants["low"], variants["high"]],
            "switch_step": fns[0] if fns else None,
            "nats_per_base_start": nats[0],
            "nats_per_base_end": statistics.mean(nats[-LAST_STEPS:]),
            "heldout_nats_per_base": likelihood["value"],
            "markov_6_nats_per_base": likelihood["markov"][6]["value"],
            "beats_markov_6": likelihood["ahead_of_order_6"]["low"] > 0,
            "seconds": round(sum(self._done.values()), 1),
        }

    def _torchrun(self, settings: dict[str, Any], *more: str) -> int:
        overrides = [text for item in self.arguments.overrides for text in ("--set", item)]
        return self._command(
            "-m", "torch.distributed.run", "--standalone",
            "--nproc-per-node", self.arguments.processes, "-m", "train", "--config", RECIPE,
            *overrides, *_settings(settings), *more,
        )  # fmt: skip

    def _command(self, *words: object, stdout: Any = None) -> int:
        """Run a command of this Python from the checkout; its results go to `steps.log`."""
        command = [sys.executable, *map(str, words)]
        say("  $ " + shlex.join(["python", *command[1:]]))
        threads = max(1, (os.cpu_count() or 1) // self.arguments.processes)
        is_train = "torch.distributed.run" in command
        environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if is_train else {})
        with (self.output / "steps.log").open("a") as log:
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=stdout or log)
        return done.returncode

    def _earlier_steps(self) -> dict[str, float]:
        """Return the seconds of steps done before; none if they came to the end."""
        if not self._state_path.exists():
            if self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
                raise UserError(f"{self.output}: holds something else; name another --output")
            return {}
        state = json.loads(self._state_path.read_text())
        if state["arguments"] != self._asked_for:
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

    def _write_state(self) -> None:
        state = {"arguments": self._asked_for, "done": self._done}
        with atomic_file(self._state_path) as temporary:
            temporary.write_text(json.dumps(state, indent=1) + "\n")

    def _forget_if_nothing_is_done(self) -> None:
        """Leave no folder behind when the very first step could not be done."""
        if not self._done:
            for name in ("quickstart.json", "steps.log"):
                (self.output / name).unlink(missing_ok=True)
            if not any(self.output.iterdir()):
                self.output.rmdir()


def _settings(table: dict[str, Any]) -> list[str]:
    """Return `--set key=value` for each entry; JSON's values are TOML's here."""
    return [
        text for key, value in table.items() for text in ("--set", f"{key}={json.dumps(value)}")
    ]


def _read_metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    raise SystemExit(main())

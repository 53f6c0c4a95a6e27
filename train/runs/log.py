"""The log of a run: progress, metrics, evaluations, events, trackers, the last page."""

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pydantic import NonNegativeInt
from typing_extensions import TypedDict

from carbon.corpus import read_manifest
from carbon.errors import CorpusError, ModelError
from carbon.io.files import atomic_file
from carbon.io.structured import parse_json, whole_lines
from carbon.progress import SECONDS_BETWEEN_LINES, TimeLeft, say
from train.config import TrainConfig
from train.distributed.mesh import Ranks
from train.runs.record import Work
from train.runs.trackers import open_tracker
from train.schedule import Schedule

Metrics = dict[str, Any]


class _Step(TypedDict):
    step: NonNegativeInt


_FILES = ("metrics", "probes", "events", "rounds")


class RunLog:
    """The written side of a run; the first process's writes, the others' does nothing."""

    def __init__(
        self,
        config: TrainConfig,
        ranks: Ranks,
        schedule: Schedule,
        step: int,
        *,
        silent: bool = False,
    ) -> None:
        """Prepare to continue from a step."""
        self._config = config
        self._first_step = step
        self._writes = ranks.is_first and not silent
        self._folder = Path(config.output)
        self._sinks: dict[str, IO[str]] = {}
        self._tracker: Any = None
        self._left = TimeLeft(schedule.total_steps, step)
        self._last_line = time.monotonic()
        self._last_step = step

    @classmethod
    def silent(cls, config: TrainConfig, ranks: Ranks, schedule: Schedule) -> "RunLog":
        """Return a log that keeps nothing."""
        return cls(config, ranks, schedule, 0, silent=True)

    def __enter__(self) -> "RunLog":
        """Open the files; on a resume, lines past the checkpoint are taken back first."""
        if self._writes:
            for name in _FILES:
                path = self._folder / f"{name}.jsonl"
                _cut_back(path, self._first_step)
                self._sinks[name] = path.open("a", encoding="utf-8")
            settings = {"config": self._config.to_toml()}
            self._tracker = open_tracker(self._config.tracker, self._folder, settings)
            kind = "resume" if self._first_step else "start"
            self.event(self._first_step, kind, f"from step {self._first_step}")
        return self

    def __exit__(self, *_: object) -> None:
        """Close all files."""
        for sink in self._sinks.values():
            sink.close()
        if self._tracker is not None:
            self._tracker.close()

    def step(self, metrics: Metrics, total_steps: int) -> None:
        """Write a step's metrics, and now and then a line for who is watching."""
        if not self._writes:
            return
        # JSON cannot represent numbers that are not finite.
        metrics = {k: None if _is_lost(v) else v for k, v in metrics.items()}
        self._write("metrics", metrics)
        self._tracker.log(metrics["step"], metrics)
        self._left.total = total_steps  # which falls where a signal ends a phase
        self._left.advance(metrics["step"] - self._last_step)
        self._last_step = metrics["step"]
        now = time.monotonic()
        last = metrics["step"] == total_steps
        if sys.stderr.isatty() or last or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            line = self._line(metrics, total_steps)
            print(f"\r{line}\033[K" if sys.stderr.isatty() else line, file=sys.stderr, flush=True,
                  end="" if sys.stderr.isatty() and not last else "\n")  # fmt: skip

    def _line(self, metrics: Metrics, total_steps: int) -> str:
        mfu = "" if metrics["mfu"] is None else f", MFU {100 * metrics['mfu']:.1f} %"
        what = (
            f"skipped: {metrics['skipped']}"
            if "skipped" in metrics
            else (f"{metrics['nats_per_base']:.4f} nats per base")
        )
        return (
            f"{metrics['phase']} {metrics['step']:,}/{total_steps:,}: {what}, "
            f"rate {metrics['learning_rate']:.2e}, {metrics['tokens_per_second']:,.0f} tokens/s"
            f"{mfu}{self._left}"
        )

    def probe(self, step: int, tokens: int, measures: Mapping[str, float]) -> None:
        """Write the measures of a periodic evaluation."""
        if self._writes:
            self._write("probes", {"step": step, "tokens": tokens} | dict(measures))
            self._tracker.log(step, measures)
            say(f"step {step:,}: " + ", ".join(f"{k} {v:.4f}" for k, v in measures.items()))

    def round(self, line: Mapping[str, Any], *, took_part: bool) -> None:
        """Write the statistics of a synchronisation."""
        if not self._writes:
            return
        self._write("rounds", line)
        self._tracker.log(line["step"], _numbers_of_round(line))
        who = ", ".join(map(str, line["workers"]))
        cosines = ", ".join(f"{cosine:.2f}" for cosine in line["cosines"])
        absent = "" if took_part else " without this worker"
        say(
            f"round {line['round']:,}: workers {who} synchronised{absent}; {sum(line['tokens']):,} "
            f"tokens, norm {line['mean_norm']:.3g}, cosines {cosines}; waited "
            f"{line['wait_seconds']:.1f} s"
        )

    def event(self, step: int, kind: str, message: str) -> None:
        """Write what happened at a step."""
        if self._writes:
            self._write("events", {"step": step, "event": kind, "message": message})
            if kind not in ("start", "resume"):
                say(message)

    def _write(self, name: str, table: Mapping[str, Any]) -> None:
        print(json.dumps(table), file=self._sinks[name], flush=True)

    def finish(self, export: Path, trained: Work | None = None) -> None:
        """Write the page about the run, and the model's card.

        Args:
            export: folder of the model.
            trained: the training that is in it, of all workers; None: the steps of the run.
        """
        if not self._writes:
            return
        from train.runs.card import write_card
        from train.runs.summary import write_summary

        manifest = manifest_of(self._config)
        write_card(self._folder, export, corpus_manifest=manifest, trained=trained)
        say(f"summary: {write_summary(self._folder)}")


def _is_lost(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def manifest_of(config: TrainConfig) -> dict[str, Any] | None:
    """Return the manifest of the run's corpus; the released layout has none."""
    try:
        return read_manifest(config.data.corpus)
    except CorpusError:
        return None


def _numbers_of_round(line: Mapping[str, Any]) -> dict[str, float]:
    """Return a synchronisation's numbers for a tracker: sums and means over workers."""
    numbers = {k: v for k, v in line.items() if isinstance(v, int | float) and k != "step"}
    numbers |= {
        "workers": len(line["workers"]),
        "tokens": sum(line["tokens"]),
        "cosine": sum(line["cosines"]) / len(line["cosines"]),
    }
    return {f"round/{name}": value for name, value in numbers.items()}


def _cut_back(path: Path, step: int) -> None:
    """Keep the lines of a file up to a step; a last line cut off by a crash goes.

    Raises:
        ModelError: another line is damaged; the file stays as it is.
    """
    kept = [
        line
        for number, line in (whole_lines(path, ModelError) if path.exists() else ())
        if parse_json(line, f"{path} line {number}", _Step, error=ModelError)["step"] <= step
    ]
    with atomic_file(path) as temporary:
        temporary.write_bytes(b"".join(kept))

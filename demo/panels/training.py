"""The `training` panel: curves of a run, during or after training."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from carbon.errors import UserError
from carbon.run_folder import (
    EVENTS,
    METRICS,
    PROBES,
    RECIPE,
    ROUNDS,
    RunLines,
    read_lines,
    read_recipe,
)
from demo.fields import Field, Values
from demo.folders import find_folders, folder_named, written
from demo.lab import Lab
from demo.lru_cache import LruCache
from demo.markup import facts, paragraph, table
from demo.panel import Command, Example, Panel, Progress, Result, View
from demo.run_figures import STEP_COLUMNS, run_curves, run_mixture
from demo.run_summary import told

_NEWEST = "newest"
_MOST_LINES = 20_000  # lines per file; longer files are thinned while they are read
_MOST_POINTS = 400  # points per curve
_KEPT_RUNS = 4


class Training(Panel):
    """Draws a run folder."""

    sentence = (
        "How a training run goes: loss and likelihood across the switch from cross-entropy to "
        "FNS, its stages, what it reads, and its probes; drawn anew while it trains."
    )
    run_label = "Show"
    refresh_seconds = 3.0
    views: ClassVar[tuple[View, ...]] = (
        View("facts", "html", "The run in numbers"),
        View("curves", "figure", "Curves over the steps of the run, with its stages"),
        View("mixture", "figure", "Share of each source by stage"),
        View("tables", "html", "Stages and events"),
    )

    def __init__(self, lab: Lab) -> None:
        """Create a cache of the runs that were read last."""
        super().__init__(lab)
        self._kept: LruCache[RunLines] = LruCache(_KEPT_RUNS)

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        return (
            Field("run", "Run", _NEWEST, "choice", (_NEWEST, *find_runs(self.lab.runs)),
                  info="the folders of runs on this machine; newest is the one last written to"),
            Field("axis", "Along", "steps", "choice", ("steps", "tokens")),
            Field("last_steps", "Last steps alone", 0, "integer", most=1_000_000,
                  info="0 for all; fewer steps are drawn in more detail"),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return the runs, and more views of the newest run."""
        runs = [Example(f"Run {name}", {"run": name}) for name in self.fields[0].choices[1:3]]
        return (
            *runs,
            Example("Along tokens", {"axis": "tokens"}),
            Example("The last 50 steps", {"last_steps": 50}),
        )

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the current curves."""
        name, folder = self._folder(values["run"])
        try:
            recipe, lines = read_recipe(folder), self._lines(folder)
        except UserError as error:
            raise UserError(str(error).replace(str(folder), name)) from None
        yield {"run": name, **told(recipe, lines, values["last_steps"], STEP_COLUMNS, _MOST_POINTS)}

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return facts, curves, mixture and tables."""
        return {
            "facts": _facts(result),
            "curves": run_curves(result, values["axis"], f"{values['last_steps']}"),
            "mixture": run_mixture(result["stages"]),
            "tables": _tables(result),
        }

    def python(self, values: Values) -> str:
        """Return the program."""
        _, folder = self._folder(values["run"])
        return (
            "from carbon.run_folder import column, read_lines, reduced, stretches\n\n"
            f"run = read_lines({str(folder)!r}, most_lines={_MOST_LINES})\n"
            f"run = run.last({values['last_steps']})\n"
            f"groups = stretches(len(run.steps), run.boundaries, {_MOST_POINTS})\n"
            'names = ("step", "loss", "nats_per_base", "marginal_nats_per_base", "learning_rate")\n'
            "columns = [reduced(column(run.steps, name), groups) for name in names]\n"
            "for row in zip(*columns):\n"
            "    print(*row)\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command line."""
        _, folder = self._folder(values["run"])
        config = str(folder / RECIPE)
        words = ["python", "-m", "train", "summary", "--config", config,
                 "--set", f"output={folder}"]  # fmt: skip
        return ["# writes summary.html into the run's folder", words]

    def _folder(self, name: str) -> tuple[str, Path]:
        """Return the name and folder of a run that exists now."""
        found = find_runs(self.lab.runs)
        if not found:
            raise UserError(
                "there is no training run under the demo's --runs yet; make one with `python -m "
                "train --config train/recipes/tiny.toml --set data.corpus=CORPUS --set "
                "output=RUNS/mine`, where RUNS is that folder, and it is drawn here while it trains"
            )
        chosen = next(iter(found)) if name == _NEWEST else name
        return chosen, folder_named(chosen, found)

    def _lines(self, folder: Path) -> RunLines:
        """Read a run's lines, or return the cached lines if the files have not changed."""
        key = (folder, *(written(folder / name) for name in (METRICS, PROBES, EVENTS, ROUNDS)))
        return self._kept.get(key, lambda: read_lines(folder, _MOST_LINES))


def find_runs(root: Path) -> dict[str, Path]:
    """Return the run folders a few levels below a folder, most recently written first."""
    return find_folders(root, (RECIPE, METRICS))


def _last(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(known[-1], form) if known else "-"


def _facts(result: Result) -> str:
    points, switches = result["points"], result["switches"]
    now = switches[-1] if switches else {"stage": "not begun", "objective": "-"}
    planned = result["planned_tokens"]
    share = f" ({min(100, 100 * result['tokens'] / planned):.0f} %)" if planned else ""
    text = facts([
        ("run", result["run"]),
        ("model", result["model"]),
        ("stage", f"{now['stage']} ({now['objective']})"),
        ("step", f"{result['step']:,}"),
        ("tokens", f"{result['tokens']:,} of {planned:,}{share}"),
        ("nats per base", _last(points["nats_per_base"], ".4f")),
        ("tokens / s", _last(points["tokens_per_second"], ",.0f")),
    ])  # fmt: skip
    if result["steps_per_point"] > 1:
        text += paragraph(f"A point is the mean of up to {result['steps_per_point']:,} steps.")
    return text


def _tables(result: Result) -> str:
    stages = (
        (s.get("name", ""), s.get("objective", ""), s.get("tokens", 0), s.get("context_tokens", 0),
         s.get("batch_rows", 0), f"{s.get('learning_rate', 0):g}", s.get("schedule", ""),
         ", ".join(f"{source} {share:g}" for source, share in s.get("mixture", {}).items()))
        for s in result["stages"]
    )  # fmt: skip
    header = ("stage", "objective", "tokens", "tokens a row", "rows a batch", "learning rate",
              "schedule", "mixture")  # fmt: skip
    events = ((e["step"], e.get("event", ""), e.get("message", "")) for e in result["events"])
    return table(header, stages, "Stages") + table(("step", "event", "message"), events, "Events")

"""Training runs for the Inside page: runs on disk, and the recorded training of a bundled model."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from carbon.errors import UserError
from carbon.pretrained import BUNDLED_MODELS
from carbon.run_folder import (
    EVENTS,
    METRICS,
    PROBES,
    RECIPE,
    ROUNDS,
    Line,
    RunLines,
    Values,
    column,
    read_lines,
    read_recipe,
    reduced,
    stretches,
)
from demo.arrays import as_lists
from demo.coding import codon_positions
from demo.figures import BLUE, GREY, Figure, figure
from demo.folders import find_folders, folder_named, written
from demo.lab import Lab
from demo.lru_cache import LruCache
from demo.markup import facts, paragraph, part, table
from demo.panel import Result
from demo.run_figures import STEP_COLUMNS

OWN = "this model"
MOST_LINES = 20_000  # lines per file; longer files are thinned while they are read
MOST_POINTS = 400  # points per curve
_MOST_EVENTS, _CACHED_RUNS = 100, 4
_CURVES = "curves.png"  # of a bundled model: the loss of its training
_DASHES = {"codon base 1": "solid", "codon base 2": "dash", "codon base 3": "dot"}
_BETWEEN = "between genes"


class Runs:
    """Run folders under the demo's `--runs`, and the run that made the model of a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._cache: LruCache[RunLines] = LruCache(_CACHED_RUNS)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the run folders, most recently written first."""
        return tuple(self._found())

    @property
    def default(self) -> str:
        """Return the model's own run if it is known, else the newest run."""
        is_known = self.folder(OWN) or _recorded(self._lab)
        return OWN if is_known else next(iter(self.names), OWN)

    def folder(self, name: str) -> Path | None:
        """Return the folder of a run; None if the model's own run has no folder.

        Raises:
            UserError: the folder does not exist any more.
        """
        if name != OWN:
            return folder_named(name, self._found())
        own = Path(self._lab.model_name).resolve().parent
        return own if all((own / file).is_file() for file in (RECIPE, METRICS)) else None

    def values(self, name: str, last_steps: int) -> Result:
        """Return the values that the page draws of a run.

        Returns:
            `run`, the name, and either `run_values`, or `learned` of a model that recorded its
            training, or nothing else.

        Raises:
            UserError: the folder does not exist any more, or a file in it is malformed.
        """
        folder = self.folder(name)
        if folder is None:
            return {"run": self._lab.shown_name} | _recorded(self._lab)
        shown = folder.name if name == OWN else name
        try:
            recipe, lines = read_recipe(folder), self._lines(folder)
        except UserError as error:
            raise UserError(str(error).replace(str(folder), shown)) from None
        return {"run": shown} | run_values(recipe, lines, last_steps)

    def _found(self) -> dict[str, Path]:
        return find_folders(self._lab.runs, (RECIPE, METRICS))

    def _lines(self, folder: Path) -> RunLines:
        """Read a run's lines, or return the cached lines if the files have not changed."""
        key = (folder, *(written(folder / name) for name in (METRICS, PROBES, EVENTS, ROUNDS)))
        return self._cache.get(key, lambda: read_lines(folder, MOST_LINES))


def run_values(recipe: Mapping[str, Any], lines: RunLines, last_steps: int) -> dict[str, Any]:
    """Return the values that a page draws of a run, as JSON values.

    Args:
        recipe: tables of its `config.toml`.
        lines: the lines that it has written so far.
        last_steps: number of last steps to draw; 0 for all.

    Returns:
        `model`, `step`, `tokens` and `planned_tokens`; `phases` of the recipe and `switches`, the
        start of each; `points` by column, each the mean of up to `steps_per_point` steps;
        `skipped_steps`, `probes`, `rounds` of workers, and the last `events`.
    """
    shown = lines.last(last_steps)
    groups = stretches(len(shown.steps), shown.boundaries, MOST_POINTS)
    last = lines.steps[-1] if lines.steps else {}
    return {
        "model": str(recipe.get("model", {}).get("preset", "")),
        "step": last.get("step", 0),
        "tokens": last.get("tokens", 0),
        "planned_tokens": sum(phase.get("tokens", 0) for phase in recipe.get("phases", [])),
        "phases": recipe.get("phases", []),
        "switches": [_switch(shown, place) for place in (0, *shown.boundaries) if shown.steps],
        "steps_per_point": max(map(len, groups), default=1),
        "points": {name: as_lists(y) for name, y in _points(shown, groups).items()},
        "skipped_steps": [line["step"] for line in shown.steps if "skipped" in line],
        "probes": shown.probes,
        "rounds": [_round(line, lines.steps) for line in shown.rounds],
        "events": [e for e in lines.events if e.get("event") != "save"][-_MOST_EVENTS:],
    }


def _round(line: Line, steps: Sequence[Line]) -> dict[str, Any]:
    """Return the drawn values of a synchronisation round, with the run's tokens at that time."""
    names = ("step", "round", "workers", "cosine", "wait_seconds")
    reached = [n["tokens"] for n in steps if n["step"] <= line["step"]]
    return {name: line.get(name) for name in names} | {"tokens": reached[-1] if reached else 0}


def _switch(lines: RunLines, place: int) -> dict[str, Any]:
    """Return the step, tokens, name and objective of the start of a training phase."""
    return {key: lines.steps[place].get(key) for key in ("step", "tokens", "phase", "objective")}


def _points(lines: RunLines, groups: Sequence[Any]) -> dict[str, Values]:
    names = ("step", "tokens", *STEP_COLUMNS)
    points = {name: reduced(column(lines.steps, name), groups) for name in names}
    if any(len(group) > 1 for group in groups):
        norms = column(lines.steps, "gradient_norm")
        points["gradient_norm_most"] = reduced(norms, groups, np.max)
    return points


def _recorded(lab: Lab) -> Result:
    """Return how a bundled model learned kinds of bases of its example gene, if it was recorded."""
    learned, transcript = lab.learned, lab.example.transcript
    if learned is None or transcript is None:
        return {}
    along, place = codon_positions(transcript), learned.interval
    kinds = {name: along[n::3] for n, name in enumerate(_DASHES)}
    taken = {at for gene in lab.genome.genes_in(place)
             for at in range(gene.interval.start, gene.interval.end)}  # fmt: skip
    kinds[_BETWEEN] = tuple(at for at in range(place.start, place.end) if at not in taken)
    bits = {name: learned.mean_bits(kind).round(4).tolist() for name, kind in kinds.items()}
    return {"learned": {"gene": lab.example.name, "steps": list(learned.steps), "bits": bits}}


def recorded_figure(result: Result) -> Figure:
    """Return the bits of each kind of base, by step of the recorded training."""
    learned = result["learned"]
    steps = [f"{step:,}" for step in learned["steps"]]
    traces = [
        {"type": "scatter", "mode": "lines+markers", "name": name, "x": steps, "y": bits,
         "line": {"color": BLUE if name in _DASHES else GREY, "dash": _DASHES.get(name, "solid")}}
        for name, bits in learned["bits"].items()
    ]  # fmt: skip
    return figure(
        traces,
        height=360,
        xaxis={"title": {"text": "step of the training"}, "type": "category", "fixedrange": True},
        yaxis={"title": {"text": "bits known, of 2"}, "fixedrange": True},
    )


def recorded_text(result: Result) -> str:
    """Return what the figure shows, with the curves that the training wrote."""
    name, learned = result["run"], result.get("learned")
    if not learned:
        return paragraph(f"No training run of {name} is here; open the demo with --runs FOLDER.")
    text = paragraph(
        f"The training of {name}, at {len(learned['steps'])} steps: how much it could predict of "
        f"{learned['gene']}, by position in the codon, and of the bases between genes."
    )
    picture = BUNDLED_MODELS[name].folder / _CURVES if name in BUNDLED_MODELS else None
    if picture and picture.exists():
        content = base64.b64encode(picture.read_bytes()).decode()
        alt = "Nats per base over the steps of the training"
        text += part("picture", "Its loss at every step", alt, content)
    return text


def run_text(result: Result) -> str:
    """Return a run in numbers."""
    points, switches = result["points"], result["switches"]
    now = switches[-1] if switches else {"phase": "not begun", "objective": "-"}
    planned = result["planned_tokens"]
    share = f" ({min(100, 100 * result['tokens'] / planned):.0f} %)" if planned else ""
    text = facts([
        ("run", result["run"]),
        ("model", result["model"]),
        ("phase", f"{now['phase']} ({now['objective']})"),
        ("step", f"{result['step']:,}"),
        ("tokens", f"{result['tokens']:,} of {planned:,}{share}"),
        ("nats per base", _last(points["nats_per_base"], ".4f")),
        ("tokens / s", _last(points["tokens_per_second"], ",.0f")),
    ])  # fmt: skip
    if result["steps_per_point"] > 1:
        text += paragraph(f"A point is the mean of up to {result['steps_per_point']:,} steps.")
    return text


def run_tables(result: Result) -> str:
    """Return the phases and the events of a run."""
    phases = (
        (s.get("name", ""), s.get("objective", ""), s.get("tokens", 0), s.get("context_tokens", 0),
         s.get("batch_rows", 0), f"{s.get('learning_rate', 0):g}", s.get("schedule", ""),
         ", ".join(f"{source} {share:g}" for source, share in s.get("mixture", {}).items()))
        for s in result["phases"]
    )  # fmt: skip
    header = ("phase", "objective", "tokens", "tokens a row", "rows a batch", "learning rate",
              "schedule", "mixture")  # fmt: skip
    events = ((e["step"], e.get("event", ""), e.get("message", "")) for e in result["events"])
    return table(header, phases, "Phases") + table(("step", "event", "message"), events, "Events")


def _last(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(known[-1], form) if known else "-"

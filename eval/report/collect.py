"""Records of several folders by task, and comparisons of pairs."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from carbon.errors import ConfigError
from carbon.uncertainty import difference, inside_noise
from eval.contract import Estimate
from eval.metrics import METRICS, has_both_labels
from eval.records import Json, Stored, read_folder, settings_of

_OF_ENTRANTS = ("model", "identity", "dtype")


@dataclass(frozen=True)
class Section:
    """What there is of a task: models in the order in which they were found, then baselines."""

    task: Json
    models: list[Stored]
    baselines: list[Stored]

    @property
    def all(self) -> list[Stored]:
        """Everyone."""
        return self.models + self.baselines

    @property
    def best_baseline(self) -> Stored | None:
        """The baseline with the best value; None where none measured anything."""
        valued = [stored for stored in self.baselines if value_of(stored) is not None]
        sign = 1 if METRICS[self.task["metric"]].higher_is_better else -1
        return max(valued, key=lambda stored: sign * (value_of(stored) or 0.0), default=None)

    @property
    def shown(self) -> list[Stored]:
        """The models and the best baseline: what lines are drawn of."""
        return self.models + [stored for stored in (self.best_baseline,) if stored]


@dataclass(frozen=True)
class Comparison:
    """Two entrants on the examples that both have measured."""

    first: Stored
    second: Stored
    difference: Estimate

    @property
    def ahead(self) -> Stored:
        """The entrant with the better value on these examples."""
        higher_is_better = METRICS[self.first.record["task"]["metric"]].higher_is_better
        return self.first if (self.difference.value > 0) == higher_is_better else self.second

    @property
    def verdict(self) -> str:
        """Whether the difference is more than noise."""
        if inside_noise(self.difference):
            return "no difference is shown"
        return f"{self.ahead.entrant} is ahead"


def value_of(stored: Stored) -> float | None:
    """Return the headline, None where there is none."""
    summary = stored.record["summary"]
    value = summary["value"]["value"] if summary else None
    return None if value is None else float(value)


def sections_of(folders: Sequence[Path]) -> list[Section]:
    """Read folders and put records of one task together.

    Raises:
        ConfigError: a folder has no records, a task has a model and no baseline, records of one
            task are not of the same version, data and options, or two models have one name.
    """
    by_task: dict[str, list[Stored]] = {}
    for folder in folders:
        for stored in read_folder(folder):
            _add(by_task.setdefault(stored.task, []), stored)
    by_axis = {(found[0].record["task"]["axis"], name): found for name, found in by_task.items()}
    return [_section(by_axis[key]) for key in sorted(by_axis)]


def _add(found: list[Stored], stored: Stored) -> None:
    for other in found:
        versions = [s.record["task"]["version"] for s in (stored, other)]
        if versions[0] != versions[1]:
            raise ConfigError(
                f"{stored.path} and {other.path} are of versions {' and '.join(versions)} of "
                f"{stored.task}, whose numbers differ in meaning; run the older one again"
            )
        if differing := _other_settings(stored, other):
            raise ConfigError(
                f"{stored.path} and {other.path} are not of the same {', '.join(differing)}; they "
                "cannot stand in one report"
            )
        if other.entrant == stored.entrant:
            if other.record["model"]["identity"] == stored.record["model"]["identity"]:
                return
            raise ConfigError(
                f"{stored.path} and {other.path} are both called '{stored.entrant}' and differ; "
                "run one of them again with --model NAME=MODEL, or the same --train sequences"
            )
    found.append(stored)


def _other_settings(stored: Stored, other: Stored) -> list[str]:
    """Return the settings of examples in which two records of a task differ."""
    ours, theirs = settings_of(stored.record), settings_of(other.record)
    apart = set(_OF_ENTRANTS)
    if None in (ours["reference"], theirs["reference"]):  # the task reads none
        apart.add("reference")
    return [name for name in ours if name not in apart and ours[name] != theirs.get(name)]


def _section(found: list[Stored]) -> Section:
    models = [stored for stored in found if not stored.is_baseline]
    baselines = [stored for stored in found if stored.is_baseline]
    if models and not baselines:
        raise ConfigError(
            f"{models[0].path}: no baseline of {found[0].task} beside it; `carbon eval run` "
            "writes them, and a model is not shown without"
        )
    order = {"chance": 0, "GC": 1}
    baselines.sort(key=lambda s: (order.get(s.entrant, 2), len(s.entrant), s.entrant))
    return Section(found[0].record["task"], models, baselines)


def comparisons_of(section: Section) -> list[Comparison]:
    """Compare models with one another, and each with the best baseline."""
    best = section.best_baseline
    pairs = list(combinations(section.models, 2))
    pairs += [(model, best) for model in section.models if best is not None]
    return [found for pair in pairs if (found := _compared(*pair)) is not None]


def precision_gaps(section: Section) -> list[Comparison]:
    """Compare each model in float32 with itself in bfloat16."""
    return [
        found
        for first, second in combinations(section.models, 2)
        if first.record["model"]["name"] == second.record["model"]["name"]
        for found in [_compared(*sorted((first, second), key=_rough))]
        if found is not None
    ]


def _rough(stored: Stored) -> bool:
    return bool(stored.record["model"]["dtype"] == "bfloat16")


def _compared(first: Stored, second: Stored) -> Comparison | None:
    """Return the difference on common examples; None where there are none, or it has no value."""
    results = [{row["id"]: row for row in stored.results()} for stored in (first, second)]
    common = [name for name in results[0] if name in results[1]]
    task = first.record["task"]
    rows = [[by_id[name] for name in common] for by_id in results]
    if not common or not _can_compare(rows[0], task["metric"]):
        return None
    ours, theirs = (METRICS[task["metric"]].of(some) for some in rows)
    cluster = task["cluster"]
    names = None if cluster is None else [str(row[cluster]) for row in rows[0]]
    found = difference(ours, theirs, len(common), 0, names)
    return None if math.isnan(found.value) else Comparison(first, second, found)


def _can_compare(rows: Sequence[Json], metric: str) -> bool:
    return not METRICS[metric].is_labelled or has_both_labels(rows)


def skipped_of(section: Section) -> Iterator[tuple[Stored, str, int]]:
    """Yield each entrant with a reason for skipped examples and their number."""
    for stored in section.all:
        counts: Counter[str] = Counter()
        for reason, count in stored.record["counts"]["skipped"].items():
            counts[reason.partition(": needs")[0]] += count
        for reason, count in counts.items():
            yield stored, reason, count

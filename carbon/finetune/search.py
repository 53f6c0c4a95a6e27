"""A grid search: trials of a recipe on the workers of `carbon.parallel`, best by validation."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from carbon import __version__
from carbon.errors import UserError
from carbon.finetune.config import FinetuneConfig
from carbon.parallel.driver import Job, Results, run_job
from carbon.parallel.options import WorkerOptions, workers_of
from carbon.progress import say

Trial = Mapping[str, Any]
"""`values` by dotted key, the validation `score` (NaN as None), and `seconds`."""
ScoreOf = Callable[[FinetuneConfig], float]
"""Trains a configuration, and returns its validation score; a module-level function."""
Finish = Callable[[FinetuneConfig, Sequence[Trial]], dict[str, Any]]
"""Runs the best configuration, and returns its results."""


class SearchWorker:
    """A worker that trains one combination after another.

    Attributes:
        about: the version, which results depend on.
    """

    def __init__(self, config: FinetuneConfig, score_of: ScoreOf) -> None:
        """Store the run, and the function that scores a combination."""
        self._config, self._score_of = config, score_of
        self.about = {"carbon": __version__}

    def __call__(self, payload: Any) -> dict[str, Any]:
        """Return score and seconds of a combination, values by dotted key."""
        start = time.monotonic()
        score = self._score_of(self._config.trial(payload))
        return {
            "score": score if math.isfinite(score) else None,
            "seconds": round(time.monotonic() - start, 1),
        }


def run_search(
    config: FinetuneConfig,
    settings: dict[str, Any],
    options: WorkerOptions,
    score_of: ScoreOf,
    finish: Finish,
) -> dict[str, Any]:
    """Train every combination, then run the one with the best validation score.

    The first of equal scores wins. The journal of the trials stays until the run is complete.

    Args:
        config: the run.
        settings: everything that scores depend on, as JSON.
        options: where trials are computed.
        score_of: trains a combination.
        finish: runs the best one.

    Raises:
        UserError: a combination is invalid, no trial has a score, or the process is one of several.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("search: runs trials in processes of its own; start it without torchrun")
    trials = config.trials()
    for values in trials:
        config.trial(values)
    job = Job(
        description="search, trials",
        output=config.output_folder.with_name(f"{config.output_folder.name}.search"),
        settings=settings,
        check=lambda: len(trials),
        blocks=lambda: ([values] for values in trials),
        payload=lambda block: block[0],
        name=lambda block: f"trial {block[0]}",
    )

    def write(results: Results[list[dict[str, Any]]]) -> dict[str, Any]:
        scored = [{"values": values, **result} for (values,), result in results]
        known = [trial for trial in scored if trial["score"] is not None]
        if not known:
            raise UserError("search: no trial has a validation score; are its labels all equal?")
        best = max(known, key=lambda trial: trial["score"])
        say(f"search: {best['values']} has the best validation score, {best['score']:.4f}")
        return finish(config.trial(best["values"]), scored)

    with workers_of(options, partial(SearchWorker, config, score_of), most_in_flight=1) as workers:
        return run_job(job, workers, write)

"""A model folder of what a run has saved, on the CPU of one process: a weight at a time."""

from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.io.files import atomic_folder
from carbon.progress import say
from train.config import ParallelConfig, TrainConfig
from train.loop.data import open_rows
from train.network.ranks import joined_ranks
from train.planning.course import Course
from train.planning.sizes import llama_config
from train.run_folder.saved import Saved, saved_weights
from train.run_folder.work import Work
from train.start.export import write_export
from train.start.model import open_start


def export_newest(config: TrainConfig, folder: Path) -> Work | None:
    """Write the newest whole checkpoint as a model folder; that of a learner as its anchor.

    Neither a network nor moments are made: memory is that of the largest weight.

    Args:
        config: of the run.
        folder: that is not there yet.

    Returns:
        The training of all learners that is in it; None: the run has no learners.

    Raises:
        UserError: there is no checkpoint, or it is of other settings; or the folder is there.
    """
    start = open_start(config)
    rows = open_rows(config, Course(config), start)
    with joined_ranks(ParallelConfig(), "cpu") as ranks:
        found = Saved(config, rows, ranks, start.digest if start else "").newest()
        if found is None:
            raise UserError(f"{config.output}: has no whole checkpoint to export")
        path, state = found
        weights = saved_weights(path, ranks, config, start)
        course = Course(config, state.ended)
        llama = llama_config(config)
        rope: Any = llama.rope_parameters
        last = min(state.step, course.total_steps - 1)
        rope["rope_theta"] = course.at(last).stage.rope_theta
        with atomic_folder(folder) as temporary:
            write_export(llama, config.model, start, weights, temporary, rows.tags)
    say(f"exported {folder}")
    return Work(**state.meetings["anchor"]["trained"]) if state.meetings else None

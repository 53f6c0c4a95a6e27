"""What changes with the step within a stage: the learning rate and the objective."""

from carbon.losses.objectives import OBJECTIVES, Objective
from train.choices.rate_schedules import RATE_SCHEDULES
from train.config import StageConfig


def learning_rate(stage: StageConfig, step: int) -> float:
    """Return the learning rate of step `step` (from 0) of a stage."""
    if step < stage.warmup_steps:
        return stage.learning_rate * (step + 1) / stage.warmup_steps
    return stage.final_learning_rate + (
        stage.learning_rate - stage.final_learning_rate
    ) * _share_left(stage, step)


def objective_at(stage: StageConfig, step: int) -> Objective:
    """Return what is minimised at step `step` (from 0) of a stage."""
    last = max(stage.num_steps - 1, 1)
    return OBJECTIVES[stage.objective].at(step, last, stage.fns_weight)


def _share_left(stage: StageConfig, step: int) -> float:
    """Return the share of the way from the final rate to the peak: 1 at first, 0 past the end."""
    schedule, num_steps = RATE_SCHEDULES[stage.schedule], stage.num_steps
    first = num_steps - stage.decay_steps if schedule.has_decay_steps else stage.warmup_steps
    return 1.0 if step < first else schedule.share(step, first, num_steps)

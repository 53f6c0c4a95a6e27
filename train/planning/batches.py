"""How the rows of a batch are shared, and how many a process reads at once."""

from carbon.errors import ConfigError
from train.choices.pipeline_schedules import pipe_of, schedule_of
from train.config import ParallelConfig, TrainConfig
from train.planning.course import Course, Span


def check_batches(course: Course, num_readers: int, context: int) -> None:
    """Raise ConfigError unless so many readers share a batch, and so many processes a row."""
    for span in course.spans:
        if context > 1 and span.context_tokens % (2 * context):
            raise ConfigError(
                f"stages.{span.number} ('{span.stage.name}'): rows of {span.context_tokens} tokens "
                f"are not divided into the {2 * context} slices of parallel.context = {context}; "
                "change one of them"
            )
        if span.batch_rows % num_readers:
            raise ConfigError(
                f"stages.{span.number} ('{span.stage.name}'): batches of {span.batch_rows} rows of "
                f"{span.context_tokens} tokens cannot be shared by {num_readers} processes evenly; "
                "change batch_rows or the number of processes"
            )


def microbatch_rows(config: TrainConfig, context_tokens: int) -> int:
    """Return how many rows of a length one reader reads at once, which may be many processes."""
    return max(1, config.data.microbatch_tokens * config.parallel.context // context_tokens)


def num_microbatches(parallel: ParallelConfig, span: Span, num_readers: int, at_once: int) -> int:
    """Return those of a reader; a pipeline's are of one size, and as many as its schedule takes.

    Args:
        parallel: how processes share the work.
        span: whose batches they are.
        num_readers: groups of processes that read rows of their own.
        at_once: rows of a microbatch.

    Raises:
        ConfigError: a pipeline cannot take them.
    """
    rows = span.batch_rows // num_readers
    count = -(-rows // at_once)
    if parallel.pipeline == 1:
        return count
    problem = schedule_of(parallel).problem(pipe_of(parallel, count))
    if rows % at_once:
        problem = f"microbatches of {at_once} rows do not divide {rows} rows of a reader"
    if problem:
        raise ConfigError(
            f"stages.{span.number} ('{span.stage.name}'): {problem}; change microbatch_tokens, "
            "batch_rows or the number of processes"
        )
    return count

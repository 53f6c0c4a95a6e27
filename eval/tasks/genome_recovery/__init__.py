"""Genome recovery: sequence recovery at sites of the records that a corpus held out."""

import pyarrow as pa

from carbon.inference.held_out import LEAST_PROMPT_BP
from eval.contract import Example, Options, Task
from eval.tasks.common.recovery import run, summarise
from eval.tasks.genome_recovery.build import build


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a site; a model with a shorter context reads the end of the prompt."""
    examples = []
    for row in options.rows_of(table):
        prompt_bp = row.length_bp("sequence")
        data = {"row": row, "prompt_bp": prompt_bp, "step_bp": LEAST_PROMPT_BP}
        examples.append(Example(str(row.number + 1), "", data))
    return examples


TASK = Task(
    name="genome_recovery",
    axis="your genome",
    measures="share of the next 30 bases of held-out records that a greedy continuation gets right",
    metric="mean",
    chance=0.25,
    citation="protocol of the Carbon technical report, section 6.2, on your own genome",
    columns={"sequence": str, "label": str},
    build=build,
    examples=_examples,
    run=run,
    summarise=summarise,
)

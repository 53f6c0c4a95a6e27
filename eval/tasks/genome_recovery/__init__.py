"""Genome recovery: sequence recovery at sites of the records that a corpus held out."""

import pyarrow as pa
import pyarrow.compute as pc

from carbon.inference.held_out import LEAST_PROMPT_BP
from eval.contract import Example, Options, Task
from eval.tasks.common.recovery import run, summarise
from eval.tasks.common.tables import Row, chosen_rows, reader
from eval.tasks.genome_recovery.build import build

COLUMNS: dict[str, type] = {"sequence": str, "label": str}


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a site; a model with a shorter context reads the end of the prompt."""
    lengths_bp = pc.utf8_length(table["sequence"]).to_pylist()
    return [
        Example(
            str(number + 1),
            "",
            {
                "row": Row(table, number),
                "prompt_bp": lengths_bp[number],
                "step_bp": LEAST_PROMPT_BP,
            },
        )
        for number in chosen_rows(table.num_rows, options)
    ]


TASK = Task(
    name="genome_recovery",
    version="1",
    axis="your genome",
    measures="share of the next 30 bases of held-out records that a greedy continuation gets right",
    metric="mean",
    chance=0.25,
    citation="protocol of the Carbon technical report, section 6.2, on your own genome",
    columns=COLUMNS,
    read=reader(COLUMNS, None),
    build=build,
    examples=_examples,
    run=run,
    summarise=summarise,
)

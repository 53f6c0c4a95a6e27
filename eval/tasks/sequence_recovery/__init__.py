"""Sequence recovery: how many of the next 30 bases does a greedy continuation get right?"""

import pyarrow as pa

from carbon.errors import UserError
from carbon.tokenizer import K
from eval.contract import Example, Options, Task
from eval.tasks.common.recovery import TARGET_BP, run, summarise
from eval.tasks.sequence_recovery.build import PROMPT_BP, build


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a row; the size `prompt_bp` is of the prompt, 6,144 if not given.

    Raises:
        UserError: a label is shorter than the comparison.
    """
    most_bp = int(options.sizes.get("prompt_bp", PROMPT_BP))
    examples = []
    for row in options.rows_of(table):
        if len(row["label"]) < TARGET_BP:
            raise UserError(f"{row.where}: label has {len(row['label'])} bases, of {TARGET_BP}")
        prompt_bp = min(row.length_bp("sequence"), most_bp) // K * K
        if not prompt_bp:
            raise UserError(f"{row.where}: sequence has fewer than {K} bases")
        data = {"row": row, "prompt_bp": prompt_bp}
        group = row["type"].strip("<>")
        examples.append(Example(str(row.number + 1), group, data, prompt_bp + TARGET_BP))
    return examples


TASK = Task(
    name="sequence_recovery",
    axis="generation",
    measures="share of the next 30 bases that a greedy continuation of 6,144 gets right",
    metric="mean",
    chance=0.25,
    published={
        "Carbon-3B": 0.6154,
        "Carbon-8B": 0.6405,
        "GENERator-v2-3B": 0.5856,
        "Evo2-7B": 0.5986,
    },
    citation="Carbon technical report, tables 6 and 7 (eukaryotes)",
    columns={"sequence": str, "label": str, "type": str},
    hub_id="GenerTeam/sequence-recovery",
    hub_file="eukaryote/test.parquet",
    build=build,
    examples=_examples,
    run=run,
    summarise=summarise,
)

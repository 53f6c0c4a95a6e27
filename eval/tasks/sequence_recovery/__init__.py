"""Sequence recovery: how many of the next 30 bases does a greedy continuation get right?"""

import pyarrow as pa
import pyarrow.compute as pc

from carbon.errors import UserError
from carbon.tokenizer import K
from eval.contract import Example, Options, Task
from eval.tasks.common.recovery import TARGET_BP, run, summarise
from eval.tasks.common.tables import Row, chosen_rows, reader
from eval.tasks.sequence_recovery.build import PROMPT_BP, build

COLUMNS: dict[str, type] = {"sequence": str, "label": str, "type": str}
_HUB_FILE = "eukaryote/test.parquet"


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a row; the size `prompt_bp` is of the prompt, 6,144 if not given.

    Raises:
        UserError: a label is shorter than the comparison.
    """
    most_bp = int(options.sizes.get("prompt_bp", PROMPT_BP))
    lengths_bp = pc.utf8_length(table["sequence"])
    examples = []
    for number in chosen_rows(table.num_rows, options):
        row = Row(table, number)
        if len(row["label"]) < TARGET_BP:
            raise UserError(f"{row.where}: label has {len(row['label'])} bases, of {TARGET_BP}")
        prompt_bp = min(lengths_bp[number].as_py(), most_bp) // K * K
        if not prompt_bp:
            raise UserError(f"{row.where}: sequence has fewer than {K} bases")
        data = {"row": row, "prompt_bp": prompt_bp}
        group = row["type"].strip("<>")
        examples.append(Example(str(number + 1), group, data, prompt_bp + TARGET_BP))
    return examples


TASK = Task(
    name="sequence_recovery",
    version="1",
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
    columns=COLUMNS,
    hub_id="GenerTeam/sequence-recovery",
    hub_file=_HUB_FILE,
    read=reader(COLUMNS, _HUB_FILE),
    build=build,
    examples=_examples,
    run=run,
    summarise=summarise,
)

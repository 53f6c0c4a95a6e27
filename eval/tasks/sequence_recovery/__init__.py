"""Sequence recovery: how many of the next 30 bases does a greedy continuation get right?"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from carbon.errors import UserError
from carbon.inference.options import Mode
from carbon.parallel.driver import in_blocks
from carbon.tokenizer import K
from eval.contract import Curve, Example, Model, Options, Result, Summary, Task
from eval.summary import by_group, estimate, summary_of
from eval.tasks.sequence_recovery.build import PROMPT_BP, build
from eval.tasks.tables import Row, check_dna, chosen_rows, reader

COLUMNS: dict[str, type] = {"sequence": str, "label": str, "type": str}
_HUB_FILE = "eukaryote/test.parquet"
TARGET_BP = 30
_BLOCK = 64
_MODES: tuple[Mode, ...] = ("token", "base")


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a row; the size `prompt_bp` is of the prompt, 6,144 if not given.

    Raises:
        UserError: a label is shorter than what is compared.
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


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    for block in in_blocks(examples, _BLOCK):
        prompts = [_prompt(example) for example in block]
        texts = {mode: model.generate(prompts, TARGET_BP, mode) for mode in _MODES}
        for n, example in enumerate(block):
            row: Row = example.data["row"]
            target = check_dna(row["label"][:TARGET_BP], f"{row.where} label")
            hits = {mode: hits_of(texts[mode][n], target) for mode in _MODES}
            yield {
                "id": example.id,
                "group": example.group,
                "score": hits["token"].count("1") / TARGET_BP,
                "base_mode": hits["base"].count("1") / TARGET_BP,
                "hits": hits["token"],
                "base_hits": hits["base"],
            }


def _prompt(example: Example) -> str:
    row: Row = example.data["row"]
    sequence: str = row["sequence"]
    return check_dna(sequence[-example.data["prompt_bp"] :], f"{row.where} sequence")


def hits_of(text: str, target: str) -> str:
    """Write 1 for each base that is right and 0 for each that is not, or not there.

    >>> hits_of("ACGT", "ACCTA")
    '11010'
    """
    return "".join(str(int(text[n : n + 1] == base)) for n, base in enumerate(target))


def _summarise(results: Sequence[Result]) -> Summary:
    in_base_mode = [{**result, "score": result["base_mode"]} for result in results]
    summary = summary_of(results, "mean")
    groups = {"group": by_group(results, "group", "mean")}
    groups["group_base_mode"] = by_group(in_base_mode, "group", "mean")
    return replace(
        summary,
        others={"base_mode": estimate(in_base_mode, "mean")},
        groups=groups,
        curves={
            "recovery_by_position": _by_position(results, "hits"),
            "recovery_by_position_base_mode": _by_position(results, "base_hits"),
        },
    )


def _by_position(results: Sequence[Result], key: str) -> Curve:
    hits = np.array([[hit == "1" for hit in result[key]] for result in results])
    places = [float(place) for place in range(1, TARGET_BP + 1)]
    return Curve("base after the prompt", "recovered", places, hits.mean(axis=0).tolist())


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
    run=_run,
    summarise=_summarise,
)

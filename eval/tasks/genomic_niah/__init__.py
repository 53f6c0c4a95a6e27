"""Genomic-NIAH: is a value found again in a genome by the key that stood before it?"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from carbon.errors import UserError
from carbon.tokenizer import K
from eval.contract import Estimate, Example, Grid, Model, Options, Result, Summary, Task
from eval.metrics import by_group, by_score, estimate, grouped, summary_of
from eval.tables import Row, drawn, files_of, load, read_table
from eval.tasks.genomic_niah.build import CONTEXT_LENGTHS_TOKENS, LEVELS, build

COLUMNS: dict[str, type] = {
    "uid": str,
    "prompt": str,
    "value": str,
    "negative_sequence": str,
    "context_length_tokens": int,
}
_MOST_TRIMMED_BP = 20 * K
_DEPTH_STEP = 5  # percent
_CLUSTER = "value"  # levels share haystacks, keys and values


def _read(source: Path | str) -> pa.Table:
    """Read a file, a folder of them as the Hub has it, or the dataset of the Hub.

    Where no column `level` says so, the name of the file or of its folder has the level.
    """
    path = Path(source)
    if files := files_of(str(source)):
        parts = [_levelled(read_table(f, COLUMNS), f"{f.parent.name}/{f.name}") for f in files]
        return pa.concat_tables(parts, promote_options="default")
    if path.is_dir() or "/" not in str(source) or path.suffix:
        return read_table(source, COLUMNS)  # which reports the error
    names = [
        f"niah_{f'neardup_{level}_' if edits else ''}{tokens // 1024}k"
        for level, edits in LEVELS.items()
        for tokens in CONTEXT_LENGTHS_TOKENS
    ]
    return pa.concat_tables(
        [_levelled(load(str(source), name, name=name, split="test"), name) for name in names]
    )


def _levelled(table: pa.Table, name: str) -> pa.Table:
    kept = table.select([n for n in (*COLUMNS, "level", "kingdom") if n in table.column_names])
    if "level" in table.column_names:
        return kept
    found = re.search(r"neardup_(d\d)", name)
    level = found[1] if found else "plain"
    return kept.append_column("level", pa.array([level] * table.num_rows))


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a row; the sizes `context_length_tokens` are the lengths to take.

    A prompt loses the few 6-mers at its left that a model of just its length needs for `<dna>` and
    the value, so that such a model can be asked.

    Raises:
        UserError: no row is of the lengths that are wanted.
    """
    lengths_tokens = table["context_length_tokens"].to_pylist()
    wanted = set(options.sizes.get("context_length_tokens", lengths_tokens))
    numbers = [n for n, tokens in enumerate(lengths_tokens) if tokens in wanted]
    if not numbers:
        there = ", ".join(map(str, sorted(set(lengths_tokens))))
        raise UserError(f"no row of {', '.join(map(str, sorted(wanted)))} tokens, but of {there}")
    examples = []
    for number in drawn(len(numbers), options.max_samples, options.seed):
        row = Row(table, numbers[number])
        prompt_bp, value_bp = row.length_bp("prompt"), row.length_bp("value")
        over_bp = prompt_bp + value_bp - K * (row["context_length_tokens"] - 1)
        trimmed_bp = over_bp + -over_bp % K if 0 < over_bp <= _MOST_TRIMMED_BP else 0
        data = {"row": row, "trimmed_bp": trimmed_bp}
        needs_bp = prompt_bp - trimmed_bp + value_bp
        # Configurations may count their rows alike.
        name = f"{row.number + 1}:{row['uid']}"
        examples.append(Example(name, row["level"], data, needs_bp))
    return examples


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield what each prompt recalls, one at a time: a haystack is read once."""
    for example in examples:
        row: Row = example.data["row"]
        prompt, value = row.dna("prompt"), row.dna("value")
        wrong = row["negative_sequence"][len(prompt) :].upper()
        at = prompt.find(value)
        if at < 0 or len(wrong) != len(value):
            raise UserError(
                f"{row.where}: value must stand in prompt, and negative_sequence be prompt and as "
                "many bases as value; is the row broken?"
            )
        text, likelihoods = model.recall(
            prompt[example.data["trimmed_bp"] :], len(value), [value, wrong]
        )
        # The key stands before the value and is as long.
        depth = (at - len(value)) / len(prompt)
        yield example.result(
            score=float(text == value),
            base_accuracy=sum(a == b for a, b in zip(text, value, strict=True)) / len(value),
            likelihood_correct=float(likelihoods[0] > likelihoods[1]),
            margin_nats=float(likelihoods[0] - likelihoods[1]),
            depth_percent=round(100 * depth / _DEPTH_STEP) * _DEPTH_STEP,
            context_length_tokens=row["context_length_tokens"],
            value=value,
        )


def _summarise(results: Sequence[Result]) -> Summary:
    others = {
        name: estimate(by_score(results, name), "mean", _CLUSTER)
        for name in ("base_accuracy", "likelihood_correct")
    }
    of_level = grouped(results, "group")
    return replace(
        summary_of(results, "mean", cluster=_CLUSTER, groups=()),
        others=others,
        groups={
            "level": by_group(results, "group", "mean", _CLUSTER),
            "context": _by_length(results),
        },
        grids={
            f"depth_by_length_{level}": _grid(of_level[level])
            for level in LEVELS
            if level in of_level
        },
        notes=[
            "likelihood_correct compares the value with one that is wrong in every base: it is "
            "high where exact match is low, and no headline"
        ],
    )


def _by_length(results: Sequence[Result]) -> dict[str, Estimate]:
    shown = [{**r, "context": f"{r['context_length_tokens']:>6} tokens"} for r in results]
    found = by_group(shown, "context", "mean", _CLUSTER)
    return {name.strip(): estimate for name, estimate in found.items()}


def _grid(results: Sequence[Result]) -> Grid:
    """Return exact match by depth (rows, from the top) and context length (columns)."""
    lengths = sorted({result["context_length_tokens"] for result in results})
    depths = sorted({result["depth_percent"] for result in results})

    def share(depth: int, length: int) -> float | None:
        cell = [
            result["score"]
            for result in results
            if (result["depth_percent"], result["context_length_tokens"]) == (depth, length)
        ]
        return sum(cell) / len(cell) if cell else None

    return Grid(
        "context (kbp)",
        "depth of the key (%)",
        [f"{length * K / 1000:.4g}" for length in lengths],
        [str(depth) for depth in depths],
        [[share(depth, length) for length in lengths] for depth in depths],
    )


TASK = Task(
    name="genomic_niah",
    axis="long context",
    measures="share of 24-base values recalled whole by their key, from a genome of any length",
    metric="mean",
    chance=4.0**-24,
    published={"Carbon-3B": 0.79, "Carbon-8B": 0.86, "Evo2-7B": 0.80},
    citation="Carbon technical report, table 5: plain, 393 kbp, Carbon with YaRN",
    columns=COLUMNS,
    hub_id="HuggingFaceBio/genome-niah",
    reads=_read,
    build=build,
    examples=_examples,
    run=_run,
    summarise=_summarise,
    cluster=_CLUSTER,
)

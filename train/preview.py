"""What a run will read, before it does: rows as a person can read them, and the whole mixture."""

from pathlib import Path
from typing import Any

import numpy as np

from carbon.console import text_table
from carbon.corpus import TokenRows
from carbon.tokenizer import native_tokens
from train.config import TrainConfig

_SHOWN_BP = 12


def print_rows(rows: TokenRows, config: TrainConfig, first: int, count: int) -> None:
    """Print samples `first` to `first + count` of the run, a line each.

    A row is told by its first piece: where the record lies, the strand and frame it is read in, its
    tags, and its first and last bases as the model reads them.
    """
    header = (
        *("row", "stage", "source", "pieces", "record", "place"),
        *("strand", "frame", "tags", "bases"),
    )
    table: list[tuple[str, ...]] = [header]
    names = list(native_tokens())
    for i in range(first, min(first + count, len(rows))):
        sample = rows.order[i]
        reading, pieces = rows.reading(sample), rows.pieces(sample)
        piece = pieces[0]
        told = rows.sources[sample.source].store.describe(piece.record)
        tags = " ".join(names[token] for token in piece.prefix[:-1])
        letters = piece.letters.tobytes().decode()
        if len(letters) > 2 * _SHOWN_BP:
            letters = f"{letters[:_SHOWN_BP]}...{letters[-_SHOWN_BP:]}"
        line = (
            f"{i:,}",
            config.stages[sample.stage].name,
            sample.source,
            str(len(pieces)),
            str(told.get("name") or piece.record),
            _place(told),
            _strand(told, reading.reverse),
            str(reading.frame),
            tags or "-",
            letters or "-",
        )
        table.append(line)
    print(text_table(table))


def _place(told: dict[str, Any]) -> str:
    if not told.get("record_id"):
        return "-"
    return f"{told['record_id']}:{told['start'] + 1}-{told['end']}"


def _strand(told: dict[str, Any], reverse: bool) -> str:
    """Return the strand that is read: that of the record, or the one across."""
    own = told.get("strand") or "+"
    return own if not reverse else {"+": "-", "-": "+"}.get(own, own)


def mixture_of(rows: TokenRows, config: TrainConfig) -> list[dict[str, Any]]:
    """Return what each stage draws of each source: rows, tokens, share, and epochs so far."""
    result = []
    for stage, counts in enumerate(np.diff(rows.order.counts_before, axis=0)):
        after = rows.order.counts_before[stage + 1]
        for place, name in enumerate(rows.order.names):
            if counts[place]:
                size = rows.sources[name].packing.num_rows
                drawn = int(counts[place])
                line = {
                    "stage": config.stages[stage].name,
                    "source": name,
                    "rows": drawn,
                    "tokens": drawn * config.data.context_tokens,
                    "share": drawn / int(counts.sum()),
                    "epochs": int(after[place]) / size,
                }
                result.append(line)
    return result


def print_mixture(mixture: list[dict[str, Any]]) -> None:
    """Print what `mixture_of` gives; epochs are those since the run began."""
    rows = [
        (
            line["stage"],
            line["source"],
            f"{line['rows']:,}",
            f"{line['tokens']:,}",
            f"{100 * line['share']:.2f} %",
            f"{line['epochs']:.2f}",
        )
        for line in mixture
    ]
    print(text_table([("stage", "source", "rows", "tokens", "share", "epochs by its end"), *rows]))


def draw_mixture(mixture: list[dict[str, Any]], path: str | Path) -> None:
    """Draw tokens of each source by stage, and how often each source has been read by then."""
    from matplotlib.figure import Figure

    stages = list(dict.fromkeys(line["stage"] for line in mixture))
    sources = list(dict.fromkeys(line["source"] for line in mixture))
    of = {(line["stage"], line["source"]): line for line in mixture}
    figure = Figure(figsize=(9, 0.5 * len(stages) + 2.2), layout="constrained")
    tokens, epochs = figure.subplots(1, 2, sharey=True)
    left = np.zeros(len(stages))
    for i, source in enumerate(sources):
        color = _COLORS[i % len(_COLORS)]
        drawn = [of.get((stage, source), {}).get("tokens", 0) for stage in stages]
        tokens.barh(stages, drawn, left=left, color=color, label=source)
        left += drawn
        read = [of.get((stage, source), {}).get("epochs", np.nan) for stage in stages]
        epochs.plot(read, stages, "o", color=color)
    tokens.set_xlabel("tokens drawn")
    tokens.invert_yaxis()
    epochs.set_xlabel("times each source has been read by the end of the stage")
    epochs.set_xlim(left=0)
    figure.legend(*tokens.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(path)


# Okabe and Ito's colours, told apart by the colour-blind.
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

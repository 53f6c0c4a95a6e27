"""A preview of a run's data: rows in readable form, and the whole mixture."""

from pathlib import Path
from typing import Any

import numpy as np

from carbon.corpus import TokenRows
from carbon.progress import text_table
from carbon.reports.figures import COLOURS, save_picture
from carbon.tokenizer import native_tokens
from train.schedule import Schedule

_SHOWN_BP = 12


def print_rows(rows: TokenRows, schedule: Schedule, first: int, count: int) -> None:
    """Print samples `first` to `first + count` of the run, a line each.

    A row is described by its first segment: where the record lies, the strand and offset it is read
    in, its tags, and its first and last bases as the model reads them.
    """
    header = (
        *("row", "phase", "tokens", "source", "segments", "record", "place"),
        *("strand", "offset", "tags", "bases"),
    )
    table: list[tuple[str, ...]] = [header]
    names = list(native_tokens())
    for i in range(first, min(first + count, len(rows))):
        sample = rows.order[i]
        reading, pieces = rows.reading(sample), rows.segments(sample)
        piece = pieces[0]
        description = rows.sources[sample.source].store.describe(piece.record)
        tags = " ".join(names[token] for token in piece.prefix[:-1])
        letters = piece.letters.tobytes().decode("ascii", "replace")
        if len(letters) > 2 * _SHOWN_BP:
            letters = f"{letters[:_SHOWN_BP]}...{letters[-_SHOWN_BP:]}"
        line = (
            f"{i:,}",
            schedule.spans[sample.span].phase.name,
            str(sample.row_tokens),
            sample.source,
            str(len(pieces)),
            str(description.get("name") or piece.record),
            _place(description),
            _strand(description, reading.reverse),
            str(reading.offset),
            tags or "-",
            letters or "-",
        )
        table.append(line)
    print(text_table(table))


def _place(description: dict[str, Any]) -> str:
    if not description.get("record_id") or not isinstance(description.get("start"), int):
        return "-"
    return f"{description['record_id']}:{description['start'] + 1}-{description['end']}"


def _strand(description: dict[str, Any], reverse: bool) -> str:
    """Return the strand that is read: the record's, or the opposite one."""
    own = (description.get("strand") or "+").strip("<>")  # the released corpus writes `<+>`
    return own if not reverse else {"+": "-", "-": "+"}.get(own, own)


def mixture_of(rows: TokenRows, schedule: Schedule) -> list[dict[str, Any]]:
    """Return what each span draws of each source of its mixture, also where that is nothing.

    A span is a phase, or a part of one that has rows of another length. Tokens count bare
    samples, without padding, in the mean; epochs count how often the source's rows of that length
    have been read since the run began.
    """
    order, result = rows.order, []
    for number, counts in enumerate(np.diff(order.counts_before, axis=0)):
        after, span = order.counts_before[number + 1], schedule.spans[number]
        for name, share in span.phase.mixture.items():
            place = order.streams.index((name, span.context_tokens))
            packing = rows.sources[name].packings[span.context_tokens]
            filled = packing.num_tokens / packing.num_rows
            line = {
                "span": number,
                "phase": span.phase.name,
                "context_tokens": span.context_tokens,
                "source": name,
                "rows": int(counts[place]),
                "share": int(counts[place]) / int(counts.sum()),
                "wanted": share,
                "tokens": round(int(counts[place]) * filled),
                "padding": 1 - filled / span.context_tokens,
                "epochs": int(after[place]) / packing.num_rows,
            }
            result.append(line)
    return result


def print_mixture(mixture: list[dict[str, Any]]) -> None:
    """Print what `mixture_of` gives."""
    header = (
        *("phase", "context", "source", "rows", "share of rows", "of mixture"),
        *("tokens", "padding", "epochs by its end"),
    )
    rows = [
        (
            line["phase"],
            f"{line['context_tokens']:,}",
            line["source"],
            f"{line['rows']:,}",
            f"{100 * line['share']:.2f} %",
            f"{100 * line['wanted']:.2f} %",
            f"{line['tokens']:,}",
            f"{100 * line['padding']:.1f} %",
            f"{line['epochs']:.2f}",
        )
        for line in mixture
    ]
    print(text_table([header, *rows]))


def draw_mixture(mixture: list[dict[str, Any]], path: Path) -> None:
    """Draw tokens of each source by span, and how often each source has been read by then."""
    from matplotlib.figure import Figure

    of = {(m["span"], m["source"]): m for m in mixture}
    spans = {m["span"]: f"{m['phase']}\n{m['context_tokens']:,} tokens" for m in mixture}
    sources = list(dict.fromkeys(m["source"] for m in mixture))
    figure = Figure(figsize=(9, 0.5 * len(spans) + 2.2), layout="constrained")
    tokens, epochs = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(spans))
    left = np.zeros(len(spans))
    for i, source in enumerate(sources):
        color = COLOURS[i % len(COLOURS)]
        drawn = [of.get((span, source), {}).get("tokens", 0) for span in spans]
        tokens.barh(places, drawn, left=left, color=color, label=source)
        left += drawn
        read = [of.get((span, source), {}).get("epochs", np.nan) for span in spans]
        epochs.plot(read, places, "o", color=color)
    tokens.set_yticks(places, list(spans.values()))
    tokens.set_xlabel("tokens drawn")
    tokens.invert_yaxis()
    epochs.set_xlabel("times each source has been read by then")
    epochs.set_xlim(left=0)
    figure.legend(*tokens.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    save_picture(figure, path)

"""What stands in a file for a label, read as numbers: a table by kind of question."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from carbon.adapt.config import QuestionConfig
from carbon.adapt.data import Rows
from carbon.adapt.examples import Labels
from carbon.errors import UserError

_YES_AND_NO = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0}
_SHOWN = 8


class Answers(NamedTuple):
    """The labels of rows.

    Attributes:
        names: of the classes, labels or numbers.
        labels: (rows, columns) as `Examples` has them.
    """

    names: tuple[str, ...]
    labels: Labels


def answers_of(rows: Rows, config: QuestionConfig, unknown: Collection[str]) -> Answers:
    """Return the labels of rows as numbers.

    Args:
        rows: as read.
        config: what is asked.
        unknown: what stands for a label that is not known.

    Raises:
        UserError: a label is no number or no class that is named, a row has none, or the classes
            are too few or too many.
    """
    found = READERS[config.kind](rows, config, unknown)
    if config.kind != "bases" and (bare := np.isnan(found.labels).all(axis=1)).any():
        row = int(np.argmax(bare))
        raise UserError(
            f"{rows.where(row)}: has no known label ({int(bare.sum())} rows have none); take them "
            "out, or give them one"
        )
    return found


def text_of(value: Any) -> str:
    """Write what stands in a cell: 1.0 as 1, true in small letters, nothing of None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _one_column(rows: Rows, config: QuestionConfig) -> Sequence[Any]:
    if len(rows.labels) != 1:
        raise UserError(
            f"data.labels = {list(rows.labels)}: a question of kind = '{config.kind}' has one "
            "column; name one, or ask for kind = 'labels'"
        )
    return next(iter(rows.labels.values()))


def _of_classes(rows: Rows, config: QuestionConfig, unknown: Collection[str]) -> Answers:
    texts = [text_of(value) for value in _one_column(rows, config)]
    names = _names(texts, config, unknown, rows.where)
    return Answers(names, _indices(texts, names, unknown, rows.where)[:, None])


def _of_bases(rows: Rows, config: QuestionConfig, unknown: Collection[str]) -> Answers:
    """Read a class of every base: a list, words with blanks or commas between, or letters."""
    each = [_listed(value) for value in _one_column(rows, config)]
    for row, (labels, sequence) in enumerate(zip(each, rows.sequences, strict=True)):
        if len(labels) != len(sequence):
            raise UserError(
                f"{rows.where(row)}: has {len(labels)} labels and {len(sequence)} bases; give one "
                "for every base"
            )
    ends = np.cumsum([len(labels) for labels in each])

    def where(base: int) -> str:
        return rows.where(int(np.searchsorted(ends, base, side="right")))

    texts = [text for labels in each for text in labels]
    names = _names(texts, config, unknown, where)
    return Answers(names, _indices(texts, names, unknown, where)[:, None])


def _listed(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [text_of(each) for each in value]
    text = text_of(value)
    words = text.replace(",", " ").split()
    return words if len(words) > 1 else list(text)


def _names(
    texts: Sequence[str], config: QuestionConfig, unknown: Collection[str], where: Any
) -> tuple[str, ...]:
    """Return the names of the classes: those that are asked for, or those that there are."""
    found = Counter(texts)
    for text in unknown:
        found.pop(text, None)
    names = config.names or tuple(sorted(found, key=_numbers_first))
    shown = ", ".join(map(repr, names[:_SHOWN])) + (" ..." if len(names) > _SHOWN else "")
    if len(names) < 2:
        raise UserError(f"data.labels: of one class only ({shown}); two are needed to tell apart")
    if config.kind == "binary" and len(names) > 2:
        raise UserError(
            f"data.labels: has {len(names)} classes ({shown}), and question.kind = 'binary' two; "
            "ask for kind = 'classes' or 'numbers'"
        )
    for name in names:
        if found[name] < 2:
            kept = f"class '{name}' has {found[name]} example{'s' * (found[name] != 1)}"
            place = f" ({where(texts.index(name))})" if found[name] else ""
            raise UserError(f"data.labels: {kept}{place}; give two or more, or leave it out")
    return names


def _numbers_first(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


def _indices(
    texts: Sequence[str], names: Sequence[str], unknown: Collection[str], where: Any
) -> Labels:
    index = {text: float("nan") for text in unknown} | {n: float(i) for i, n in enumerate(names)}
    try:
        return np.array([index[text] for text in texts], dtype=np.float32)
    except KeyError as error:
        row = texts.index(error.args[0])
        raise UserError(
            f"{where(row)}: label '{error.args[0]}' is none of question.names; add it or mend it"
        ) from None


def _by_columns(read: Callable[[str], float], wanted: str) -> "Reader":
    """Return what reads a number of each column."""

    def of(rows: Rows, config: QuestionConfig, unknown: Collection[str]) -> Answers:
        names = config.names or tuple(rows.labels)
        if len(names) != len(rows.labels):
            raise UserError(
                f"question.names: {len(names)} for {len(rows.labels)} columns of data.labels; give "
                "one each, or none"
            )
        columns = []
        for name, values in rows.labels.items():
            texts = [text_of(value) for value in values]
            column = np.full(len(texts), np.nan, dtype=np.float32)
            for row, text in enumerate(texts):
                if text in unknown:
                    continue
                try:
                    column[row] = read(text)
                except (KeyError, ValueError):
                    raise UserError(
                        f"{rows.where(row)}: '{text[:40]}' in column '{name}' is not {wanted}; "
                        "mend it, or name it in data.unknown"
                    ) from None
            columns.append(column)
        return Answers(names, np.stack(columns, axis=1))

    return of


def _number(text: str) -> float:
    value = float(text)
    if not abs(value) < np.finfo(np.float32).max:
        raise ValueError(text)
    return value


Reader = Callable[[Rows, QuestionConfig, Collection[str]], Answers]

READERS: dict[str, Reader] = {
    "binary": _of_classes,
    "classes": _of_classes,
    "labels": _by_columns(lambda text: _YES_AND_NO[text.lower()], "0 or 1"),
    "numbers": _by_columns(_number, "a number"),
    "bases": _of_bases,
}
"""Of each of `QUESTIONS`."""

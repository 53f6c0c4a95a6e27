"""Sequences and what is known of them, as a value."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.config import QuestionConfig
from carbon.finetune.tables import Rows

PARTS = ("train", "validation", "test")
"""What examples are for: to learn from, to choose by, to measure on once."""

LEAST_GROUPS = 10
"""Of fewer, an interval over groups would be that of which few there are."""

Labels = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Examples:
    """Sequences and what is known of them.

    Attributes:
        names: (examples,) unique.
        sequences: (examples,) letters of IUPAC in upper case, one at least.
        labels: (rows, columns) in the unit of the file, NaN where unknown. A row is an example; of
            `per_base` labels it is a base, all bases of all examples one after another. Columns:
            one, 0 or 1 for two classes, an index for more; or one a label or number.
        parts: (examples,) names of `PARTS`.
        groups: (examples,) contig or group of each, "" if none; drawn together in intervals.
        per_base: every base has a label.
    """

    names: tuple[str, ...]
    sequences: tuple[str, ...]
    labels: Labels
    parts: tuple[str, ...]
    groups: tuple[str, ...]
    per_base: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError unless the columns are of one length."""
        num_rows = int(self.starts[-1])
        lengths = {len(self.names), len(self.sequences), len(self.parts), len(self.groups)}
        if len(lengths) != 1 or self.labels.ndim != 2 or len(self.labels) != num_rows:
            raise ValueError(f"{lengths} examples, {self.labels.shape} labels, {num_rows} rows")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each example, and behind them the number of all rows."""
        sizes = map(len, self.sequences) if self.per_base else (1 for _ in self.sequences)
        return np.cumsum([0, *sizes], dtype=np.int64)

    def rows_of(self, example: int) -> slice:
        """Return which rows of `labels` are of an example."""
        return slice(int(self.starts[example]), int(self.starts[example + 1]))

    @property
    def row_groups(self) -> tuple[str, ...]:
        """Return what rows are drawn together in an interval: their group, else their example.

        A handful of groups, such as two chromosomes of a test part, cannot be drawn from; then, as
        without groups, examples are drawn, and all bases of one together.
        """
        of = self.groups if len(set(self.groups)) >= LEAST_GROUPS else self.names
        return tuple(np.repeat(np.asarray(of, dtype=object), np.diff(self.starts)).tolist())

    def taken(self, which: Iterable[int]) -> "Examples":
        """Return some of the examples, in the order given."""
        which = [int(i) for i in which]
        rows = [np.arange(self.starts[i], self.starts[i + 1]) for i in which]
        return Examples(
            names=tuple(self.names[i] for i in which),
            sequences=tuple(self.sequences[i] for i in which),
            labels=self.labels[np.concatenate([np.zeros(0, dtype=np.int64), *rows])],
            parts=tuple(self.parts[i] for i in which),
            groups=tuple(self.groups[i] for i in which),
            per_base=self.per_base,
        )

    def part(self, name: str) -> "Examples":
        """Return the examples of a part, in their order.

        Raises:
            UserError: there is no part of that name.
        """
        if name not in PARTS:
            raise UserError(f"part '{name}': give one of {', '.join(PARTS)}")
        return self.taken(i for i, part in enumerate(self.parts) if part == name)


Floats = NDArray[np.float64]


class Form(NamedTuple):
    """A kind of transform.

    Attributes:
        forward: from a label to what is learned, before it is standardised.
        inverse: back.
        above: labels must be above this.
        standardised: to mean 0 and standard deviation 1 of what is learned from.
    """

    forward: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]
    above: float
    standardised: bool


def _same(values: Floats) -> Floats:
    return values


TRANSFORMS: dict[str, Form] = {
    "z_score": Form(_same, _same, -np.inf, standardised=True),
    "none": Form(_same, _same, -np.inf, standardised=False),
    "log1p": Form(np.log1p, np.expm1, -1.0, standardised=False),
    "log1p_z_score": Form(np.log1p, np.expm1, -1.0, standardised=True),
    "asinh_z_score": Form(np.arcsinh, np.sinh, -np.inf, standardised=True),
}


@dataclass(frozen=True)
class Transform:
    """A fitted transform of one number.

    Attributes:
        name: key of `TRANSFORMS`.
        mean: that is taken off, after `forward`.
        sd: that is divided by then.
    """

    name: str = "none"
    mean: float = 0.0
    sd: float = 1.0

    @classmethod
    def fitted(cls, name: str, labels: NDArray[Any], what: str) -> Self:
        """Fit to labels, (rows,), of which NaN are passed over; SD is that of the population.

        Raises:
            UserError: a label is outside of what the transform takes, or all are equal.
        """
        form = TRANSFORMS[name]
        known = np.asarray(labels, dtype=np.float64)
        known = known[~np.isnan(known)]
        if not len(known):
            raise UserError(f"{what}: no known number to learn from; give some")
        if known.min() <= form.above:
            raise UserError(
                f"{what}: {known.min():g} has no {name}, which takes numbers above {form.above:g}; "
                "choose another question.transform"
            )
        if not form.standardised:
            return cls(name)
        values = form.forward(known)
        if not values.std() > 0:
            raise UserError(f"{what}: all {len(known)} numbers to learn from are {known[0]:g}")
        return cls(name, float(values.mean()), float(values.std()))

    def apply(self, labels: NDArray[Any]) -> Floats:
        """Return what is learned of labels; NaN stay."""
        form = TRANSFORMS[self.name]
        # What is not learned from may lie outside of what the transform takes: unknown, then.
        with np.errstate(invalid="ignore", divide="ignore"):
            values = form.forward(np.asarray(labels, dtype=np.float64))
        return (np.where(np.isfinite(values), values, np.nan) - self.mean) / self.sd

    def undo(self, values: NDArray[Any]) -> Floats:
        """Return numbers in the unit of the labels."""
        return TRANSFORMS[self.name].inverse(np.asarray(values, np.float64) * self.sd + self.mean)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote."""
        return cls(**found)


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
